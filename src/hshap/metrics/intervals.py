"""Confidence intervals of a mean or a share."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.metrics.inputs import as_values

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

NEARLY_ONE = 0.999999


class Interval(NamedTuple):
    """An estimate and its confidence limits at the given level.

    >>> wilson(successes=9, trials=10).value
    0.9
    """

    value: float
    low: float
    high: float


def bootstrap_mean(
    values: ArrayLike, *, draws: int = 10_000, seed: int = 0, level: float = 0.95
) -> Interval:
    """Return the mean over images with its percentile interval over resampled sets of images.

    >>> bootstrap_mean([0.0, 1.0, 1.0, 1.0], draws=1000)
    Interval(value=0.75, low=0.25, high=1.0)
    """
    sample = as_values("values", values)
    rng = np.random.default_rng(checks.integer("seed", seed, minimum=0))
    draws = checks.integer("draws", draws, minimum=1)
    tail = (1 - checks.number("level", level, minimum=0.0, maximum=NEARLY_ONE)) / 2
    # One at a time: thousands of draws of thousands of images would not fit at once.
    means = [sample[rng.integers(0, len(sample), len(sample))].mean() for _ in range(draws)]
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(sample.mean()), float(low), float(high))


def paired_bootstrap(
    one: ArrayLike, other: ArrayLike, *, draws: int = 10_000, seed: int = 0, level: float = 0.95
) -> Interval:
    """Return the mean of `one - other` over the same images with its percentile interval.

    >>> paired_bootstrap([0.9, 0.8, 0.7], [0.5, 0.4, 0.3], draws=100).low > 0
    True
    """
    first, second = as_values("one", one), as_values("other", other)
    if len(first) != len(second):
        message = (
            f"one has {len(first)} values and other has {len(second)}; "
            "pass one of each for every image, in the same order"
        )
        raise ArgumentError(message)
    return bootstrap_mean(first - second, draws=draws, seed=seed, level=level)


def wilson(successes: int, trials: int, level: float = 0.95) -> Interval:
    """Return a share with Wilson's score interval, valid for few trials and for shares of 0 and 1.

    >>> [round(limit, 3) for limit in wilson(successes=9, trials=10)]
    [0.9, 0.596, 0.982]
    """
    trials = checks.integer("trials", trials, minimum=1)
    successes = checks.integer("successes", successes, minimum=0)
    if successes > trials:
        message = f"successes={successes} exceeds trials={trials}; pass at most {trials}"
        raise ArgumentError(message)
    level = checks.number("level", level, minimum=0.0, maximum=NEARLY_ONE)
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    unit = quantile**2 / trials
    share = successes / trials
    centre = share + unit / 2
    spread = math.sqrt(unit * (share * (1 - share) + unit / 4))
    # Rounding must not push a limit below 0, above 1, or past the share itself.
    low, high = (centre - spread) / (1 + unit), (centre + spread) / (1 + unit)
    return Interval(share, min(max(low, 0.0), share), max(min(high, 1.0), share))
