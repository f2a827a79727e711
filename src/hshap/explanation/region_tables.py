"""The table of regions: one for files, for rows of a run, and for the page.

A block is stored by its corners. The parts of a region cover it, so every other region is a union
of the finest regions of its tree: one image, with the number of the finest region at each pixel,
holds them all. With the pixels in the order of the tree, each region is a range of them.

A table has the regions of all explanations of a block, one after the other; `validity` checks them
at once. Each explanation has its own list of pixels, and its regions are views of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.archive import expect
from hshap.partitions.regions import Box, Pixels, Rolled, mask

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Ints, Mask
    from hshap.explanation.validity import Games
    from hshap.partitions.protocol import Region

    Numbers = NDArray[np.int64]
    Labels = NDArray[np.unsignedinteger]

BOX, ROLLED, PIXELS = range(3)

TYPES = (np.uint8, np.uint16, np.uint32)


def pack_regions(
    regions: Sequence[Region], games: Mapping[str, Array], grid: Grid
) -> dict[str, Array]:
    """Return the arrays of a table: kinds, corners of blocks, and packed labels for the others.

    `games` has the arrays `game_region` and `game_players`, which tell the finest regions.
    """
    kinds, corners = [], []
    for region in regions:
        if isinstance(region, Box):
            kinds.append(BOX)
            corners.append(region.start + region.stop)
        elif isinstance(region, Rolled):
            kinds.append(ROLLED)
            corners.append(region.start + region.shape)
        else:
            kinds.append(PIXELS)
            corners.append(grid + grid)
    flat = np.array(corners, dtype=np.int64)  # far faster than pairs of tuples
    cells = b""
    if PIXELS in kinds:
        cells = pack_labels(label_image(regions, games, grid))
    return {
        "region_kind": np.array(kinds, dtype=np.uint8),
        "region_corners": flat.reshape(len(regions), 2, -1),
        "cells": np.frombuffer(cells, dtype=np.uint8),
    }


def label_image(regions: Sequence[Region], games: Mapping[str, Array], grid: Grid) -> Labels:
    """Return the number of the finest region at each pixel."""
    labels = np.zeros(grid, dtype=smallest_type(len(regions)))
    is_finest = np.ones(len(regions), dtype=bool)
    is_finest[games["game_region"][games["game_players"] > 1]] = False
    for number in np.flatnonzero(is_finest).tolist():
        region = regions[number]
        if isinstance(region, Pixels):
            labels.reshape(-1)[region.flat] = number
        else:
            labels[region.index] = number
    return labels


def pack_labels(labels: Labels) -> bytes:
    """Return the bytes of labels: a pixel is mostly as the one above it, and zeros pack well."""
    lines = labels.reshape(-1, labels.shape[-1])
    image = lines.copy()
    image[1:] ^= lines[:-1]
    return image.tobytes()


def unpack_labels(data: bytes, regions: int, grid: Grid) -> Labels:
    """Return the labels that `pack_labels` packed, as a flat array."""
    kind = np.dtype(smallest_type(regions))
    expect(len(data) == prod(grid) * kind.itemsize, "its cells miss pixels")
    image = np.frombuffer(data, kind).reshape(-1, grid[-1]).copy()
    # Each row XOR all rows above it, in steps that double: quicker than one row after the other.
    step = 1
    while step < len(image):
        image[step:] ^= image[:-step].copy()
        step *= 2
    return image.ravel()


def smallest_type(count: int) -> type[np.unsignedinteger]:
    """Return the smallest type for the numbers of so many regions."""
    return next(kind for kind in TYPES if count - 1 <= np.iinfo(kind).max)


def concatenate_arrays(every: Sequence[Mapping[str, Array]], name: str) -> tuple[Array, list[int]]:
    """Return an array of all explanations, one after the other, and the length of each."""
    arrays = [arrays[name] for arrays in every]
    lengths = [len(array) for array in arrays]
    return (arrays[0] if len(arrays) == 1 else np.concatenate(arrays)), lengths


@dataclass(frozen=True, eq=False)
class _Cells:
    """The pixels of an image in the order of its tree; region i has those from begin[i] to end[i].

    `ranks` has the place of each pixel's finest region, and a region holds the ranks from `first`
    to before `last`.
    """

    pixels: Ints
    ranks: Labels
    first: Numbers
    last: Numbers
    begin: Numbers
    end: Numbers


class RegionTable:
    """The regions of some explanations.

    `counts` has the number of regions of each explanation, `grids` its grid, `first` the number of
    its first region, and `owner` the explanation of each region.
    """

    def __init__(self, every: Sequence[Mapping[str, Array]], grids: Sequence[Grid]) -> None:
        self.grids, self.pixels = grids, np.array([prod(grid) for grid in grids])
        self.kind, self.counts = concatenate_arrays(every, "region_kind")
        for arrays, count, grid in zip(every, self.counts, grids, strict=True):
            fits = arrays["region_corners"].shape == (count, 2, len(grid))
            expect(fits, "region_corners has another shape")
        self._corners, _ = concatenate_arrays(every, "region_corners")
        self.first = [0, *accumulate(self.counts[:-1])]
        self.owner = np.repeat(np.arange(len(grids)), self.counts)
        self._sides = np.array(grids)[self.owner]
        expect((self.kind <= PIXELS).all(), "a region is of no known kind")
        self.is_block = self.kind != PIXELS
        first, second = (self._corners[:, i] for i in range(2))
        outside = (first < 0) | (first >= self._sides) | (second <= 0) | (second > self._sides)
        expect(not outside[self.is_block].any(), "a block lies outside of the grid")
        # A box has the pixel past its last as its second corner, a rolled block its side lengths.
        is_box = (self.kind == BOX)[:, None]
        self._start, self._length = first, np.where(is_box, second - first, second)
        expect((self._length[self.is_block] > 0).all(), "a block has no pixels")
        self.areas = np.zeros(len(self.kind), dtype=np.int64)
        self.areas[self.is_block] = self._length[self.is_block].prod(1)
        self._packed = [arrays["cells"] for arrays in every]
        self.has_cells = np.bincount(self.owner[~self.is_block], minlength=len(every)) > 0
        for packed, has_cells in zip(self._packed, self.has_cells.tolist(), strict=True):
            expect(has_cells or not len(packed), "it has cells, but no region of that kind")
        self._cells: dict[int, _Cells] = {}

    def regions(self, place: int, *, adaptive: bool) -> list[Region]:
        """Return the regions of one explanation, by its place in the block."""
        own, grid, cells = self._own(place), self.grids[place], self._cells.get(place)
        spans = [] if cells is None else np.stack([cells.begin, cells.end], 1).tolist()
        found: list[Region] = []
        corners = self._corners[own].tolist()
        for number, (kind, (first, second)) in enumerate(
            zip(self.kind[own].tolist(), corners, strict=True)
        ):
            if kind == BOX:
                found.append(Box(tuple(first), tuple(second), adaptive=adaptive))
            elif kind == ROLLED:
                found.append(Rolled(tuple(first), tuple(second), grid, adaptive=adaptive))
            elif cells is not None:
                begin, end = spans[number]
                found.append(Pixels(cells.pixels[begin:end], grid, adaptive=adaptive))
        return found

    def take_tree(self, games: Games) -> None:
        """Sort the pixels as the trees have them, so that each region is a range of them."""
        if not self.has_cells.any():
            return
        firsts, lasts = _ranges(games)
        for place in np.flatnonzero(self.has_cells).tolist():
            own, grid = self._own(place), self.grids[place]
            root = games.region[games.first[place]]
            first, last = firsts[own] - firsts[root], lasts[own] - firsts[root]
            labels = unpack_labels(self._packed[place].tobytes(), self.counts[place], grid)
            expect(labels.max() < self.counts[place], "a cell is of no region")
            is_finest = last - first == 1
            expect(is_finest[labels].all(), "a cell is of a region with parts")
            ranks = np.where(is_finest, first, 0).astype(labels.dtype)[labels]
            counts = np.bincount(ranks, minlength=int(last.max()))
            expect((counts > 0).all(), "a region has no pixels")
            pixels = np.argsort(ranks, kind="stable")
            pixels.flags.writeable = False  # a region need not copy it
            bounds = np.concatenate([[0], np.cumsum(counts)])
            cells = _Cells(pixels, ranks, first, last, bounds[first], bounds[last])
            areas = cells.end - cells.begin
            is_block = self.is_block[own]
            same = areas[is_block] == self.areas[own][is_block]
            expect(same.all(), "parts do not cover their region")
            self.areas[own], self._cells[place] = areas, cells
            for number in np.flatnonzero(is_block).tolist():
                inside = ranks.reshape(grid)[self._block(own.start + number)]
                fits = inside.min() >= first[number] and inside.max() < last[number]
                expect(fits, "two parts overlap")

    def count_listed(self) -> list[int]:
        """Return the number of pixels of each explanation that are listed one by one."""
        return np.where(self.has_cells, self.pixels, 0).tolist()

    def check_parts(self, games: Games) -> None:
        """Check that the parts of every region lie in it, cover it and do not overlap.

        Cells do all this by themselves, so blocks without cells are left.
        """
        covered = np.bincount(games.game_of_part, self.areas[games.children])
        expect((covered == self.areas[games.region]).all(), "parts do not cover their region")
        chosen = ~self.has_cells[games.owner]
        blocks = chosen[games.game_of_part]
        inside = self._contains(games.whole[blocks], games.children[blocks])
        expect(inside.all(), "a part lies outside of its region")
        for players in sorted(set(games.players.tolist())):
            numbers, parts, _ = games.of_size(players)
            children = games.children[parts[chosen[numbers]]]
            one, other = _pairs(players)
            apart = self._apart(children[:, one].ravel(), children[:, other].ravel())
            expect(apart.all(), "two parts overlap")

    def check_regions(self, place: int, regions: Sequence[Region]) -> None:
        """Check that regions of one explanation have the pixels that the table gives them."""
        cells = self._cells.get(place)
        if cells is None:
            return
        own, grid = self._own(place), self.grids[place]
        for number in np.flatnonzero(~self.is_block[own]).tolist():
            region, first, last = regions[number], cells.first[number], cells.last[number]
            same = region.area == cells.end[number] - cells.begin[number]
            expect(same, "parts do not cover their region")
            if last - first > 1:
                inside = (cells.ranks >= first) & (cells.ranks < last)
                same = np.array_equal(mask((region,), grid).ravel(), inside)
                expect(same, "a part lies outside of its region")

    def _own(self, place: int) -> slice:
        """Return the numbers of the regions of one explanation."""
        return slice(self.first[place], self.first[place] + self.counts[place])

    def _contains(self, whole: Numbers, part: Numbers) -> Mask:
        # Modulo the side: blocks may cross the border and continue on the opposite side.
        sides = self._sides[part]
        offset = (self._start[part] - self._start[whole]) % sides
        fits = offset + self._length[part] <= self._length[whole]
        return np.all(fits | (self._length[whole] == sides), axis=1)

    def _apart(self, one: Numbers, other: Numbers) -> Mask:
        sides = self._sides[one]
        after = (self._start[other] - self._start[one]) % sides >= self._length[one]
        before = (self._start[one] - self._start[other]) % sides >= self._length[other]
        return np.any(after & before, axis=1)

    def _block(self, number: int) -> tuple[Array, ...]:
        """Return the index of the pixels of a block."""
        grid = self.grids[self.owner[number]]
        spans = zip(self._start[number].tolist(), self._length[number].tolist(), grid, strict=True)
        return np.ix_(*(np.arange(a, a + n) % side for a, n, side in spans))


@cache
def _pairs(players: int) -> tuple[Numbers, Numbers]:
    """Return the numbers of all pairs of players."""
    return np.triu_indices(players, 1)


def _ranges(games: Games) -> tuple[Numbers, Numbers]:
    """Return the first finest region in each region, and the one past its last, as the tree is.

    Regions of one tree come after those of the tree before it.
    """
    children, firsts = games.children.tolist(), games.first_part.tolist()
    divided = [
        (region, children[begin : begin + players])
        for region, begin, players in zip(
            games.region.tolist(), firsts, games.players.tolist(), strict=True
        )
        if players > 1
    ]
    cells, first = [1] * games.regions, [0] * games.regions
    for region, parts in reversed(divided):  # the games of parts come after that of their region
        cells[region] = sum([cells[part] for part in parts])
    place = 0
    for root in games.region[games.first].tolist():
        first[root], place = place, place + cells[root]
    for region, parts in divided:
        place = first[region]
        for part in parts:
            first[part], place = place, place + cells[part]
    starts = np.array(first, dtype=np.int64)
    return starts, starts + np.array(cells)
