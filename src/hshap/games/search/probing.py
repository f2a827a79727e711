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


FEW = 5
"""Regions that a budget must let games get down to, one by one; else it is spent on probes."""

NEW_SCORES = 2
"""Scores that a game of two parts takes; those of the whole and of nothing are known."""


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

    A budget is left to games if they get down to single regions with it: if it could show all
    regions beside the first game over a root of so many parts, or if it pays for the games from the
    root down to `FEW` of the regions, halved again and again.

    >>> probes_within(6, ("a", "b", "c"), draws=1, parts=2)
    ('a', 'b')
    >>> probes_within(7, ("a", "b", "c"), draws=1, parts=2)
    ()
    >>> len(probes_within(93, range(324), draws=1, parts=2))
    89
    >>> probes_within(94, range(324), draws=1, parts=2)
    ()
    """
    if budget is None or not regions:
        return ()
    left = budget - first_game(draws, parts)
    levels = (len(regions) - 1).bit_length()
    fit = min(left // draws, len(regions))
    if fit < 1 or fit == len(regions) or left >= FEW * NEW_SCORES * draws * levels:
        return ()
    return tuple(regions[:fit])
