"""Automatic size: where a branch ends if no size is given.

Two rules. For maps that are even inside leaves, a region is a leaf where none of its parts is
enough alone; leaves over four times the median area, usually an object cut by the grid, are split
further, once. For maps that evidence guides, a region is a leaf where its parts, each alone, add up
to less than it, and none of them holds most of its score ("uncut"): the split went through an
object, and evidence tells more than further games. If the model detects a concept, one part alone
has the whole score, so nothing ends early.
"""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from hshap.games.game import Game
    from hshap.games.search.frontier import Waiting
    from hshap.partitions.protocol import Adaptive, Region

ENOUGH = 0.3
"""A part is enough if it adds this share of the score that its whole region adds."""

UNCUT = 0.95
"""Parts that add less than this share of their whole, each alone and all together, were cut."""

MOST = 0.8
"""A part that alone adds this share of its whole holds the object, so the search goes on there."""

LARGE = 4
"""Automatic leaves of more than this many median areas are split further."""

RunEnded: TypeAlias = "Callable[[Region], bool]"
"""Tells, when a run is read again, whether it ended at a region."""


def is_end(game: Game, adaptive: Adaptive) -> bool:
    """Tell whether a rule ends a branch at the region of a game."""
    if adaptive == "uncut":
        return is_cut(game) and float(game.alone.max()) < MOST * game.total
    return adaptive and float(game.alone.max()) < ENOUGH * game.total


def has_ended(game: Game, adaptive: Adaptive, run_ended: RunEnded) -> bool:
    """Tell whether a finished run ended a branch at the region of a game by its rule.

    Of "uncut" regions, earlier versions ended more, so a run that is read again is asked itself.
    """
    is_possible = is_cut(game) if adaptive == "uncut" else is_end(game, adaptive)
    return is_possible and run_ended(game.region)


def is_cut(game: Game) -> bool:
    """Tell whether a split went through an object: parts add less alone than together."""
    return float(np.maximum(game.alone, 0.0).sum()) < UNCUT * game.total


def uncut(games: Iterable[Game], leaves: Iterable[Region]) -> list[Region]:
    """Return the leaves before any cut: of each, the largest region around it that a game cut.

    Games come in the order in which they were played, larger regions first.
    """
    whole: dict[Region, Region] = {}
    for game in games:
        if game.region in whole or is_cut(game):
            largest = whole.get(game.region, game.region)
            whole.update(dict.fromkeys(game.children, largest))
    return list(dict.fromkeys(whole.get(leaf, leaf) for leaf in leaves))


class Leaves:
    """The leaves so far: final ones, and those that stopped by the automatic rule.

    Parts matter if their coefficient is above `tolerance`. `adaptive` is the rule.
    Where a finished run is read again, `run_ended` replaces the test of large leaves, and the whole
    rule of "uncut" regions, so that runs of earlier versions end where they ended.
    """

    def __init__(
        self, tolerance: float, *, adaptive: Adaptive, run_ended: RunEnded | None = None
    ) -> None:
        self._tolerance, self._run_ended = tolerance, run_ended
        self._adaptive: Adaptive = adaptive
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
        if self._adaptive == "uncut" and self._run_ended is not None:
            ends = has_ended(game, self._adaptive, self._run_ended)
        else:
            ends = is_end(game, self._adaptive) and self._is_small(game)
        if ends:
            self._automatic.append((entry, game))
        return ends

    def release_large(self, unfinished: Iterable[Region]) -> list[tuple[Waiting, Game]]:
        """Take back, once, the automatic leaves that are much larger than the median leaf."""
        if not self._automatic or self._limit < math.inf or self._adaptive == "uncut":
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
