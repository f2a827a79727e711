"""E-values: the wealth of a bet that showing a region raises the score, which may stop at any time.

In each round the score is taken twice, with and without the region, over two independent draws of
the hidden pixels. If the region changes nothing, either of the two is as likely to be the larger
one, and no bet on it gains on average: the expected wealth is 1, whenever the rounds end.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat

STAKES = 48
"""Stakes that are tried at once, each with a share of the money."""

LARGEST = 690.0
"""Logarithm of the largest e-value; beyond it, floats end."""


def running(differences: Sequence[float] | Heat) -> Heat:
    """Return the e-value after each round, given the differences of the scores in their order.

    Evidence against "the region changes nothing" is an e-value far above 1: it reaches `1 / alpha`
    with a probability of at most `alpha` if the region changes nothing.

    >>> running([1.0] * 8).round(1).tolist()
    [1.5, 2.3, 3.8, 6.2, 10.5, 18.1, 31.9, 56.8]
    >>> running([0.0, 0.0]).tolist()
    [1.0, 1.0]
    """
    gains = relative(np.asarray(differences, dtype=np.float64))
    stakes, shares = _stakes()
    wealth = np.cumsum(np.log1p(stakes[:, None] * gains), axis=1)
    top = wealth.max(axis=0, initial=-np.inf)
    logs = top + np.log((shares[:, None] * np.exp(wealth - top)).sum(axis=0))
    return np.exp(np.minimum(logs, LARGEST))


@cache
def _stakes() -> tuple[Heat, Heat]:
    """Return stakes between 0 and 1, and the share of the money for each: Gauss's quadrature."""
    nodes, weights = np.polynomial.legendre.leggauss(STAKES)
    return (nodes + 1) / 2, weights / 2


def relative(differences: Heat) -> Heat:
    """Return each difference in units of the earlier ones, from -1 to 1.

    The unit is known before the round, so that the bet stays fair: the root mean square of the
    earlier differences that are not 0. The first one counts by its sign alone.

    >>> relative(np.array([0.0, -3.0, 1.5, 9.0])).tolist()
    [0.0, -1.0, 0.5, 1.0]
    """
    squares = np.cumsum(differences**2)
    counts = np.cumsum(differences != 0)
    before = np.concatenate([[0.0], squares[:-1]]), np.concatenate([[0], counts[:-1]])
    units = np.sqrt(before[0] / np.maximum(before[1], 1))
    scaled = np.divide(differences, units, out=np.sign(differences), where=units > 0)
    return np.clip(scaled, -1.0, 1.0)
