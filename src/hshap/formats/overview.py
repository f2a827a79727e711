"""An overview of a large image: few of its pixels, for a small picture and for its own colour."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid
    from hshap.formats.large_images import LargeImage

THUMB = 512
"""The longest side of the small picture."""

FEW = 2**22
"""Pixels of a level that is read at once."""

PATCHES = 8
"""Patches a side that stand for an image without a small level."""

PATCH = 256
"""The side of a patch, in pixels."""


def samples(image: LargeImage) -> Iterator[Array]:
    """Yield some pixels of an image: its smallest level, or patches that are spread evenly."""
    last = len(image.levels) - 1
    if prod(image.levels[last]) <= FEW:
        yield image.read((0, 0), image.levels[last], last)
        return
    ends = [side - min(side, PATCH) for side in image.levels[last]]
    for row in np.linspace(0, ends[0], PATCHES).astype(int).tolist():
        for column in np.linspace(0, ends[1], PATCHES).astype(int).tolist():
            stop = [
                min(a + PATCH, n) for a, n in zip((row, column), image.levels[last], strict=True)
            ]
            yield image.read((row, column), stop, last)


class Thumbnail:
    """A small picture of an image, from the tiles as they are read: one pixel of each block."""

    def __init__(self, channels: int, size: Grid, dtype: np.dtype) -> None:
        self._step = max(1, -(-max(size) // THUMB))
        small = tuple(-(-side // self._step) for side in size)
        self.pixels = np.zeros((channels, *small), dtype)

    def add(self, pixels: Array, corner: Grid) -> None:
        """Add a tile whose first pixel lies at a corner of the image."""
        step = self._step
        skip = [-at % step for at in corner]
        few = pixels[:, skip[0] :: step, skip[1] :: step]
        top, left = (-(-at // step) for at in corner)
        self.pixels[:, top : top + few.shape[1], left : left + few.shape[2]] = few

    def picture(self) -> NDArray[np.uint8]:
        """Return the picture in bytes, `(height, width)` or `(height, width, 3)`."""
        return as_bytes(self.pixels)


def as_bytes(pixels: Array) -> NDArray[np.uint8]:
    """Return pixels `(channels, height, width)` for display; numbers from dark to light.

    >>> as_bytes(np.array([[[0.0, 2.0, 4.0]]])).tolist()
    [[0, 128, 255]]
    """
    plane = np.moveaxis(pixels[:3], 0, -1) if len(pixels) in {3, 4} else pixels.mean(axis=0)
    if pixels.dtype == np.uint8:
        return np.rint(plane).astype(np.uint8)
    numbers = np.nan_to_num(plane.astype(np.float64))
    low, high = float(numbers.min()), float(numbers.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return np.rint(255 * (numbers - low) / (high - low or 1.0)).astype(np.uint8)
