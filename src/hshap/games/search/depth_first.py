"""Algorithm 1 of the paper: an absolute tolerance, depth first."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.games.search.automatic_size import Leaves
from hshap.games.search.budget import Budget, checked_limits
from hshap.games.search.frontier import first, own_coefficient, parts_of
from hshap.games.search.protocol import SearchResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap.games.game import Game
    from hshap.games.search.automatic_size import RunEnded
    from hshap.games.search.frontier import Waiting
    from hshap.games.search.protocol import Steps
    from hshap.partitions.protocol import Region


@recipe
class DepthFirst:
    """Keep parts whose coefficient is above an absolute tolerance (paper, algorithm 1).

    `tolerance` is in units of the target. `keep_whole` keeps a relevant region none of whose parts
    is relevant alone; the paper drops it. With `max_evaluations` or `max_seconds`, regions with a
    large share of the score on a large area are split first, and regions that are still unsplit at
    the end are leaves. Without a budget the order of visits cannot change the result, so up to
    `width` games are played at once.

    With `min_size="auto"`, a region is a leaf where no part adds 30 % of the region's own score
    alone. Leaves over four times the median area, usually an object cut by the grid, are split
    further.

    >>> DepthFirst(tolerance=0.05, max_evaluations=500).tolerance
    0.05
    """

    tolerance: float = 0.0
    keep_whole: bool = False
    max_evaluations: int | None = None
    max_seconds: float | None = None
    width: int = 64

    def __post_init__(self) -> None:
        settle(self, tolerance=checks.number("tolerance", self.tolerance, minimum=0.0))
        checks.flag("keep_whole", self.keep_whole)
        settle(self, **checked_limits(self.max_evaluations, self.max_seconds, self.width))

    def __call__(self, root: Region, draws: int = 1) -> Steps:
        """Ask for games, receive them and return the leaves."""
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
        leaves = Leaves(self.tolerance, adaptive=root.adaptive, run_ended=run_ended)
        order, frontier = count(), [first(root)]
        while True:
            while asked := budget.spend(frontier, self.width):
                games = yield [entry.region for entry in asked]
                for played in zip(asked, games, strict=True):
                    self._continue(*played, frontier, leaves, order)
            large = leaves.release_large(entry.region for entry in frontier)
            for played in large:
                self._continue(*played, frontier, leaves, order)
            if not large:
                break
        unfinished = tuple(entry.region for entry in sorted(frontier))
        return SearchResult((*leaves.regions, *unfinished), unfinished)

    def _continue(
        self,
        entry: Waiting,
        game: Game,
        frontier: list[Waiting],
        leaves: Leaves,
        order: Iterator[int],
    ) -> None:
        """Add a region's relevant parts to the frontier or to the leaves."""
        matters = own_coefficient(entry, game) > self.tolerance
        if matters and leaves.end(entry, game):
            return
        relevant = parts_of(entry, game, order, above=self.tolerance)
        for part in relevant:
            if part.region.split():
                heapq.heappush(frontier, part)
            else:
                leaves.add(part.region)
        if self.keep_whole and matters and not relevant:
            leaves.add(game.region)
