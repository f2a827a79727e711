"""Games: the parts of a region are the players, and scores of the model are their worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from hshap._util.checks import shown
from hshap.errors import ArgumentError
from hshap.games.contexts import context_word
from hshap.games.shapley import shapley

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Heat
    from hshap.partitions.protocol import Coalition, Region

T = TypeVar("T")

MOST_PLAYERS = 16
"""Parts of one region; a game of more would have too many coalitions."""


class InContext(NamedTuple):
    """A game played again with more of the image shown: the number of the context, and the scores.

    `shown` tells which parts of the region around this one the context shows, bit i for part i, in
    addition to those that the context shows around that region.

    >>> InContext(1, 2, np.array([0.5, 0.7, 0.8, 1.0])).word
    'missing'
    """

    number: int
    shown: int
    values: Heat

    @property
    def word(self) -> str:
        """The name of the context: "alone", "missing" or "mixed"."""
        return context_word(self.number)


@dataclass(frozen=True, eq=False, slots=True)
class Game:
    """The game of one region; its parts are the players.

    `values[c]` is the mean score with the parts in `c` shown (part `i` if bit `i` is set) and the
    baseline elsewhere; `coefficients` are the parts' Shapley values, `errors` their standard errors
    over the draws of a random baseline, 0 for a fixed one. `inferred` says that some of the values
    follow from other answers by the OR rule, and were not measured; see `GroupTesting`. `contexts`
    are the same game with more of the image shown, if a search played it so; see `BestFirst`.

    >>> import hshap
    >>> left, right = hshap.protocols.Box((0,), (2,)), hshap.protocols.Box((2,), (4,))
    >>> values = np.array([0.0, 1.0, 1.0, 1.0])  # none, left, right, both
    >>> whole = hshap.protocols.Box((0,), (4,))
    >>> game = Game(whole, (left, right), values, hshap.shapley(values), np.zeros(2))
    >>> game.total, game.alone
    (1.0, array([1., 1.]))
    """

    region: Region
    children: tuple[Region, ...]
    values: Heat
    coefficients: Heat
    errors: Heat
    inferred: bool = False
    contexts: tuple[InContext, ...] = ()

    @property
    def pooled(self) -> Heat:
        """The sum of the parts' coefficients over all contexts; `coefficients` if there is one."""
        if not self.contexts:
            return self.coefficients
        return self.coefficients + shapley([one.values for one in self.contexts]).sum(0)

    @property
    def total(self) -> float:
        """Score that the whole region adds to the bare baseline."""
        return float(self.values[-1] - self.values[0])

    @property
    def alone(self) -> Heat:
        """Score that each part adds to the bare baseline by itself."""
        return self.values[_singles(len(self.children))] - self.values[0]


def game_of(
    region: Region, children: tuple[Region, ...], values: Heat, *, inferred: bool = False
) -> Game:
    """Return the game of a region; `values` are those of each draw, `(draws, coalitions)`."""
    phi = shapley(values)
    errors = standard_errors(phi)
    return Game(region, children, values.mean(0), phi.mean(0), errors, inferred)


def standard_errors(phi: Heat) -> Heat:
    """Return the standard errors of coefficients `(..., draws, players)`; 0 for a single draw."""
    draws = phi.shape[-2]
    return phi.std(-2, ddof=1) / draws**0.5 if draws > 1 else np.zeros_like(phi[..., 0, :])


def players_of(region: Region) -> tuple[Region, ...]:
    """Return the players of a region's game: its parts, or itself if it cannot be split."""
    parts = region.split()
    if len(parts) > MOST_PLAYERS:
        message = (
            f"partition splits a region into {len(parts)} parts, and so into "
            f"2**{len(parts)} coalitions; use one of at most {MOST_PLAYERS} parts, "
            "such as Bisection"
        )
        raise ArgumentError(message)
    if len(parts) == 1:
        message = (
            f"partition splits {shown(region)} into one part; "
            "give it two or more, or none if it is a leaf"
        )
        raise ArgumentError(message)
    # A root too small to be split plays alone.
    return parts or (region,)


@cache
def _singles(players: int) -> NDArray[np.intp]:
    """Return the coalitions of one player each."""
    return 1 << np.arange(players)


@cache
def _subsets(players: int) -> tuple[Callable[[tuple[T, ...]], tuple[T, ...]], ...]:
    """Return one selector for each proper, non-empty coalition."""
    members = (
        [player for player in range(players) if c >> player & 1] for c in range(1, 2**players - 1)
    )
    # Of one player alone by a slice: `itemgetter(1)` would return the player and no tuple.
    return tuple(
        itemgetter(*some) if len(some) > 1 else itemgetter(slice(some[0], some[0] + 1))
        for some in members
    )


def coalitions_of(region: Region, children: tuple[Region, ...]) -> tuple[Coalition, ...]:
    """Return the coalitions of a game, in the order that `shapley` takes."""
    return subsets_of(children, region)


def subsets_of(parts: Sequence[T], whole: T) -> tuple[tuple[T, ...], ...]:
    """Return all subsets of some parts, with the whole in place of all of them.

    >>> subsets_of("ab", "w")
    ((), ('a',), ('b',), ('w',))
    """
    players = tuple(parts)
    between = [take(players) for take in _subsets(len(players))]
    # The empty coalition is the bare baseline, and all parts together are the region itself,
    # whose score its parent's game needed already.
    return ((), *between, (whole,))
