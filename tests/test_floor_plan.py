"""CONTRIBUTING.md lists the modules as they are, and names files that exist."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

import floor_plan

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def changes(text):
    section = text.split("## Where does a change belong?")[1].split("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")]
    return {change.strip(): answer.strip() for change, answer in rows[1:]}


def test_the_listing_is_up_to_date():
    assert floor_plan.with_listing(TEXT, ROOT / "src" / "hshap") == TEXT


def test_a_module_that_is_not_listed_is_noticed(tmp_path):
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "__init__.py").write_text('"""Games."""')
    before = floor_plan.listing(tmp_path)
    (tmp_path / "games" / "new.py").write_text('"""A new module.\n\nMore."""')
    (tmp_path / "page.js").write_text("/* The page. */\n")
    after = floor_plan.listing(tmp_path)
    assert "new.py" not in before
    assert re.search(r"\n    new.py +A new module\n", after)
    assert re.search(r"\n  page.js +The page\n", after)


def test_the_layers_are_those_of_the_contract():
    section = TEXT.split("<!-- /floor plan -->")[1].split("\n## ")[0]
    written = [
        re.findall(r"`(\w+)`", line) for line in re.findall(r"^\d+\. (.+)$", section, re.MULTILINE)
    ]
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [c["layers"] for c in settings["contracts"] if c["type"] == "layers"]
    checked = [[name.removeprefix("hshap.") for name in line.split(" | ")] for line in layers]
    assert written == checked


def test_twelve_changes_have_an_answer():
    assert len(changes(TEXT)) == 12


@pytest.mark.parametrize("change", changes(TEXT))
def test_the_file_of_a_change_exists(change):
    (path,) = re.findall(r"`([\w./]+/[\w./]*)`", changes(TEXT)[change])
    assert (ROOT / path).exists()
