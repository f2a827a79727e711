"""Cells: the regions of a tree as one label for each pixel, a fraction of their runs of pixels.

The parts of a region cover it, so every region is a union of the finest regions of its tree. One
number for each pixel, that of the finest region around it, tells all of them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.archive import expect
from hshap.explanation.validity import BOX, PIXELS, ROLLED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid

TYPES = (np.uint8, np.uint16, np.uint32)


def pack_cells(arrays: Mapping[str, Array], grid: Grid) -> bytes:
    """Return the number of the finest region around each pixel; nothing if all are blocks."""
    kinds = arrays["region_kind"]
    if not (kinds == PIXELS).any():
        return b""
    finest = np.setdiff1d(arrays["game_children"], _split(arrays))
    free = np.flatnonzero(kinds == PIXELS)
    spans = arrays["region_runs"].reshape(-1, 2)
    owner = np.repeat(free, arrays["region_sizes"] // 2)
    mine = np.isin(owner, finest)
    starts, lengths = spans[mine, 0], np.diff(spans[mine], axis=1).ravel()
    # Runs are consecutive pixels: add to each position the offset of its run.
    places = np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    labels = np.zeros(prod(grid), dtype=_type(len(kinds)))
    labels[places] = np.repeat(owner[mine], lengths)
    for number in finest[kinds[finest] != PIXELS].tolist():
        block = _block(int(kinds[number]), arrays["region_corners"][number], grid)
        labels.reshape(grid)[block] = number
    # A pixel is mostly in the cell of the one above it: zeros pack well.
    image = labels.reshape(-1, grid[-1])
    image[1:] ^= image[:-1].copy()
    return labels.tobytes()


def unpack_cells(data: bytes, arrays: Mapping[str, Array], grid: Grid) -> dict[str, Array]:
    """Return `region_sizes` and `region_runs` of the free regions that `pack_cells` packed."""
    kinds = arrays["region_kind"]
    free = np.flatnonzero(kinds == PIXELS).tolist()
    if not free:
        expect(not data, "it has cells, but no region of that kind")
        return {"region_sizes": np.zeros(0, np.int64), "region_runs": np.zeros(0, np.int64)}
    kind = np.dtype(_type(len(kinds)))
    expect(len(data) == prod(grid) * kind.itemsize, "its cells miss pixels")
    labels = np.bitwise_xor.accumulate(np.frombuffer(data, kind).reshape(-1, grid[-1]), axis=0)
    expect(labels.max() < len(kinds), "a cell is of no region")
    found = _runs_of(labels.ravel(), free, _finest(arrays, len(kinds)))
    return {
        "region_sizes": np.array([len(part) for part in found], dtype=np.int64),
        "region_runs": np.concatenate(found).astype(np.int64),
    }


def _runs_of(
    labels: NDArray[np.unsignedinteger], free: list[int], finest: list[list[int]]
) -> list[NDArray[np.int64]]:
    """Return the runs of pixels of each free region, from the runs of the cells."""
    starts = np.flatnonzero(np.diff(labels, prepend=labels[:1] ^ 1))
    stops = np.append(starts[1:], len(labels))
    names = labels[starts]
    order = np.argsort(names, kind="stable")
    ends = np.searchsorted(names[order], np.arange(len(finest) + 1))
    out: list[NDArray[np.int64]] = []
    for number in free:
        mine = np.sort(
            np.concatenate([order[ends[cell] : ends[cell + 1]] for cell in finest[number]])
        )
        expect(len(mine), "a region has no pixels")
        # Runs that touch are one.
        first = np.append(True, starts[mine[1:]] != stops[mine[:-1]])
        last = np.append(first[1:], True)
        out.append(np.stack([starts[mine[first]], stops[mine[last]]], axis=1).ravel())
    return out


def _finest(arrays: Mapping[str, Array], count: int) -> list[list[int]]:
    """Return the finest regions in each region, by number."""
    players = arrays["game_players"]
    ends = np.cumsum(players)
    inside: list[list[int]] = [[number] for number in range(count)]
    games = zip(
        arrays["game_region"].tolist(), (ends - players).tolist(), ends.tolist(), strict=True
    )
    # Parts first: their games come after that of their region.
    for region, begin, end in reversed(list(games)):
        parts = arrays["game_children"][begin:end].tolist()
        expect(all(0 <= part < count for part in (region, *parts)), "a game is of no region")
        if parts != [region]:
            inside[region] = [cell for part in parts for cell in inside[part]]
            expect(len(inside[region]) <= count, "a region is part of itself")
    return inside


def _split(arrays: Mapping[str, Array]) -> NDArray[np.int64]:
    """Return the regions that have parts besides themselves."""
    players, children = arrays["game_players"], arrays["game_children"]
    first = children[np.cumsum(players) - players]
    return arrays["game_region"][(players > 1) | (first != arrays["game_region"])]


def _block(kind: int, corners: NDArray[np.int64], grid: Grid) -> tuple[Array, ...]:
    start, second = corners.tolist()
    lengths = [b - a for a, b in zip(start, second, strict=True)] if kind == BOX else second
    expect(kind in (BOX, ROLLED), "a region is of no known kind")
    spans = zip(start, lengths, grid, strict=True)
    return np.ix_(*(np.arange(a, a + n) % side for a, n, side in spans))


def _type(count: int) -> type[np.unsignedinteger]:
    """Return the smallest type for the numbers of so many regions."""
    return next(kind for kind in TYPES if count - 1 <= np.iinfo(kind).max)
