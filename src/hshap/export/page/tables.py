"""What the page knows of an image: its trees as numbers, and which pixels belong to which.

Cells are what no tree of the image divides any more, nor the truth: every region of every class is
a set of them. So one map of cells serves all classes, and the page needs no other geometry.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hshap.explanation.display import as_text
from hshap.games.search import DepthFirst
from hshap.partitions.regions import Box, Rolled, blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hshap.explanation.explanation import Explanation
    from hshap.explanation.settings import Settings
    from hshap.games.game import Game
    from hshap.games.search import BreadthFirst
    from hshap.partitions.protocol import Region

    Ints = NDArray[np.int64]

MOST_PLAYERS = 6
"""Games of more players are told by what their parts add alone, not by every value."""


class Drawn(NamedTuple):
    """A view as the page takes it: a table of plain values, runs of cells, and a PNG file."""

    table: dict[str, Any]
    runs: bytes
    image: bytes


def tabulate(
    name: str, explanations: Mapping[str, Explanation], truth: NDArray[np.bool_] | None
) -> tuple[dict[str, Any], bytes]:
    """Return what the page is told of a view, and its cells as compressed runs.

    Runs go along the lines, each within one: all their lengths, then all their cells, as 32-bit
    numbers.
    """
    trees = [_Tree(explanation) for explanation in explanations.values()]
    maps = [tree.pieces() for tree in trees]
    if truth is not None:
        maps.append(truth.astype(np.int64))
    cells, lengths, rows = _cells(maps)
    height, width = maps[0].shape
    table = {
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
        for leaf in explanation.leaves:  # what another search may have made of the games
            self.numbers.setdefault(leaf, len(self.numbers))
        split = {game.region for game in explanation.games if game.children != (game.region,)}
        # Pieces of a block that runs over the border do not touch each other.
        self._ends = [
            (number, region, piece)
            for region, number in self.numbers.items()
            if region not in split
            for piece in (blocks(region, explanation.grid) if _is_block(region) else [None])
        ]
        self.owner = np.array([number for number, _, _ in self._ends])

    def pieces(self) -> Ints:
        """Return a map of the pieces of what was never split."""
        out = np.zeros(self.explanation.grid, dtype=np.int64)
        for piece, (_, region, bounds) in enumerate(self._ends):
            out[region.index if bounds is None else tuple(map(slice, *bounds))] = piece
        return out

    def table(self) -> dict[str, Any]:
        """Return the games, and what a reader must know to read them again."""
        made, regions = self.explanation, list(self.numbers)
        is_grid = all(map(_is_block, regions))
        return {
            "text": as_text(made),
            "audit": str(made.audit),
            "target": str(made.target),
            "score": _plain(made.score),
            "baseline": _plain(made.baseline_score),
            "evaluations": made.evaluations,
            "search": _search(made.settings.search),
            "adaptive": made.games[0].region.adaptive or made.settings.is_adaptive,
            "measure": "side" if is_grid else "area",
            "finest": _finest(made.settings, is_grid=is_grid),
            "sizes": [region.area for region in regions],
            # The longest side decides; a free form is measured by its area.
            "sides": [_longest(region) for region in regions],
            "games": [self._game(game) for game in made.games],
            "leaves": [self.numbers[leaf] for leaf in made.leaves],
            "unfinished": [self.numbers[leaf] for leaf in made.unfinished],
        }

    def _game(self, game: Game) -> dict[str, Any]:
        return {
            "region": self.numbers[game.region],
            "parts": [self.numbers[part] for part in game.children],
            "phi": _numbers(game.coefficients),
            "errors": _numbers(game.errors) if game.errors.any() else None,
            "total": _plain(game.total),
            "alone": _numbers(game.alone),
            "values": _numbers(game.values) if len(game.children) <= MOST_PLAYERS else None,
        }


def _is_block(region: Region) -> bool:
    return isinstance(region, (Box, Rolled))


def _longest(region: Region) -> int:
    return max(region.shape) if isinstance(region, (Box, Rolled)) else 0


def _cells(maps: Sequence[Ints]) -> tuple[Ints, Ints, Ints]:
    """Return the cells of runs, the lengths of these, and what each cell is in each map."""
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
    """Return top, left, bottom and right of every cell, the latter two one past the last."""
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


def _search(made: DepthFirst | BreadthFirst | None) -> dict[str, Any] | None:
    """Return the rule to read by, or none if the page cannot follow the search."""
    if made is None:
        return None
    by = "tolerance" if isinstance(made, DepthFirst) else "percentile"
    least = made.tolerance if isinstance(made, DepthFirst) else made.percentile
    return {"by": by, "least": least, "keepWhole": made.keep_whole}


def _finest(settings: Settings, *, is_grid: bool) -> int:
    """Return the smallest size at which a run can be read."""
    size = settings.min_size if is_grid else settings.min_area
    return max(size) if isinstance(size, tuple) else size or 1


def _numbers(array: NDArray[Any]) -> list[float | None]:
    return [_plain(value) for value in array.tolist()]


def _plain(value: float) -> float | None:
    """Return a number as JSON knows it: what is not finite is not known."""
    return value if math.isfinite(value) else None
