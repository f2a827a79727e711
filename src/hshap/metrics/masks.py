"""Measures of the mask `heat > threshold`, and the threshold at which they are best.

The truth must mark a pixel: on a clean image, any score would be a success or a failure where there
is nothing to find. A mask without a pixel scores 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.metrics.inputs import as_map, as_objects, same_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import ArrayLike

    from hshap._util.types import Array, Heat

    Measure = Callable[[ArrayLike, object, Heat], ArrayLike]

NOISE = 1e-6  # The paper's threshold, "to account for noise in the explanations".


@overload
def f1(heat: ArrayLike, truth: object, threshold: float = ...) -> float: ...
@overload
def f1(heat: ArrayLike, truth: object, threshold: Array) -> Heat: ...
def f1(heat: ArrayLike, truth: object, threshold: float | Array = NOISE) -> float | Heat:
    """Return the harmonic mean of precision and recall, which for masks is the Dice coefficient.

    An array of thresholds gives an array of scores, here and for the other measures.

    >>> f1([0.0, 0.2, 0.4, 0.9], np.array([False, False, True, True]))
    0.8
    """
    hit, found, there = _counts(heat, truth, threshold)
    return _share(2 * hit, found + there)


@overload
def iou(heat: ArrayLike, truth: object, threshold: float = ...) -> float: ...
@overload
def iou(heat: ArrayLike, truth: object, threshold: Array) -> Heat: ...
def iou(heat: ArrayLike, truth: object, threshold: float | Array = NOISE) -> float | Heat:
    """Return the intersection over the union, or Jaccard index.

    >>> iou([0.0, 0.2, 0.4, 0.9], np.array([False, False, True, True]), 0.5)
    0.5
    """
    hit, found, there = _counts(heat, truth, threshold)
    return _share(hit, found + there - hit)


@overload
def precision(heat: ArrayLike, truth: object, threshold: float = ...) -> float: ...
@overload
def precision(heat: ArrayLike, truth: object, threshold: Array) -> Heat: ...
def precision(heat: ArrayLike, truth: object, threshold: float | Array = NOISE) -> float | Heat:
    """Return the share of the pixels above the threshold that lie on the truth.

    >>> precision([0.0, 0.2, 0.4, 0.9], np.array([False, True, False, True]), 0.3)
    0.5
    """
    hit, found, _ = _counts(heat, truth, threshold)
    return _share(hit, found)


@overload
def recall(heat: ArrayLike, truth: object, threshold: float = ...) -> float: ...
@overload
def recall(heat: ArrayLike, truth: object, threshold: Array) -> Heat: ...
def recall(heat: ArrayLike, truth: object, threshold: float | Array = NOISE) -> float | Heat:
    """Return the share of the truth's pixels that are above the threshold.

    >>> recall([0.0, 0.2, 0.4, 0.9], [((1,), (3,))], np.array([0.1, 0.3, 0.5]))
    array([1. , 0.5, 0. ])
    """
    hit, _, there = _counts(heat, truth, threshold)
    return _share(hit, there)


def best_score(heat: ArrayLike, truth: object, measure: Measure = f1) -> float:
    """Return the best score at any threshold for one image: an upper bound, not a result.

    Exact in O(n log n): the thresholds are the map's own values and one below all of them, so
    pixels of equal value enter together.

    >>> best_score([0.1, 0.2, 0.4, 0.9], np.array([False, False, True, True]))
    1.0
    """
    values = as_map("heat", heat)
    return float(_scores(measure, values, truth, _from_below(np.unique(values))).max())


def best_threshold(
    heats: Iterable[ArrayLike],
    truths: Iterable[object],
    measure: Measure = f1,
    *,
    candidates: int = 10_000,
) -> float:
    """Return the one threshold with the best mean score over images with objects.

    The lowest one if several tie. A clean image is an `ArgumentError` that names it.

    Exact if the maps have at most `candidates` distinct values. Otherwise the distinct values of
    each map, and then of all maps together, are thinned to that many evenly spaced quantiles.

    >>> there = np.array([False, True, True])
    >>> best_threshold([[0.1, 0.5, 0.9], [0.3, 0.4, 0.8]], [there, there])
    0.3
    """
    most = checks.integer("candidates", candidates, minimum=2)
    maps = [as_map("heats", heat) for heat in heats]
    masks = list(truths)
    same_length("heats", "truths", (len(maps), len(masks)))
    for number, (heat, truth) in enumerate(zip(maps, masks, strict=True)):
        as_objects(f"truths[{number}]", truth, heat.shape)
    values = np.concatenate([_thinned(np.unique(heat), most) for heat in maps])
    thresholds = _from_below(_thinned(np.unique(values), most))
    total = np.zeros(len(thresholds))
    for heat, truth in zip(maps, masks, strict=True):
        total += _scores(measure, heat, truth, thresholds)
    return float(thresholds[np.argmax(total)])


def _counts(heat: ArrayLike, truth: object, threshold: float | Array) -> tuple[Array, Array, int]:
    """Count the pixels in mask and truth, in the mask, and in the truth."""
    values = as_map("heat", heat)
    mask = as_objects("truth", truth, values.shape)
    limits = to_numpy("threshold", threshold)
    if limits.dtype.kind not in "fiu" or np.isnan(limits).any():
        message = f"threshold must be a number, got {checks.shown(threshold)}; pass one, or several"
        raise ArgumentError(message)
    return _above(values[mask], limits), _above(values.ravel(), limits), int(mask.sum())


def _above(values: Heat, limits: Array) -> Array:
    return values.size - np.searchsorted(np.sort(values), limits, side="right")


def _share(part: Array, whole: Array | int) -> float | Heat:
    """Return `part / whole`; 0 where both are 0."""
    shares = np.divide(part, np.maximum(whole, 1))
    return shares if shares.ndim else shares.item()


def _scores(measure: Measure, heat: Heat, truth: object, thresholds: Heat) -> Heat:
    scores = to_numpy("measure", measure(heat, truth, thresholds))
    if scores.shape != thresholds.shape:
        message = (
            f"measure returned shape {scores.shape} for {len(thresholds)} thresholds; "
            "return one number for each, as f1 and iou do"
        )
        raise ArgumentError(message)
    return scores


def _from_below(values: Heat) -> Heat:
    """Put a threshold that every pixel passes before the others."""
    return np.concatenate([np.nextafter(values[:1], -np.inf), values])


def _thinned(values: Heat, most: int) -> Heat:
    if len(values) <= most:
        return values
    return values[np.rint(np.linspace(0, len(values) - 1, most)).astype(np.int64)]
