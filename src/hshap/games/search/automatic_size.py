"""Automatic size: where a branch ends if no size is given.

A region is a leaf where none of its parts is enough alone; leaves over four times the median area,
usually an object cut by the grid, are split further, once. If the model detects a concept, one part
alone has the whole score, so nothing ends early.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hshap.games.game import Game
    from hshap.games.search.frontier import Waiting
    from hshap.partitions.protocol import Region

ENOUGH = 0.3
"""A part is enough if it adds this share of the score that its whole region adds."""

LARGE = 4
"""Automatic leaves of more than this many median areas are split further."""

RunEnded: TypeAlias = "Callable[[Region], bool]"
"""Tells, when a run is read again, whether it ended at a region."""


def is_end(game: Game, *, adaptive: bool) -> bool:
    """Tell whether the rule ends a branch at the region of a game."""
    return adaptive and float(game.alone.max()) < ENOUGH * game.total


class Leaves:
    """The leaves so far: final ones, and those that stopped by the automatic rule.

    Parts matter if their coefficient is above `tolerance`. `adaptive` says whether there is a rule.
    Where a finished run is read again, `run_ended` replaces the test of large leaves.
    """

    def __init__(
        self, tolerance: float, *, adaptive: bool, run_ended: RunEnded | None = None
    ) -> None:
        self._tolerance, self._run_ended = tolerance, run_ended
        self._adaptive = adaptive
        self._final: list[Region] = []
        self._automatic: list[tuple[Waiting, Game]] = []
        self._limit = math.inf

    @property
    def regions(self) -> list[Region]:
        """All leaves, final ones first."""
        return [*self._final, *(game.region for _, game in self._automatic)]

    def add(self, region: Region) -> None:
        """Add a final leaf."""
        self._final.append(region)

    def end(self, entry: Waiting, game: Game) -> bool:
        """Keep the region as a leaf if the automatic rule says so, and tell whether it did."""
        ends = is_end(game, adaptive=self._adaptive) and self._is_small(game)
        if ends:
            self._automatic.append((entry, game))
        return ends

    def release_large(self, unfinished: Iterable[Region]) -> list[tuple[Waiting, Game]]:
        """Take back, once, the automatic leaves that are much larger than the median leaf."""
        if not self._automatic or self._limit < math.inf:
            return []
        self._limit = LARGE * median([region.area for region in (*self.regions, *unfinished)])
        large = [(entry, game) for entry, game in self._automatic if not self._is_small(game)]
        self._automatic = [(entry, game) for entry, game in self._automatic if self._is_small(game)]
        return large

    def _is_small(self, game: Game) -> bool:
        """Tell whether a leaf is not too large, or splitting it would only show leaves."""
        if math.isinf(self._limit):
            return True
        if self._run_ended is not None:
            return self._run_ended(game.region)
        if game.region.area <= self._limit:
            return True
        parts = zip(game.children, game.coefficients.tolist(), strict=True)
        relevant = [part for part, coefficient in parts if coefficient > self._tolerance]
        return bool(relevant) and not any(part.split() for part in relevant)
