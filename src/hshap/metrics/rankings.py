"""Measures of a map without a threshold: they use the order of its pixels, or its mass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError
from hshap.metrics.inputs import as_map, as_objects

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hshap._util.types import Heat


def average_precision(heat: ArrayLike, truth: object) -> float:
    """Return the area under the precision-recall curve as a sum of steps, without interpolation.

    Pixels of equal value enter together.

    >>> average_precision([0.1, 0.4, 0.4, 0.9], np.array([False, True, False, True]))
    0.8333333333333333
    """
    there, others = _by_value(heat, truth)
    hits = np.cumsum(there[::-1])
    found = hits + np.cumsum(others[::-1])
    return float(np.sum(hits / found * there[::-1]) / hits[-1])


def roc_auc(heat: ArrayLike, truth: object) -> float:
    """Return the chance that a pixel of the truth ranks above another one; a tie counts half.

    For the AUC over images pass the model's score of each as `heat` and the labels as `truth`.

    >>> roc_auc([0.1, 0.4, 0.4, 0.9], np.array([False, True, False, True]))
    0.875
    """
    there, others = _by_value(heat, truth)
    if not others.any():
        message = (
            "truth marks every pixel, so the area under the ROC curve is not defined; "
            "leave this image out"
        )
        raise ArgumentError(message)
    below = np.cumsum(others) - others / 2
    return float(np.sum(there * below) / (there.sum() * others.sum()))


def pointing_game(heat: ArrayLike, truth: object) -> float:
    """Return 1 if the highest pixel lies on the truth, else 0.

    If several pixels share the highest value, return the share of them on the truth. A map without
    positive values scores 0, a truth without a pixel is an `ArgumentError`.

    >>> pointing_game([0.0, 0.5, 0.5], np.array([False, False, True]))
    0.5
    """
    values = as_map("heat", heat)
    mask = as_objects("truth", truth, values.shape)
    highest = values.max()
    return float(mask[values == highest].mean()) if highest > 0 else 0.0


def energy_pointing_game(heat: ArrayLike, truth: object) -> float:
    """Return the share of the map's positive mass that lies on the truth; 0 if there is none.

    A truth without a pixel is an `ArgumentError`.

    >>> energy_pointing_game([-1.0, 1.0, 3.0], np.array([False, False, True]))
    0.75
    """
    positive = np.maximum(as_map("heat", heat), 0.0)
    mask = as_objects("truth", truth, positive.shape)
    # Scaled first, so that sums of huge or tiny values neither overflow nor vanish.
    scaled = positive / (positive.max() or 1.0)
    return float(scaled[mask].sum() / (scaled.sum() or 1.0))


def _by_value(heat: ArrayLike, truth: object) -> tuple[Heat, Heat]:
    """Count the pixels on the truth and off it for each distinct value, the lowest first."""
    values = as_map("heat", heat)
    mask = as_objects("truth", truth, values.shape)
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    there = np.bincount(place.ravel(), weights=mask.ravel()).astype(np.float64)
    return there, counts.astype(np.float64) - there
