"""The rectangle in which an input differs from its anchor, and rows that run as one batch.

Needs torch.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations, starmap
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from hshap._util.cache import ByIdentity
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.windows import empty
from hshap.partitions.regions import Box, blocks, mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Grid, Mask, Shape, Tensor
    from hshap.evaluators.canvas import Row
    from hshap.evaluators.incremental.activation_cache import Anchor
    from hshap.partitions.regions import Corners

    GroupKey: TypeAlias = tuple[ByIdentity, Grid] | None


SIDE_STEP = 16
"""Sides are rounded up to multiples of so many pixels."""

LARGEST_SHARE = 0.75
"""Of the grid: larger rectangles cost about as much as full passes."""

LARGEST_BOX = 0.55
"""Of the grid: halves of an image are a little larger where its side is odd, or rounded up."""


@dataclass(frozen=True, eq=False)
class RowDifference:
    """An anchor, and the rectangle outside of which an input equals it.

    `box` is set if the input is another one in a box, all of it: the image over its stand-in, or
    the stand-in over the image. `inside` is that other input.
    """

    anchor: Tensor
    start: Grid
    size: Grid
    inside: Tensor
    box: Corners | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the input equals the anchor."""
        return not prod(self.size)


def difference(row: Row, *, image_is_kept: bool) -> RowDifference | None:
    """Return how a row differs from its stand-in or from its image, whichever is closer.

    None if the rectangle is too large to be worth it, or if the row shows the image in full whose
    activations are not kept: they may never be needed.
    """
    grid, image = row.canvas.grid, row.canvas.image
    hidden = row.canvas.stand_ins(row.kept, row.draw)
    shown = around([box for region in row.kept for box in blocks(region, grid)], grid)
    box = shown_box(row)
    if prod(shown[1]) <= (0.5 if box is None else LARGEST_BOX) * prod(grid):
        return RowDifference(hidden, *shown, image, box)
    is_hidden = ~mask(row.kept, grid)
    boxes = bounds(is_hidden)
    covered = around(boxes, grid)
    if not prod(covered[1]) and not image_is_kept:
        return None
    if prod(covered[1]) < prod(shown[1]):
        is_filled = bool(boxes) and bool(is_hidden[tuple(map(slice, *boxes[0]))].all())
        found = RowDifference(image, *covered, hidden, boxes[0] if is_filled else None)
    else:
        found = RowDifference(hidden, *shown, image)
    return found if prod(found.size) <= LARGEST_SHARE * prod(grid) else None


def shown_box(row: Row) -> Corners | None:
    """Return the box that a row shows: its regions are boxes that fill one without overlap."""
    regions = row.kept
    if not regions or not all(isinstance(region, Box) for region in regions):
        return None
    found = [blocks(region, row.canvas.grid)[0] for region in regions]
    low = tuple(min(axis) for axis in zip(*(start for start, _ in found), strict=True))
    high = tuple(max(axis) for axis in zip(*(stop for _, stop in found), strict=True))
    area = prod(b - a for a, b in zip(low, high, strict=True))
    is_filled = sum(region.area for region in regions) == area
    return (low, high) if is_filled and not any(starmap(_meet, combinations(found, 2))) else None


def _meet(one: Corners, other: Corners) -> bool:
    sides = zip(*one, *other, strict=True)
    return all(max(a, c) < min(b, d) for a, b, c, d in sides)


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


def group_rows(differences: dict[int, RowDifference | None]) -> list[list[int]]:
    """Return the numbers of the rows by anchor and size: rows without a difference first.

    One anchor follows the other, so that few are needed at once. Inputs equal to their anchor come
    last, once the comparison has run.
    """
    groups: defaultdict[GroupKey, list[int]] = defaultdict(list)
    for number, found in differences.items():
        key = None if found is None else (ByIdentity(found.anchor), found.size)
        groups[key].append(number)
    anchors = list(dict.fromkeys(key[0] for key in groups if key is not None))
    order = {anchor: number for number, anchor in enumerate(anchors)}

    def place(key: GroupKey) -> tuple[bool, int, int]:
        if key is None:
            return False, -1, 0
        return not prod(key[1]), order[key[0]], groups[key][0]

    return [groups[key] for key in sorted(groups, key=place)]


BATCH_PIXELS = 2**20
"""Pixels of all rectangles of a batch: activations should stay in the processor's cache."""

STRIP_WIDTH = 128
"""Pixels: about the width of the strips along a box, on the average over all layers."""


@dataclass(frozen=True, eq=False)
class Group:
    """Rows that differ from one anchor in rectangles of one size, each at its own position."""

    anchor: Anchor
    rows: Sequence[Row]
    found: Sequence[RowDifference]

    @property
    def size(self) -> Grid:
        """Size of the rectangles."""
        return self.found[0].size

    @property
    def shape(self) -> Shape:
        """Shape of the images."""
        return self.rows[0].canvas.shape

    def part(self, first: int, count: int) -> Group:
        """Return the group of `count` rows from the `first` one on."""
        chosen = slice(first, first + count)
        return replace(self, rows=self.rows[chosen], found=self.found[chosen])

    def only(self, rows: Sequence[Row]) -> Group:
        """Return the group of some of its rows."""
        found = {id(row): each for row, each in zip(self.rows, self.found, strict=True)}
        return replace(self, rows=rows, found=[found[id(row)] for row in rows])

    def rows_at_once(self, batch_size: int | None, *, in_strips: bool) -> int:
        """Return the number of rows of a batch, given the one that was asked for."""
        pixels = prod(self.size)
        if in_strips:
            pixels = min(pixels, STRIP_WIDTH * max(self.size))
        return max(1, min(len(self.rows), batch_size or len(self.rows), BATCH_PIXELS // pixels))

    def patch(self, painted: Callable[[Row], Tensor]) -> Patch:
        """Return the rectangles of all rows; `painted` gives the input of a row."""
        anchor = self.anchor.tensor
        data = empty(anchor, (len(self.rows), anchor.shape[1], *self.size))
        starts = tuple(found.start for found in self.found)
        for place, (row, start) in enumerate(zip(self.rows, starts, strict=True)):
            spans = (slice(a, a + n) for a, n in zip(start, self.size, strict=True))
            data[place] = torch.as_tensor(painted(row)[(slice(None), *spans)])
        return Patch(data, starts, anchor)
