"""The page "How it works" is true: its names exist, and its steps are called in that order."""

from __future__ import annotations

import inspect
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from functools import cached_property
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "hshap"
PAGE = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
DIAGRAM = ROOT / "docs" / "images" / "how-it-works.svg"

STEP = re.compile(r"^\d+\. `([\w.]+)`", re.MULTILINE)
CELL = re.compile(r"^```\{code-cell\}\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAME = re.compile(r"`(hshap(?:\.\w+)+)`")
FOLDER = re.compile(r"^\| `(\w+(?:/|\.py))` \|.*\| ([^|]*) \|$", re.MULTILINE)
LOOP = re.compile(r"Steps (\d+) to (\d+) repeat")


def steps(page):
    """Return the dotted names that the items of a page's numbered list start with."""
    return STEP.findall(page)


def found(name):
    """Return the object with a dotted name; LookupError if there is none."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            thing = import_module(".".join(words[:count]))
        except ModuleNotFoundError:
            continue
        for word in words[count:]:
            # Not getattr: a property of a class is meant, not its value.
            known = inspect.getattr_static(thing, word, None)
            if known is None:
                raise LookupError(f"{name}: there is no {word} in {thing.__name__}")
            thing = known
        return thing
    raise LookupError(f"{name}: there is no such module")


def code(name):
    """Return the code that runs when the object with a dotted name is called or read."""
    thing = found(name)
    if inspect.isclass(thing):
        thing = thing.__init__
    if isinstance(thing, property):
        thing = thing.fget
    if isinstance(thing, cached_property):
        thing = thing.func
    return inspect.unwrap(thing).__code__


def calls(example):
    """Run an example, and return how often each function was called, the first called first."""
    seen = Counter()

    def note(frame, event, _):
        if event == "call":
            seen[frame.f_code] += 1

    program, before = compile(example, "how-it-works.md", "exec"), sys.getprofile()
    sys.setprofile(note)
    try:
        exec(program, {})  # noqa: S102, the page's own example
    finally:
        sys.setprofile(before)
    return seen


def called_and_listed(page):
    """Return the steps of a page in the order in which its example calls them, and as listed."""
    listed = steps(page)
    (example,) = CELL.findall(page)
    seen = calls(example)
    never = [name for name in listed if code(name) not in seen]
    if never:
        raise LookupError(f"never called: {', '.join(never)}")
    place = {each: number for number, each in enumerate(seen)}
    return sorted(listed, key=lambda name: place[code(name)]), listed


@pytest.fixture(scope="module", autouse=True)
def _needs_extras():
    for name in ("matplotlib", "higra", "scipy"):
        pytest.importorskip(name)


def test_the_steps_are_called_in_the_order_of_the_page():
    called, listed = called_and_listed(PAGE)
    assert len(listed) > 10
    assert called == listed


def test_the_steps_of_the_loop_are_repeated():
    (first, last) = map(int, LOOP.search(PAGE).groups())
    (example,) = CELL.findall(PAGE)
    seen = calls(example)
    assert last - first > 2
    for name in steps(PAGE)[first - 1 : last]:
        assert seen[code(name)] > 1, name


def test_every_name_on_the_page_exists():
    names = NAME.findall(PAGE)
    assert len(names) > 20
    for name in names:
        found(name)


def test_the_table_has_every_folder_and_the_steps_it_does():
    table = dict(FOLDER.findall(PAGE))
    entries = [
        f"{path.name}/" if path.is_dir() else path.name
        for path in PACKAGE.iterdir()
        if not path.name.startswith("__") and path.suffix in {"", ".py"}
    ]
    assert sorted(table) == sorted(entries)
    for number, name in enumerate(steps(PAGE), start=1):
        folder = name.split(".")[1]
        entry = f"{folder}/" if f"{folder}/" in table else f"{folder}.py"
        assert str(number) in table[entry].split(", "), f"step {number} is done by {entry}"


def test_the_diagram_shows_the_same_steps_and_folders():
    drawn = ET.parse(DIAGRAM)  # noqa: S314, a file of ours
    groups = [group for group in drawn.iter() if "data-step" in group.attrib]
    assert [group.attrib["data-name"] for group in groups] == steps(PAGE)
    assert [int(group.attrib["data-step"]) for group in groups] == list(range(1, len(groups) + 1))
    for group in groups:
        texts = [text.text for text in group if text.tag.endswith("text")]
        assert texts[0] == group.attrib["data-step"]
        assert (PACKAGE / texts[1]).exists(), texts[1]
        inside = texts[1].removesuffix(".py").strip("/").replace("/", ".")
        assert group.attrib["data-name"].startswith(f"hshap.{inside}.")


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("games.shapley.shapley", "games.shapley.shapely", "there is no shapely"),
        ("plot.overlay.draw", "plot.panels.compare", "never called"),
        ("hshap.games.targets", "hsap.games.targets", "no such module"),
    ],
)
def test_a_wrong_name_is_seen(right, wrong, told):
    assert right in PAGE
    with pytest.raises(LookupError, match=told):
        called_and_listed(PAGE.replace(right, wrong))


def test_a_wrong_order_is_seen():
    lines = PAGE.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("3. "))
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    called, listed = called_and_listed("\n".join(lines))
    assert called != listed
    assert sorted(called) == sorted(listed)
