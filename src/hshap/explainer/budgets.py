"""Budgets: the evaluations and seconds that a search may take."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hshap.games.search import BestFirst, BreadthFirst, DepthFirst, GroupTesting, Share

if TYPE_CHECKING:
    from hshap.games.search import Search

TIMED = (DepthFirst, BreadthFirst, GroupTesting)
LIMITED = (*TIMED, Share, BestFirst)
"""Searches with a budget of seconds, and of evaluations."""


def within(search: Search, started: float) -> Search:
    """Return the search with a budget of seconds that leaves room for those since the start."""
    if isinstance(search, TIMED) and search.max_seconds is not None:
        passed = time.perf_counter() - started
        return replace(search, max_seconds=max(0.0, search.max_seconds - passed))
    return search


def budget_of(search: Search) -> int | None:
    """Return the most evaluations of a search; None without a limit that is known."""
    return search.max_evaluations if isinstance(search, LIMITED) else None
