"""The searches of the paper, and the first of them with a tolerance that follows the score."""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Literal

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError
from hshap.games.search.frontier import (
    Budget,
    Leaves,
    checked_limits,
    first,
    is_end,
    own_coefficient,
    parts_of,
)
from hshap.games.search.protocol import SearchResult

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from hshap.games.game import Game
    from hshap.games.search.frontier import RunEnded, Waiting
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


UNITS = ("image", "finding")

SHARE = 0.2
"""Parts below this share of the strongest finding are dropped by default."""

DESCENT = 0.25
"""The share of a budget that the way to the strongest finding may take."""


@recipe
class Share:
    """`DepthFirst` whose tolerance is a share of a score that the run itself measures.

    With `of="image"` it is a share of the score that the image adds to the baseline. With
    `of="finding"` it is a share of the strongest finding: the search first follows the part with
    the highest coefficient down to a leaf, and takes the smallest coefficient on that way. If a
    quarter of the budget does not reach a leaf, the tolerance is 0.

    The result equals that of `DepthFirst` at this tolerance, and its settings say so.

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     lambda batch: 8 * batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ...     search=Share(0.05),
    ... )
    >>> explainer.explain(np.eye(8)[None], target=0).settings.search.tolerance
    0.4
    """

    share: float = 0.05
    max_evaluations: int | None = None
    of: Literal["image", "finding"] = "image"

    def __post_init__(self) -> None:
        settle(self, share=checks.number("share", self.share, minimum=0.0))
        if self.max_evaluations is not None:
            most = checks.integer("max_evaluations", self.max_evaluations, minimum=1)
            settle(self, max_evaluations=most)
        if self.of not in UNITS:
            message = f'of is {checks.shown(self.of)}; pass "image" or "finding"'
            raise ArgumentError(message)

    def __call__(self, root: Region, draws: int = 1) -> Steps:
        """Ask for the games that give the tolerance, and then for those of `DepthFirst`."""
        known: dict[Region, Game] = {}
        budget = Budget(self.max_evaluations, None, draws, known=known)
        unit = yield from self._descend(root, known, budget)
        return (yield from kept_above(self.share * unit, root, draws, known, budget))

    def _descend(
        self, root: Region, known: dict[Region, Game], budget: Budget
    ) -> Generator[list[Region], Sequence[Game], float]:
        """Ask for the games on the way to the unit of the tolerance; return the unit."""
        budget.spend([first(root)], 1)
        (known[root],) = yield [root]
        if self.of == "image":
            return max(known[root].total, 0.0)
        unit, region = strongest(root, known)
        while region is not None:
            if not budget.spend([first(region)], 1, most=DESCENT):
                return 0.0
            (known[region],) = yield [region]
            unit, region = strongest(root, known)
        return unit


def kept_above(
    tolerance: float, root: Region, draws: int, known: Mapping[Region, Game], budget: Budget
) -> Steps:
    """Search as `DepthFirst` does at a tolerance; games that are known are not asked for again."""
    search = DepthFirst(tolerance=tolerance, max_evaluations=budget.most)
    steps = search.steps(root, draws, budget=budget)
    asked = next(steps)
    while True:
        missing = [region for region in asked if region not in known]
        played = dict(zip(missing, (yield missing), strict=True)) if missing else {}
        try:
            asked = steps.send([known.get(one) or played[one] for one in asked])
        except StopIteration as done:
            return replace(done.value, equal_to=search)


def strongest(root: Region, games: Mapping[Region, Game]) -> tuple[float, Region | None]:
    """Return the smallest coefficient on the way to the strongest finding, and the way's end.

    The way follows the part with the highest coefficient, from the root to a leaf. Its end is the
    region whose game is not known; None where it reaches a leaf. At a region without a part that
    raises the score, the way is over, too.
    """
    region, least = root, max(games[root].total, 0.0)
    while region in games:
        game = games[region]
        best = int(np.argmax(game.coefficients))
        highest = float(game.coefficients[best])
        if highest <= 0 or is_end(game, adaptive=root.adaptive):
            return least, None
        region, least = game.children[best], min(least, highest)
        if not region.split():
            return least, None
    return least, region
