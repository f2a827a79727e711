"""The frontier: regions that wait for their games, the most urgent first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap.games.game import Game
    from hshap.partitions.protocol import Region


SUMMED_IN_PAIRS = 8
"""Numbers from which on NumPy does not add one after the other."""


class Waiting(NamedTuple):
    """A region that waits for its game, with its coefficient and its share of the score.

    Entries sort by `priority`, the smallest first: a large share on a large area says least about
    where the evidence is, so it is split first.
    """

    priority: float
    number: int  # unique, so that regions are never compared
    region: Region
    coefficient: float
    share: float


def waiting(region: Region, coefficient: float, share: float, number: int) -> Waiting:
    """Return the entry of a region."""
    return Waiting(-share * region.area**0.5, number, region, coefficient, share)


def first(root: Region) -> Waiting:
    """Return the entry of the root, which has no coefficient."""
    return waiting(root, math.inf, 1.0, -1)


def parts_of(whole: Waiting, game: Game, order: Iterator[int], above: float) -> list[Waiting]:
    """Return the entries of the parts whose coefficient is above a number that is not negative.

    The share of the whole is divided by positive coefficients.
    """
    coefficients = game.coefficients.tolist()
    total = _positive(coefficients) or 1.0
    return [
        waiting(part, coefficient, whole.share * coefficient / total, next(order))
        for part, coefficient in zip(game.children, coefficients, strict=True)
        if coefficient > above
    ]


def _positive(coefficients: list[float]) -> float:
    """Return the sum of positive coefficients, as NumPy adds them."""
    if len(coefficients) >= SUMMED_IN_PAIRS:
        return float(np.maximum(coefficients, 0.0).sum())
    total = 0.0
    for coefficient in coefficients:  # not `sum`, which corrects its rounding from Python 3.12 on
        if not coefficient <= 0.0:  # NaN counts, as in NumPy
            total += coefficient
    return total


def own_coefficient(entry: Waiting, game: Game) -> float:
    """Return a region's coefficient; for the root, the score that it adds to the baseline."""
    return game.total if math.isinf(entry.coefficient) else entry.coefficient
