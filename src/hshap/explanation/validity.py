"""Whether the arrays and the header of a file are those of an explanation.

Everything is checked before an `Explanation` is made of them, so that none of its methods meets a
number that a run cannot give. Regions are numbers here, rows of the arrays that `storage` writes.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.explanation.archive import expect, limit, only_damage
from hshap.explanation.headers import LARGEST, check_header
from hshap.games.game import MOST_PLAYERS
from hshap.games.shapley import shapley
from hshap.partitions.regions import Pixels, runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Mask
    from hshap.partitions.protocol import Adaptive

    Numbers = NDArray[np.int64]

BOX, ROLLED, PIXELS = range(3)

ROUNDING = 1e-6
"""Of the largest value of a game: the mean of many draws loses some digits."""

OBJECT = 512
"""Bytes that a region or a game takes besides its arrays, about."""


def check(
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    most: int,
    kind: type[Table] | None = None,
    exact: bool = False,
) -> Table:
    """Refuse with a `DamagedError` everything that is not an explanation; return its regions.

    `most` is the number of bytes that the explanation and one of its maps may take. `kind` reads
    regions that are stored in another way. `exact` says that the coefficients are known to be the
    Shapley values, since they have just been computed.
    """
    with only_damage():
        check_header(header)
        table = (kind or Table)(arrays, tuple(header["grid"]))
        games = Games(arrays, table.count)
        needed = sum(array.nbytes for array in arrays.values()) + 8 * prod(table.grid)
        needed += OBJECT * (table.count + len(games.region))
        limit(needed + 8 * table.positions(games), most)
        games.check_tree()
        table.take_tree(games)
        expect(all(i < len(games.region) for i in header.get("inferred", [])), "no such game")
        levels = arrays.get("evidence", ())
        expect(len(levels) in (0, prod(table.grid)), "its evidence misses pixels")
        expect(table.areas[games.region[0]] == prod(table.grid), "the first game misses pixels")
        table.check_parts(games)
        games.check_values(int(header["draws"]), exact=exact)
        check_leaves(arrays["leaves"], arrays["unfinished"], games)
    return table


def _in_range(name: str, numbers: Numbers, count: int) -> Numbers:
    expect(((numbers >= 0) & (numbers < count)).all(), f"{name} has a number of no region")
    return numbers


class Games:
    """Which region plays which game, and with which parts."""

    def __init__(self, arrays: Mapping[str, Array], regions: int) -> None:
        self.regions, self.players = regions, arrays["game_players"]
        expect(len(self.players), "there is no game")
        usual = (self.players >= 1) & (self.players <= MOST_PLAYERS)
        expect(usual.all(), f"a game has less than 1 or more than {MOST_PLAYERS} players")
        self.region = _in_range("game_region", arrays["game_region"], regions)
        self.children = _in_range("game_children", arrays["game_children"], regions)
        self.values, self.errors = arrays["game_values"], arrays["game_errors"]
        self.coefficients = arrays["game_coefficients"]
        expect(len(self.region) == len(self.players), "game_region has another length")
        for name in ("game_children", "game_coefficients", "game_errors"):
            expect(len(arrays[name]) == self.players.sum(), f"{name} has another length")
        expect(len(self.values) == (2**self.players).sum(), "game_values has another length")
        self.first_part = np.cumsum(self.players) - self.players
        self.first_value = np.cumsum(2**self.players) - 2**self.players
        self.game_of_part = np.repeat(np.arange(len(self.players)), self.players)
        self.whole = self.region[self.game_of_part]

    def of_size(self, players: int) -> tuple[Numbers, Numbers, Numbers]:
        """Return the games of so many players, and their rows of parts and of values."""
        games = np.flatnonzero(self.players == players)
        parts = self.first_part[games, None] + np.arange(players)
        return games, parts, self.first_value[games, None] + np.arange(2**players)

    def check_tree(self) -> None:
        """Check that every region but the first is part of one region that came before it."""
        alone = self.children == self.whole
        # A region that cannot be split plays alone: it is its own part.
        expect((alone == (self.players[self.game_of_part] == 1)).all(), "a region has one part")
        seen = np.bincount(self.children[~alone], minlength=self.regions)
        seen[self.region[0]] += 1
        expect((seen == 1).all(), "a region is no part of any other, or of two")
        expect(np.bincount(self.region).max() == 1, "a region has two games")
        born = np.full(self.regions, -1)
        born[self.children[~alone]] = self.game_of_part[~alone]
        expect((born[self.region] < np.arange(len(self.region))).all(), "a part precedes its whole")

    def check_values(self, draws: int, *, exact: bool) -> None:
        """Check that values are finite and agree, and coefficients are their Shapley values."""
        for name, array in (("values", self.values), ("coefficients", self.coefficients)):
            expect(np.abs(array).max() <= LARGEST, f"{name} are not finite")
        uncertain = bool(self.errors.any())
        if uncertain:
            known = self.errors[~np.isnan(self.errors)]
            most = LARGEST if draws > 1 else 0
            expect(((known >= 0) & (known <= most)).all(), "standard errors are out of range")
        alone = np.zeros(self.regions)
        scale = float(np.abs(self.values).max())
        for players in sorted(set(self.players.tolist())):
            _, parts, rows = self.of_size(players)
            values = self.values[rows]
            errors = self.errors[parts] if uncertain else np.zeros((1, 1))
            expect(players == 1 or not np.isnan(errors).any(), "standard errors are missing")
            if not exact:
                slack = np.abs(values).max(1) + np.nan_to_num(errors).max(1) * draws**0.5
                off = np.abs(self.coefficients[parts] - shapley(values)).max(1)
                known = (off <= ROUNDING * slack).all()
                expect(known, "coefficients are not the Shapley values of the scores")
            base = np.abs(values[:, 0] - self.values[0])
            expect((base <= ROUNDING * scale).all(), "the baseline has two scores")
            alone[self.children[parts]] = values[:, 1 << np.arange(players)]
        last = self.values[self.first_value + 2**self.players - 1]
        off = np.abs(last - alone[self.region])[1:]
        expect((off <= ROUNDING * scale).all(), "a region has two scores")


class Table:
    """The regions: blocks by their start and side lengths, others by their runs of pixels."""

    def __init__(self, arrays: Mapping[str, Array], grid: Grid) -> None:
        self.grid, self.kind = grid, arrays["region_kind"]
        corners, sides = arrays["region_corners"], np.array(grid)
        self.count = len(self.kind)
        expect(corners.shape == (self.count, 2, len(grid)), "region_corners has another shape")
        expect((self.kind <= PIXELS).all(), "a region is of no known kind")
        self.is_block = self.kind != PIXELS
        first, second = (corners[:, i] for i in range(2))
        outside = (first < 0) | (first >= sides) | (second <= 0) | (second > sides)
        expect(not outside[self.is_block].any(), "a block lies outside of the grid")
        # A box has the pixel past its last as its second corner, a rolled block its side lengths.
        is_box = (self.kind == BOX)[:, None]
        self.start, self.length = first, np.where(is_box, second - first, second)
        expect((self.length[self.is_block] > 0).all(), "a block has no pixels")
        self.areas = np.zeros(self.count, dtype=np.int64)
        self.areas[self.is_block] = self.length[self.is_block].prod(1)
        self.corners = corners
        self._read_free(arrays)

    def _read_free(self, arrays: Mapping[str, Array]) -> None:
        """Read the regions that are no blocks."""
        self._read_runs(arrays["region_runs"], arrays["region_sizes"])

    def take_tree(self, games: Games) -> None:
        """Take the tree, once it is known to be one; runs of pixels need none."""

    def free_region(self, number: int, adaptive: Adaptive) -> Pixels:
        """Return a region that is no block."""
        return Pixels(self.pixels(number), self.grid, adaptive=adaptive)

    def pixels(self, number: int) -> Numbers:
        """Return the positions of a free region; nobody can write to them."""
        runs = self._spans[number]
        starts, lengths = runs[:, 0], runs[:, 1] - runs[:, 0]
        ends = np.cumsum(lengths)
        # Pixels of a run are consecutive: add to each position the offset of its run.
        flat = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        flat.flags.writeable = False  # a region need not copy it
        return flat

    def _read_runs(self, values: Numbers, sizes: Numbers) -> None:
        free = np.flatnonzero(~self.is_block)
        expect(len(sizes) == len(free), "region_sizes has another length")
        usual = (sizes >= 2) & (sizes % 2 == 0) & (sizes <= len(values))
        expect(usual.all() and sizes.sum() == len(values), "region_runs has another length")
        begins = np.cumsum(sizes) - sizes
        inside = (values >= 0) & (values <= prod(self.grid))
        expect(inside.all(), "a region has pixels outside of the grid")
        rises = np.diff(values) > 0
        rises[begins[1:] - 1] = True  # from one region to the next
        expect(rises.all(), "runs of pixels are not sorted")
        spans = values.reshape(-1, 2)
        self._spans = dict(zip(free.tolist(), np.split(spans, begins[1:] // 2), strict=False))
        if len(free):
            self.areas[free] = np.add.reduceat(spans[:, 1] - spans[:, 0], begins // 2)

    def positions(self, games: Games) -> int:
        """Count the pixels that are listed one by one, here or to compare regions."""
        if self.is_block.all():
            return 0
        listed = self.areas[~self.is_block].sum(dtype=float)
        blocks = self.is_block[games.children] & ~self._in_blocks(games)[games.game_of_part]
        listed += self.areas[games.children[blocks]].sum(dtype=float)
        return int(listed + self.areas[games.region[~self._in_blocks(games)]].sum(dtype=float))

    def _in_blocks(self, games: Games) -> Mask:
        """Tell for each game whether its region and all its parts are blocks."""
        parts = games.game_of_part[~self.is_block[games.children]]
        free = np.bincount(parts, minlength=len(games.region))
        return (free == 0) & self.is_block[games.region]

    def check_parts(self, games: Games) -> None:
        """Check that the parts of every region lie in it, cover it and do not overlap."""
        in_blocks = self._in_blocks(games)
        covered = np.bincount(games.game_of_part, self.areas[games.children])
        expect((covered == self.areas[games.region]).all(), "parts do not cover their region")
        blocks = in_blocks[games.game_of_part]
        inside = self._contains(games.whole[blocks], games.children[blocks])
        expect(inside.all(), "a part lies outside of its region")
        for players in sorted(set(games.players.tolist())):
            chosen, parts, _ = games.of_size(players)
            children = games.children[parts[in_blocks[chosen]]]
            one, other = _pairs(players)
            apart = self._apart(children[:, one].ravel(), children[:, other].ravel())
            expect(apart.all(), "two parts overlap")
        for game in np.flatnonzero(~in_blocks).tolist():
            begin = games.first_part[game]
            parts = games.children[begin : begin + games.players[game]]
            self._check_free(int(games.region[game]), parts.tolist())

    def _contains(self, whole: Numbers, part: Numbers) -> Mask:
        # Modulo the side: blocks may cross the border and continue on the opposite side.
        offset = (self.start[part] - self.start[whole]) % self.grid
        fits = offset + self.length[part] <= self.length[whole]
        return np.all(fits | (self.length[whole] == self.grid), axis=1)

    def _apart(self, one: Numbers, other: Numbers) -> Mask:
        after = (self.start[other] - self.start[one]) % self.grid >= self.length[one]
        before = (self.start[one] - self.start[other]) % self.grid >= self.length[other]
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
        spans = zip(self.start[number], self.length[number], self.grid, strict=True)
        axes = np.ix_(*(np.arange(a, a + n) % side for a, n, side in spans))
        flat = np.ravel_multi_index(axes, self.grid).ravel()
        return runs(np.sort(flat)).reshape(-1, 2)


@cache
def _pairs(players: int) -> tuple[Numbers, Numbers]:
    """Return the numbers of all pairs of players."""
    return np.triu_indices(players, 1)


def check_leaves(leaves: Numbers, unfinished: Numbers, games: Games) -> None:
    """Check that leaves are regions that do not overlap, and that unfinished ones are leaves."""
    for name, numbers in (("leaves", leaves), ("unfinished", unfinished)):
        times = np.bincount(_in_range(name, numbers, games.regions), minlength=games.regions)
        expect(times.max() <= 1, f"{name} has a region twice")
    is_leaf = np.zeros(games.regions, dtype=bool)
    is_leaf[leaves] = True
    expect(is_leaf[unfinished].all(), "an unfinished region is no leaf")
    inside = is_leaf.tolist()
    pairs = zip(games.whole.tolist(), games.children.tolist(), strict=True)
    for whole, part in pairs:
        if inside[whole] and part != whole:
            expect(not is_leaf[part], "a leaf holds another")
            inside[part] = True
