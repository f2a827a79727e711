"""Algorithm 2 of the paper: a percentile of each level, breadth first."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.games.search.automatic_size import Leaves
from hshap.games.search.budget import Budget, checked_limits
from hshap.games.search.frontier import first, own_coefficient, parts_of
from hshap.games.search.protocol import SearchResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.games.game import Game
    from hshap.games.search.automatic_size import RunEnded
    from hshap.games.search.frontier import Waiting
    from hshap.games.search.protocol import Steps
    from hshap.partitions.protocol import Region


@recipe
class BreadthFirst:
    """Keep parts at or above a percentile of all coefficients of their level (algorithm 2).

    A part must also be above 0. Budgets and `keep_whole` work as in `DepthFirst`.

    >>> BreadthFirst(percentile=70).percentile
    70.0
    """

    percentile: float = 70.0
    keep_whole: bool = False
    max_evaluations: int | None = None
    max_seconds: float | None = None
    width: int = 64

    def __post_init__(self) -> None:
        percentile = checks.number("percentile", self.percentile, minimum=0.0, maximum=100.0)
        settle(self, percentile=percentile)
        checks.flag("keep_whole", self.keep_whole)
        settle(self, **checked_limits(self.max_evaluations, self.max_seconds, self.width))

    def __call__(self, root: Region, draws: int = 1) -> Steps:
        """Ask for games level by level, receive them and return the leaves."""
        return self.steps(root, draws)

    def steps(
        self,
        root: Region,
        draws: int = 1,
        *,
        run_ended: RunEnded | None = None,
        budget: Budget | None = None,
    ) -> Steps:
        """Return the same steps with another budget, or with the leaves of a run read again."""
        budget = budget or Budget(self.max_evaluations, self.max_seconds, draws)
        leaves = Leaves(0.0, adaptive=root.adaptive, run_ended=run_ended)
        unfinished: list[Region] = []
        level = [first(root)]
        while level:
            played: list[tuple[Waiting, Game]] = []
            while asked := budget.spend(level, self.width):
                games = yield [entry.region for entry in asked]
                played += zip(asked, games, strict=True)
            unfinished += [entry.region for entry in sorted(level)]
            level = self._next_level(played, leaves)
            if not level:
                level = self._next_level(leaves.release_large(unfinished), leaves)
        return SearchResult((*leaves.regions, *unfinished), tuple(unfinished))

    def _next_level(self, played: Sequence[tuple[Waiting, Game]], leaves: Leaves) -> list[Waiting]:
        """Return the parts that are split next, and add the others that matter to the leaves."""
        if not played:
            return []
        pooled = np.concatenate([game.coefficients for _, game in played])
        threshold = np.percentile(pooled, self.percentile)
        level: list[Waiting] = []
        order = count()
        for entry, game in played:
            matters = own_coefficient(entry, game) > 0
            if matters and leaves.end(entry, game):
                continue
            for part in parts_of(entry, game, order, above=0.0):
                if part.coefficient >= threshold:
                    if part.region.split():
                        level.append(part)
                    else:
                        leaves.add(part.region)
            if self.keep_whole and matters and not (game.coefficients > 0).any():
                leaves.add(game.region)
        heapq.heapify(level)
        return level
