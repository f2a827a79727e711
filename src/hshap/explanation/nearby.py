"""Leaves nearby: the width at which maps are smoothed, and a guide for models without gradients.

Where a partition cuts an object, a leaf that is next to strong leaves is more likely a part of the
object, and so are the pixels of a leaf that are next to them. Both rules need only the leaves.
`docs/decisions/0026-leaves-nearby-guide-maps-without-gradients.md` has the trials.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from hshap._util.smoothing import enlarged, gaussian, reach
from hshap.evaluators.evidence import MOST_PIXELS, SQUARES, levels, weigh, weights
from hshap.partitions.lazy import listed_together
from hshap.partitions.regions import Pixels, fill, pixels_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Grid, Heat, Mask
    from hshap.partitions.protocol import Region

Smooth: TypeAlias = float | Literal["auto"]
"""The standard deviation of a Gaussian filter in pixels, or "auto"."""

WIDTH = 0.25
"""Standard deviation of the smoothing, in mean sides of the leaves."""

FINENESS = 2
"""Pixels of a coarser copy that the standard deviation of its smoothing has at least."""


def weighted(
    leaves: Sequence[Region], value: Callable[[Region], float], guide: NDArray[np.uint8]
) -> Heat:
    """Return a map of the guide's grid on which each leaf spreads its value by the guide."""
    out = np.zeros(guide.shape)
    free = [leaf for leaf in leaves if isinstance(leaf, Pixels)]
    if not free or len(free) < len(leaves):
        for leaf in leaves:
            fill(leaf, out, value(leaf) * weights(pixels_of(leaf, guide)))
        return out
    # All leaves at once, as far as they can be: most have few pixels.
    places = listed_together(free)
    squares, begin = SQUARES.take(guide.reshape(-1)[places]), 0
    for leaf in free:
        end = begin + leaf.area
        own = weigh(squares[begin:end])
        own *= value(leaf)
        begin = end
    out.reshape(-1)[places] = squares
    return out


def ranked(
    leaves: Sequence[Region], alone: Callable[[Region], float], guide: NDArray[np.uint8]
) -> Heat:
    """Return the guide, times the root of the score that each leaf adds alone; 0 elsewhere.

    Scores below 0 count as 0. The root lies between the guide as it is and the guide times scores.
    """
    out, every = np.zeros(guide.shape), weights(guide)
    for leaf in leaves:
        fill(leaf, out, max(alone(leaf), 0.0) ** 0.5 * pixels_of(leaf, every))
    return out


def confined(heat: Heat, leaves: Sequence[Region], ignored: Mask) -> Heat:
    """Return the map with 0 on ignored pixels, changed in place; the sum over each leaf stays.

    A leaf that is ignored as a whole is left as it is.
    """
    for leaf in leaves:
        own, without = pixels_of(leaf, heat), pixels_of(leaf, ignored)
        left = np.where(without, 0.0, own)
        if without.any() and left.any():
            fill(leaf, heat, left * (own.sum() / left.sum()))
    return heat


def smoothing_width(leaves: Sequence[Region], shares: Sequence[float], grid: Grid) -> float:
    """Return a quarter of the leaves' mean side, at least one pixel; 0 without leaves.

    Each leaf counts by its share, so that weak leaves in the background hardly count.

    >>> import hshap
    >>> leaves = [hshap.Box((0, 0), (8, 8)), hshap.Box((8, 8), (24, 24))]
    >>> smoothing_width(leaves, [3.0, 1.0], grid=(100, 100))
    2.5
    """
    if not leaves:
        return 0.0
    sides = [leaf.area ** (1 / len(grid)) for leaf in leaves]
    counts = np.maximum(shares, 0.0)
    mean = np.average(sides, weights=counts) if counts.any() else np.mean(sides)
    return max(1.0, WIDTH * float(mean))


def has_nearby(grid: Grid) -> bool:
    """Tell whether maps of a grid follow the leaves nearby: large ones stay even.

    >>> has_nearby((480, 640)), has_nearby((4096, 4096))
    (True, False)
    """
    return prod(grid) <= MOST_PIXELS


def levels_nearby(heat: Heat, width: float) -> NDArray[np.uint8] | None:
    """Return evidence in levels: a map, smoothed by `width`; None if nothing is positive.

    Large images have none, as they have no evidence of gradients.
    """
    if not has_nearby(heat.shape):
        return None
    step = max(1, int(width / FINENESS))  # a wide filter on every pixel would take seconds
    box = _reached(heat, step, reach(width / step) + 1)
    if box is None:
        return None
    near = np.maximum(heat[box], 0.0)
    smooth = gaussian(shrunk(near, step), width / step, range(heat.ndim))
    if step > 1:
        padded = tuple(side * step for side in smooth.shape)
        smooth = enlarged(smooth, padded)[tuple(map(slice, near.shape))]
    if not smooth.any():
        return None
    out = np.zeros(heat.shape, dtype=np.uint8)
    out[box] = levels(smooth)
    return out


def _reached(heat: Heat, step: int, margin: int) -> tuple[slice, ...] | None:
    """Return the box around all positive pixels, in whole blocks of `step` pixels; None for none.

    It has a margin of so many blocks. Beyond it, a filter of that reach leaves 0.
    """
    found: list[slice] = []
    inner = heat  # from axis to axis, the part around the pixels: the first one leaves little
    for axis, side in enumerate(heat.shape):
        others = tuple(other for other in range(heat.ndim) if other != axis)
        places = np.flatnonzero(~(inner.max(others) <= 0))  # also where a value is not a number
        if not len(places):
            return None
        around = (*[slice(None)] * axis, slice(places[0], places[-1] + 1))
        inner = inner[around]
        first, last = int(places[0]) // step - margin, int(places[-1]) // step + 1 + margin
        found.append(slice(max(0, first * step), min(side, last * step)))
    return tuple(found)


def shrunk(heat: Heat, step: int) -> Heat:
    """Return the means of blocks of `step` pixels on each axis; borders are repeated."""
    if step == 1:
        return heat
    missing = [(0, -side % step) for side in heat.shape]
    out = np.pad(heat, missing, mode="edge") if any(more for _, more in missing) else heat
    for axis in range(heat.ndim):
        shape = (*out.shape[:axis], out.shape[axis] // step, step, *out.shape[axis + 1 :])
        out = out.reshape(shape).mean(axis + 1)
    return out
