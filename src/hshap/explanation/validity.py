"""Whether the arrays and the headers of files are those of explanations.

Types, shapes and the tree are checked before an `Explanation` is made of them, so that each of its
methods gives an answer. Whether coefficients are those of the scores is not: `wrong_numbers`
computes them again, for `verify`. Regions are numbers here, rows of the arrays that `storage`
writes.

A block of explanations is checked at once, as one forest with a root for each of them: a few calls
of NumPy do for all. A single one is a block of one, so there is one rule.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import accumulate
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hshap.evaluators.protocol import BATCHES, COMPARISONS, NOT_TOLD
from hshap.explanation.archive import DamagedError, expect, limit, only_damage
from hshap.explanation.placement import Placement
from hshap.explanation.region_tables import RegionTable, concatenate_arrays
from hshap.explanation.settings import Settings
from hshap.games.game import MOST_PLAYERS
from hshap.games.search import Certificate
from hshap.games.shapley import shapley

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Json, Mask
    from hshap.explanation.explanation import Explanation

    Numbers = NDArray[np.int64]

ROUNDING = 1e-6
"""Of the largest value of a game: the mean of many draws loses some digits."""

PLACEMENT = ("shape", "start", "stop")
MOST_AXES = 8
MOST_DEPTH = 64
"""Levels of nested settings; Python's own functions fail at about a thousand."""

LARGEST = 1e150
"""Products of two numbers, and sums over all games, stay finite below this."""

MOST_CONTEXTS = 1024

OBJECT = 512
"""Bytes that a region or a game takes besides its arrays, about."""


@dataclass(frozen=True)
class Stored:
    """The header and the arrays of what may be an explanation."""

    header: Mapping[str, Any]
    arrays: Mapping[str, Array]


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
        listed = table.count_listed()
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
        games.check_values([int(one.header["draws"]) for one in block])
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


def check_header(header: Mapping[str, Any], *, shared: bool = False) -> None:
    """Check the types and ranges of everything that is not an array.

    `shared` says that its settings, the same object, were checked with another header.
    """
    grid = header["grid"]
    expect(isinstance(grid, list) and 0 < len(grid) <= MOST_AXES, "grid is no list of sides")
    for side in grid:
        expect(_is_count(side, least=1), f"grid has a side {side!r:.20}")
    expect(prod(grid) < 2**53, "grid has too many pixels")
    target, index = header["target"], header["class_index"]
    expect(isinstance(target, str) or _is_count(target), "target is no class and no name")
    expect(index is None or _is_count(index), "class_index is no class")
    expect(isinstance(target, str) or index in (None, target), "class_index is not the target")
    expect(_is_count(header["evaluations"], least=1), "evaluations is no number of model inputs")
    expect(_is_count(header["draws"], least=1), "draws is no number of model inputs")
    expect(_is_count(header["position"]), "position is no number of an image")
    seconds = header["seconds"]
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    expect(is_number and isfinite(seconds) and seconds >= 0, "seconds is no time")
    filled = header["filled"]
    is_share = isinstance(filled, (int, float)) and not isinstance(filled, bool)
    expect(filled is None or (is_share and 0 <= filled <= 1), "filled is no share of pixels")
    expect(isinstance(header["adaptive"], bool), "adaptive is neither true nor false")
    if not shared:
        check_settings(header["settings"])
    check_provenance(header["provenance"])
    if header["placement"] is not None:
        check_placement(header["placement"], tuple(grid))
    check_certificate(header.get("certificate"), header.get("inferred", []))


def check_settings(found: object) -> None:
    """Check that settings are a mapping of few levels, with a search that can be made again."""
    told: dict[str, Json] = found if isinstance(found, dict) else {}
    expect(told is found, "settings is no mapping")
    expect(_depth(told) <= MOST_DEPTH, f"settings has over {MOST_DEPTH} levels")
    _ = Settings(told).search  # fails for options that a search does not have


def check_provenance(found: object) -> None:
    """Check that all facts about the scores are there, and that each has a known value."""
    told: dict[str, Json] = found if isinstance(found, dict) else {}
    expect(told.keys() == vars(NOT_TOLD).keys(), "provenance lacks facts, or has others")
    for name in ("full", "incremental"):
        expect(_is_count(told[name]), f"provenance: {name} is no number of model inputs")
    for name, known in (("comparison", COMPARISONS), ("batches", BATCHES)):
        expect(told[name] in known, f"provenance: {name} is not one of {', '.join(known)}")
    expect(isinstance(told["reason"], str), "provenance: reason is no text")


def check_certificate(found: object, inferred: object) -> None:
    """Check the facts of a certificate; without one, no game may be inferred."""
    listed = cast("list[object]", inferred) if isinstance(inferred, list) else [None]
    expect(all(map(_is_count, listed)), "inferred is no list of games")
    if found is None:
        expect(not listed, "games are inferred, and there is no certificate")
        return
    told: dict[str, Json] = found if isinstance(found, dict) else {}
    names = {field.name for field in fields(Certificate)}
    expect(told.keys() == names, "certificate lacks facts, or has others")
    limits = {"kept": (-LARGEST, LARGEST), "left": (-LARGEST, LARGEST), "gap": (0.0, 1.0)}
    for name, (low, high) in limits.items():
        value = told[name]
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        expect(is_number, f"certificate: {name} is no number")
        expect(low <= cast("float", value) <= high, f"certificate: {name} is out of range")
    expect(told["inferred"] == len(listed), "certificate: inferred is not the number of such games")
    expect(_is_count(told["questions"], least=1), "certificate: questions is no number of them")
    expect(isinstance(told["reason"], str), "certificate: reason is no text")


def check_placement(found: object, grid: Grid) -> None:
    """Check that a placement has numbers alone, and that it is one of this grid."""
    told: dict[str, Any] = found if isinstance(found, dict) else {}
    expect(told.keys() == set(PLACEMENT), "placement lacks facts, or has others")
    for name, value in told.items():
        numbers = [type(item) in (int, float) for item in value if isinstance(value, list)]
        expect(len(numbers) == len(grid) and all(numbers), f"placement: {name} has other entries")
    Placement(grid, **told)  # refuses numbers that are none of an image


def _is_count(value: object, *, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**53


def _depth(document: Json) -> int:
    """Count the levels of nested lists and mappings, without recursion."""
    level, depth = [document], 0
    while level and depth <= MOST_DEPTH:
        depth += 1
        level = [
            item
            for holder in level
            if isinstance(holder, (dict, list))
            for item in (holder.values() if isinstance(holder, dict) else holder)
        ]
    return depth


class Games:
    """Which region plays which game, and with which parts, in all explanations of a block.

    Numbers of regions and games go on from one explanation to the next: `first` is the first game
    of each, and `counts` has their numbers of games.
    """

    def __init__(self, every: Sequence[Mapping[str, Array]], regions: Sequence[int]) -> None:
        self.players, self.counts = concatenate_arrays(every, "game_players")
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
        self.coefficients, coefficients = concatenate_arrays(every, "game_coefficients")
        self.errors, errors = concatenate_arrays(every, "game_errors")
        for name, found in (
            ("game_children", parts),
            ("game_coefficients", coefficients),
            ("game_errors", errors),
        ):
            expect(found == wanted, f"{name} has another length")
        self.values, lengths = concatenate_arrays(every, "game_values")
        fits = np.add.reduceat(sizes, self.first).tolist() == lengths
        expect(fits, "game_values has another length")
        self.first_part = np.cumsum(self.players) - self.players
        self.first_value = np.cumsum(sizes) - sizes
        self.game_of_part = np.repeat(np.arange(len(self.players)), self.players)
        self.whole = self.region[self.game_of_part]
        self.owner = np.repeat(np.arange(len(self.counts)), self.counts)

    def numbers(self, every: Sequence[Mapping[str, Array]], name: str) -> tuple[Numbers, list[int]]:
        """Return an array of numbers of regions as those of the block, and its lengths."""
        found, lengths = concatenate_arrays(every, name)
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

    def check_values(self, draws: Sequence[int]) -> None:
        """Check that all numbers are finite, and standard errors those of some draws."""
        for name, array in (("values", self.values), ("coefficients", self.coefficients)):
            expect(np.abs(array).max() <= LARGEST, f"{name} are not finite")
        if self.errors.any():
            is_known = ~np.isnan(self.errors)
            most = np.where(np.array(draws) > 1, LARGEST, 0)[self.owner[self.game_of_part]]
            usual = (self.errors >= 0) & (self.errors <= most)
            expect(usual[is_known].all(), "standard errors are out of range")
            alone = self.players[self.game_of_part] == 1
            expect((is_known | alone).all(), "standard errors are missing")


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


def wrong_numbers(explanation: Explanation) -> str:
    """Return what does not follow from the scores of an explanation; empty if everything does.

    Loading checks shapes and the tree. This computes every coefficient again, and compares the
    scores that are in several games.
    """
    games, root = explanation.games, explanation.draws**0.5
    largest = max(float(np.abs(game.values).max()) for game in games)
    base, near = games[0].values[0], ROUNDING * largest
    alone = {games[0].region: float(games[0].values[-1])}
    for game in games:
        slack = float(np.abs(game.values).max()) + root * float(np.nan_to_num(game.errors).max())
        off = np.abs(game.coefficients - shapley(game.values)).max()
        if not off <= ROUNDING * slack:
            return "coefficients are not the Shapley values of the scores"
        if not abs(game.values[0] - base) <= near:
            return "the baseline has two scores"
        if not abs(game.values[-1] - alone[game.region]) <= near:
            return "a region has two scores"
        alone.update(zip(game.children, (game.alone + game.values[0]).tolist(), strict=True))
    return ""
