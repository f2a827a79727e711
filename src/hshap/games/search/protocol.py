"""The contract of a search.

A search is a recipe that returns a generator. The generator asks for the games of some regions, is
sent those games, and returns its leaves. It may also ask for the score of any coalition. It never
sees an image or a model, so any driver can run it: the engine with a model, `Explanation.at` with
games played before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

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
    >>> Question((hshap.protocols.Box((0, 0), (2, 2)),)).kept
    (Box(start=(0, 0), stop=(2, 2)),)
    """

    kept: Coalition


@dataclass(frozen=True)
class Certificate:
    """What measurements say about the games of `GroupTesting`; `word` sums it up.

    - "measured": every value of every game was measured. They are exact for any model.
    - "supported": some values were inferred by the OR rule, and every check agrees with it: each
      leaf has the score by itself, the leaves together keep it, the image without them has lost it,
      and all other answers are as the rule says, each up to the tolerance. If showing more of the
      image never lowers the score, every inferred value is then right up to the tolerance. This is
      no proof for other models: one may break the rule in a coalition that was not shown.
    - "not supported": some values were inferred, and a check failed or was not made.

    `reason` says which checks failed; it is empty if none did. `inferred` counts the games with
    inferred values. `kept` is the score that the leaves together add to the baseline, `left` the
    score that the image without them adds. `gap` is the mean distance of all answers from the OR
    rule, as a share of the largest change of score. `questions` counts the coalitions that the
    search asked about.

    >>> Certificate(inferred=3, kept=1.0, left=0.0, gap=0.0, questions=16).word
    'supported'
    """

    inferred: int
    kept: float
    left: float
    gap: float
    questions: int
    reason: str = ""

    @property
    def word(self) -> Literal["measured", "supported", "not supported"]:
        """Whether the values of the games were measured, or how far measurements support them."""
        if not self.inferred:
            return "measured"
        return "not supported" if self.reason else "supported"

    def __str__(self) -> str:
        """Return the word, and what it means for this run."""
        games = "1 game is" if self.inferred == 1 else f"{self.inferred} games are"
        match self.word:
            case "measured":
                failed = f" The OR rule failed: {self.reason}." if self.reason else ""
                return f"measured: every value of every game was measured, none inferred.{failed}"
            case "supported":
                return (
                    f"supported by every check, not proven: {games} inferred by the OR rule, which "
                    "is right up to the tolerance if showing more never lowers the score."
                )
            case "not supported":
                return f"not supported: {games} inferred by the OR rule, but {self.reason}."


@dataclass(frozen=True)
class SearchResult:
    """The leaves that a search found, and those among them that its budget left unsplit.

    `equal_to` is a search that gives the same result, if this one took its tolerance from the run.
    A search that asks about coalitions returns `games` that hold its leaves, parents before
    children, and the `certificate` of its answer; else every game was played.

    >>> import hshap
    >>> leaf = hshap.protocols.Box((0, 0), (2, 2))
    >>> SearchResult(leaves=(leaf,)).unfinished
    ()
    """

    leaves: tuple[Region, ...]
    unfinished: tuple[Region, ...] = ()
    equal_to: Search | None = None
    games: tuple[Game, ...] = ()
    certificate: Certificate | None = None


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
    ...     return hshap.protocols.SearchResult(tuple(part for part, phi in parts if phi > 0))
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
