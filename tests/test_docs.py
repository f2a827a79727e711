"""The documentation is right: examples run, links lead somewhere, the site builds."""

from __future__ import annotations

import ast
import doctest
import inspect
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote

import pytest

import hshap

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    if "_build" not in page.parts
)
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
IMAGE_TAG = re.compile(r"<(?:img|a)\s[^>]*?(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


@pytest.mark.parametrize("page", ["which-partition.md"])
def test_the_examples_of_a_page_run(page):
    pytest.importorskip("torch")
    failures, tried = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=FLAGS)
    assert tried > 5
    assert not failures


RECIPE = re.compile(r"`([^`\n]+)`")
MEANT = {
    "hshap": hshap,
    "explainer": hshap.Explainer,
    "explanation": hshap.Explanation,
    "spin": hshap.Spin,
}


def wrong_names(line):
    """Yield the names and options in a line of code that hshap does not have."""
    for node in ast.walk(ast.parse(line)):
        if isinstance(node, ast.Attribute):
            owner = _meant(node.value)
            if owner is not None and not hasattr(owner, node.attr):
                yield f"{ast.unparse(node)}: there is no {node.attr}"
        if isinstance(node, ast.Call):
            called = _meant(node.func)
            known = set() if called is None else set(inspect.signature(called).parameters)
            yield from (
                f"{ast.unparse(node.func)} has no option {option.arg}"
                for option in node.keywords
                if called is not None and option.arg not in known
            )


def _meant(node):
    """Return the object that a dotted name stands for; None if it is not one of ours."""
    if isinstance(node, ast.Name):
        return MEANT.get(node.id)
    owner = _meant(node.value) if isinstance(node, ast.Attribute) else None
    found = None if owner is None else getattr(owner, node.attr, None)
    # `explanation.plot` is an object, whose class its getter names.
    return hshap.explanation.plotting.Plotting if isinstance(found, property) else found


def test_the_lines_of_the_cheat_sheet_use_names_and_options_that_exist():
    cheats = RECIPE.findall((DOCS / "how-to" / "recipes.md").read_text(encoding="utf-8"))
    lines = [line for line in cheats if re.search(r"\b(hshap|expla\w+|spin)\.", line)]
    assert len(lines) > 30
    assert not [wrong for line in lines for wrong in wrong_names(line)]


@pytest.mark.parametrize(
    "line",
    [
        "hshap.Dyadics(8)",
        "partition=hshap.Dyadic(size=8)",
        "explanation.heat()",
        "explanation.plot.leaves()",
        "hshap.export.coco(explanations={}, name=1)",
    ],
)
def test_a_wrong_line_of_the_cheat_sheet_is_seen(line):
    assert list(wrong_names(line))


def prose(text):
    """Return a page without its code, in which brackets mean something else."""
    return CODE.sub("", FENCE.sub("", text))


def links(text):
    return [*LINK.findall(prose(text)), *IMAGE_TAG.findall(prose(text))]


def anchors(page):
    """Return the names of a page's headings, as GitHub and the site make them."""
    found = set()
    for heading in HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower())
        name, number = words.strip().replace(" ", "-"), 1
        while name in found:
            name, number = f"{name.removesuffix(f'-{number - 1}')}-{number}", number + 1
        found.add(name)
    return found


def broken(page, root=ROOT):
    """Yield the links of a page that lead nowhere; those to other machines are not tried."""
    for link in links(page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, heading = unquote(link).partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists():
            yield f"{link}: there is no {file}"
        elif not target.is_relative_to(root):
            yield f"{link}: leads out of the repository"
        elif heading and heading not in anchors(target):
            yield f"{link}: {target.name} has no heading #{heading}"


def test_the_pages_are_found():
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "benchmarks/README.md", "docs/theory.md"} <= names
    assert sum(len(links(page.read_text(encoding="utf-8"))) for page in PAGES) > 40


def test_a_broken_link_is_seen(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A head, *here*\n[good](#a-head-here) ![bad](gone.png) [bad](page.md#nowhere)\n"
        "`[no](link.md)` [far](https://example.org) [![bad](also-gone.png)](page.md)\n"
        '```\n[no](link.md)\n```\n<img src="neither.png">\n',
        encoding="utf-8",
    )
    found = [line.partition(":")[0] for line in broken(page, tmp_path)]
    assert found == ["gone.png", "page.md#nowhere", "also-gone.png", "neither.png"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    assert not list(broken(page))


def build(folder):
    """Build the site, examples and all; return why it failed, or "". A warning is an error."""
    command = [sys.executable, "-m", "sphinx", "--nitpicky", "--fail-on-warning", "--keep-going"]
    built = subprocess.run(  # noqa: S603
        [*command, "--quiet", "-d", str(folder / "tree"), str(DOCS), str(folder / "html")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    return built.stdout + built.stderr + "failed" if built.returncode else ""


def once(folder, work, seconds=1800):
    """Return the text that `work` returns. Of several processes, the first one calls it."""
    outcome = folder / "outcome"
    try:
        folder.mkdir()
    except FileExistsError:
        end = time.monotonic() + seconds
        while not outcome.exists():
            assert time.monotonic() < end, f"another process has not finished {folder}"
            time.sleep(0.1)
        return outcome.read_text(encoding="utf-8")
    written = folder / "outcome.part"
    written.write_text(work(folder), encoding="utf-8")
    written.rename(outcome)
    return outcome.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site once, also if several processes run tests of it."""
    for module in ("sphinx", "furo", "myst_nb", "torch", "matplotlib", "higra", "onnxruntime"):
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed: pip install 'hshap[docs]'")
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    problem = once(shared / "site", build)
    assert not problem, problem
    return shared / "site" / "html"


def test_of_several_processes_one_builds_and_all_see_the_outcome(tmp_path):
    called, entered, goes_on = [], threading.Event(), threading.Event()

    def work(folder):
        called.append(folder)
        entered.set()
        assert goes_on.wait(60)
        return "a warning"

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(once, tmp_path / "site", work)
        assert entered.wait(60)
        others = [pool.submit(once, tmp_path / "site", work) for _ in range(2)]
        goes_on.set()
        assert {future.result() for future in (first, *others)} == {"a warning"}
    assert called == [tmp_path / "site"]


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site):
    assert (site / "index.html").exists()
    for page in ("tutorial", "how-it-works", "when-not-to-use", "how-to/onnx", "reference/metrics"):
        assert (site / f"{page}.html").stat().st_size > 5000


@pytest.mark.slow
def test_words_lead_to_the_glossary(site):
    glossary = (site / "glossary.html").read_text(encoding="utf-8")
    asked = re.findall(
        r'href="glossary\.html#(term-[\w-]+)"', (site / "how-it-works.html").read_text("utf-8")
    )
    assert len(asked) > 10
    assert all(f'id="{term}"' in glossary for term in asked)


@pytest.mark.slow
def test_the_examples_of_the_site_have_run(site):
    tutorial = (site / "tutorial.html").read_text(encoding="utf-8")
    assert tutorial.count('class="output') > 8
    assert "Traceback" not in tutorial
    assert len(list((site / "_images").glob("*.png"))) > 8


@pytest.mark.slow
def test_the_site_needs_no_network(site):
    """Behind a firewall it looks the same: no script, style, font or picture from elsewhere."""
    fetched = re.compile(
        r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"(?:https?:)?//[^\"]+\""
    )
    for page in site.rglob("*.html"):
        assert not fetched.findall(page.read_text(encoding="utf-8")), page
    for style in (site / "_static").rglob("*.css"):
        assert "url(http" not in style.read_text(encoding="utf-8"), style


HOW_TO = sorted(page for page in (DOCS / "how-to").glob("*.md") if page.name != "index.md")
GUIDES = [*HOW_TO, DOCS / "faq.md", DOCS / "troubleshooting.md"]
MOST_WORDS = 1000
"""Words of prose that take five minutes, at 200 words a minute."""


def body(page):
    """Return a page without its front matter and its title."""
    text = re.sub(r"\A---\n.*?\n---\n", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return text.strip().partition("\n")[2].strip()


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_starts_with_the_gain_and_takes_five_minutes(page):
    text = body(page)
    assert text.startswith("**You get** "), f"{page.name} starts with {text[:60]!r}"
    prose = [line for line in FENCE.sub("", text).splitlines() if not line.startswith("|")]
    assert len(" ".join(prose).split()) <= MOST_WORDS


def test_every_guide_is_listed():
    listed = (DOCS / "how-to" / "index.md").read_text(encoding="utf-8").split()
    assert not [page.stem for page in HOW_TO if page.stem not in listed]


@pytest.mark.slow
def test_the_answers_to_errors_are_the_messages_of_the_library(site):
    """The page runs each mistake, and fails the build if there is no error."""
    page = re.sub(r"<[^>]+>", "", (site / "faq.html").read_text(encoding="utf-8"))
    for error in ("ArgumentError", "UnknownOptionError", "ModelError", "ModelFailedError"):
        assert f"{error}: " in page
    assert page.count("Error: ") >= 15
    assert "did you mean min_size?" in page.replace("&#39;", "'")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "page"), [("troubleshooting", "troubleshooting"), ("spacing", "signals-and-volumes")]
)
def test_the_search_works_without_a_server(site, browser, word, page):
    """From a file, as from a site: typing a word finds pages."""
    tab, complaints = browser.new_page(), []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto((site / "index.html").as_uri())
    tab.locator("input[name=q]").first.fill(word)
    tab.keyboard.press("Enter")
    tab.wait_for_function(
        "document.querySelector('.search-summary')?.textContent.includes('finished')",
        timeout=120_000,
    )
    found = tab.locator("#search-results ul.search li > a").evaluate_all(
        "all => all.map((a) => a.href)"
    )
    tab.close()
    assert any(page in link for link in found), found
    assert all(link.startswith("file:") for link in found)
    assert not complaints
