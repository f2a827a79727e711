"""Measures of the mask `heat > threshold`, and the threshold at which they are best.

Where a share has nothing to divide by, it is 1 if nothing was found and nothing is there, else 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.metrics.inputs import as_map, as_truth, same_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Measure = Callable[[Any, Any, NDArray[np.float64]], Any]

NOISE = 1e-6  # The paper's threshold, "to account for noise in the explanations".


@overload
def f1(heat: Any, truth: Any, threshold: float = ...) -> float: ...
@overload
def f1(heat: Any, truth: Any, threshold: NDArray[Any]) -> NDArray[np.float64]: ...
def f1(heat: Any, truth: Any, threshold: Any = NOISE) -> Any:
    """Return the harmonic mean of precision and recall, which for masks is the Dice coefficient.

    An array of thresholds gives an array of scores, here and for the other measures.

    >>> f1([0.0, 0.2, 0.4, 0.9], np.array([False, False, True, True]))
    0.8
    """
    hit, found, there = _counts(heat, truth, threshold)
    return _share(2 * hit, found + there, found + there)


@overload
def iou(heat: Any, truth: Any, threshold: float = ...) -> float: ...
@overload
def iou(heat: Any, truth: Any, threshold: NDArray[Any]) -> NDArray[np.float64]: ...
def iou(heat: Any, truth: Any, threshold: Any = NOISE) -> Any:
    """Return the intersection over the union, or Jaccard index.

    >>> iou([0.0, 0.2, 0.4, 0.9], np.array([False, False, True, True]), 0.5)
    0.5
    """
    hit, found, there = _counts(heat, truth, threshold)
    return _share(hit, found + there - hit, found + there)


@overload
def precision(heat: Any, truth: Any, threshold: float = ...) -> float: ...
@overload
def precision(heat: Any, truth: Any, threshold: NDArray[Any]) -> NDArray[np.float64]: ...
def precision(heat: Any, truth: Any, threshold: Any = NOISE) -> Any:
    """Return the share of what was found that is there.

    >>> precision([0.0, 0.2, 0.4, 0.9], np.array([False, True, False, True]), 0.3)
    0.5
    """
    hit, found, there = _counts(heat, truth, threshold)
    return _share(hit, found, found + there)


@overload
def recall(heat: Any, truth: Any, threshold: float = ...) -> float: ...
@overload
def recall(heat: Any, truth: Any, threshold: NDArray[Any]) -> NDArray[np.float64]: ...
def recall(heat: Any, truth: Any, threshold: Any = NOISE) -> Any:
    """Return the share of what is there that was found.

    >>> recall([0.0, 0.2, 0.4, 0.9], [((1,), (3,))], np.array([0.1, 0.3, 0.5]))
    array([1. , 0.5, 0. ])
    """
    hit, found, there = _counts(heat, truth, threshold)
    return _share(hit, there, found + there)


def best_score(heat: Any, truth: Any, measure: Measure = f1) -> float:
    """Return the best that any threshold can do for one image: an upper bound, not a result.

    Exact in O(n log n): thresholds are the map's own values and one below them all, so that pixels
    of equal value enter together.

    >>> best_score([0.1, 0.2, 0.4, 0.9], np.array([False, False, True, True]))
    1.0
    """
    values = as_map("heat", heat)
    return float(_scores(measure, values, truth, _from_below(np.unique(values))).max())


def best_threshold(
    heats: Iterable[Any], truths: Iterable[Any], measure: Measure = f1, *, candidates: int = 10_000
) -> float:
    """Return the one threshold with the best mean score over images, of several the lowest.

    Exact if the maps have no more distinct values than `candidates`; otherwise the distinct values
    of each map, and then of all maps, are thinned to so many evenly spaced quantiles.

    >>> there = np.array([False, True, True])
    >>> best_threshold([[0.1, 0.5, 0.9], [0.3, 0.4, 0.8]], [there, there])
    0.3
    """
    most = checks.integer("candidates", candidates, minimum=2)
    maps = [as_map("heats", heat) for heat in heats]
    masks = list(truths)
    same_length("heats", "truths", (len(maps), len(masks)))
    values = np.concatenate([_thinned(np.unique(heat), most) for heat in maps])
    thresholds = _from_below(_thinned(np.unique(values), most))
    total = np.zeros(len(thresholds))
    for heat, truth in zip(maps, masks, strict=True):
        total += _scores(measure, heat, truth, thresholds)
    return float(thresholds[np.argmax(total)])


def _counts(heat: Any, truth: Any, threshold: Any) -> tuple[NDArray[Any], NDArray[Any], int]:
    """Count the pixels that were found and are there, that were found, and that are there."""
    values = as_map("heat", heat)
    mask = as_truth(truth, values.shape)
    limits = to_numpy("threshold", threshold)
    if limits.dtype.kind not in "fiu" or np.isnan(limits).any():
        message = f"threshold must be a number, got {checks.shown(threshold)}; pass one, or several"
        raise ArgumentError(message)
    return _above(values[mask], limits), _above(values.ravel(), limits), int(mask.sum())


def _above(values: NDArray[np.float64], limits: NDArray[Any]) -> NDArray[Any]:
    return values.size - np.searchsorted(np.sort(values), limits, side="right")


def _share(part: Any, whole: Any, seen: Any) -> Any:
    """Divide, and where there is nothing to divide by, ask whether anything was seen at all."""
    empty = np.where(np.equal(seen, 0), 1.0, 0.0)
    shares = np.divide(part, whole, out=empty, where=np.not_equal(whole, 0))
    return shares if shares.ndim else shares.item()


def _scores(
    measure: Measure, heat: NDArray[np.float64], truth: Any, thresholds: NDArray[np.float64]
) -> NDArray[np.float64]:
    scores = to_numpy("measure", measure(heat, truth, thresholds))
    if scores.shape != thresholds.shape:
        message = (
            f"measure returned shape {scores.shape} for {len(thresholds)} thresholds; "
            "return one number for each, as f1 and iou do"
        )
        raise ArgumentError(message)
    return scores


def _from_below(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Put a threshold that every pixel passes before the others."""
    return np.concatenate([np.nextafter(values[:1], -np.inf), values])


def _thinned(values: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    if len(values) <= most:
        return values
    return values[np.rint(np.linspace(0, len(values) - 1, most)).astype(np.int64)]
