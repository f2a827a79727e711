"""Arrays of NumPy as large images: a memory map is read region by region by the system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError, FormatError
from hshap.formats.large.protocol import checked_box

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hshap._util.types import Array, Grid, Shape


@dataclass(frozen=True, eq=False)
class ArrayImage:
    """An array `(channels, height, width)` or `(height, width)` as a large image."""

    array: Array
    name: str = "image"

    def __post_init__(self) -> None:
        to_numpy(f"image {self.name}", self.array)  # refuses all but plain numbers
        if self.array.ndim not in {2, 3} or not self.array.size:
            message = (
                f"image {self.name} has shape {self.array.shape} and type {self.array.dtype}; pass "
                "numbers (channels, height, width) or (height, width)"
            )
            raise ArgumentError(message)

    @property
    def shape(self) -> Shape:
        """Channels, height and width."""
        return (1, *self.array.shape)[-3:]

    @property
    def dtype(self) -> np.dtype:
        """The type of the numbers."""
        return self.array.dtype

    @property
    def levels(self) -> tuple[Grid, ...]:
        """The only size."""
        return (self.shape[1:],)

    @property
    def pixel_size(self) -> None:
        """An array does not tell it."""
        return

    def read(self, start: Sequence[int], stop: Sequence[int], level: int = 0) -> Array:
        """Return a copy of a region."""
        top, left, bottom, right = checked_box(self, start, stop, level)
        region = self.array[..., top:bottom, left:right]
        return np.array(region).reshape(-1, bottom - top, right - left)

    def close(self) -> None:
        """Do nothing: the array belongs to the caller."""


def open_array(path: Path) -> ArrayImage:
    """Open a .npy file as a memory map."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        message = f"{path} cannot be read as an array ({reason}); save it by numpy.save"
        raise FormatError(message) from error
    return ArrayImage(array, path.name)
