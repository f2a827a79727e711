"""CONTRIBUTING.md has the layers of the contract, and names files that exist."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def changes(text):
    section = text.split("## Where does a change belong?")[1].split("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| ")]
    return {change.strip(): answer.strip() for change, answer in rows[1:]}


def test_the_layers_are_those_of_the_contract():
    section = TEXT.split("## The floor plan")[1].split("\n## ")[0]
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
