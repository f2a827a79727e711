"""Whether the arrays and the headers of files are those of explanations.

Everything is checked before an `Explanation` is made of them, so that none of its methods meets a
number that a run cannot give. Regions are numbers here, rows of the arrays that `storage` writes.

A block of explanations is checked at once, as one forest with a root for each of them: a few calls
of NumPy do for all. A single one is a block of one, so there is one rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.explanation.archive import DamagedError, expect, limit, only_damage
from hshap.explanation.headers import LARGEST, check_header
from hshap.explanation.region_tables import RegionTable, joined
from hshap.games.game import MOST_PLAYERS
from hshap.games.shapley import shapley

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Mask

    Numbers = NDArray[np.int64]

ROUNDING = 1e-6
"""Of the largest value of a game: the mean of many draws loses some digits."""

MOST_CONTEXTS = 1024

OBJECT = 512
"""Bytes that a region or a game takes besides its arrays, about."""


@dataclass(frozen=True)
class Stored:
    """The header and the arrays of what may be an explanation.

    `exact` says that its coefficients are known to be the Shapley values, since they have just been
    computed.
    """

    header: Mapping[str, Any]
    arrays: Mapping[str, Array]
    exact: bool = False


def check(block: Sequence[Stored], *, most: int) -> RegionTable:
    """Refuse with a `DamagedError` a block that is not all explanations; return their regions.

    `most` is the number of bytes that an explanation and one of its maps may take. A fault is
    told without the explanation that has it: `check_each` tells which ones are refused.
    """
    with only_damage():
        seen: set[int] = set()  # settings that rows of a run share are checked once
        for one in block:
            told = id(one.header.get("settings"))
            check_header(one.header, shared=told in seen)
            seen.add(told)
        every = [one.arrays for one in block]
        table = RegionTable(every, [tuple(one.header["grid"]) for one in block])
        games = Games(every, table.counts)
        listed = table.listed()
        for one, regions, count, pixels in zip(
            block, table.counts, games.counts, listed, strict=True
        ):
            needed = sum(array.nbytes for array in one.arrays.values())
            needed += 8 * prod(one.header["grid"]) + OBJECT * (regions + count)
            limit(needed + 8 * pixels, most)
        games.check_tree()
        table.take_tree(games)
        for one, start, count in zip(block, games.first.tolist(), games.counts, strict=True):
            expect(all(i < count for i in one.header.get("inferred", [])), "no such game")
            players = games.players[start : start + count]
            check_contexts(one.header.get("contexts", []), players)
        whole = table.areas[games.region[games.first]] == table.pixels
        expect(whole.all(), "the first game misses pixels")
        table.check_parts(games)
        games.check_values(
            [int(one.header["draws"]) for one in block], [one.exact for one in block]
        )
        check_leaves(every, games)
    return table


def check_each(
    block: Sequence[Stored], *, most: int
) -> list[tuple[RegionTable, int] | DamagedError]:
    """Return for each of a block its table of regions and its place there, or its fault.

    All are checked at once. Only where this finds a fault, each is checked by itself.
    """
    if not block:
        return []
    try:
        table = check(block, most=most)
    except DamagedError as error:
        if len(block) == 1:
            return [error]
        return [found for one in block for found in check_each([one], most=most)]
    return [(table, place) for place in range(len(block))]


class Games:
    """Which region plays which game, and with which parts, in all explanations of a block.

    Numbers of regions and games go on from one explanation to the next: `first` is the first game
    of each, and `counts` has their numbers of games.
    """

    def __init__(self, every: Sequence[Mapping[str, Array]], regions: Sequence[int]) -> None:
        self.players, self.counts = joined(every, "game_players")
        expect(all(self.counts), "there is no game")
        usual = (self.players >= 1) & (self.players <= MOST_PLAYERS)
        expect(usual.all(), f"a game has less than 1 or more than {MOST_PLAYERS} players")
        self._counted, self.regions = np.array(regions), sum(regions)
        self._offset = np.cumsum(self._counted) - self._counted
        self.region, lengths = self.numbers(every, "game_region")
        self.children, parts = self.numbers(every, "game_children")
        expect(lengths == self.counts, "game_region has another length")
        self.first = np.array([0, *accumulate(self.counts[:-1])])
        sizes = 2**self.players
        wanted = np.add.reduceat(self.players, self.first).tolist()
        self.coefficients, coefficients = joined(every, "game_coefficients")
        self.errors, errors = joined(every, "game_errors")
        for name, found in (
            ("game_children", parts),
            ("game_coefficients", coefficients),
            ("game_errors", errors),
        ):
            expect(found == wanted, f"{name} has another length")
        self.values, lengths = joined(every, "game_values")
        fits = np.add.reduceat(sizes, self.first).tolist() == lengths
        expect(fits, "game_values has another length")
        self.first_part = np.cumsum(self.players) - self.players
        self.first_value = np.cumsum(sizes) - sizes
        self.game_of_part = np.repeat(np.arange(len(self.players)), self.players)
        self.whole = self.region[self.game_of_part]
        self.owner = np.repeat(np.arange(len(self.counts)), self.counts)

    def numbers(self, every: Sequence[Mapping[str, Array]], name: str) -> tuple[Numbers, list[int]]:
        """Return an array of numbers of regions as those of the block, and its lengths."""
        found, lengths = joined(every, name)
        count, offset = np.repeat([self._counted, self._offset], lengths, axis=1)
        expect(((found >= 0) & (found < count)).all(), f"{name} has a number of no region")
        return found + offset, lengths

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
        seen[self.region[self.first]] += 1
        expect((seen == 1).all(), "a region is no part of any other, or of two")
        expect(np.bincount(self.region).max() == 1, "a region has two games")
        born = np.full(self.regions, -1)
        born[self.children[~alone]] = self.game_of_part[~alone]
        expect((born[self.region] < np.arange(len(self.region))).all(), "a part precedes its whole")

    def check_values(self, draws: Sequence[int], exact: Sequence[bool]) -> None:
        """Check that values are finite and agree, and coefficients are their Shapley values."""
        for name, array in (("values", self.values), ("coefficients", self.coefficients)):
            expect(np.abs(array).max() <= LARGEST, f"{name} are not finite")
        uncertain = bool(self.errors.any())
        if uncertain:
            is_known = ~np.isnan(self.errors)
            most = np.where(np.array(draws) > 1, LARGEST, 0)[self.owner[self.game_of_part]]
            usual = (self.errors >= 0) & (self.errors <= most)
            expect(usual[is_known].all(), "standard errors are out of range")
        alone, first_values = np.zeros(self.regions), self.first_value[self.first]
        near = ROUNDING * np.maximum.reduceat(np.abs(self.values), first_values)[self.owner]
        base, root = self.values[first_values][self.owner], np.array([n**0.5 for n in draws])
        is_checked = ~np.array(exact)[self.owner]
        for players in sorted(set(self.players.tolist())):
            games, parts, rows = self.of_size(players)
            values = self.values[rows]
            if uncertain and players > 1:
                expect(not np.isnan(self.errors[parts]).any(), "standard errors are missing")
            chosen = is_checked[games]
            if chosen.any():
                given, places = values[chosen], parts[chosen]
                errors = np.nan_to_num(self.errors[places]).max(1)
                slack = np.abs(given).max(1) + errors * root[self.owner[games[chosen]]]
                off = np.abs(self.coefficients[places] - shapley(given)).max(1)
                known = (off <= ROUNDING * slack).all()
                expect(known, "coefficients are not the Shapley values of the scores")
            same = np.abs(values[:, 0] - base[games]) <= near[games]
            expect(same.all(), "the baseline has two scores")
            alone[self.children[parts]] = values[:, 1 << np.arange(players)]
        last = self.values[self.first_value + 2**self.players - 1]
        same = np.abs(last - alone[self.region]) <= near
        same[self.first] = True  # the whole image is part of no game
        expect(same.all(), "a region has two scores")


def check_contexts(listed: Any, players: NDArray[np.int64]) -> None:
    """Check that games in other contexts are those of games that are there."""
    expect(isinstance(listed, list), "contexts are no list")
    for one in listed:
        expect(isinstance(one, list) and len(one) == 4, "a context is no game")
        game, number, shown, values = one
        whole = all(type(each) is int for each in (game, number, shown))
        expect(whole and 0 <= game < len(players), "a context has no such game")
        expect(0 <= number < MOST_CONTEXTS and 0 <= shown < 2**MOST_PLAYERS, "no such context")
        expect(isinstance(values, list) and len(values) == 2 ** players[game], "it lacks scores")
        numbers = np.array(values, dtype=np.float64)
        expect(numbers.ndim == 1 and (np.abs(numbers) <= LARGEST).all(), "scores are not finite")


def check_leaves(every: Sequence[Mapping[str, Array]], games: Games) -> None:
    """Check that leaves are regions that do not overlap, and that unfinished ones are not split."""
    found: dict[str, Numbers] = {}
    for name in ("leaves", "unfinished"):
        found[name], _ = games.numbers(every, name)
        times = np.bincount(found[name], minlength=games.regions)
        expect(times.max() <= 1, f"{name} has a region twice")
    is_leaf: Mask = np.zeros(games.regions, dtype=bool)
    is_leaf[found["leaves"]] = True
    expect(not np.isin(found["unfinished"], games.whole).any(), "an unfinished region was split")
    leaf = is_leaf.tolist()
    inside = leaf.copy()
    pairs = zip(games.whole.tolist(), games.children.tolist(), strict=True)
    for whole, part in pairs:
        if inside[whole] and part != whole:
            expect(not leaf[part], "a leaf holds another")
            inside[part] = True
