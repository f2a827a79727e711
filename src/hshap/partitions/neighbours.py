"""Neighbours: pixels that touch, how far their values differ, and the pairs that a tree needs."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from hshap._util.types import Array, Grid, Ints

Step: TypeAlias = tuple[int, ...]
"""The way from a pixel to a neighbour: -1, 0 or 1 along each axis."""


def steps(axes: int) -> list[Step]:
    """Return one of each two opposite steps, corners too.

    A line one pixel wide is then one piece, whatever its direction.
    """
    return [step for step in product((-1, 0, 1), repeat=axes) if step > (0,) * axes]


def pairs(planes: Array, step: Step) -> tuple[Array, Array]:
    """Return the pixels of `(features, *grid)` that have a neighbour at a step, and these."""
    before = (slice(max(0, -s), min(0, -s) or None) for s in step)
    after = (slice(max(0, s), min(0, s) or None) for s in step)
    return planes[:, *before], planes[:, *after]


def squared(one: Array, other: Array) -> Array:
    """Return the squared distance between values whose first axis has their features."""
    # One feature after another: no array of all of them for every pair.
    total = np.zeros(one.shape[1:], dtype=one.dtype)
    for a, b in zip(one, other, strict=True):
        difference = a - b
        difference *= difference
        total += difference
    return total


def boundaries(labels: Ints) -> tuple[Ints, Ints]:
    """Return each two labels that touch, once, the smaller one first."""
    count = int(labels.max()) + 1
    found: list[Ints] = []
    for step in steps(labels.ndim):
        (one,), (other,) = pairs(labels[None], step)
        apart = one != other
        one, other = one[apart], other[apart]
        found.append(np.unique(np.minimum(one, other) * count + np.maximum(one, other)))
    return np.divmod(np.unique(np.concatenate(found)), count)


def joining(heights: list[Array], grid: Grid) -> tuple[Ints, Ints, Array]:
    """Return the pairs of neighbours that can join two areas, and their heights.

    `heights` has an array for each of `steps`. Pairs are joined in the order of their heights,
    equal ones in the order of steps and pixels. Of three pixels that all touch, the last pair finds
    its pixels joined already: it is left out, and the tree is the same. Most pairs are such.
    """
    every = steps(len(grid))
    kept = {step: np.ones(one.shape, dtype=bool) for step, one in zip(every, heights, strict=True)}
    height_of = dict(zip(every, heights, strict=True))
    for one, two in product(every, repeat=2):
        both = tuple(a + b for a, b in zip(one, two, strict=True))
        if both in kept:
            # A pixel, those at `one` and `both` from it, and the three sides between them.
            corner = (0,) * len(grid)
            sides = sorted([(one, corner), (two, one), (both, corner)])
            places = [_places(grid, (one, both), *side) for side in sides]
            a, b, c = (height_of[step][at] for (step, _), at in zip(sides, places, strict=True))
            last = ((a > b) & (a > c), (b >= a) & (b > c), (c >= a) & (c >= b))
            for (step, _), at, drop in zip(sides, places, last, strict=True):
                kept[step][at] &= ~drop
    numbers = np.arange(np.prod(grid)).reshape(1, *grid)
    ends = {step: pairs(numbers, step) for step in every}
    return (
        np.concatenate([ends[step][0][0][kept[step]] for step in every]),
        np.concatenate([ends[step][1][0][kept[step]] for step in every]),
        np.concatenate([height_of[step][kept[step]] for step in every]),
    )


def _places(grid: Grid, corners: tuple[Step, Step], step: Step, start: Step) -> tuple[slice, ...]:
    """Return where one side of every triangle in a grid is, among all pairs of its step.

    A triangle is a pixel and its two other corners; the side goes from `start` by `step`.
    """
    found: list[slice] = []
    for size, a, b, move, first in zip(grid, *corners, step, start, strict=True):
        low, high = max(0, -a, -b), size - max(0, a, b)
        offset = first - max(0, -move)
        found.append(slice(low + offset, max(low, high) + offset))
    return tuple(found)
