"""The page's JavaScript: checked by eslint and tsc, of one scope, and the same in Firefox."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from browsers import expected_leaves, explained

import hshap
from hshap.export.page import View, write_page
from hshap.export.page.document import SCRIPTS

HOME = Path(__file__).parent / "javascript"
ASSETS = Path(hshap.__file__).parent / "export" / "page" / "assets"
TOOLS = HOME / "node_modules"
IMPORTS = re.compile(r'^import \{([^}]*)\} from "\./([^"]*)";', re.MULTILINE)


def run(*words, timeout=900):
    if shutil.which("node") is None:
        pytest.skip("node is not installed; install Debian's packages nodejs and npm")
    if not TOOLS.is_dir():
        pytest.skip("the tools for JavaScript are not installed; scripts/setup dev does, with npm")
    return subprocess.run(  # noqa: S603
        words, cwd=HOME, capture_output=True, text=True, check=False, timeout=timeout
    )


@pytest.mark.parametrize("task", ["lint", "types"])
def test_javascript_passes_its_checks(task):
    done = run("npm", "run", "--silent", task)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_is_in_the_page_once():
    assert sorted(SCRIPTS) == sorted(path.name for path in ASSETS.glob("*.js"))


def test_no_two_modules_share_a_name():
    names = Counter(
        name
        for script in SCRIPTS
        for name in re.findall(
            r"^(?:export )?(?:async )?(?:const|let|function|class) (\w+)",
            (ASSETS / script).read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_a_module_uses_when_it_starts_only_modules_before_it():
    # Functions may call each other in a circle; lines at the top of a module run in order.
    place = {script: number for number, script in enumerate(SCRIPTS)}
    for script in SCRIPTS:
        text = (ASSETS / script).read_text(encoding="utf-8")
        imported = {
            name.strip(): source
            for names, source in re.findall(
                r'^import \{([^}]*)\} from "\./([^"]*)";', text, re.MULTILINE
            )
            for name in names.split(",")
        }
        for line in re.findall(r"^(?:export )?(?:const|let) \w+ = (.*)$", text, re.MULTILINE):
            if "=>" in line:
                continue
            for name in re.findall(r"\b(\w+)\(", line):
                if name in imported:
                    assert place[imported[name]] < place[script], (script, line)


def test_firefox_shows_the_same(tmp_path):
    firefox = shutil.which("firefox-esr") or shutil.which("firefox")
    if firefox is None:
        pytest.skip("no Firefox: install firefox-esr, for example Debian's package")
    image, explanation = explained(3, hshap.Dyadic(2), hshap.DepthFirst())
    view = View("x.png", image, {"one": explanation})
    single = write_page(tmp_path / "single.html", [view])
    folder = write_page(tmp_path / "many.html", [view, view, view], form="folder")
    done = run("node", "firefox.js", firefox, single.as_uri(), folder.as_uri())
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["complaints"] == []
    assert [
        (tuple(one["start"]), tuple(one["stop"]), one["score"]) for one in seen["findings"]
    ] == [tuple(box) for box in explanation.boxes()]
    for key, read in (
        ("leaves", explanation),
        ("coarser", explanation.at(tolerance=0.1, min_size=4)),
    ):
        shown = {
            frozenset(p for a, b in leaf["runs"] for p in range(a, b)): leaf["coefficient"]
            for leaf in seen[key]
        }
        assert shown == expected_leaves(read)
    assert seen["hidden"]
    assert seen["address"] == "#image=x.png&finding=1"
    assert seen["greys"] == 255
    assert seen["verdicts"][0] == "accepted"
    assert seen["cards"] == 3
    assert seen["fromFolder"] == len(explanation.boxes())
