"""Share: the paper's first search, with a tolerance that follows the score of the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.games.search.depth_first import DepthFirst

if TYPE_CHECKING:
    from hshap.games.game import Game
    from hshap.games.search.protocol import Steps
    from hshap.partitions.protocol import Region


@recipe
class Share:
    """`DepthFirst` whose tolerance is a share of the score that the image adds to the baseline.

    The result equals that of `DepthFirst` at this tolerance, and its settings say so.

    >>> import hshap
    >>> import numpy as np
    >>> explanation = hshap.Explainer(
    ...     lambda batch: 8 * batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ...     search=Share(0.05),
    ... ).explain(np.eye(8)[None], target=0)
    >>> explanation.settings.search.tolerance
    0.4
    """

    share: float = 0.05
    max_evaluations: int | None = None

    def __post_init__(self) -> None:
        settle(self, share=checks.number("share", self.share, minimum=0.0))
        if self.max_evaluations is not None:
            most = checks.integer("max_evaluations", self.max_evaluations, minimum=1)
            settle(self, max_evaluations=most)

    def __call__(self, root: Region, draws: int = 1) -> Steps:
        """Ask for the root's game, and then for the same games as `DepthFirst`."""
        games = yield [root]
        steps = self.search(games[0])(root, draws)
        next(steps)  # asks for the root's game, which is known
        while True:
            try:
                asked = steps.send(games)
            except StopIteration as done:
                return done.value
            games = yield asked

    def search(self, first: Game) -> DepthFirst:
        """Return the equal `DepthFirst`, given the game of the whole image."""
        tolerance = self.share * max(first.total, 0.0)
        return DepthFirst(tolerance=tolerance, max_evaluations=self.max_evaluations)
