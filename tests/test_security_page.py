"""The page about security names tests that exist, one at least for each promise."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/\w+\.py)::(\w+)`")
NAMED = sorted(set(TEST.findall(PAGE)))


def promises(page):
    """Return the rows of the tables of promises."""
    tables = re.findall(
        r"^\| promise \| held by \|\n\|---\|---\|\n((?:\|.*\|\n)+)", page, re.MULTILINE
    )
    return [row for table in tables for row in table.splitlines()]


def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_exists(file, name):
    assert name in names_in(ROOT / file)


def test_every_promise_names_a_test():
    rows = promises(PAGE)
    assert len(rows) > 15
    for row in rows:
        assert TEST.search(row), row


def test_a_promise_without_a_test_would_be_seen():
    made_up = PAGE.replace(
        "| promise | held by |\n|---|---|\n", "| promise | held by |\n|---|---|\n| x | |\n", 1
    )
    assert any(not TEST.search(row) for row in promises(made_up))
