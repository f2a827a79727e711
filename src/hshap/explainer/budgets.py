"""Budgets: the evaluations and seconds that a search may take, and the room in them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hshap.games.search import BreadthFirst, DepthFirst, GroupTesting, Share
from hshap.games.search.probing import Probing, probes_within

if TYPE_CHECKING:
    from hshap._util.types import Image
    from hshap.evaluators.easel import Easel
    from hshap.games.search import Search
    from hshap.partitions.spots import Spots

TIMED = (DepthFirst, BreadthFirst, GroupTesting)
LIMITED = (*TIMED, Share)
"""Searches with a budget of seconds, and of evaluations."""

PLAYING = (DepthFirst, BreadthFirst, Share)
"""Searches with a budget that begin with a game. Probes may follow it."""

USUAL_PARTS = 2
"""Parts of the root in every partition that is chosen."""

FEWEST_BESIDE_GRADIENTS = 8
"""Fewer probes than these tell less than gradients do: all other cells would count little."""


def room_in(search: Search, spent: int) -> float:
    """Return the evaluations that the budget of a search leaves."""
    most = budget_of(search)
    return math.inf if most is None else most - spent


def within(search: Search, spent: int, started: float) -> Search:
    """Return the search with budgets that leave room for the evaluations and seconds spent."""
    most = budget_of(search)
    if spent and most is not None and isinstance(search, LIMITED):
        search = replace(search, max_evaluations=max(1, most - spent))
    if isinstance(search, TIMED) and search.max_seconds is not None:
        passed = time.perf_counter() - started
        search = replace(search, max_seconds=max(0.0, search.max_seconds - passed))
    return search


def with_probes(
    search: Search, partition: Spots, easel: Easel, pixels: Image, fewest: int
) -> Search:
    """Return the search with probes of cells, if its budget pays for at least `fewest` of them.

    No limit of time does.
    """
    most, draws = budget_of(search), easel.draws(pixels)
    is_timed = isinstance(search, TIMED) and search.max_seconds is not None
    if most is None or is_timed or not isinstance(search, PLAYING):
        return search
    cells = probes_within(most, partition.cells(pixels, easel.hidden(pixels)), draws, USUAL_PARTS)
    if len(cells) < fewest:
        return search
    return Probing(replace(search, max_evaluations=most - draws * len(cells)), cells)


def budget_of(search: Search) -> int | None:
    """Return the most evaluations of a search; None without a limit that is known."""
    return search.max_evaluations if isinstance(search, LIMITED) else None
