"""Segments of an image: areas between its edges, and which pixels and segments are neighbours.

Pixels are joined in the order of their difference; faint edges, those of noise, compression or
uneven light, are removed last. Nothing here knows a game or a model.
"""

from __future__ import annotations

import heapq
import math
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hshap.errors import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Ints, Untyped

CLEAR = 3.0
"""A step of this many times the median step between neighbours is an edge, not noise."""

FAINT = 0.25
"""An edge is faint if two segments differ by less than this share of the range around them."""

WIDEST = 20
"""Joined segments hold at most as many pixels as a box with sides of this length.

Larger ones need no join: no object in them was divided, and they are halved by position.
"""

SURROUNDINGS = 8
"""Pixels on each side that count as the surroundings of a pixel."""

ROUNDING = 1e-5
"""A range below this share of the image's is rounding."""

BARE = {"return_altitudes": False, "compute_mst": False}

Step: TypeAlias = tuple[int, ...]
"""The way from a pixel to a neighbour: -1, 0 or 1 along each axis."""


def segment(values: NDArray[np.float32], grid: tuple[int, ...], min_area: int) -> Ints:
    """Label the segments of pixels `(pixels, features)`, divided by edges between large areas.

    Neighbours are joined, the most similar first; a join counts as an edge only if both sides hold
    `min_area` pixels by then, so specks and noise join their surroundings. At a clear step, a third
    of that area is enough: a narrow gap between two objects then joins neither. Faint edges, those
    of noise, compression or uneven light, are removed last.
    """
    if len(values) == 1:
        return np.zeros(grid, dtype=np.intp)
    planes = values.T.reshape(-1, *grid)
    heights = [squared(*pairs(planes, step)) for step in steps(len(grid))]
    typical = np.median(np.concatenate([one.ravel() for one in heights]))
    a, b, height = joining(heights, grid)
    # A stable order, so that equal steps are sorted the same way on every machine.
    order = _sorted_places(height.view(np.uint32))  # non-negative floats sort like their bits
    library = higra()
    tree = library.bpt_canonical((a, b, len(values)), sorted_edge_indices=order, **BARE)
    smaller = library.attribute_area(tree)[joins(tree)].min(axis=1)
    step_of_join = tree.mst_edge_map
    height = height[step_of_join]
    clear = height > CLEAR**2 * typical
    edge = (height > 0) & (smaller >= np.where(clear, max(1, min_area // 3), min_area))
    within = step_of_join[~edge]
    labels = _components(a[within], b[within], len(values)).reshape(grid)
    ranges = local_range(values, grid)
    return without_faint_edges(labels, values, ranges, boundaries(labels))


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


def without_faint_edges(
    labels: Ints, values: Array, ranges: Array, boundaries: tuple[Ints, Ints]
) -> Ints:
    """Return the labels of the grid after segments with faint edges were joined.

    Segments that touch (`boundaries`) are joined, those with the faintest edge first. They are
    compared by their mean values, since single pixels are noisy and the steps of a blurred outline
    are small. `ranges` has the range of values around each pixel.
    """
    most, flat = WIDEST**labels.ndim, labels.ravel()
    area = np.bincount(flat).astype(np.float64)
    means = np.stack([np.bincount(flat, feature) / area for feature in values.T], axis=1)
    around = np.maximum(np.bincount(flat, ranges) / area, ROUNDING)
    one, other = boundaries
    apart = np.sqrt(((means[one] - means[other]) ** 2).sum(axis=1))
    heights = apart / np.maximum(around[one], around[other])
    may_join = (heights < FAINT) & (area[one] + area[other] <= most)
    edges = zip(*(array[may_join].tolist() for array in (heights, one, other)), strict=True)
    near = _touching(one, other, len(area))
    found = _Segments(area.tolist(), means.tolist(), around.tolist(), near, most)
    return np.unique(found.joined(list(edges)), return_inverse=True)[1][labels]


def local_range(values: Array, grid: Grid) -> Array:
    """Return the distance between the extremes in each pixel's surroundings `(pixels,)`."""
    filters = require("scipy.ndimage", extra="trees", needed_by="Superpixels")
    size = 2 * SURROUNDINGS + 1
    total = np.zeros(len(values), dtype=values.dtype)
    for feature in values.T:
        plane = feature.reshape(grid)
        high = filters.maximum_filter(plane, size, mode="nearest")
        total += (high - filters.minimum_filter(plane, size, mode="nearest")).ravel() ** 2
    return np.sqrt(total)


def _touching(one: Ints, other: Ints, count: int) -> list[list[int]]:
    """Return the neighbours of each segment."""
    ends, others = np.concatenate([one, other]), np.concatenate([other, one])
    order = np.argsort(ends, kind="stable")
    starts = np.cumsum(np.bincount(ends, minlength=count))[:-1]
    return [near.tolist() for near in np.split(others[order], starts)]


class _Segments:
    """Segments that are being joined: their areas, mean values, ranges and neighbours."""

    def __init__(
        self,
        area: list[float],
        means: list[list[float]],
        around: list[float],
        near: list[list[int]],
        most: int,
    ) -> None:
        self._most = most
        self._area, self._means, self._around = area, means, around
        self._into, self._near = list(range(len(area))), near

    def joined(self, edges: list[tuple[float, int, int]]) -> list[int]:
        """Join until no faint edge is left; return the number of each segment's last one.

        Edges are heights and two segments. Those that may not join are left out.
        """
        heapq.heapify(edges)
        while edges:
            before, one, other = heapq.heappop(edges)
            one, other = self._last(one), self._last(other)
            if one == other or self._area[one] + self._area[other] > self._most:
                continue
            height = self._height(one, other)
            if height <= before:
                self._join(one, other, edges)
            elif height < FAINT:  # it grew since, by joins on its two sides
                heapq.heappush(edges, (height, min(one, other), max(one, other)))
        return [self._last(segment) for segment in range(len(self._into))]

    def _join(self, one: int, other: int, edges: list[tuple[float, int, int]]) -> None:
        # The segment with more neighbours stays, so that few are moved.
        if len(self._near[one]) < len(self._near[other]):
            one, other = other, one
        first, second = self._area[one], self._area[other]
        whole = first + second
        self._means[one] = [
            (first * a + second * b) / whole
            for a, b in zip(self._means[one], self._means[other], strict=True)
        ]
        self._around[one] = (first * self._around[one] + second * self._around[other]) / whole
        self._area[one], self._into[other] = whole, one
        moved = {self._last(near) for near in self._near[other]} - {one}
        self._near[one].extend(sorted(moved))
        self._near[other] = []
        room = self._most - whole
        for near in moved:
            if self._area[near] <= room and (height := self._height(one, near)) < FAINT:
                heapq.heappush(edges, (height, min(one, near), max(one, near)))

    def _height(self, one: int, other: int) -> float:
        """Return how far two segments differ, as a share of the range around them."""
        total = 0.0
        for a, b in zip(self._means[one], self._means[other], strict=True):
            total += (a - b) * (a - b)
        return math.sqrt(total) / max(self._around[one], self._around[other])

    def _last(self, segment: int) -> int:
        """Return the segment that holds this one by now."""
        into = self._into
        while into[segment] != segment:
            into[segment] = into[into[segment]]
            segment = into[segment]
        return segment


def higra() -> Untyped:
    """Return the library of trees."""
    return require("higra", extra="trees", needed_by="Superpixels")


def joins(tree: Untyped) -> Ints:
    """Return the two nodes that each inner node of a binary tree joins, in the order of nodes."""
    parents = tree.parents()[:-1].astype(np.intp)
    nodes = np.arange(len(parents))
    inner = parents - (len(parents) // 2 + 1)
    joins = np.empty((len(parents) // 2, 2), dtype=np.intp)
    # Two nodes are written to each row of a column, and the later one stays.
    joins[inner[::-1], 0] = nodes[::-1]
    joins[inner, 1] = nodes
    return joins


def _sorted_places(keys: Array) -> Ints:
    """Return `np.argsort(keys, kind="stable")` of 31-bit integers, in a third of the time.

    Each key is joined with its position to one number, so equal keys keep their order.
    """
    both = keys.astype(np.int64)  # in place from here on: new memory costs more than the arithmetic
    both <<= 32
    both |= np.arange(len(keys))
    both.sort()
    both &= 2**32 - 1
    return both


def _components(a: Ints, b: Ints, count: int) -> Ints:
    sparse = require("scipy.sparse", extra="trees", needed_by="Superpixels")
    graphs = require("scipy.sparse.csgraph", extra="trees", needed_by="Superpixels")
    links = sparse.coo_array((np.ones(len(a), dtype=bool), (a, b)), shape=(count, count))
    return graphs.connected_components(links, directed=False)[1].astype(np.intp)
