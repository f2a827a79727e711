"""Tables of regions: those of files, with blocks by their corners and others by their runs.

A table has the regions of all explanations of a block, one after the other; `validity` checks them
at once. Whatever a table returns is a copy, so that one explanation does not keep the others.
"""

from __future__ import annotations

from functools import cache
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.archive import expect
from hshap.explanation.validity import joined
from hshap.partitions.lazy import listed
from hshap.partitions.regions import Box, Pixels, Rolled, runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Mask
    from hshap.explanation.validity import Games
    from hshap.partitions.protocol import Region

    Numbers = NDArray[np.int64]

BOX, ROLLED, PIXELS = range(3)


class Table:
    """The regions: blocks by their start and side lengths, others by their runs of pixels.

    `counts` has the number of regions of each explanation, `grids` its grid, `first` the number of
    its first region, and `owner` the explanation of each region.
    """

    def __init__(self, every: Sequence[Mapping[str, Array]], grids: Sequence[Grid]) -> None:
        self.grids, self.pixels = grids, np.array([prod(grid) for grid in grids])
        self.kind, self.counts = joined(every, "region_kind")
        for arrays, count, grid in zip(every, self.counts, grids, strict=True):
            fits = arrays["region_corners"].shape == (count, 2, len(grid))
            expect(fits, "region_corners has another shape")
        corners, _ = joined(every, "region_corners")
        self.first = [0, *accumulate(self.counts[:-1])]
        self.owner = np.repeat(np.arange(len(grids)), self.counts)
        self.sides = np.array(grids)[self.owner]
        expect((self.kind <= PIXELS).all(), "a region is of no known kind")
        self.is_block = self.kind != PIXELS
        first, second = (corners[:, i] for i in range(2))
        outside = (first < 0) | (first >= self.sides) | (second <= 0) | (second > self.sides)
        expect(not outside[self.is_block].any(), "a block lies outside of the grid")
        # A box has the pixel past its last as its second corner, a rolled block its side lengths.
        is_box = (self.kind == BOX)[:, None]
        self.start, self.length = first, np.where(is_box, second - first, second)
        expect((self.length[self.is_block] > 0).all(), "a block has no pixels")
        self.areas = np.zeros(len(self.kind), dtype=np.int64)
        self.areas[self.is_block] = self.length[self.is_block].prod(1)
        self.corners = corners
        self._read_free(every)

    def regions(self, place: int, *, adaptive: bool) -> list[Region]:
        """Return the regions of one explanation, by its place in the block."""
        begin, grid = self.first[place], self.grids[place]
        end = begin + self.counts[place]
        found: list[Region] = []
        kinds, corners = self.kind[begin:end].tolist(), self.corners[begin:end].tolist()
        for number, (kind, (first, second)) in enumerate(zip(kinds, corners, strict=True), begin):
            if kind == BOX:
                found.append(Box(tuple(first), tuple(second), adaptive=adaptive))
            elif kind == ROLLED:
                found.append(Rolled(tuple(first), tuple(second), grid, adaptive=adaptive))
            else:
                found.append(self._free_region(number, grid, adaptive=adaptive))
        return found

    def _read_free(self, every: Sequence[Mapping[str, Array]]) -> None:
        """Read the regions that are no blocks."""
        values, lengths = joined(every, "region_runs")
        sizes, counts = joined(every, "region_sizes")
        free = np.flatnonzero(~self.is_block)
        owners = self.owner[free]
        wanted = np.bincount(owners, minlength=len(lengths)).tolist()
        expect(counts == wanted, "region_sizes has another length")
        usual = (sizes >= 2) & (sizes % 2 == 0) & (sizes <= np.array(lengths)[owners])
        expect(usual.all(), "region_runs has another length")
        ends = np.bincount(owners, sizes, minlength=len(lengths)).tolist()
        expect(ends == lengths, "region_runs has another length")
        begins = np.cumsum(sizes) - sizes
        inside = (values >= 0) & (values <= np.repeat(self.pixels, lengths))
        expect(inside.all(), "a region has pixels outside of the grid")
        rises = np.diff(values) > 0
        rises[begins[1:] - 1] = True  # from one region to the next
        expect(rises.all(), "runs of pixels are not sorted")
        spans = values.reshape(-1, 2)
        self._spans = dict(zip(free.tolist(), np.split(spans, begins[1:] // 2), strict=False))
        if len(free):
            self.areas[free] = np.add.reduceat(spans[:, 1] - spans[:, 0], begins // 2)

    def take_tree(self, games: Games) -> None:
        """Take the trees, once they are known to be some; runs of pixels need none."""

    def _free_region(self, number: int, grid: Grid, *, adaptive: bool) -> Pixels:
        """Return a region that is no block."""
        spans = self._spans[number]
        return Pixels(listed(spans[:, 0], spans[:, 1] - spans[:, 0]), grid, adaptive=adaptive)

    def positions(self, games: Games) -> list[int]:
        """Count the pixels of each explanation that are listed one by one, or to compare them."""
        if self.is_block.all():
            return [0] * len(self.counts)
        in_blocks = self._in_blocks(games)
        blocks = self.is_block[games.children] & ~in_blocks[games.game_of_part]
        counted = [np.flatnonzero(~self.is_block), games.children[blocks], games.region[~in_blocks]]
        numbers = np.concatenate(counted)
        found = np.bincount(self.owner[numbers], self.areas[numbers], minlength=len(self.counts))
        return [int(count) for count in found.tolist()]

    def _in_blocks(self, games: Games) -> Mask:
        """Tell for each game whether its region and all its parts are blocks."""
        parts = games.game_of_part[~self.is_block[games.children]]
        free = np.bincount(parts, minlength=len(games.region))
        return (free == 0) & self.is_block[games.region]

    def check_parts(self, games: Games) -> None:
        """Check that the parts of every region lie in it, cover it and do not overlap."""
        in_blocks = self._in_blocks(games)
        self._check_blocks(games, in_blocks)
        for game in np.flatnonzero(~in_blocks).tolist():
            begin = games.first_part[game]
            parts = games.children[begin : begin + games.players[game]]
            self._check_free(int(games.region[game]), parts.tolist())

    def _check_blocks(self, games: Games, chosen: Mask) -> None:
        """Check that all parts cover their regions, and where those of chosen games lie: blocks."""
        covered = np.bincount(games.game_of_part, self.areas[games.children])
        expect((covered == self.areas[games.region]).all(), "parts do not cover their region")
        blocks = chosen[games.game_of_part]
        inside = self._contains(games.whole[blocks], games.children[blocks])
        expect(inside.all(), "a part lies outside of its region")
        for players in sorted(set(games.players.tolist())):
            numbers, parts, _ = games.of_size(players)
            children = games.children[parts[chosen[numbers]]]
            one, other = _pairs(players)
            apart = self._apart(children[:, one].ravel(), children[:, other].ravel())
            expect(apart.all(), "two parts overlap")

    def _contains(self, whole: Numbers, part: Numbers) -> Mask:
        # Modulo the side: blocks may cross the border and continue on the opposite side.
        sides = self.sides[part]
        offset = (self.start[part] - self.start[whole]) % sides
        fits = offset + self.length[part] <= self.length[whole]
        return np.all(fits | (self.length[whole] == sides), axis=1)

    def _apart(self, one: Numbers, other: Numbers) -> Mask:
        sides = self.sides[one]
        after = (self.start[other] - self.start[one]) % sides >= self.length[one]
        before = (self.start[one] - self.start[other]) % sides >= self.length[other]
        return np.any(after & before, axis=1)

    def _check_free(self, region: int, parts: list[int]) -> None:
        whole = self._runs(region)
        inner = np.concatenate([self._runs(part) for part in parts])
        inner = inner[np.argsort(inner[:, 0])]
        expect((inner[1:, 0] >= inner[:-1, 1]).all(), "two parts overlap")
        place = np.searchsorted(whole[:, 0], inner[:, 0], side="right") - 1
        fits = (place >= 0) & (inner[:, 1] <= whole[place, 1])
        expect(fits.all(), "a part lies outside of its region")

    def _runs(self, number: int) -> Numbers:
        if not self.is_block[number]:
            return self._spans[number]
        grid = self.grids[self.owner[number]]
        spans = zip(self.start[number], self.length[number], grid, strict=True)
        axes = np.ix_(*(np.arange(a, a + n) % side for a, n, side in spans))
        flat = np.ravel_multi_index(axes, grid).ravel()
        return runs(np.sort(flat)).reshape(-1, 2)


@cache
def _pairs(players: int) -> tuple[Numbers, Numbers]:
    """Return the numbers of all pairs of players."""
    return np.triu_indices(players, 1)
