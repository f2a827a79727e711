"""Groups of rows that run as one batch of patches, and how many rows that are. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import torch

from hshap.evaluators.incremental.drawing import empty
from hshap.evaluators.incremental.patches import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Grid, Shape, Tensor
    from hshap.evaluators.canvas import Row
    from hshap.evaluators.incremental.activation_cache import Anchor
    from hshap.evaluators.incremental.rectangles import Difference

BATCH_PIXELS = 2**20
"""Pixels of all rectangles of a batch: activations should stay in the processor's cache."""

STRIP_WIDTH = 128
"""Pixels: about the width of the strips along a box, on the average over all layers."""


@dataclass(frozen=True, eq=False)
class Group:
    """Rows that differ from one anchor in rectangles of one size, each at its own position."""

    anchor: Anchor
    rows: Sequence[Row]
    found: Sequence[Difference]

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
