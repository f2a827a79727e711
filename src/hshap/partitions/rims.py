"""Rims: pixels between two objects that blur, anti-aliasing or compression mixed from both.

`sharpened` gives each to one of the two, so that an object and its rim are one segment.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap._util.types import Array, Untyped

SURROUNDINGS = 8
"""Pixels on each side that count as the surroundings of a pixel."""

TRACE = 0.2
"""A rim pixel of which a thin object covers more than this share belongs to the object."""

SURE = 2.0
"""A trace of an object must be this many times the noise."""


def sharpened(values: Array, grid: tuple[int, ...]) -> Array:
    """Return pixels `(pixels, features)` with each rim pixel set to one of its two sides.

    It takes the side that is rarer in its surroundings, usually the object: a faint rim that stays
    behind when an object is hidden is still an outline of it. It must hold a clear trace of that
    side; where both sides are as frequent, it takes the nearer one. Pixels that are not between
    two opposite neighbours, such as lines one pixel wide, stay as they are.
    """
    image = values.reshape(*grid, -1)
    sides = list(_opposite(image))
    steps = np.stack([_squared(side - image) for pair in sides for side in pair])
    noise, usual = _noise(steps).ravel(), _mean(image).reshape(values.shape)
    widest = np.zeros(len(values), dtype=values.dtype)
    out = values.copy()
    for (one, other), to_one, to_other in zip(sides, steps[::2], steps[1::2], strict=True):
        width = _squared(one - other)
        between = (to_one + to_other < width) & (np.minimum(to_one, to_other) > 0)
        between &= width > widest.reshape(grid)
        rim, width = np.flatnonzero(between), width[between]
        ends, other_ends = one[between], other[between]
        # From 0 at the other side to 1 at this one.
        place = (width + to_other[between] - to_one[between]) / (2 * width)
        rare, frequent = _squared(ends - usual[rim]), _squared(other_ends - usual[rim])
        least = np.clip(SURE * noise[rim] / np.sqrt(width), TRACE, 0.5)
        limit = np.clip(frequent / (rare + frequent), least, 1 - least)
        out[rim] = np.where((place > limit)[:, None], ends, other_ends)
        widest[rim] = width
    return out


def local_range(values: Array, grid: tuple[int, ...]) -> Array:
    """Return the distance between the extremes in each pixel's surroundings `(pixels,)`."""
    filters, size = _filters(), 2 * SURROUNDINGS + 1
    total = np.zeros(len(values), dtype=values.dtype)
    for feature in values.T:
        plane = feature.reshape(grid)
        high = filters.maximum_filter(plane, size, mode="nearest")
        total += (high - filters.minimum_filter(plane, size, mode="nearest")).ravel() ** 2
    return np.sqrt(total)


def _noise(steps: Array) -> Array:
    """Return the usual step between neighbours in the surroundings of each pixel.

    `steps` has the squared steps to each of a pixel's neighbours. Their median ignores an edge
    beside the pixel. The mean of square roots over the surroundings counts a few large steps, such
    as those of a thin line, for little.
    """
    # Sorting a short first axis takes a third of the time of `np.median`.
    middle = len(steps) // 2
    half = np.sort(steps, axis=0)[middle - 1 : middle + 1].mean(axis=0)
    size = 2 * SURROUNDINGS + 1
    return np.square(_filters().uniform_filter(half**0.25, size, mode="nearest"))


def _mean(image: Array) -> Array:
    size = (*((2 * SURROUNDINGS + 1,) * (image.ndim - 1)), 1)
    return _filters().uniform_filter(image, size, mode="nearest")


def _opposite(image: Array) -> Iterator[tuple[Array, Array]]:
    """Yield the neighbours of all pixels on two opposite sides, for each direction."""
    grid = image.shape[:-1]
    wide = np.pad(image, [*[(1, 1)] * len(grid), (0, 0)], mode="edge")
    for step in product((-1, 0, 1), repeat=len(grid)):
        if step > (0,) * len(grid):
            yield (
                wide[tuple(slice(1 + s, 1 + s + n) for s, n in zip(step, grid, strict=True))],
                wide[tuple(slice(1 - s, 1 - s + n) for s, n in zip(step, grid, strict=True))],
            )


def _squared(differences: Array) -> Array:
    return np.einsum("...c,...c->...", differences, differences)


def _filters() -> Untyped:
    return require("scipy.ndimage", extra="trees", needed_by="Superpixels")
