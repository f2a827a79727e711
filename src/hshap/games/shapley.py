"""Exact Shapley values of small games. Knows nothing of images or models."""

from __future__ import annotations

from functools import cache
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


FEW = 6
"""Players up to which all gains are taken at once; of more, they would fill memory."""


def shapley(values: ArrayLike) -> NDArray[np.float64]:
    """Return the exact Shapley value of every player.

    `values[..., c]` is the worth of coalition `c`; player `i` belongs to it if bit `i` of `c` is
    set. The last axis has `2**players` entries and becomes `players`; leading axes are separate
    games.

    >>> shapley([0.0, 1.0, 1.0, 1.0])  # either of two players wins alone
    array([0.5, 0.5])
    """
    worth = _as_floats(values)
    coalitions = worth.shape[-1] if worth.ndim else 0
    players = coalitions.bit_length() - 1
    if players < 1 or coalitions != 2**players:
        message = (
            f"values has shape {worth.shape}, but its last axis must hold all 2, 4, 8, ... "
            "coalitions of 1, 2, 3, ... players; pass one value for each"
        )
        raise ArgumentError(message)
    games, weights = worth.shape[:-1], _weights(players)
    # Subtract before weighting: a null player then scores exactly 0.0, so tolerance 0 is safe.
    if players <= FEW and worth.flags.c_contiguous:  # the order of a sum depends on the memory
        having, lacking = sides(players)
        gains = np.take(worth, having, axis=-1) - np.take(worth, lacking, axis=-1)
        return (gains * weights).sum(-1)
    result = np.empty((*games, players))
    for player in range(players):
        # Axis -2 is the player's own bit, so the two halves differ in that player alone.
        halves = worth.reshape(*games, -1, 2, 2**player)
        gains = (halves[..., 1, :] - halves[..., 0, :]).reshape(*games, -1)
        result[..., player] = (gains * weights).sum(-1)
    return result


def weighted_shapley(values: ArrayLike, weights: ArrayLike) -> NDArray[np.float64]:
    """Return the Shapley value of every player over orders that are drawn by weight.

    The first player of an order is drawn with a chance in proportion to its weight, then the next
    one of those that are left, and so on. So of a game that any player wins alone, each gets its
    weight's share. Equal weights give `shapley`. `values` are as there, and `weights` has one for
    each player of each game.

    This is the dual of the weighted value of Kalai and Samet (1987), who draw the last one first.

    >>> weighted_shapley([0.0, 1.0, 1.0, 1.0], weights=[3.0, 1.0])  # the first stands for three
    array([0.75, 0.25])
    """
    worth, each = _as_floats(values), _as_floats(weights)
    players = each.shape[-1]
    members, joining = _orders(players)
    left = np.where(members, 0.0, each[..., None, :]).sum(-1)  # the weights outside each coalition
    chance = np.zeros(worth.shape)
    chance[..., 0] = 1.0  # that an order begins with this coalition
    result = np.zeros(each.shape)
    for player, before, after in joining:
        joins = chance[..., before] * each[..., player, None] / left[..., before]
        chance[..., after] += joins
        result[..., player] += (joins * (worth[..., after] - worth[..., before])).sum(-1)
    return result


@cache
def _orders(
    players: int,
) -> tuple[NDArray[np.bool_], list[tuple[int, NDArray[np.intp], NDArray[np.intp]]]]:
    """Return the members of each coalition, and who joins which coalitions, small ones first."""
    every = np.arange(2**players)
    members = (every[:, None] >> np.arange(players) & 1).astype(bool)
    joining: list[tuple[int, NDArray[np.intp], NDArray[np.intp]]] = []
    for size in range(players):
        begun = every[np.bitwise_count(every) == size]
        for player in range(players):
            before = begun[~members[begun, player]]
            joining.append((player, before, before | 1 << player))
    return members, joining


@cache
def sides(players: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the coalitions with each player `(players, half of all)`, and those without it."""
    every = np.arange(2**players).reshape(1, -1)
    bits = (every >> np.arange(players)[:, None] & 1).astype(bool)
    both = (every.repeat(players, 0)[chosen].reshape(players, -1) for chosen in (bits, ~bits))
    having, lacking = both
    return having, lacking


@cache
def _weights(players: int) -> NDArray[np.float64]:
    """Weight the gains of a player by the size of the coalition that is joined."""
    sizes = np.bitwise_count(np.arange(2 ** (players - 1)))
    by_size = np.array([1 / (players * comb(players - 1, size)) for size in range(players)])
    weights = by_size[sizes]
    weights.flags.writeable = False
    return weights


def _as_floats(values: ArrayLike) -> NDArray[np.float64]:
    return to_numpy("values", values).astype(np.float64, copy=False)
