"""Joining: which pieces of regions touch along a side, so that one box goes around them."""

from __future__ import annotations

from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.partitions.regions import Box, Pixels, Rolled, blocks, mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hshap.partitions.protocol import Region
    from hshap.partitions.regions import Corners

FEW = 32
"""Blocks that are compared two by two; of more, the pixels around them are looked at once."""

MANY = 256
"""Pieces up to which all pairs of them have a place in a table."""


def touching(
    pieces: list[Corners], regions: tuple[Region, ...], grid: tuple[int, ...]
) -> list[list[int]]:
    """Group the pieces of regions, by number, that touch along a side.

    `pieces` are the blocks of the regions, one after another. Pixels decide, not bounding boxes.
    """
    if len(pieces) < 2:
        return [[i] for i in range(len(pieces))]
    if len(pieces) <= FEW and all(isinstance(region, (Box, Rolled)) for region in regions):
        pairs = [pair for pair in combinations(range(len(pieces)), 2) if _meet(pieces, *pair)]
    else:
        pairs = _meeting(_owners(pieces, regions, grid), len(pieces))
    parent = list(range(len(pieces)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = i = parent[parent[i]]
        return i

    for a, b in pairs:
        parent[root(a)] = root(b)
    groups: dict[int, list[int]] = {}
    for i in range(len(pieces)):
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())


def _owners(
    pieces: list[Corners], regions: tuple[Region, ...], grid: tuple[int, ...]
) -> NDArray[np.signedinteger]:
    """Return the number of the piece at each pixel around all pieces; -1 between them."""
    starts, stops = zip(*pieces, strict=True)
    top, *first = map(min, zip(*starts, strict=True))
    end, *last = map(max, zip(*stops, strict=True))
    # Whole lines of the grid, from the first to the last with a piece: positions are moved alike.
    kind = np.int16 if len(pieces) < 2**15 else np.int32  # narrow numbers are compared faster
    owner = np.full((end - top, *grid[1:]), -1, dtype=kind)
    offset, number = top * prod(grid[1:]), 0
    free = [region for region in regions if isinstance(region, Pixels)]
    if len(free) == len(regions):
        areas = [region.area for region in free]
        flat = np.concatenate([region.flat for region in free])
        owner.reshape(-1)[flat - offset] = np.repeat(np.arange(len(free)), areas)
        regions = ()
    for region in regions:
        if not isinstance(region, (Box, Rolled)):
            own = isinstance(region, Pixels)
            flat = region.flat if own else np.flatnonzero(mask((region,), grid))
            owner.reshape(-1)[flat - offset] = number
            number += 1
            continue
        for start, stop in blocks(region, grid):
            lines = slice(start[0] - top, stop[0] - top)
            owner[(lines, *map(slice, start[1:], stop[1:]))] = number
            number += 1
    return owner[(slice(None), *map(slice, first, last))]


def _meet(pieces: list[Corners], one: int, other: int) -> bool:
    """Tell whether two blocks touch along a side: they meet on one axis and overlap on others."""
    (start, stop), (start_other, stop_other) = pieces[one], pieces[other]
    touched = 0
    for a, b, c, d in zip(start, stop, start_other, stop_other, strict=True):
        if b < c or d < a:
            return False
        touched += b == c or d == a
    return touched == 1


def _meeting(owner: NDArray[np.signedinteger], count: int) -> Iterator[tuple[int, int]]:
    """Yield the numbers of pieces that have pixels next to each other; `owner` is that of each."""
    for axis in range(owner.ndim):
        every = [slice(None)] * axis
        before, after = owner[(*every, slice(-1))], owner[(*every, slice(1, None))]
        meet = (before != after) & (np.minimum(before, after) >= 0)
        # One number for each pair: far quicker to sort than rows of two, and few need no sorting.
        pairs = before[meet] * np.int64(count) + after[meet]
        pairs = np.flatnonzero(np.bincount(pairs)) if count <= MANY else np.unique(pairs)
        for a, b in zip(*np.divmod(pairs, count), strict=True):
            yield int(a), int(b)
