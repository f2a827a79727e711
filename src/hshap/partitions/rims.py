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
    noise, usual = _noise(image), _mean(image)
    widest = np.zeros(grid, dtype=values.dtype)
    out = image.copy()
    for one, other in _opposite(image):
        width = _squared(one - other)
        to_one, to_other = _squared(one - image), _squared(other - image)
        between = (to_one + to_other < width) & (np.minimum(to_one, to_other) > 0)
        between &= width > widest
        width = np.where(between, width, 1.0).astype(values.dtype)
        # From 0 at the other side to 1 at this one.
        place = (width + to_other - to_one) / (2 * width)
        rare, frequent = _squared(one - usual), _squared(other - usual)
        least = np.clip(SURE * noise / np.sqrt(width), TRACE, 0.5)
        limit = np.clip(frequent / np.maximum(rare + frequent, 1e-30), least, 1 - least)
        nearer = np.where((place > limit)[..., None], one, other)
        np.copyto(out, nearer, where=between[..., None])
        np.copyto(widest, width, where=between)
    return out.reshape(values.shape)


def local_range(values: Array, grid: tuple[int, ...]) -> Array:
    """Return the distance between the extremes in each pixel's surroundings `(pixels,)`."""
    filters, size = _filters(), 2 * SURROUNDINGS + 1
    total = np.zeros(len(values), dtype=values.dtype)
    for feature in values.T:
        plane = feature.reshape(grid)
        high = filters.maximum_filter(plane, size, mode="nearest")
        total += (high - filters.minimum_filter(plane, size, mode="nearest")).ravel() ** 2
    return np.sqrt(total)


def _noise(image: Array) -> Array:
    """Return the usual step between neighbours in the surroundings of each pixel.

    The median over a pixel's neighbours ignores an edge beside it. The mean of square roots over
    its surroundings counts a few large steps, such as those of a thin line, for little.
    """
    steps = np.stack([_squared(other - image) for pair in _opposite(image) for other in pair])
    roots = np.median(steps, axis=0) ** 0.25
    return np.square(_filters().uniform_filter(roots, 2 * SURROUNDINGS + 1, mode="nearest"))


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
