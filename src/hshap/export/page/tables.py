"""The data of one image on the page: its trees as numbers, and the region of each pixel."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import zlib
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.display import as_text
from hshap.explanation.maps import CONTEXTS
from hshap.explanation.reading import worths
from hshap.export.page.cells import block_edges, cells_of, pixel_edges
from hshap.export.page.first_line import missed
from hshap.export.page.shared_grid import shared_grid
from hshap.games.search import BreadthFirst, GroupTesting
from hshap.games.search.frontier import is_end
from hshap.partitions.regions import Box, Rolled, blocks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hshap._util.types import Grid, Heat, Json, Mask
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.settings import Settings
    from hshap.export.page.cells import Edges
    from hshap.export.page.shared_grid import SharedGrid
    from hshap.games.game import Game
    from hshap.games.search import DepthFirst
    from hshap.partitions.protocol import Region
    from hshap.partitions.regions import Corners

MOST_PLAYERS = 6
"""A game of more players is shown by the score of each part alone, not by every value."""

STEPS = 127
"""Steps from 0 to the largest value of a map: a signed byte for each pixel."""

IDENTITY = ("target", "score", "baseline", "games", "leaves", "sizes")
"""Entries of a class that tell its explanation from any other."""


def tabulate(
    name: str,
    explanations: Mapping[str, Explanation],
    truth: Mask | None,
    *,
    has_maps: bool = True,
) -> tuple[dict[str, Json], list[str]]:
    """Return the table of a view, and the identity of each explanation."""
    trees = [_Tree(explanation) for explanation in explanations.values()]
    marked = [tree for tree in trees if tree.explanation.calibration is not None]
    places = [explanation.placement for explanation in explanations.values()]
    grid, place, shared = places[0].grid, places[0], None
    if len({each.grid for each in places}) > 1:
        shared = shared_grid(places)
        grid, edges = shared.grid, pixel_edges(shared.grid)
    elif truth is None and not marked and all(tree.is_blocks for tree in trees):
        edges = block_edges((block for tree in trees for block in tree.blocks()), grid)
    else:
        edges = pixel_edges(grid)
    maps = [tree.pieces(edges) if shared is None else tree.pieces_on(shared) for tree in trees]
    maps += [tree.marked(shared) for tree in marked]
    if truth is not None:
        maps.append(truth.astype(np.int32))
    cells = cells_of(maps, edges, None if shared is None else shared.ends())
    no_maps: dict[str, Json] = {"map": None, "contexts": None}
    tables = [{**tree.table(), **(tree.maps(shared) if has_maps else no_maps)} for tree in trees]
    identities = [_identity(grid, table) for table in tables]
    areas = iter(cells.values.T[len(trees) :].tolist())
    for tree, table in zip(trees, tables, strict=True):
        table["marked"] = None if tree.explanation.calibration is None else next(areas)
    classes = zip(explanations, identities, trees, tables, cells.values.T, strict=False)
    return {
        "name": name,
        "grid": list(grid),
        "place": {
            "shape": list(place.shape),
            "start": list(place.start),
            "stop": list(place.stop),
            "edges": None if shared is None else [list(axis) for axis in shared.positions],
        },
        **cells.table,
        "truth": None if truth is None else cells.values[:, -1].tolist(),
        "classes": [
            {"name": label, "identity": own, "cells": tree.owner[column].tolist(), **table}
            for label, own, tree, table, column in classes
        ],
        "runs": base64.b64encode(cells.runs).decode(),
    }, identities


def _identity(grid: Grid, table: Mapping[str, Json]) -> str:
    """Return a text that tells an explanation from any other, and stays when a page is made again.

    The reviews of findings are kept under it.
    """
    own = json.dumps([grid, [table[key] for key in IDENTITY]])
    return hashlib.sha256(own.encode()).hexdigest()[:16]


class _Tree:
    """The regions of an explanation by number, in the order of its games."""

    def __init__(self, explanation: Explanation) -> None:
        self.explanation = explanation
        by_worth = isinstance(explanation.settings.search, GroupTesting)
        self._worths = worths(explanation) if by_worth else None
        self.numbers: dict[Region, int] = {}
        for game in explanation.games:
            for region in (game.region, *game.children):
                self.numbers.setdefault(region, len(self.numbers))
        for leaf in explanation.leaves:  # a search of the user may return regions of its own
            self.numbers.setdefault(leaf, len(self.numbers))
        self.is_blocks = all(map(_is_block, self.numbers))
        split = {game.region for game in explanation.games if game.children != (game.region,)}
        # A block that continues at the opposite border has pieces that do not touch.
        self._ends = [
            (number, region, piece)
            for region, number in self.numbers.items()
            if region not in split
            for piece in (blocks(region, explanation.grid) if _is_block(region) else [None])
        ]
        self.owner = np.array([number for number, _, _ in self._ends])

    def blocks(self) -> list[Corners]:
        """Return the blocks that the unsplit regions fill."""
        return [piece for _, _, piece in self._ends if piece is not None]

    def pieces(self, edges: Edges) -> NDArray[np.int32]:
        """Return a map of the pieces of unsplit regions, one number for each block of the edges."""
        out = np.zeros([len(axis) - 1 for axis in edges], dtype=np.int32)
        for piece, (_, region, bounds) in enumerate(self._ends):
            if bounds is None:
                out[region.index] = piece
            else:
                places = zip(edges, *bounds, strict=True)
                out[tuple(slice(*np.searchsorted(e, (a, b)).tolist()) for e, a, b in places)] = (
                    piece
                )
        return out

    def pieces_on(self, shared: SharedGrid) -> NDArray[np.int32]:
        """Return a map of the pieces on a grid that has the lines of this one, and others."""
        grid = self.explanation.grid
        return self.pieces(pixel_edges(grid))[np.ix_(*shared.pixels(grid))]

    def marked(self, shared: SharedGrid | None) -> NDArray[np.int32]:
        """Return the area that keeps the promise of a calibration, on its own grid or a shared."""
        area = self.explanation.marked_area().astype(np.int32)
        return area if shared is None else area[np.ix_(*shared.pixels(area.shape))]

    def maps(self, shared: SharedGrid | None) -> dict[str, Json]:
        """Return `attribution()`, and that of each side where games had several contexts."""
        made, sides = self.explanation, None
        if made.settings.has_contexts:
            sides = {side: _packed(made.attribution(context=side), shared) for side in CONTEXTS}
        return {"map": _packed(made.attribution(), shared), "contexts": sides}

    def table(self) -> dict[str, Json]:
        """Return the games, and the settings that the sliders need."""
        made, regions = self.explanation, list(self.numbers)
        sure = made.how_sure
        return {
            "text": as_text(made),
            "audit": str(made.audit),
            "sure": sure.word,
            "why": "; ".join(filter(None, (sure.reason, sure.fix))),
            "missed": missed(made),
            "concerns": [str(concern) for concern in made.concerns[1:]],
            "target": str(made.target),
            "score": _plain(made.score),
            "baseline": _plain(made.baseline_score),
            "evaluations": made.evaluations,
            "search": _search(made.settings.search),
            "measure": "side" if self.is_blocks else "area",
            "finest": _finest(made.settings, is_grid=self.is_blocks),
            "sizes": [region.area for region in regions],
            # Blocks are measured by their longest side, free forms by their area.
            "sides": [_longest(region) for region in regions],
            "games": [self._game(game) for game in made.games],
            "leaves": [self.numbers[leaf] for leaf in made.leaves],
            "shares": self._shares(),
            "unfinished": [] if made.complete else [self.numbers[leaf] for leaf in made.unfinished],
        }

    def _shares(self) -> list[float | None] | None:
        """Return the share of each leaf, where boxes are scored by it."""
        made = self.explanation
        if not made.settings.drops_nothing:
            return None
        return [_plain(made.parts[leaf].share) for leaf in made.leaves]

    def _ends_at(self, game: Game) -> bool:
        """Tell whether the automatic rule ends a branch here, as `Explanation.at` has it."""
        made = self.explanation
        if self._worths is not None:
            return False
        return is_end(game, adaptive=made.adaptive) and game.region in made.leaves

    def _worth(self, game: Game) -> dict[str, Json]:
        """Return the worth of each part, where a run is read again by it, and if it is inferred."""
        if self._worths is None:
            return {}
        worth = [self._worths.get(part, 0.0) for part in game.children]
        return {"worth": [_plain(value) for value in worth], "inferred": game.inferred}

    def _game(self, game: Game) -> dict[str, Json]:
        return {
            "region": self.numbers[game.region],
            "parts": [self.numbers[part] for part in game.children],
            "phi": _numbers(game.coefficients),
            "errors": _numbers(game.errors) if game.errors.any() else None,
            "total": _plain(game.total),
            "alone": _numbers(game.alone),
            "ends": self._ends_at(game),
            **self._worth(game),
            "values": _numbers(game.values) if len(game.children) <= MOST_PLAYERS else None,
        }


def _packed(heat: Heat, shared: SharedGrid | None) -> dict[str, Json] | None:
    """Return a map in steps of its largest value; None where it is 0 everywhere."""
    top = float(np.abs(heat).max())
    if not top:
        return None
    steps = np.rint(heat / top * STEPS).astype(np.int8)
    steps = steps if shared is None else steps[np.ix_(*shared.pixels(steps.shape))]
    return {"top": top, "values": base64.b64encode(zlib.compress(steps.tobytes())).decode()}


def _is_block(region: Region) -> bool:
    return isinstance(region, (Box, Rolled))


def _longest(region: Region) -> int:
    return max(region.shape) if isinstance(region, (Box, Rolled)) else 0


def _search(made: DepthFirst | BreadthFirst | GroupTesting | None) -> dict[str, Json] | None:
    """Return the rule that the sliders follow; None for a search that is not one of hshap's."""
    if made is None:
        return None
    by_level = isinstance(made, BreadthFirst)
    return {
        "by": "percentile" if by_level else "tolerance",
        "least": made.percentile if by_level else made.tolerance,
        "keepWhole": False if isinstance(made, GroupTesting) else made.keep_whole,
    }


def _finest(settings: Settings, *, is_grid: bool) -> int:
    """Return the smallest size for the slider: the one of the run."""
    size = settings.min_size if is_grid else settings.min_area
    return max(size) if isinstance(size, tuple) else size or 1


def _numbers(array: Heat) -> list[float | None]:
    return [_plain(value) for value in array.tolist()]


def _plain(value: float) -> float | None:
    """Return a number for JSON; None if it is not finite."""
    return value if math.isfinite(value) else None
