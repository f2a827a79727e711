"""Cells: the regions of a tree as one label for each pixel, a fraction of their runs of pixels.

The parts of a region cover it, so every region is a union of the finest regions of its tree. One
number for each pixel, that of the finest region around it, tells all of them. If the finest regions
are sorted as they come in the tree, every region is a range of them.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.archive import expect
from hshap.explanation.region_tables import BOX, PIXELS, Table
from hshap.partitions.lazy import LazyPixels
from hshap.partitions.regions import Pixels, mask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid
    from hshap.explanation.validity import Games
    from hshap.partitions.protocol import Region

TYPES = (np.uint8, np.uint16, np.uint32)


def labels_of(
    arrays: Mapping[str, Array], regions: Sequence[Region], grid: Grid
) -> NDArray[np.unsignedinteger]:
    """Return the number of the finest region around each pixel; nothing if all are blocks."""
    kinds = arrays["region_kind"]
    if not (kinds == PIXELS).any():
        return np.zeros(0, np.uint8)
    labels = np.zeros(grid, dtype=smallest_type(len(kinds)))
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
    kind = np.dtype(smallest_type(regions))
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
    """The regions of trees by the label of each pixel, in the array `labels`.

    Regions that are made of cells cover their parts and nothing else, since they are ranges of
    cells; only blocks must be compared with the cells in them.
    """

    def _read_free(self, every: Sequence[Mapping[str, Array]]) -> None:
        self._labels = [arrays["labels"] for arrays in every]
        free = np.bincount(self.owner[~self.is_block], minlength=len(every))
        self._has_cells = free > 0
        for labels, has_cells, grid, count in zip(
            self._labels, self._has_cells.tolist(), self.grids, self.counts, strict=True
        ):
            expect(has_cells or not len(labels), "it has cells, but no region of that kind")
            if has_cells:
                expect(len(labels) == prod(grid), "its cells miss pixels")
                expect(labels.max() < count, "a cell is of no region")

    def positions(self, games: Games) -> list[int]:
        """Count the pixels that are listed one by one: all regions of a tree share one list."""
        del games
        return np.where(self._has_cells, self.pixels, 0).tolist()

    def take_tree(self, games: Games) -> None:
        """Sort the cells as the trees have them; a region then is a range of cells."""
        if not self._has_cells.any():
            return
        roots = games.region[games.first]
        self._first, self._last = _ranges(games, roots)
        self._before_tree = self._first[roots].tolist()
        is_finest = self._last - self._first == 1
        starts, lengths, labels = self._all_runs()
        expect(is_finest[labels].all(), "a cell is of a region with parts")
        ranks, cells = self._first[labels], int(self._last[roots[-1]])
        order = np.argsort(ranks.astype(smallest_type(cells)), kind="stable")
        starts, lengths = starts[order], lengths[order]
        runs = np.bincount(ranks, minlength=cells)
        has_cells = self._has_cells[self.owner]
        expect((runs[self._first[has_cells & is_finest]] > 0).all(), "a region has no pixels")
        bounds = _before(runs)
        self._begin, self._end = bounds[self._first], bounds[self._last]
        areas = self._between(lengths)
        same = areas == self.areas
        expect(same[self.is_block & has_cells].all(), "parts do not cover their region")
        self.areas = np.where(has_cells, areas, self.areas)
        # Regions of an image keep copies of its own runs, and nothing of other images.
        totals = self._between(lengths * (2 * starts + lengths - 1) // 2)
        self._facts = np.stack([self.owner, self._begin, self._end, areas, totals], 1).tolist()
        self._sorted = [
            (starts[a:b].copy(), lengths[a:b].copy(), a)
            for a, b in zip(self._begin[roots].tolist(), self._end[roots].tolist(), strict=True)
        ]
        whole = np.repeat(self._last[roots] - self._first[roots], self.counts)
        within = self.is_block & has_cells & (self._last - self._first < whole)
        for place in set(self.owner[within].tolist()):
            ranks = self._ranks(place).reshape(self.grids[place])
            for number in np.flatnonzero(within & (self.owner == place)).tolist():
                inside, (first, last) = ranks[self._block(number)], self._local(number)
                expect(inside.min() >= first and inside.max() < last, "two parts overlap")

    def _all_runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return runs of one label in all images: first pixels, lengths and numbers of regions."""
        found: list[tuple[NDArray[np.int64], ...]] = []
        for labels, first in zip(self._labels, self.first, strict=True):
            if len(labels):
                starts, lengths = runs_of(labels)
                found.append((starts, lengths, labels[starts] + np.int64(first)))
        starts, lengths, labels = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return starts, lengths, labels

    def _between(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each region the sum of values over its runs of pixels, as they are sorted."""
        before = _before(values)
        return before[self._end] - before[self._begin]

    def _local(self, number: int) -> tuple[int, int]:
        """Return the first cell of a region and the one past its last, in its own tree."""
        offset = self._before_tree[self.owner[number]]
        return int(self._first[number] - offset), int(self._last[number] - offset)

    def _ranks(self, place: int) -> NDArray[np.unsignedinteger]:
        """Return the cell of each pixel of an image, by its place in the order of the tree."""
        labels = self._labels[place]
        own = slice(self.first[place], self.first[place] + self.counts[place])
        first, last = self._first[own], self._last[own]
        ranks = np.where(last - first == 1, first - self._before_tree[place], 0)
        return ranks.astype(labels.dtype)[labels]

    def check_parts(self, games: Games) -> None:
        """Check the parts of every region; cells cannot overlap, and miss no pixel."""
        self._check_blocks(games, ~self._has_cells[games.owner])

    def _free_region(self, number: int, grid: Grid, *, adaptive: bool) -> Pixels:
        """Return a region that is no block; its pixels are listed when they are asked for."""
        place, begin, end, area, total = self._facts[number]
        starts, lengths, offset = self._sorted[place]
        own = partial(_cut, starts, lengths, begin - offset, end - offset)
        return LazyPixels(grid, area=area, total=total, spans=own, adaptive=adaptive)

    def check_regions(self, place: int, regions: Sequence[Region]) -> None:
        """Check that regions of one explanation have the pixels that the cells give them."""
        begin = self.first[place]
        free = np.flatnonzero(~self.is_block[begin : begin + self.counts[place]])
        if not len(free):
            return
        ranks, grid = self._ranks(place), self.grids[place]
        for number in free.tolist():
            region = regions[number]
            same = region.area == self.areas[begin + number]
            expect(same, "parts do not cover their region")
            first, last = self._local(begin + number)
            if last - first > 1:
                cells = (ranks >= first) & (ranks <= last - 1)
                same = np.array_equal(mask((region,), grid).ravel(), cells)
                expect(same, "a part lies outside of its region")

    def _block(self, number: int) -> tuple[Array, ...] | tuple[slice, ...]:
        start, length = self.start[number].tolist(), self.length[number].tolist()
        if self.kind[number] == BOX:
            return tuple(slice(a, a + n) for a, n in zip(start, length, strict=True))
        spans = zip(start, length, self.grids[self.owner[number]], strict=True)
        return np.ix_(*(np.arange(a, a + n) % side for a, n, side in spans))


def _cut(
    starts: NDArray[np.int64], lengths: NDArray[np.int64], begin: int, end: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return some of the runs of an image."""
    return starts[begin:end], lengths[begin:end]


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


def _ranges(games: Games, roots: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first cell of each region, and the one past its last, in the order of the trees.

    Cells of one tree come after those of the tree before it.
    """
    parts_of = [
        (region, begin, begin + players)
        for region, begin, players in zip(
            games.region.tolist(), games.first_part.tolist(), games.players.tolist(), strict=True
        )
        if players > 1
    ]
    children, cells, first = games.children.tolist(), [1] * games.regions, [0] * games.regions
    for region, begin, end in reversed(
        parts_of
    ):  # parts first: their games come after that of the region
        cells[region] = sum([cells[part] for part in children[begin:end]])
    place = 0
    for root in roots.tolist():
        first[root], place = place, place + cells[root]
    for region, begin, end in parts_of:
        place = first[region]
        for part in children[begin:end]:
            first[part], place = place, place + cells[part]
    starts = np.array(first, dtype=np.int64)
    return starts, starts + np.array(cells)


def smallest_type(count: int) -> type[np.unsignedinteger]:
    """Return the smallest type for the numbers of so many regions."""
    return next(kind for kind in TYPES if count - 1 <= np.iinfo(kind).max)
