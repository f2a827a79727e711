"""The data of one image on the page: its trees as numbers, and the region of each pixel.

A cell is a set of pixels that no region of any class divides, nor the truth. So every region is a
set of cells: one map of cells serves all classes, and the page needs no other geometry.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.explanation.display import as_text
from hshap.games.search import DepthFirst
from hshap.games.search.automatic_size import is_end
from hshap.partitions.regions import Box, Rolled, blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Heat, Json, Mask
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.settings import Settings
    from hshap.games.game import Game
    from hshap.games.search import BreadthFirst
    from hshap.partitions.protocol import Region

    Ints = NDArray[np.int64]

MOST_PLAYERS = 6
"""A game of more players is shown by the score of each part alone, not by every value."""


class Drawn(NamedTuple):
    """A view as data of the page: a table of plain values, runs of cells, and a PNG file."""

    table: dict[str, Json]
    runs: bytes
    image: bytes


def tabulate(
    name: str, explanations: Mapping[str, Explanation], truth: Mask | None
) -> tuple[dict[str, Json], bytes]:
    """Return the table of a view, and its cells as compressed runs.

    A run lies within one line of the image. The bytes hold the lengths of all runs, then the cells
    of all runs, as 32-bit numbers.
    """
    trees = [_Tree(explanation) for explanation in explanations.values()]
    maps = [tree.pieces() for tree in trees]
    if truth is not None:
        maps.append(truth.astype(np.int64))
    cells, lengths, rows = _cells(maps)
    height, width = maps[0].shape
    table: dict[str, Json] = {
        "name": name,
        "height": height,
        "width": width,
        "areas": np.bincount(cells, weights=lengths).astype(np.int64).tolist(),
        "boxes": _boxes(cells, lengths, width).ravel().tolist(),
        "neighbours": _neighbours(cells, lengths, height, width).ravel().tolist(),
        "truth": None if truth is None else rows[:, -1].tolist(),
        "classes": [
            {"name": label, "cells": tree.owner[column].tolist(), **tree.table()}
            for label, tree, column in zip(explanations, trees, rows.T, strict=False)
        ],
    }
    runs = np.concatenate([lengths, cells]).astype("<u4")
    return table, zlib.compress(runs.tobytes())


class _Tree:
    """The regions of an explanation by number, in the order of its games."""

    def __init__(self, explanation: Explanation) -> None:
        self.explanation = explanation
        self.numbers: dict[Region, int] = {}
        for game in explanation.games:
            for region in (game.region, *game.children):
                self.numbers.setdefault(region, len(self.numbers))
        for leaf in explanation.leaves:  # a search of the user may return regions of its own
            self.numbers.setdefault(leaf, len(self.numbers))
        split = {game.region for game in explanation.games if game.children != (game.region,)}
        # A block that continues at the opposite border has pieces that do not touch.
        self._ends = [
            (number, region, piece)
            for region, number in self.numbers.items()
            if region not in split
            for piece in (blocks(region, explanation.grid) if _is_block(region) else [None])
        ]
        self.owner = np.array([number for number, _, _ in self._ends])

    def pieces(self) -> Ints:
        """Return a map of the pieces of unsplit regions."""
        out = np.zeros(self.explanation.grid, dtype=np.int64)
        for piece, (_, region, bounds) in enumerate(self._ends):
            out[region.index if bounds is None else tuple(map(slice, *bounds))] = piece
        return out

    def table(self) -> dict[str, Json]:
        """Return the games, and the settings that the sliders need."""
        made, regions = self.explanation, list(self.numbers)
        is_grid = all(map(_is_block, regions))
        return {
            "text": as_text(made),
            "audit": str(made.audit),
            "concerns": [str(concern) for concern in made.concerns],
            "target": str(made.target),
            "score": _plain(made.score),
            "baseline": _plain(made.baseline_score),
            "evaluations": made.evaluations,
            "search": _search(made.settings.search),
            "measure": "side" if is_grid else "area",
            "finest": _finest(made.settings, is_grid=is_grid),
            "sizes": [region.area for region in regions],
            # Blocks are measured by their longest side, free forms by their area.
            "sides": [_longest(region) for region in regions],
            "games": [self._game(game) for game in made.games],
            "leaves": [self.numbers[leaf] for leaf in made.leaves],
            "unfinished": [self.numbers[leaf] for leaf in made.unfinished],
        }

    def _ends_at(self, game: Game) -> bool:
        """Tell whether the automatic rule ends a branch here, as `Explanation.at` has it."""
        made = self.explanation
        rule = made.settings.adaptive or made.games[0].region.adaptive
        # By the other rule, a run splits some large regions further.
        return is_end(game, rule) and (rule == "uncut" or game.region in made.leaves)

    def _game(self, game: Game) -> dict[str, Json]:
        return {
            "region": self.numbers[game.region],
            "parts": [self.numbers[part] for part in game.children],
            "phi": _numbers(game.coefficients),
            "errors": _numbers(game.errors) if game.errors.any() else None,
            "total": _plain(game.total),
            "alone": _numbers(game.alone),
            "ends": self._ends_at(game),
            "values": _numbers(game.values) if len(game.children) <= MOST_PLAYERS else None,
        }


def _is_block(region: Region) -> bool:
    return isinstance(region, (Box, Rolled))


def _longest(region: Region) -> int:
    return max(region.shape) if isinstance(region, (Box, Rolled)) else 0


def _cells(maps: Sequence[Ints]) -> tuple[Ints, Ints, Ints]:
    """Return the cell of each run, its length, and the value of each cell in each map."""
    height, width = maps[0].shape
    starts = np.zeros((height, width), dtype=bool)
    starts[:, 0] = True
    for each in maps:
        starts[:, 1:] |= each[:, 1:] != each[:, :-1]
    first = np.flatnonzero(starts)
    lengths = np.diff(first, append=height * width)
    at_starts = np.stack([each.ravel()[first] for each in maps], axis=1)
    rows, cells = np.unique(at_starts, axis=0, return_inverse=True)
    return cells.reshape(-1), lengths, rows


def _boxes(cells: Ints, lengths: Ints, width: int) -> Ints:
    """Return top, left, bottom and right of every cell; bottom and right are one past the last."""
    ends = np.cumsum(lengths)
    lines, columns = np.divmod(ends - lengths, width)
    edges = np.stack([lines, columns, -1 - lines, -columns - lengths], axis=1)
    out = np.full((int(cells.max()) + 1, 4), np.iinfo(np.int64).max)
    np.minimum.at(out, cells, edges)
    return out * np.array([1, 1, -1, -1])


def _neighbours(cells: Ints, lengths: Ints, height: int, width: int) -> Ints:
    """Return pairs of cells that touch along a side."""
    plane = np.repeat(cells, lengths).reshape(height, width)
    sides = ((plane[:, :-1], plane[:, 1:]), (plane[:-1], plane[1:]))
    pairs = [np.stack([a[a != b], b[a != b]], axis=1) for a, b in sides]
    return np.unique(np.sort(np.concatenate(pairs), axis=1), axis=0)


def _search(made: DepthFirst | BreadthFirst | None) -> dict[str, Json] | None:
    """Return the rule that the sliders follow; None for a search of another make."""
    if made is None:
        return None
    by = "tolerance" if isinstance(made, DepthFirst) else "percentile"
    least = made.tolerance if isinstance(made, DepthFirst) else made.percentile
    return {"by": by, "least": least, "keepWhole": made.keep_whole}


def _finest(settings: Settings, *, is_grid: bool) -> int:
    """Return the smallest size for the slider: the one of the run."""
    size = settings.min_size if is_grid else settings.min_area
    return max(size) if isinstance(size, tuple) else size or 1


def _numbers(array: Heat) -> list[float | None]:
    return [_plain(value) for value in array.tolist()]


def _plain(value: float) -> float | None:
    """Return a number for JSON; None if it is not finite."""
    return value if math.isfinite(value) else None
