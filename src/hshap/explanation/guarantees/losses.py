"""Losses of an area on an image with known objects; each rises by steps as the limit moves.

A loss is defined on images with objects alone: on a clean image there is nothing to miss, and its
findings are all false. Counted as a loss of 0, clean images would pay for objects that are missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np

from hshap._util.checks import shown
from hshap.errors import ArgumentError
from hshap.metrics.inputs import as_truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Heat

Steps: TypeAlias = tuple["Heat", "Heat"]
"""Limits, ascending, and the loss above each."""

Loss: TypeAlias = Literal["missed area", "missed objects", "false area"]
PROMISES = {
    "missed area": "{kept} of object area expected inside on images with objects",
    "missed objects": (
        "{kept} of objects expected to be found on images with objects, each with half of its area "
        "inside"
    ),
    "false area": (
        "at most {level} of the background expected inside on images with objects and findings"
    ),
}
NEEDED = {
    "missed area": "objects",
    "missed objects": "objects",
    "false area": "objects, background and findings",
}
"""Each loss is defined on images with these."""

FOUND = 0.5
"""Share of an object's area inside that counts as found."""


def steps_of(loss: Loss, closeness: Heat, truth: object) -> Steps | None:
    """Return the limits at which the loss of an image rises, ascending, and the loss above each.

    For the two losses of misses, the area is `closeness >= limit`. For false area, the limit and
    closeness have the other sign, so that a higher limit is a larger area there. None for an image
    on which the loss is not defined: one without objects and, for false area, one without
    background, or without findings around which an area could be marked. An image with objects and
    without findings is missed in full, at every limit.

    >>> near = np.array([0.9, 0.5, 0.1, -0.2])
    >>> steps_of("missed area", near, np.array([True, True, False, False]))
    (array([0.5, 0.9]), array([0.5, 1. ]))
    """
    steps = _STEPS[loss](closeness, truth)
    return steps if len(steps[0]) else None


def as_loss(value: object) -> Loss:
    """Return the name of a loss."""
    if value not in PROMISES:
        message = f"loss is {shown(value)}; pass one of {', '.join(map(repr, PROMISES))}"
        raise ArgumentError(message)
    return cast("Loss", value)


def _missed_area(closeness: Heat, truth: object) -> Steps:
    inside = np.sort(closeness[as_truth(truth, closeness.shape)])
    return _rising(inside)


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
    return _rising(ends)


def _median_above(values: Heat) -> float:
    """Return the highest limit at which half of the values, or more, are not below it."""
    wanted = int(np.ceil(FOUND * len(values)))
    return float(np.sort(values)[len(values) - wanted])


def _false_area(closeness: Heat, truth: object) -> Steps:
    there = as_truth(truth, closeness.shape)
    outside = np.sort(-closeness[~there & np.isfinite(closeness)])
    return _rising(outside if there.any() else outside[:0])


def _rising(limits: Heat) -> Steps:
    """Return ascending limits, each with the share of them up to it."""
    return limits, np.arange(1, len(limits) + 1) / max(len(limits), 1)


_STEPS: dict[Loss, Callable[[Heat, object], Steps]] = {
    "missed area": _missed_area,
    "missed objects": _missed_objects,
    "false area": _false_area,
}
