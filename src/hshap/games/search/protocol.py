"""The contract of a search.

A search is a recipe that returns a generator. The generator asks for the games of some regions, is
sent those games, and returns its leaves. It may also ask for the score of any coalition. It never
sees an image or a model, so any driver can run it: the engine with a model, `Explanation.at` with
games played before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from hshap.games.game import Game

if TYPE_CHECKING:
    from hshap._util.types import Heat
    from hshap.partitions.protocol import Coalition, Region


@dataclass(frozen=True)
class Question:
    """A coalition whose score a search asks for by itself, outside of a game.

    The regions do not overlap and are those of the tree below the root. The answer is an array with
    the score of each draw.

    >>> import hshap
    >>> Question((hshap.Box((0, 0), (2, 2)),)).kept
    (Box(start=(0, 0), stop=(2, 2)),)
    """

    kept: Coalition


@dataclass(frozen=True)
class Certificate:
    """Measurements that show whether the answer of `GroupTesting` is exact.

    `held` says that every leaf has the score by itself, that the leaves together keep it, that the
    image without them has lost it, each up to the tolerance, and that no other answer contradicts
    the OR rule of the paper, by which the games were inferred. Else `reason` says which of them
    failed. `kept` is the score that the leaves together add to the baseline, `left` the score that
    the image without them adds. `gap` is the mean distance of all answers from the OR rule, as a
    share of the largest change of score: 0 if the rule holds. `questions` counts the coalitions
    that the search asked about.

    >>> Certificate(held=True, kept=1.0, left=0.0, gap=0.0, questions=16).reason
    ''
    """

    held: bool
    kept: float
    left: float
    gap: float
    questions: int
    reason: str = ""


@dataclass(frozen=True)
class SearchResult:
    """The leaves that a search found, and those among them that its budget left unsplit.

    `equal_to` is a search that gives the same result, if this one took its tolerance from the run.
    A search that asks about coalitions returns `games` that hold its leaves, parents before
    children, and the `certificate` of its answer; else every game was played. `probes` are regions
    that were shown alone besides the games, each with its score.

    >>> import hshap
    >>> leaf = hshap.Box((0, 0), (2, 2))
    >>> SearchResult(leaves=(leaf,)).unfinished
    ()
    """

    leaves: tuple[Region, ...]
    unfinished: tuple[Region, ...] = ()
    equal_to: Search | None = None
    games: tuple[Game, ...] = ()
    certificate: Certificate | None = None
    probes: tuple[tuple[Region, float], ...] = ()


Steps: TypeAlias = Generator[list["Region"], Sequence[Game], SearchResult]
"""Yields the regions whose games are wanted, receives those games, returns the result."""

Asking: TypeAlias = Generator[Sequence["Region | Question"], Sequence["Game | Heat"], SearchResult]
"""The same for a search that also asks questions, and receives the scores of their draws."""


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

    def __call__(self, root: Region, draws: int, /) -> Steps | Asking:
        """Return the steps of a search from `root`; ask for `[root]` first.

        A search that asks for no games begins with `[Question(()), Question((root,))]`. `draws` is
        the number of model inputs that each value costs.
        """
        ...
