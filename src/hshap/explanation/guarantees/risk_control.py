"""Conformal risk control: the limit at which the expected loss on a new image is at most a level.

For images in random order, the mean loss over the calibration images, corrected for the one image
that is not among them, bounds the expected loss on that image. See docs/theory.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.explanation.guarantees.losses import Steps

ROUNDING = 1e-9


def images_needed(level: float) -> int:
    """Return the fewest images that allow a level: a new one may always have a loss of 1.

    >>> images_needed(0.1), images_needed(0.05), images_needed(0.3)
    (9, 19, 3)
    """
    return max(math.ceil(1 / level - 1 - ROUNDING), 1)


def check_enough(steps: Sequence[Steps], level: float, *, needs: str, given: int) -> None:
    """Refuse too few images with objects among those given, or too many without findings."""
    needed, images = images_needed(level), len(steps)
    lost = sum(math.isinf(rises[-1]) for rises, _ in steps)
    best = _rounded_up((lost + 1) / (images + 1))
    ease = f", or a level of {best:g} or more" if best < 1 else ""
    if images < needed:
        message = (
            f"level={level:g} takes at least {needed} images with {needs}, but there are {images} "
            f"among {given} images; pass {needed - images} more{ease}"
        )
        raise ArgumentError(message)
    if (lost + 1) / (images + 1) > level + ROUNDING:
        message = (
            f"level={level:g} cannot be promised, since {lost} of {images} images with {needs} "
            f"have no findings; pass images on which more is found{ease}"
        )
        raise ArgumentError(message)


def _rounded_up(share: float) -> float:
    """Return a share in two digits that is not smaller, so that it is not refused in turn."""
    scale = 10.0 ** (1 - math.floor(math.log10(share)))
    return math.ceil(share * scale - ROUNDING) / scale


def highest_limit(steps: Sequence[Steps], level: float) -> float:
    """Return the highest limit at which the corrected mean loss is at most the level.

    Each image has the limits above which its loss rises, in ascending order, and its loss above
    each of them. At or below its first limit, an image has no loss; if that is minus infinity, the
    image has its loss at every limit that can be returned. One image must have a finite limit.

    >>> one = (np.array([0.1, 0.5]), np.array([0.5, 1.0]))
    >>> highest_limit([one] * 9, 0.1), highest_limit([one] * 9, 0.6)
    (0.1, 0.5)
    """
    ends = [float(rises[place]) for rises, _ in steps for place in (0, -1)]
    ends = [end for end in ends if math.isfinite(end)]
    # The loss rises only above the limits of the images, so this ends at one of them, exactly.
    fine, beyond = min(ends), max(ends)
    if corrected(steps, beyond) <= level + ROUNDING:
        return beyond
    while fine < (middle := fine + (beyond - fine) / 2) < beyond:
        if corrected(steps, middle) <= level + ROUNDING:
            fine = middle
        else:
            beyond = middle
    return fine


def corrected(steps: Sequence[Steps], limit: float) -> float:
    """Return the mean loss at a limit as if one more image had a loss of 1."""
    return (sum(loss_at(step, limit) for step in steps) + 1.0) / (len(steps) + 1)


def loss_at(step: Steps, limit: float) -> float:
    """Return the loss of an image at a limit."""
    rises, losses = step
    place = int(np.searchsorted(rises, limit, side="left"))
    return float(losses[place - 1]) if place else 0.0
