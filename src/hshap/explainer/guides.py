"""Guides: how shares are spread inside regions, by the caller's evidence or by differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.evaluators.evidence import DIFFERENCES, FAILED, GRADIENTS, MOST_PIXELS, Guide, levels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hshap._util.types import Grid, Image
    from hshap.evaluators.easel import Easel
    from hshap.partitions.spots import Spots


def given_guide(heat: ArrayLike, grid: Grid) -> Guide:
    """Return the guide of the caller's own evidence."""
    given = np.asarray(heat, dtype=np.float64)
    if given.shape != grid or not np.isfinite(given).all() or given.min() < 0:
        message = (
            f"evidence returned {checks.shown(given)}; it must return a finite number of 0 or more "
            f"for each pixel, {grid}"
        )
        raise ArgumentError(message)
    return Guide(levels(given), "a function") if given.any() else Guide(None, "none: it is 0")


def guide_by_difference(partition: Spots, easel: Easel, pixels: Image, without: Guide) -> Guide:
    """Return the guide of a model without gradients: the differences that the cells are around.

    A backward pass that failed stays told.
    """
    if without.origin.startswith(FAILED) or pixels[0].size > MOST_PIXELS:
        return without
    heat = partition.guide(pixels, easel.hidden(pixels))
    if not (np.isfinite(heat).all() and heat.any()):
        return without
    return Guide(levels(heat), DIFFERENCES, without.evaluations)


def told_inside(guide: Guide, *, nearby: bool) -> str:
    """Return in words how shares are spread inside regions."""
    if guide.levels is None:
        followed = "follow the regions nearby" if nearby else "are even"
        return f"maps inside regions {followed}"
    own = {GRADIENTS: "the model's gradients", DIFFERENCES: "the differences from the baseline"}
    return f"maps inside regions follow {own.get(guide.origin, 'the given evidence')}"
