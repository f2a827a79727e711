"""Guides: how shares are spread inside regions, by the caller's evidence, differences or probes.

`rarity.py` has one more, for images without any of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.evaluators.evidence import (
    DIFFERENCES,
    FAILED,
    GRADIENTS,
    MOST_PIXELS,
    RARITY,
    Guide,
    levels,
    weights,
)
from hshap.explanation.nearby import has_nearby

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from hshap._util.types import Grid, Image
    from hshap.evaluators.easel import Easel
    from hshap.partitions.protocol import Region
    from hshap.partitions.spots import Spots

UNSEEN = 0.01
"""Weight of cells that were not shown alone, as a share of that of the strongest cell."""


def given_guide(heat: ArrayLike, grid: Grid) -> Guide:
    """Return the guide of the caller's own evidence."""
    given = to_numpy("evidence's answer", heat).astype(np.float64, copy=False)
    bad = given[~(np.isfinite(given) & (given >= 0))]
    if given.shape != grid or bad.size:
        found = f"{bad[0]} at {bad.size} of {given.size} pixels" if bad.size else ""
        message = (
            f"evidence returned {found or checks.shown(given)}; it must return a finite number of "
            f"0 or more for each pixel, {grid}"
        )
        raise ArgumentError(message)
    return Guide(levels(given), "a function") if given.any() else Guide(None, "none: it is 0")


def guide_with_differences(partition: Spots, easel: Easel, pixels: Image, guide: Guide) -> Guide:
    """Return a guide times the differences that the cells are around; these alone without one.

    Gradients tell which of the differences the model looks at, and differences where it cannot look
    at all. A backward pass that failed stays told.
    """
    if guide.origin.startswith(FAILED) or pixels[0].size > MOST_PIXELS:
        return guide
    heat = partition.guide(pixels, easel.hidden(pixels))
    origin = DIFFERENCES
    if guide.levels is not None:
        heat, origin = heat * weights(guide.levels), f"{guide.origin} times {DIFFERENCES}"
    if not (np.isfinite(heat).all() and heat.any()):
        return guide
    return Guide(levels(heat), origin, guide.evaluations)


def by_differences(guide: Guide) -> bool:
    """Tell whether a guide rests on the differences from a template."""
    return DIFFERENCES in guide.origin


def by_gradients(guide: Guide) -> bool:
    """Tell whether a guide rests on the model's gradients."""
    return guide.origin.startswith(GRADIENTS)


def guide_by_probes(
    guide: Guide, probes: Sequence[tuple[Region, float]], baseline_score: float
) -> Guide:
    """Return the guide times the root of the score that each probed region adds alone.

    Pixels of other regions count little, but more than those of a region that adds nothing.
    """
    if guide.levels is None or not probes:
        return guide
    added = [max(score - baseline_score, 0.0) for _, score in probes]
    weight, strongest = np.full(guide.levels.shape, UNSEEN), max(added) or 1.0
    for (region, _), score in zip(probes, added, strict=True):
        weight[region.index] = (score / strongest) ** 0.5
    heat = (guide.levels / 255.0) ** 2 * weight
    if not heat.any():
        return guide
    cells = "1 cell" if len(probes) == 1 else f"{len(probes)} cells"
    origin = f"{guide.origin}, and the scores of {cells} shown alone"
    return Guide(levels(heat), origin, guide.evaluations)


def follows_nearby(guide: Guide, grid: Grid) -> bool:
    """Tell whether maps follow the leaves nearby, too: a guide of the model is enough by itself."""
    return (guide.levels is None or guide.origin == RARITY) and has_nearby(grid)


def told_inside(guide: Guide, *, nearby: bool) -> str:
    """Return in words how shares are spread inside regions."""
    if nearby:
        rare = f"{RARITY} (a guess from the image) and " if guide.origin == RARITY else ""
        return f"maps inside regions follow {rare}the regions nearby"
    if guide.levels is None:
        return "maps inside regions are even"
    if not guide.origin.startswith((GRADIENTS, DIFFERENCES)):
        return "maps inside regions follow the given evidence"
    own = guide.origin.replace(GRADIENTS, f"the model's {GRADIENTS}", 1)
    own = own.replace(DIFFERENCES, f"the {DIFFERENCES} from the baseline", 1)
    return f"maps inside regions follow {own}"
