"""The documentation is right: links lead somewhere, names exist, examples run, the site builds."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import os
import re
import subprocess
import sys
from functools import cached_property
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import pytest

import hshap

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    if "_build" not in page.parts
)
FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1\s*$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
IMAGE_TAG = re.compile(r"<(?:img|a)\s[^>]*?(?:src|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


def links(text):
    """Return the links of a page outside of code, where brackets mean something else."""
    prose = CODE.sub("", FENCE.sub("", text))
    return [*LINK.findall(prose), *IMAGE_TAG.findall(prose)]


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
            yield f"{page.name}: {link}: there is no {file}"
        elif not target.is_relative_to(root):
            yield f"{page.name}: {link} leads out of the repository"
        elif heading and heading not in anchors(target):
            yield f"{page.name}: {link}: {target.name} has no heading #{heading}"


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A head, *here*\n[good](#a-head-here) ![bad](gone.png) [bad](page.md#nowhere)\n"
        "`[no](link.md)` [far](https://example.org) [![bad](also-gone.png)](page.md)\n"
        '```\n[no](link.md)\n```\n<img src="neither.png">\n',
        encoding="utf-8",
    )
    found = [line.split(":")[1].strip() for line in broken(page, tmp_path)]
    assert found == ["gone.png", "page.md#nowhere", "also-gone.png", "neither.png"]


def test_every_link_leads_somewhere():
    assert len(PAGES) > 40
    assert not [line for page in PAGES for line in broken(page)]


def exists(name):
    """Say whether a dotted name is a module of the library, or something in one."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            thing = import_module(".".join(words[:count]))
        except ModuleNotFoundError:
            continue
        for word in words[count:]:
            own = getattr(thing, "__dataclass_fields__", {})
            if word not in own and not hasattr(thing, word):
                return False
            thing = getattr(thing, word, None)
        return True
    return False


def test_every_module_and_file_named_in_developers_pages_exists():
    pytest.importorskip("typer")  # the walks pass modules of the command
    pages = [ROOT / "CONTRIBUTING.md", DOCS / "architecture.md", DOCS / "how-it-works.md"]
    quoted = [code for page in pages for code in CODE.findall(page.read_text(encoding="utf-8"))]
    names = [code for code in quoted if re.fullmatch(r"hshap(\.\w+)+", code)]
    paths = [code for code in quoted if re.match(r"(src|tests|scripts|docs|benchmarks)/", code)]
    assert len(names) > 20
    assert not [name for name in names if not exists(name)]
    assert not [path for path in paths if not (ROOT / path.split()[0]).exists()]


MEANT = {
    "hshap": hshap,
    "explainer": hshap.Explainer,
    "explanation": hshap.Explanation,
    "spin": hshap.protocols.Spin,
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


def test_the_cheat_sheet_uses_existing_names_and_options():
    assert list(wrong_names("explanation.heat()"))
    assert list(wrong_names("partition=hshap.Dyadic(size=8)"))
    cheats = CODE.findall((DOCS / "how-to" / "recipes.md").read_text(encoding="utf-8"))
    lines = [line for line in cheats if re.search(r"\b(hshap|expla\w+|spin)\.", line)]
    assert len(lines) > 30
    assert not [wrong for line in lines for wrong in wrong_names(line)]


def test_the_examples_of_which_partition_run():
    pytest.importorskip("torch")
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    page = str(DOCS / "which-partition.md")
    failures, tried = doctest.testfile(page, module_relative=False, optionflags=flags)
    assert tried > 5
    assert not failures


def test_the_notebook_has_ten_cells_that_run():
    pytest.importorskip("torch")
    pytest.importorskip("matplotlib")
    pytest.importorskip("higra")
    notebook = json.loads((DOCS / "ten-cells.ipynb").read_text(encoding="utf-8"))
    assert len(notebook["cells"]) == 10
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] for cell in cells), "outputs are made when the site is built"
    names = {}
    for cell in cells:
        exec("".join(cell["source"]), names)  # noqa: S102, our own notebook
    assert names["again"].leaves == names["explanation"].leaves


def cells(text, first):
    """Return the cells of the first row of a Markdown table whose first cell begins like this."""
    (row, *_) = (line for line in text.splitlines() if line.startswith(f"| {first}"))
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_the_readme_has_the_figures_of_the_benchmark():
    readme = cells((ROOT / "README.md").read_text(encoding="utf-8"), "AUPRC on")
    page = (DOCS / "benchmark.md").read_text(encoding="utf-8").partition("<!-- table default")[2]
    head, *rows = (
        cells(page, first)
        for first in ("set ", "coco-judging", "pets", "malaria", "platelets", "boards")
    )
    peers = {"h-shap": 1, "PartitionExplainer 500": 2, "Grad-CAM": 4, "RISE 500": 5}
    for peer, column in peers.items():
        place = head.index(peer)
        figures = ", ".join(row[place].partition(",")[0] for row in rows)
        assert readme[column] == figures, peer


# Modules of public names. Their examples are tests: pytest collects the modules of the package.
CHAPTERS = [name for name in hshap.__all__ if inspect.ismodule(getattr(hshap, name))]
MODULES = ("hshap", "hshap.export.page", *(f"hshap.{name}" for name in CHAPTERS))
NOT_PUBLIC = {
    "hshap.__version__",
    "hshap.export.page.NotebookPage",
    "hshap.export.page.notebook_page",
}


def public():
    """Yield the public names with the things they name; of modules, those of hshap alone."""
    for place in MODULES:
        module = import_module(place)
        known = getattr(module, "__all__", None)
        functions = [name for name, _ in inspect.getmembers(module, inspect.isfunction)]
        for name in functions if known is None else known:
            thing = getattr(module, name)
            own = ("hshap" if known else place) in getattr(inspect.getmodule(thing), "__name__", "")
            if own and not name.startswith("_") and f"{place}.{name}" not in NOT_PUBLIC:
                yield f"{place}.{name}", thing


def own_doc(thing):
    """Return a docstring of its own: not one that it inherits, nor a dataclass's signature."""
    doc = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    return "" if doc is None or doc.startswith(f"{thing.__name__}(") else doc


def shown(doc):
    """Say whether a docstring has an example that does more than import."""
    examples = doctest.DocTestParser().get_examples(doc)
    lines = [ast.parse(example.source).body[0] for example in examples]
    return not all(isinstance(line, (ast.Import, ast.ImportFrom)) for line in lines)


def undescribed(cls):
    """Yield the public methods and properties of a class that have no docstring."""
    for name, member in vars(cls).items():
        plain = getattr(member, "__func__", member)
        described = isinstance(plain, (property, cached_property)) or inspect.isfunction(plain)
        if described and not name.startswith("_") and not inspect.getdoc(plain):
            yield name


def referred():
    """Return the names with an entry in docs/reference."""
    for page in (DOCS / "reference").glob("*.md"):
        for part in page.read_text(encoding="utf-8").split(".. currentmodule:: ")[1:]:
            module = part.split()[0]
            for name in re.findall(r"^\.\. auto(?:class|function):: *(\S+)", part, re.MULTILINE):
                yield module, name


def test_public_names_are_described_with_an_example():
    names = dict(public())
    assert {"hshap.Explainer", "hshap.metrics.f1", "hshap.theory.cost_bound"} <= names.keys()
    assert not [name for name, thing in names.items() if not own_doc(thing)]
    things = {name: thing for name, thing in names.items() if not inspect.ismodule(thing)}
    assert not [name for name, thing in things.items() if not shown(own_doc(thing))]
    classes = {name: thing for name, thing in names.items() if inspect.isclass(thing)}
    assert not [f"{name}.{part}" for name, cls in classes.items() for part in undescribed(cls)]
    described = [getattr(import_module(place), name) for place, name in referred()]
    missing = [name for name, thing in things.items() if thing not in described]
    assert not missing, "add these to a page of docs/reference"


def build(folder, *options):
    """Build the site, in which a warning is an error."""
    for module in ("sphinx", "furo", "myst_nb", "torch", "matplotlib", "higra", "onnxruntime"):
        pytest.importorskip(module)
    command = [sys.executable, "-m", "sphinx", "--nitpicky", "--fail-on-warning", "--keep-going"]
    built = subprocess.run(  # noqa: S603
        [
            *command,
            "--quiet",
            *options,
            "-d",
            str(folder / "tree"),
            str(DOCS),
            str(folder / "html"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        check=False,
    )
    assert not built.returncode, built.stdout + built.stderr
    return folder / "html"


@pytest.mark.site
def test_the_site_builds_with_all_examples(tmp_path):
    site = build(tmp_path)
    tutorial = (site / "tutorial.html").read_text(encoding="utf-8")
    assert tutorial.count('class="output') > 8
    assert "Traceback" not in tutorial
    # The page of errors runs each mistake, and shows the library's own words.
    answers = re.sub(r"<[^>]+>", "", (site / "faq.html").read_text(encoding="utf-8"))
    assert answers.count("Error: ") >= 15
    # Behind a firewall the site looks the same.
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"(?:https?:)?//")
    pages = list(site.rglob("*.html"))
    assert not [page for page in pages if fetched.search(page.read_text(encoding="utf-8"))]
    styles = list((site / "_static").rglob("*.css"))
    assert not [style for style in styles if "url(http" in style.read_text(encoding="utf-8")]


@pytest.mark.site
@pytest.mark.browser
def test_the_site_searches_without_a_server(tmp_path, browser):
    site = build(tmp_path, "-D", "nb_execution_mode=off")
    tab, complaints = browser.new_page(), []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto((site / "index.html").as_uri())
    tab.locator("input[name=q]").first.fill("spacing")
    tab.keyboard.press("Enter")
    tab.wait_for_function(
        "document.querySelector('.search-summary')?.textContent.includes('finished')",
        timeout=120_000,
    )
    found = tab.locator("#search-results ul.search li > a").evaluate_all(
        "all => all.map((a) => a.href)"
    )
    tab.close()
    assert any("signals-and-volumes" in link for link in found), found
    assert all(link.startswith("file:") for link in found)
    assert not complaints
