"""Independent oracles: slow, short and obviously right. They share no code with hshap."""

from __future__ import annotations

from itertools import combinations, permutations
from math import factorial

import numpy as np


def by_permutations(values):
    """Average each player's marginal gain over every order of arrival."""
    players = int(np.log2(len(values)))
    totals = np.zeros(players)
    orders = list(permutations(range(players)))
    for order in orders:
        coalition = 0
        for player in order:
            totals[player] += values[coalition | 1 << player] - values[coalition]
            coalition |= 1 << player
    return totals / len(orders)


def by_definition(worth, players):
    """Apply the paper's equation 1 to a function of sets, one term at a time."""
    phi = np.zeros(players)
    for player in range(players):
        others = [other for other in range(players) if other != player]
        for size in range(players):
            weight = factorial(size) * factorial(players - size - 1) / factorial(players)
            for coalition in combinations(others, size):
                kept = frozenset(coalition)
                phi[player] += weight * (worth(kept | {player}) - worth(kept))
    return phi


def any_marked(batch):
    """Score 1 if any pixel of the first channel is above one half: the paper's OR rule."""
    return (batch[:, 0] > 0.5).reshape(len(batch), -1).any(axis=1).astype(np.float64)


def marked(grid, points, dtype=np.float32):
    """Return an image that is 0 but for 1 at the flat positions `points`."""
    image = np.zeros((1, *grid), dtype)
    image.reshape(-1)[list(points)] = 1.0
    return image


def same_explanation(one, other):
    """Tell whether two explanations agree in everything but the time they took."""
    return (
        one.grid == other.grid
        and one.target == other.target
        and one.leaves == other.leaves
        and one.unfinished == other.unfinished
        and one.evaluations == other.evaluations
        and len(one.games) == len(other.games)
        and all(map(same_game, one.games, other.games))
    )


def same_game(one, other):
    return (
        one.region == other.region
        and one.children == other.children
        and np.array_equal(one.values, other.values)
        and np.array_equal(one.coefficients, other.coefficients)
        and np.array_equal(one.errors, other.errors, equal_nan=True)
    )


def nodes(region):
    """Yield a region and everything it splits into."""
    yield region
    for part in region.split():
        yield from nodes(part)
