"""The contract of a search.

A search is a recipe that returns a generator. The generator asks for the games of some regions, is
sent those games, and returns its leaves. It never sees an image or a model, so any driver can run
it: the engine with a model, `Explanation.at` with games played before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from hshap.games.game import Game

if TYPE_CHECKING:
    from hshap.partitions.protocol import Region


@dataclass(frozen=True)
class SearchResult:
    """The leaves that a search found, and those among them that its budget left unsplit.

    `equal_to` is a search that gives the same result, if this one took its tolerance from the run.

    >>> import hshap
    >>> leaf = hshap.Box((0, 0), (2, 2))
    >>> SearchResult(leaves=(leaf,)).unfinished
    ()
    """

    leaves: tuple[Region, ...]
    unfinished: tuple[Region, ...] = ()
    equal_to: Search | None = None


Steps: TypeAlias = Generator[list["Region"], Sequence[Game], SearchResult]
"""Yields the regions whose games are wanted, receives those games, returns the result."""


@runtime_checkable
class Search(Protocol):
    """A recipe from a root region to the steps of a search.

    This one plays the root's game and keeps the parts that raise the score:

    >>> import hshap
    >>> import numpy as np
    >>> def one_level(root, draws=1):
    ...     (game,) = yield [root]
    ...     parts = zip(game.children, game.coefficients)
    ...     return hshap.SearchResult(tuple(part for part, phi in parts if phi > 0))
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch[:, 0, 0, 0],
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ...     search=one_level,
    ... )
    >>> explainer.explain(np.ones((1, 4, 4)), target=0).leaves
    (Box(start=(0, 0), stop=(2, 2)),)
    """

    def __call__(self, root: Region, draws: int, /) -> Steps:
        """Return the steps of a search from `root`; ask for `[root]` first.

        `draws` is the number of model inputs that each value costs.
        """
        ...
