"""Losses of an area on an image with known objects; each rises by steps as the limit moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np

from hshap._util.checks import shown
from hshap.errors import ArgumentError
from hshap.metrics.inputs import as_truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Heat

    Steps = tuple[Heat, Heat]

Loss: TypeAlias = Literal["missed area", "missed objects", "false area"]
PROMISES = {
    "missed area": "{kept} of object area expected inside",
    "missed objects": "{kept} of objects expected to be found, each with half of its area inside",
    "false area": "at most {level} of the background expected inside",
}
FOUND = 0.5
"""Share of an object's area inside that counts as found."""


def steps_of(loss: Loss, closeness: Heat, truth: object) -> Steps:
    """Return the limits at which the loss of an image rises, ascending, and the loss above each.

    For the two losses of misses, the area is `closeness >= limit`. For false area, the limit and
    closeness have the other sign, so that a higher limit is a larger area there.

    >>> near = np.array([0.9, 0.5, 0.1, -0.2])
    >>> steps_of("missed area", near, np.array([True, True, False, False]))
    (array([0.5, 0.9]), array([0.5, 1. ]))
    """
    return _STEPS[loss](closeness, truth)


def as_loss(value: object) -> Loss:
    """Return the name of a loss."""
    if value not in PROMISES:
        message = f"loss is {shown(value)}; pass one of {', '.join(map(repr, PROMISES))}"
        raise ArgumentError(message)
    return cast("Loss", value)


def _missed_area(closeness: Heat, truth: object) -> Steps:
    inside = np.sort(closeness[as_truth(truth, closeness.shape)])
    return inside, np.arange(1, len(inside) + 1) / max(len(inside), 1)


def _missed_objects(closeness: Heat, truth: object) -> Steps:
    if not isinstance(truth, (list, tuple)):
        message = (
            f"truths holds {shown(truth)}; for missed objects, pass a list of masks or "
            "(start, stop) boxes for each image, one for each object"
        )
        raise ArgumentError(message)
    objects = [as_truth([one], closeness.shape) for one in cast("Sequence[object]", truth)]
    # An object is found as long as the limit leaves half of its pixels inside.
    ends = np.sort([_median_above(closeness[one]) for one in objects if one.any()])
    return ends, np.arange(1, len(ends) + 1) / max(len(ends), 1)


def _median_above(values: Heat) -> float:
    """Return the highest limit at which half of the values, or more, are not below it."""
    wanted = int(np.ceil(FOUND * len(values)))
    return float(np.sort(values)[len(values) - wanted])


def _false_area(closeness: Heat, truth: object) -> Steps:
    outside = np.sort(-closeness[~as_truth(truth, closeness.shape)])
    return outside, np.arange(1, len(outside) + 1) / max(len(outside), 1)


_STEPS: dict[Loss, Callable[[Heat, object], Steps]] = {
    "missed area": _missed_area,
    "missed objects": _missed_objects,
    "false area": _false_area,
}
