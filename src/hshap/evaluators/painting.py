"""Painting: the stand-in of a row, and over it the regions of the image that are shown.

A model may write to its input where nothing tells, for example through `x.data` in torch, in
compiled code, or in its next call. So inputs are painted in full before every call, in memory that
no earlier call still holds.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from hshap.partitions.regions import copy, mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Shape, Tensor
    from hshap.evaluators.canvas import Row
    from hshap.partitions.protocol import Coalition


def paint(row: Row, target: Tensor) -> None:
    """Paint a row over whatever the target holds."""
    canvas, kept, draw = row
    target[...] = canvas.stand_ins(kept, draw)
    copy(kept, canvas.image, target)


def paint_all(rows: Sequence[Row], targets: Tensor) -> None:
    """Paint rows, each over the target of its number."""
    if not isinstance(targets, np.ndarray):
        _paint_tensors(rows, targets)
        return
    for row, target in zip(rows, targets, strict=False):
        paint(row, target)


def _paint_tensors(rows: Sequence[Row], targets: Tensor) -> None:
    """Paint rows in the memory of a device, which gets what is shown in one piece for all rows.

    Regions as they are would be an upload each, two for each axis.
    """
    torch = sys.modules["torch"]
    masks = np.stack([mask(row.kept, row.canvas.grid) for row in rows])
    shown = torch.from_numpy(masks).to(targets.device, non_blocking=True)[:, None]
    behind = [row.canvas.stand_ins(row.kept, row.draw) for row in rows]
    start = 0
    # Rows of one image over one stand-in are painted by one call.
    for _, some in groupby(zip(rows, behind, strict=True), key=_same_layers):
        layers = list(some)
        (canvas, *_), stand_in = layers[0]
        stop = start + len(layers)
        targets[start:stop] = torch.where(shown[start:stop], canvas.image, stand_in)
        start = stop


def _same_layers(painted: tuple[Row, Tensor]) -> tuple[int, int]:
    row, stand_in = painted
    return id(row.canvas), id(stand_in)


@dataclass(frozen=True, eq=False)
class Inputs:
    """Memory for a batch of inputs; `dtype` is that of the images, which a model may not share."""

    array: Tensor
    dtype: object

    def fit(self, shape: Shape, dtype: object, count: int) -> bool:
        """Tell whether rows of a shape and type can be painted here."""
        found = (tuple(self.array.shape[1:]), self.dtype)
        return found == (shape, dtype) and count <= len(self.array)

    @property
    def holders(self) -> int | None:
        """Number of references to the memory, those of views and of torch tensors included.

        If a call of the model raises it, the model can write to the inputs of the next call. None
        for tensors on a device, which do not tell; new memory costs little there.
        """
        if not isinstance(self.array, np.ndarray):
            return None
        # Every view of a NumPy array refers to the array that owns the memory.
        return sys.getrefcount(self.array if self.array.base is None else self.array.base)


class Sketch:
    """One input that no model gets, so that only the regions that differ are painted."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._under: Tensor | None = None
        self._over: Coalition = ()

    def fits(self, row: Row) -> bool:
        """Tell whether a row can be painted here."""
        return self._inputs.fit(row.canvas.shape, row.canvas.image.dtype, 1)

    def painted(self, row: Row) -> Tensor:
        """Paint a row over the last one, and return the input."""
        target, under = self._inputs.array[0], row.canvas.stand_ins(row.kept, row.draw)
        if self._under is under:
            copy(self._over, under, target)
            copy(row.kept, row.canvas.image, target)
        else:
            paint(row, target)
        self._under, self._over = under, row.kept
        return target
