"""The examples in the documentation run, and give what it says they give."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("page", ["which-partition.md"])
def test_the_examples_of_a_page_run(page):
    pytest.importorskip("torch")
    failures, tried = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=FLAGS)
    assert tried > 5
    assert not failures
