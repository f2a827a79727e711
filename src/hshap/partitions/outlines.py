"""Polygons around the pixels of a region, exact to the pixel, with holes.

Corners are `(x, y)` with the origin at the top left of the first pixel, so pixel `(row, column)`
covers `column..column + 1` by `row..row + 1`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.partitions.regions import Box, Pixels, Rolled, blocks, mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap._util.types import Ints, Mask
    from hshap.partitions.protocol import Region
    from hshap.partitions.regions import Corners

Ring = list[tuple[int, int]]
"""Corners `(x, y)`, each once, with the inside of the polygon on the right hand on a screen."""


class Polygon(NamedTuple):
    """An outer ring, and the holes in it. Rings may touch in corners; they never cross."""

    shell: Ring
    holes: list[Ring]


def polygons(region: Region, grid: tuple[int, int]) -> list[Polygon]:
    """Return the polygons of a region: one for each piece whose pixels hang together by sides.

    >>> from hshap.protocols import Box
    >>> polygons(Box((2, 5), (3, 7)), grid=(8, 8))
    [Polygon(shell=[(5, 2), (7, 2), (7, 3), (5, 3)], holes=[])]
    """
    if isinstance(region, (Box, Rolled)):
        return [Polygon(_rectangle(bounds), []) for bounds in blocks(region, grid)]
    (bounds,) = blocks(region, grid)
    (top, left), (bottom, right) = bounds
    if isinstance(region, Pixels):
        # Not a mask of the whole grid: there may be many small regions on a large one.
        inside = np.zeros((bottom - top, right - left), dtype=bool)
        rows, columns = region.index
        inside[rows - top, columns - left] = True
    else:
        inside = mask((region,), grid)[top:bottom, left:right]
    return trace(inside, (left, top))


def trace(inside: Mask, origin: tuple[int, int] = (0, 0)) -> list[Polygon]:
    """Return the polygons around the pixels that are True, the first pixel's corner at `origin`.

    >>> trace(np.array([[True, False], [False, True]]))
    [Polygon(shell=[(0, 0), (1, 0), (1, 1), (0, 1)], holes=[]),
     Polygon(shell=[(1, 1), (2, 1), (2, 2), (1, 2)], holes=[])]
    """
    shells: list[Polygon] = []
    holes: list[Ring] = []
    owner: dict[int, int] = {}
    # Where a run of pixels in a row begins: each is the left side of exactly one ring.
    framed = np.pad(inside, ((0, 0), (1, 0)))
    begins = np.flatnonzero(inside & ~framed[:, :-1])
    width = inside.shape[1]
    for ring in _rings(inside):
        if _area(ring) > 0:
            _own(owner, ring, width, len(shells))
            shells.append(Polygon(ring, []))
        else:
            holes.append(ring)
    # The run above a hole's highest side begins at the shell, or at a hole that is higher still.
    for hole in sorted(holes, key=_highest):
        y, x = _highest(hole)
        begin = begins[np.searchsorted(begins, (y - 1) * width + x, side="right") - 1]
        shell = owner[int(begin)]
        _own(owner, hole, width, shell)
        shells[shell].holes.append(hole)
    return [_moved(polygon, origin) for polygon in shells]


def _rectangle(bounds: Corners) -> Ring:
    (top, left), (bottom, right) = bounds
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _rings(inside: Mask) -> Iterator[Ring]:
    """Yield simple rings around the True pixels; rings that touch only in a corner are separate.

    Corners on one line pair up to horizontal sides, those in one column to vertical ones: a ring
    takes the two in turn.
    """
    ys, xs, joins = _corners(inside)
    numbers = np.arange(len(ys))
    order = np.lexsort((np.where(joins, -numbers, numbers), ys, xs))
    across = numbers ^ 1
    down = np.empty_like(across)
    down[order] = order[across]
    below = np.pad(inside, ((0, 1), (0, 1)))[ys, xs]
    points = list(zip(xs.tolist(), ys.tolist(), strict=True))
    sides, is_top = (across.tolist(), down.tolist()), below.tolist()
    visited = [False] * len(points)
    for first in range(0, len(points), 2):
        if visited[first]:
            continue
        # Along a side that has pixels below it to the right, else to the left.
        start = first if is_top[first] else first + 1
        ring, here, turn = Ring(), start, 0
        while not visited[here]:
            visited[here] = True
            ring.append(points[here])
            here, turn = sides[turn][here], 1 - turn
        yield from _simple(ring)


def _corners(
    inside: Mask,
) -> tuple[Ints, Ints, Mask]:
    """Return the corners of the outline, row by row; a corner where four sides meet comes twice.

    The third array is True where the left one of such a pair belongs to the side that goes down.
    """
    framed = np.pad(inside, 1).astype(np.int8)
    a, b, c, d = framed[:-1, :-1], framed[:-1, 1:], framed[1:, :-1], framed[1:, 1:]
    double = (a == d) & (b == c) & (a != b)
    ys, xs = np.nonzero(((a + b + c + d) % 2 == 1) | double)
    repeats = 1 + double[ys, xs]
    ys, xs = ys.repeat(repeats), xs.repeat(repeats)
    return ys, xs, (double & (b == 1))[ys, xs]


def _simple(ring: Ring) -> Iterator[Ring]:
    """Cut a ring where it touches itself, into rings that do not."""
    path: Ring = []
    place: dict[tuple[int, int], int] = {}
    for corner in ring:
        if corner in place:
            at = place[corner]
            for cut in path[at:]:
                del place[cut]
            yield path[at:]
            del path[at:]
        place[corner] = len(path)
        path.append(corner)
    yield path


def _area(ring: Ring) -> int:
    """Return twice the area: above 0 for an outer ring, below 0 for a hole."""
    # Most rings are short: an array of each would take longer.
    return sum(x * v - u * y for (x, y), (u, v) in zip(ring, ring[1:] + ring[:1], strict=True))


def _highest(ring: Ring) -> tuple[int, int]:
    """Return the row and column of the pixel below a ring's highest side."""
    return min((y, x) for x, y in ring)


def _own(owner: dict[int, int], ring: Ring, width: int, shell: int) -> None:
    """Record the shell of a ring at each pixel that has the ring on its left."""
    for (x, y), (_, end) in zip(ring, ring[1:] + ring[:1], strict=True):
        for row in range(end, y):  # upwards: the inside is to the right
            owner[row * width + x] = shell


def _moved(polygon: Polygon, origin: tuple[int, int]) -> Polygon:
    def move(ring: Ring) -> Ring:
        return [(x + origin[0], y + origin[1]) for x, y in ring]

    return Polygon(move(polygon.shell), [move(hole) for hole in polygon.holes])
