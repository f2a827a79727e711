"""Guides: how shares are spread inside regions, by gradients, probes or the caller's evidence.

Only the model speaks in a map. So the differences from a template, which are the image's own, guide
nothing alone: they are multiplied by the gradients.
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
    SQUARES,
    Guide,
    levels,
)
from hshap.explanation.nearby import has_nearby

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from hshap._util.types import Grid, Heat, Image
    from hshap.evaluators.easel import Easel
    from hshap.partitions.protocol import Region
    from hshap.partitions.spots import Spots

GIVEN = "a function"
"""The origin of the caller's own evidence."""

UNSEEN = 0.01
"""Weight of cells that were not shown alone, as a share of that of the strongest cell."""

PROBES = "the scores of {} shown alone"
"""The origin of evidence from probes."""


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
    return Guide(levels(given), GIVEN) if given.any() else Guide(None, "none: it is 0")


def differences(partition: Spots, easel: Easel, pixels: Image) -> Heat | None:
    """Return the differences that the cells are around; None where they cannot weigh anything.

    That is in large images, and where no difference is above 0 or one is not finite.
    """
    if pixels[0].size > MOST_PIXELS:
        return None
    heat = partition.guide(pixels, easel.hidden(pixels))
    return heat / heat.max() if np.isfinite(heat).all() and heat.any() else None


def guide_with_differences(guide: Guide, apart: Heat | None) -> Guide:
    """Return a guide times the differences from a template; as it is where it has no levels.

    Gradients tell which of the differences the model looks at. Differences alone are a guess about
    the image: the model may ignore the largest of them.
    """
    if guide.levels is None or apart is None:
        return guide
    heat = SQUARES.take(guide.levels) * apart
    if not heat.any():
        return guide
    return Guide(levels(heat), f"{guide.origin} times {DIFFERENCES}", guide.evaluations)


def has_failed(guide: Guide) -> bool:
    """Tell whether the backward pass of a guide failed."""
    return guide.origin.startswith(FAILED)


def by_gradients(guide: Guide) -> bool:
    """Tell whether a guide rests on the model's gradients."""
    return guide.origin.startswith(GRADIENTS)


def guide_by_probes(
    guide: Guide, probes: Sequence[tuple[Region, float]], baseline_score: float, grid: Grid
) -> Guide:
    """Return the guide times the root of the score that each probed region adds alone.

    Without a guide, it is that root. Pixels of other regions count little, but more than those of a
    region that adds nothing.
    """
    if not probes:
        return guide
    added = [max(score - baseline_score, 0.0) for _, score in probes]
    weight, strongest = np.full(grid, UNSEEN), max(added) or 1.0
    for (region, _), score in zip(probes, added, strict=True):
        weight[region.index] = (score / strongest) ** 0.5
    heat = weight if guide.levels is None else SQUARES.take(guide.levels) * weight
    if not heat.any():
        return guide
    scores = PROBES.format("1 cell" if len(probes) == 1 else f"{len(probes)} cells")
    origin = scores if guide.levels is None else f"{guide.origin}, and {scores}"
    return Guide(levels(heat), origin, guide.evaluations)


def follows_nearby(guide: Guide, grid: Grid) -> bool:
    """Tell whether maps follow the leaves nearby: a guide is enough by itself."""
    return guide.levels is None and has_nearby(grid)


def told_inside(guide: Guide, *, nearby: bool) -> str:
    """Return in words how shares are spread inside regions."""
    if nearby:
        return "maps inside regions follow the regions nearby"
    if guide.levels is None:
        return "maps inside regions are even"
    if guide.origin == GIVEN:
        return "maps inside regions follow the given evidence"
    own = guide.origin.replace(GRADIENTS, f"the model's {GRADIENTS}", 1)
    own = own.replace(DIFFERENCES, f"the {DIFFERENCES} from the baseline", 1)
    return f"maps inside regions follow {own}"
