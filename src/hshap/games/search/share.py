"""Share: the paper's first search, with a tolerance that follows the model's own scores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError
from hshap.games.search.automatic_size import is_end
from hshap.games.search.budget import Budget
from hshap.games.search.depth_first import DepthFirst
from hshap.games.search.frontier import first

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from hshap.games.game import Game
    from hshap.games.search.protocol import Steps
    from hshap.partitions.protocol import Region

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
