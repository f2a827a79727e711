"""The rectangle in which an input differs from its anchor, rounded up to few sizes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.partitions.regions import blocks, mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Grid, Mask, Tensor
    from hshap.evaluators.canvas import Row
    from hshap.partitions.regions import Corners

SIDE_STEP = 16
"""Sides are rounded up to multiples of so many pixels."""

LARGEST_SHARE = 0.75
"""Of the grid: larger rectangles cost about as much as full passes."""


@dataclass(frozen=True, eq=False)
class Difference:
    """An anchor, and the rectangle outside of which an input equals it."""

    anchor: Tensor
    start: Grid
    size: Grid

    @property
    def is_empty(self) -> bool:
        """Whether the input equals the anchor."""
        return not prod(self.size)


def difference(row: Row, *, image_is_kept: bool) -> Difference | None:
    """Return how a row differs from its stand-in or from its image, whichever is closer.

    None if the rectangle is too large to be worth it, or if the row shows the image in full whose
    activations are not kept: they may never be needed.
    """
    grid = row.canvas.grid
    hidden = row.canvas.stand_ins(row.kept, row.draw)
    shown = around([box for region in row.kept for box in blocks(region, grid)], grid)
    if prod(shown[1]) <= prod(grid) / 2:
        return Difference(hidden, *shown)
    covered = around(bounds(~mask(row.kept, grid)), grid)
    if not prod(covered[1]) and not image_is_kept:
        return None
    by_image = prod(covered[1]) < prod(shown[1])
    found = Difference(row.canvas.image, *covered) if by_image else Difference(hidden, *shown)
    return found if prod(found.size) <= LARGEST_SHARE * prod(grid) else None


def bounds(inside: Mask) -> list[Corners]:
    """Return the box around all pixels that are True, or no box."""
    places = np.nonzero(inside)
    if not places[0].size:
        return []
    return [(tuple(int(a.min()) for a in places), tuple(int(a.max()) + 1 for a in places))]


def around(boxes: Sequence[Corners], grid: Grid) -> tuple[Grid, Grid]:
    """Return start and size of the rectangle around all boxes, its sides rounded up."""
    if not boxes:
        return (0,) * len(grid), (0,) * len(grid)
    low = [min(axis) for axis in zip(*(start for start, _ in boxes), strict=True)]
    high = [max(axis) for axis in zip(*(stop for _, stop in boxes), strict=True)]
    size = tuple(
        int(min(n, -(-(b - a) // SIDE_STEP) * SIDE_STEP))
        for a, b, n in zip(low, high, grid, strict=True)
    )
    start = tuple(int(min(a, n - m)) for a, m, n in zip(low, size, grid, strict=True))
    return start, size
