"""Cells: sets of pixels that no region of any class divides, nor the truth.

Every region is a set of cells. One map of cells serves all classes, and the page needs no other
geometry. The map is stored as runs along the last axis; lines that are equal are stored once.
"""

from __future__ import annotations

import zlib
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Grid, Heat, Json
    from hshap.partitions.regions import Corners

    Ints = NDArray[np.int64]
    Labels = NDArray[np.int32]

Edges = tuple["Ints", ...]
"""For each axis the borders of blocks, from 0 to its length: inside a block nothing changes."""


class Cells(NamedTuple):
    """The cells of a view: `values` has a line for each cell, with its value in each map."""

    values: Labels
    table: dict[str, Json]
    runs: bytes


def pixel_edges(grid: Grid) -> Edges:
    """Return borders around every single pixel."""
    return tuple(np.arange(side + 1) for side in grid)


def block_edges(blocks: Iterable[Corners], grid: Grid) -> Edges:
    """Return the borders of some blocks, so that maps of them need few numbers.

    >>> [axis.tolist() for axis in block_edges([((0, 0), (4, 2))], (8, 2))]
    [[0, 4, 8], [0, 2]]
    """
    corners = [corner for block in blocks for corner in block]
    return tuple(
        np.unique([0, side, *(corner[axis] for corner in corners)])
        for axis, side in enumerate(grid)
    )


def cells_of(
    maps: Sequence[Labels], edges: Edges, positions: Sequence[Heat] | None = None
) -> Cells:
    """Return the cells of maps that have one number for each block between the edges.

    Areas are counted in pixels, or by the positions of the lines between pixels.
    """
    shape = maps[0].shape
    lines = [each.reshape(-1, shape[-1]) for each in maps]
    starts = np.zeros(lines[0].shape, dtype=bool)
    starts[:, 0] = True
    for each in lines:
        starts[:, 1:] |= each[:, 1:] != each[:, :-1]
    first = np.flatnonzero(starts)
    counts = np.diff(first, append=starts.size)
    at_starts = np.stack([each.ravel()[first] for each in lines], axis=1)
    values, inverse = np.unique(at_starts, axis=0, return_inverse=True)
    cells = inverse.reshape(-1)
    starts_at = np.unravel_index(first, shape)
    begin = [axis[place] for axis, place in zip(edges, starts_at, strict=True)]
    last = edges[-1][starts_at[-1] + counts]
    end = [axis[place + 1] for axis, place in zip(edges[:-1], starts_at[:-1], strict=True)]
    corners = np.stack([*begin, *(-stop for stop in (*end, last))], axis=1)
    boxes = np.full((len(values), corners.shape[1]), np.iinfo(np.int64).max)
    np.minimum.at(boxes, cells, corners)
    axes = len(shape)
    boxes[:, axes:] *= -1
    spans = zip(begin, (*end, last), strict=True)
    if positions is None:
        sizes = prod((b - a for a, b in spans), start=np.int64(1))
    else:
        lengths = (at[b] - at[a] for (a, b), at in zip(spans, positions, strict=True))
        sizes = prod(lengths, start=np.float64(1))
    areas = np.bincount(cells, weights=sizes)
    plane = np.repeat(cells, counts).reshape(shape)
    table: dict[str, Json] = {
        "areas": (areas.astype(np.int64) if positions is None else areas).tolist(),
        "boxes": boxes.ravel().tolist(),
        "neighbours": _neighbours(plane).ravel().tolist(),
        "repeats": [np.diff(axis).tolist() for axis in edges[:-1]],
    }
    each_line = starts.sum(axis=1)
    runs = np.concatenate([each_line, last - begin[-1], cells]).astype("<u4")
    return Cells(values, table, zlib.compress(runs.tobytes()))


def _neighbours(plane: Ints) -> Ints:
    """Return pairs of cells that touch along a side."""
    pairs: list[Ints] = []
    for axis in range(plane.ndim):
        a = np.moveaxis(plane, axis, 0)[:-1]
        b = np.moveaxis(plane, axis, 0)[1:]
        differ = a != b
        pairs.append(np.stack([a[differ], b[differ]], axis=1))
    return np.unique(np.sort(np.concatenate(pairs), axis=1), axis=0)
