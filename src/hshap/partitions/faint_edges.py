"""Faint edges: segments that noise, compression or uneven light divided are joined again."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import require

if TYPE_CHECKING:
    from hshap._util.types import Array, Grid, Ints

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
    near = _neighbours(one, other, len(area))
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


def _neighbours(one: Ints, other: Ints, count: int) -> list[list[int]]:
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
