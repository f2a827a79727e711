"""Rims: pixels between two objects that blur, anti-aliasing or compression mixed from both.

`sharpened` gives each to one of the two, so that an object and its rim are one segment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import require
from hshap.partitions.neighbours import squared, steps

if TYPE_CHECKING:
    from hshap._util.types import Array, Grid, Untyped
    from hshap.partitions.neighbours import Step

SURROUNDINGS = 8
"""Pixels on each side that count as the surroundings of a pixel."""

TRACE = 0.2
"""A rim pixel of which a thin object covers more than this share belongs to the object."""

SURE = 2.0
"""A trace of an object must be this many times the noise."""

BAND = 2**16
"""Pixels that are worked on at a time."""


def sharpened(values: Array, grid: Grid) -> Array:
    """Return pixels `(pixels, features)` with each rim pixel set to one of its two sides.

    It takes the side that is rarer in its surroundings, usually the object: a faint rim that stays
    behind when an object is hidden is still an outline of it. It must hold a clear trace of that
    side; where both sides are as frequent, it takes the nearer one. Pixels that are not between
    two opposite neighbours, such as lines one pixel wide, stay as they are.
    """
    # One plane for each feature, and a band of rows at a time: it stays in the processor's cache.
    planes = np.ascontiguousarray(values.T).reshape(-1, *grid)
    wide = np.pad(planes, [(0, 0), *[(1, 1)] * len(grid)], mode="edge")
    rows = max(1, BAND * grid[0] // len(values))
    bands = [slice(row, min(row + rows, grid[0])) for row in range(0, grid[0], rows)]
    with_margins = [wide[:, band.start : band.stop + 2] for band in bands]
    usual, noise = _mean(planes), _noise(with_margins)
    out = np.empty_like(planes)
    for band, pixels in zip(bands, with_margins, strict=True):
        out[:, band] = _without_rims(pixels, usual[:, band], noise[band])
    return out.reshape(values.shape[::-1]).T


def local_range(values: Array, grid: Grid) -> Array:
    """Return the distance between the extremes in each pixel's surroundings `(pixels,)`."""
    filters, size = _filters(), 2 * SURROUNDINGS + 1
    total = np.zeros(len(values), dtype=values.dtype)
    for feature in values.T:
        plane = feature.reshape(grid)
        high = filters.maximum_filter(plane, size, mode="nearest")
        total += (high - filters.minimum_filter(plane, size, mode="nearest")).ravel() ** 2
    return np.sqrt(total)


def _without_rims(wide: Array, usual: Array, noise: Array) -> Array:
    """Return planes `(features, ...)` without rims; `wide` has one more pixel on each side."""
    out = _neighbours(wide, (0,) * noise.ndim).copy()
    widest = np.zeros_like(noise)
    for step in steps(noise.ndim):
        one, other = _neighbours(wide, step), _neighbours(wide, tuple(-s for s in step))
        width, (to_one, to_other) = squared(one, other), _step_heights(wide, step)
        between = (to_one + to_other < width) & (np.minimum(to_one, to_other) > 0)
        between &= width > widest
        rim, width = np.flatnonzero(between), width[between]
        ends, other_ends = one[:, between], other[:, between]
        # From 0 at the other side to 1 at this one.
        place = (width + to_other[between] - to_one[between]) / (2 * width)
        around = usual[:, between]
        rare, frequent = squared(ends, around), squared(other_ends, around)
        least = np.clip(SURE * noise[between] / np.sqrt(width), TRACE, 0.5)
        limit = np.clip(frequent / (rare + frequent), least, 1 - least)
        out.reshape(len(out), -1)[:, rim] = np.where(place > limit, ends, other_ends)
        widest.ravel()[rim] = width
    return out


def _noise(bands: list[Array]) -> Array:
    """Return the usual step between neighbours in the surroundings of each pixel.

    The median of the squared steps to a pixel's neighbours ignores an edge beside it. The mean of
    square roots over the surroundings counts a few large steps, such as those of a thin line, for
    little. Each band has one more pixel on each side.
    """
    halves: list[Array] = []
    for wide in bands:
        heights = [one for step in steps(wide.ndim - 1) for one in _step_heights(wide, step)]
        # Sorting a short first axis takes a third of the time of `np.median`.
        ordered, middle = np.sort(heights, axis=0), len(heights) // 2
        halves.append(ordered[middle - 1 : middle + 1].mean(axis=0) ** 0.25)
    size = 2 * SURROUNDINGS + 1
    return np.square(_filters().uniform_filter(np.concatenate(halves), size, mode="nearest"))


def _mean(planes: Array) -> Array:
    size = (1, *((2 * SURROUNDINGS + 1,) * (planes.ndim - 1)))
    return _filters().uniform_filter(planes, size, mode="nearest")


def _neighbours(wide: Array, step: Step) -> Array:
    """Return the neighbours of all pixels; `wide` has one more pixel on each side."""
    sizes = wide.shape[1:]
    return wide[:, *(slice(1 + s, n - 1 + s) for s, n in zip(step, sizes, strict=True))]


def _step_heights(wide: Array, step: Step) -> tuple[Array, Array]:
    """Return the squared differences of all pixels to the neighbours there and opposite.

    They are the same numbers: a pixel's difference to one side is its neighbour's to the other.
    """
    sizes = wide.shape[1:]
    first = [slice(1 - max(s, 0), n - 1 - min(s, 0)) for s, n in zip(step, sizes, strict=True)]
    last = [slice(one.start + s, one.stop + s) for one, s in zip(first, step, strict=True)]
    both = squared(wide[:, *last], wide[:, *first])
    there = (slice(max(s, 0), n - 2 + max(s, 0)) for s, n in zip(step, sizes, strict=True))
    opposite = (slice(max(-s, 0), n - 2 + max(-s, 0)) for s, n in zip(step, sizes, strict=True))
    return both[*there], both[*opposite]


def _filters() -> Untyped:
    return require("scipy.ndimage", extra="trees", needed_by="Superpixels")
