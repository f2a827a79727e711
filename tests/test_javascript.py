"""The page's JavaScript: chapters of one scope, two linters, and Firefox."""

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

HOME = Path(__file__).parent / "javascript"
ASSETS = Path(hshap.export.page.__file__).parent / "assets"
TOOLS = HOME / "node_modules"


def run(*words, timeout=900):
    if shutil.which("node") is None:
        pytest.skip("node is not installed; install Debian's packages nodejs and npm")
    if not TOOLS.is_dir():
        pytest.skip("the tools for JavaScript are not installed; scripts/setup dev does, with npm")
    return subprocess.run(  # noqa: S603
        words, cwd=HOME, capture_output=True, text=True, check=False, timeout=timeout
    )


def test_chapters_fit_into_one_scope():
    """Every chapter of the script is in the page, as it is, and no two share a name."""
    image, explanation = explained(3, hshap.Dyadic(8), hshap.DepthFirst())
    code = hshap.export.page.page([View("x.png", image, {"one": explanation})])
    texts = [path.read_text("utf-8") for path in ASSETS.glob("*.js")]
    assert all(text in code for text in texts)
    named = r"(?m)^(?:async )?(?:const|let|function|class) (\w+)"
    counted = Counter(name for text in texts for name in re.findall(named, text))
    assert [name for name, times in counted.items() if times > 1] == []


@pytest.mark.browser
@pytest.mark.parametrize("task", ["lint", "types"])
def test_javascript_passes_its_checks(task):
    done = run("npm", "run", "--silent", task)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.browser
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
        ("coarser", explanation.at(tolerance=0.1)),
    ):
        shown = {
            frozenset(p for a, b in leaf["runs"] for p in range(a, b)): leaf["coefficient"]
            for leaf in seen[key]
        }
        assert shown == expected_leaves(read)
    assert seen["hidden"]
    assert seen["address"] == "#image=x.png&finding=2"
    assert (seen["greys"], seen["verdicts"][1], seen["cards"]) == (255, "accepted", 3)
    assert seen["fromFolder"] == len(explanation.boxes())
