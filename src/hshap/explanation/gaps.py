"""Gaps: how far each game is from the OR rule and from a monotone one, for the audit."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from hshap.games.shapley import FEW, sides

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Heat
    from hshap.games.game import Game


def all_gaps(games: Sequence[Game]) -> tuple[Heat, Heat, Heat]:
    """Return the OR gap, the monotone gap and the largest change of score of each game."""
    out = np.zeros((3, len(games)))
    numbers: dict[int, list[int]] = {}
    for number, game in enumerate(games):
        numbers.setdefault(len(game.children), []).append(number)
    for chosen in numbers.values():
        values = np.array([games[i].values for i in chosen])
        # The largest change, not the total: parts that raise and lower the score cancel in it.
        change = np.abs(values - values[:, :1]).max(1)
        out[:, chosen] = (or_gaps(values), monotone_gaps(values), change)
    return out[0], out[1], out[2]


def or_gaps(values: Heat) -> Heat:
    """Return the largest difference between parts together and the best of them alone.

    `values[i]` are the scores of all coalitions of game `i`, as for `monotone_gaps`.
    """
    players = _players(values)
    if players <= FEW:
        best = np.take(values, _members(players), axis=1).max(2)
        return np.abs(values[:, 1:] - best).max(1)
    best = np.full(values.shape, -np.inf)
    for player, (_, having) in enumerate(_halves(best)):
        np.maximum(having, values[:, 1 << player, None, None], out=having)
    return np.abs(values[:, 1:] - best[:, 1:]).max(1)


def monotone_gaps(values: Heat) -> Heat:
    """Return the most that the score falls when one more part is shown; 0 if it never does."""
    players = _players(values)
    if players <= FEW:
        having, lacking = sides(players)
        falls = np.take(values, lacking, axis=1) - np.take(values, having, axis=1)
        return np.maximum(falls.max((1, 2)), 0.0)
    every = [(lacking - having).max((1, 2)) for lacking, having in _halves(values)]
    return np.maximum(np.max(every, axis=0), 0.0)


def additive_gap(values: Heat) -> float:
    """Return the largest difference between parts together and the sum of what each adds alone.

    >>> additive_gap(np.array([0.0, 1.0, 2.0, 3.0])), additive_gap(np.array([0.0, 0.0, 0.0, 1.0]))
    (0.0, 1.0)
    """
    singles = 1 << np.arange(len(values).bit_length() - 1)
    is_member = (np.arange(len(values))[:, None] & singles) > 0
    added = values - values[0]
    return float(np.abs(added - is_member @ added[singles]).max())


def _players(values: Heat) -> int:
    return values.shape[1].bit_length() - 1


@cache
def _members(players: int) -> NDArray[np.intp]:
    """Return each coalition's players alone, as coalitions `(all but the empty one, players)`.

    In the place of a player that it lacks is its first one, which changes no maximum.
    """
    every, alone = np.arange(1, 2**players)[:, None], 1 << np.arange(players)
    return np.where(every & alone, alone, every & -every)


def _halves(values: Heat) -> Iterator[tuple[Heat, Heat]]:
    """Yield views of the coalitions without each player, and of those with it, in one order."""
    for player in range(_players(values)):
        split = values.reshape(len(values), -1, 2, 2**player)
        yield split[:, :, 0], split[:, :, 1]
