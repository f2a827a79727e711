"""Cells: the regions of a tree as one label for each pixel, a fraction of their runs of pixels.

The parts of a region cover it, so every region is a union of the finest regions of its tree. One
number for each pixel, that of the finest region around it, tells all of them. If the finest regions
are sorted as they come in the tree, every region is a range of them.
"""

from __future__ import annotations

from functools import cached_property, partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.archive import expect
from hshap.explanation.validity import BOX, PIXELS, Games, Table
from hshap.partitions.regions import LazyPixels, Pixels, mask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid
    from hshap.partitions.protocol import Adaptive, Region

TYPES = (np.uint8, np.uint16, np.uint32)


def labels_of(
    arrays: Mapping[str, Array], regions: Sequence[Region], grid: Grid
) -> NDArray[np.unsignedinteger]:
    """Return the number of the finest region around each pixel; nothing if all are blocks."""
    kinds = arrays["region_kind"]
    if not (kinds == PIXELS).any():
        return np.zeros(0, np.uint8)
    labels = np.zeros(grid, dtype=_type(len(kinds)))
    is_finest = np.ones(len(regions), dtype=bool)
    is_finest[arrays["game_region"][arrays["game_players"] > 1]] = False
    for number in np.flatnonzero(is_finest).tolist():
        region = regions[number]
        if isinstance(region, Pixels):
            labels.reshape(-1)[region.flat] = number
        else:
            labels[region.index] = number
    return labels.ravel()


def pack_labels(labels: NDArray[np.unsignedinteger], grid: Grid) -> bytes:
    """Return the bytes of labels: a pixel is mostly as the one above it, and zeros pack well."""
    image = labels.reshape(-1, grid[-1]).copy()
    image[1:] ^= labels.reshape(-1, grid[-1])[:-1]
    return image.tobytes()


def unpack_labels(data: bytes, regions: int, grid: Grid) -> NDArray[np.unsignedinteger]:
    """Return the labels that `pack_labels` packed; nothing of nothing."""
    kind = np.dtype(_type(regions))
    expect(not data or len(data) == prod(grid) * kind.itemsize, "its cells miss pixels")
    if not data:
        return np.zeros(0, kind)
    image = np.frombuffer(data, kind).reshape(-1, grid[-1]).copy()
    # Each row XOR all rows above it, in steps that double: quicker than one row after the other.
    step = 1
    while step < len(image):
        image[step:] ^= image[:-step].copy()
        step *= 2
    return image.ravel()


class CellTable(Table):
    """The regions of a tree by the label of each pixel, in the array `labels`.

    Regions that are made of cells cover their parts and nothing else, since they are ranges of
    cells; only blocks must be compared with the cells in them.
    """

    def _read_free(self, arrays: Mapping[str, Array]) -> None:
        self._labels = arrays["labels"]
        self._has_cells = not self.is_block.all()
        if not self._has_cells:
            expect(not len(self._labels), "it has cells, but no region of that kind")
            return
        expect(len(self._labels) == prod(self.grid), "its cells miss pixels")
        expect(self._labels.max() < self.count, "a cell is of no region")

    def positions(self, games: Games) -> int:
        """Count the pixels that are listed one by one: all regions share one list."""
        return prod(self.grid) if self._has_cells else super().positions(games)

    def take_tree(self, games: Games) -> None:
        """Sort the cells as the tree has them; a region then is a range of cells."""
        if not self._has_cells:
            return
        self._first, self._last = _ranges(games, self.count)
        is_finest = self._last - self._first == 1
        starts, lengths = runs_of(self._labels)
        labels = self._labels[starts]
        expect(is_finest[labels].all(), "a cell is of a region with parts")
        self._rank = np.where(is_finest, self._first, 0).astype(self._labels.dtype)
        ranks = self._rank[labels]
        order = np.argsort(ranks, kind="stable")
        self._starts, self._lengths = starts[order], lengths[order]
        cells = int(is_finest.sum())
        self._bounds = np.searchsorted(ranks[order], np.arange(cells + 1))
        expect((np.diff(self._bounds) > 0).all(), "a region has no pixels")
        self._ends = _before(self._lengths)[self._bounds]
        areas = self._ends[self._last] - self._ends[self._first]
        same = areas[self.is_block] == self.areas[self.is_block]
        expect(same.all(), "parts do not cover their region")
        self.areas = areas
        within = self.is_block & (self._last - self._first < cells)
        for number in np.flatnonzero(within).tolist():
            inside = self.ranks.reshape(self.grid)[self._block(number)]
            first, last = self._first[number], self._last[number]
            expect(inside.min() >= first and inside.max() < last, "two parts overlap")

    @cached_property
    def ranks(self) -> NDArray[np.unsignedinteger]:
        """The cell of each pixel, by its place in the order of the tree."""
        return self._rank[self._labels]

    def check_parts(self, games: Games) -> None:
        """Check the parts of every region; cells cannot overlap, and miss no pixel."""
        if not self._has_cells:
            super().check_parts(games)

    def free_region(self, number: int, adaptive: Adaptive) -> Pixels:
        """Return a region that is no block; its pixels are listed when they are asked for."""
        area, total = self._areas_and_totals[number]
        listed = partial(self.pixels, number)
        return LazyPixels(self.grid, area=area, total=total, listed=listed, adaptive=adaptive)

    @cached_property
    def _areas_and_totals(self) -> list[tuple[int, int]]:
        """The number of pixels of each region, and the sum of their positions."""
        starts, lengths = self._starts, self._lengths
        before = _before(lengths * (2 * starts + lengths - 1) // 2)[self._bounds]
        totals = before[self._last] - before[self._first]
        return list(zip(self.areas.tolist(), totals.tolist(), strict=True))

    def pixels(self, number: int) -> NDArray[np.int64]:
        """Return the positions of a free region, cell by cell."""
        begin, end = self._bounds[self._first[number]], self._bounds[self._last[number]]
        starts, lengths = self._starts[begin:end], self._lengths[begin:end]
        ends = np.cumsum(lengths)
        flat = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        flat.flags.writeable = False  # a region need not copy it
        return flat

    def check_regions(self, regions: Sequence[Region]) -> None:
        """Check that regions have the pixels that the cells give them."""
        for number in np.flatnonzero(~self.is_block).tolist():
            region = regions[number]
            expect(region.area == self.areas[number], "parts do not cover their region")
            # Plain numbers: with one of NumPy, all ranks would become as large as it is.
            first, last = int(self._first[number]), int(self._last[number])
            if last - first > 1:
                cells = (self.ranks >= first) & (self.ranks <= last - 1)
                same = np.array_equal(mask((region,), self.grid).ravel(), cells)
                expect(same, "a part lies outside of its region")

    def _block(self, number: int) -> tuple[Array, ...] | tuple[slice, ...]:
        start, length = self.start[number].tolist(), self.length[number].tolist()
        if self.kind[number] == BOX:
            return tuple(slice(a, a + n) for a, n in zip(start, length, strict=True))
        spans = zip(start, length, self.grid, strict=True)
        return np.ix_(*(np.arange(a, a + n) % side for a, n, side in spans))


def runs_of(labels: NDArray[np.unsignedinteger]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first positions and the lengths of runs of one label.

    >>> [part.tolist() for part in runs_of(np.array([1, 1, 0, 0, 1], np.uint8))]
    [[0, 2, 4], [2, 2, 1]]
    """
    starts = np.concatenate([[0], np.flatnonzero(labels[1:] != labels[:-1]) + 1])
    return starts, np.diff(starts, append=len(labels))


def _before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of all values before each, and at the end that of all."""
    return np.concatenate([[0], np.cumsum(values)])


def _ranges(games: Games, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first cell of each region, and the one past its last, in the order of the tree."""
    parts_of = [
        (region, games.children[begin : begin + players].tolist())
        for region, begin, players in zip(
            games.region.tolist(), games.first_part.tolist(), games.players.tolist(), strict=True
        )
        if players > 1
    ]
    cells, first = [1] * count, [0] * count
    for region, parts in reversed(
        parts_of
    ):  # parts first: their games come after that of the region
        cells[region] = sum(cells[part] for part in parts)
    for region, parts in parts_of:
        place = first[region]
        for part in parts:
            first[part], place = place, place + cells[part]
    begin = np.array(first, dtype=np.int64)
    return begin, begin + np.array(cells)


def _type(count: int) -> type[np.unsignedinteger]:
    """Return the smallest type for the numbers of so many regions."""
    return next(kind for kind in TYPES if count - 1 <= np.iinfo(kind).max)
