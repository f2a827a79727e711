"""Predicting: the cost of explaining many images, from the explanations of a few of them.

No formula knows how a model answers. A few images do: their mean gives the cost of all, and their
spread the range around it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from statistics import fmean, stdev
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.games.engine import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from hshap.explainer import Explainer
    from hshap.explainer.readings import Pair
    from hshap.games.targets import Positives

FIRST, NEXT, MOST = 1, 4, 16
"""Images that are explained first, then at a time, and in all. The first one warms up the model."""

CLOSE = 0.2
"""More images are explained until the mean is known to this share of it."""

NORMAL = 1.2816
"""The 90 % quantile of the normal distribution: a range of 80 %."""


class Range(NamedTuple):
    """An expected number, and the range that holds the real one in about 80 % of cases."""

    expected: float
    low: float
    high: float


@dataclass(frozen=True)
class PredictedCost:
    """The cost of explaining `images` images, predicted from `sampled` of them.

    `evaluations` and `seconds` each have an `expected` number, and the ends `low` and `high` of a
    range that holds the real one in about 80 % of cases; for one sampled image, `high` is infinite.
    `seconds` are wall-clock, and include reading and all work of the explanations; `counts` are the
    evaluations of each sampled image.

    >>> cost = PredictedCost(10, 5, Range(100, 80, 120), Range(1.0, 0.8, 1.2), (10, 10, 9, 11, 10))
    >>> cost.seconds.expected / cost.images
    0.1
    """

    images: int
    sampled: int
    evaluations: Range
    seconds: Range
    counts: tuple[float, ...]


def predicted_cost(  # noqa: PLR0913, one for each choice of the caller
    explainer: Explainer,
    pairs: Iterable[Pair],
    *,
    images: int,
    most: int = MOST,
    positives: Positives | None = None,
    clock: Callable[[], float] = perf_counter,
) -> PredictedCost:
    """Return the cost of explaining `images` images such as those of `pairs`.

    `pairs` are `(image, target)` as in `explain_many`. Give images in random order. Five are
    explained, and more, up to `most`, until the mean of their evaluations is known to about 20 %. A
    pair that fails ends the prediction with its error. `positives` are as in `explain_many`.
    `clock` gives seconds.

    >>> import hshap
    >>> import numpy as np
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ... )
    >>> image = np.zeros((1, 8, 8))
    >>> image[0, 2, 5] = 1.0
    >>> found = predicted_cost(explainer, [(image, 0)] * 5, images=1000)
    >>> found.sampled, found.evaluations.expected
    (5, 14000.0)
    """
    images = checks.integer("images", images, minimum=1)
    most = checks.integer("most", most, minimum=1)
    left = itertools.islice(pairs, most)
    counts: list[float] = []
    chunks: list[tuple[int, float]] = []  # evaluations and seconds
    while not enough(counts):
        started = clock()  # reading counts too
        chunk = list(itertools.islice(left, NEXT if counts else FIRST))
        if not chunk:
            break
        found, evaluations = _explain(explainer, chunk, positives)
        chunks.append((evaluations, clock() - started))
        counts += found
    if not counts:
        message = "pairs has no image to explain; pass a few pairs (image, target)"
        raise ArgumentError(message)
    total, warm = of_many(counts, images), chunks[1:] or chunks
    each = sum(seconds for _, seconds in warm) / sum(count for count, _ in warm)
    seconds = of_many([each * count for count in counts], images)
    return PredictedCost(images, len(counts), total, seconds, tuple(counts))


def _explain(
    explainer: Explainer, chunk: Sequence[Pair], positives: Positives | None
) -> tuple[list[float], int]:
    """Return the evaluations for each image, and those of all together."""
    by_image: dict[int, int] = {}
    progress = [Progress(0, 0, 0)]
    for found in explainer.explain_many(chunk, positives=positives, progress=progress.append):
        by_image[found.position] = by_image.get(found.position, 0) + found.evaluations
    # Several targets of an image share evaluations, which each of their explanations counts.
    spent, told = progress[-1].evaluations, sum(by_image.values())
    return [count * spent / told for count in by_image.values()], spent


def enough(counts: Sequence[float]) -> bool:
    """Tell whether the mean of a sample is known to about 20 %.

    >>> enough([100, 101, 99, 100, 100]), enough([10, 100, 20, 90, 50])
    (True, False)
    """
    if len(counts) < FIRST + NEXT:
        return False
    return _quantile(len(counts)) * stdev(counts) / math.sqrt(len(counts)) <= CLOSE * fmean(counts)


def of_many(counts: Sequence[float], images: int) -> Range:
    """Return the expected total over `images` images, given those of a sample.

    The range is that of the total of new images from the same source.

    >>> [round(number) for number in of_many([90, 110, 100], images=10)]
    [1000, 878, 1122]
    """
    total = images * fmean(counts)
    if len(counts) == 1:  # one image tells nothing about the spread
        return Range(total, 0.0, math.inf)
    error = stdev(counts) * math.sqrt(images + images**2 / len(counts))
    half = _quantile(len(counts)) * error
    return Range(total, max(total - half, 0.0), total + half)


def _quantile(count: int) -> float:
    """Return the 90 % quantile of Student's t for a sample, by two terms of its expansion."""
    z, free = NORMAL, count - 1
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / free + second / free**2
