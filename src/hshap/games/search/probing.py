"""Probing: single regions are shown alone besides the games of a search, to guide its map.

A small budget ends while regions are still large, and games tell nothing about their inside. Scores
of small regions do, at one evaluation each, where a game takes two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from hshap._util.recipes import recipe
from hshap.games.search.budget import first_game
from hshap.games.search.protocol import Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat
    from hshap.games.search.protocol import Asking, Search
    from hshap.partitions.protocol import Region


@recipe
class Probing:
    """Ask for the scores of some regions after the first game of a search, and go on with it.

    The result is that of the search, and has the `probes`. They are no part of its budget.

    >>> import hshap
    >>> left, right = hshap.Box((0,), (1,)), hshap.Box((1,), (2,))
    >>> steps = Probing(lambda root, draws: iter([[root]]), (left, right))(left, 1)
    >>> next(steps), steps.send([])
    ([Box(start=(0,), stop=(1,))], [Question(kept=(Box(start=(0,), stop=(1,)),)), \
Question(kept=(Box(start=(1,), stop=(2,)),))])
    """

    search: Search
    regions: tuple[Region, ...]

    def __call__(self, root: Region, draws: int = 1) -> Asking:
        """Ask for the first game, for the probes, and for the rest that the search asks for."""
        steps = cast("Asking", self.search(root, draws))
        answers = yield next(steps)
        scores = yield [Question((region,)) for region in self.regions]
        means = [float(cast("Heat", score).mean()) for score in scores]
        while True:
            try:
                asked = steps.send(answers)
            except StopIteration as done:
                return replace(done.value, probes=tuple(zip(self.regions, means, strict=True)))
            answers = yield asked


def probes_within(
    budget: int | None, regions: Sequence[Region], draws: int, parts: int
) -> tuple[Region, ...]:
    """Return the regions to show alone with a budget, the first ones of a list.

    A budget that could show all of them, beside the first game over a root of so many parts, is
    left to games: these then get down to single regions.

    >>> probes_within(6, ("a", "b", "c"), draws=1, parts=2)
    ('a', 'b')
    >>> probes_within(7, ("a", "b", "c"), draws=1, parts=2)
    ()
    """
    fit = 0 if budget is None else (budget - first_game(draws, parts)) // draws
    return tuple(regions[:fit]) if 0 < fit < len(regions) else ()
