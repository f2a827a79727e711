"""Large images: pictures on a disk that are read region by region, and never as a whole.

`LargeImage` is the contract. `ArrayImage` and `ChunkedImage` keep it for arrays of NumPy, which may
be memory maps, and for arrays of zarr, which TIFF files and OME-Zarr give.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.cache import BoundedCache
from hshap.errors import ArgumentError, FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hshap._util.types import Array, Grid, Shape, Untyped

MOST_PIECE = 2**27
"""Bytes of the smallest piece of a file that can be decoded by itself: larger ones are refused."""

CACHED = 2**26
"""Bytes of decoded pieces that a reader keeps, because neighbouring regions share them."""


@runtime_checkable
class LargeImage(Protocol):
    """A picture that stays on a disk; its regions are read when they are needed.

    `shape` is `(channels, height, width)` at full resolution. `levels` has the height and width of
    each stored resolution, the full one first. `pixel_size` is the side of a pixel at full
    resolution in micrometres, one number for each axis, or None. Any object with these attributes
    will do.

    >>> import hshap
    >>> import numpy as np
    >>> image = hshap.large.open_image(np.zeros((3, 40, 60), np.uint8))
    >>> image.levels, image.read((10, 20), (14, 30)).shape
    (((40, 60),), (3, 4, 10))
    """

    @property
    def name(self) -> str:
        """The name of the file."""
        ...

    @property
    def shape(self) -> Shape:
        """Channels, height and width."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """The type of the numbers that `read` returns."""
        ...

    @property
    def levels(self) -> tuple[Grid, ...]:
        """Height and width of each stored resolution, the full one first."""
        ...

    @property
    def pixel_size(self) -> tuple[float, ...] | None:
        """The height and width of a pixel in micrometres; None if they are not in the file."""
        ...

    def read(self, start: Sequence[int], stop: Sequence[int], level: int = 0) -> Array:
        """Return the pixels `(channels, rows, columns)` from `start` up to `stop` of a level."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


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


class Levels(NamedTuple):
    """The arrays of an image, the largest first, and the letters of their axes."""

    arrays: tuple[Untyped, ...]
    axes: str


class ChunkedImage:
    """Arrays of zarr as a large image, one for each resolution.

    Decoded chunks are kept for a while, since neighbouring regions share them.
    """

    def __init__(
        self,
        path: Path,
        levels: Levels,
        pixel_size: tuple[float, ...] | None,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self._path, self.name, self.close = path, path.name, close
        (self._arrays, self._axes), self.pixel_size = levels, pixel_size
        first, axes = self._arrays[0], self._axes
        self._letter = planes(str(path), axes, first.shape)
        self.dtype = np.dtype(first.dtype)
        self.levels: tuple[Grid, ...] = tuple(
            tuple(each.shape[axes.index(axis)] for axis in "YX") for each in self._arrays
        )
        count = first.shape[axes.index(self._letter)] if self._letter else 1
        self.shape: Shape = (count, *self.levels[0])
        self._decoded = BoundedCache["Array"](CACHED, weight=lambda piece: piece.nbytes)
        for each in self._arrays:
            refuse_large_piece(str(path), each.chunks, prod(each.chunks) * self.dtype.itemsize)

    def read(self, start: Sequence[int], stop: Sequence[int], level: int = 0) -> Array:
        """Return the pixels of a region `(channels, rows, columns)`."""
        top, left, bottom, right = checked_box(self, start, stop, level)
        chunks = self._arrays[level].chunks
        high, wide = (chunks[self._axes.index(axis)] for axis in "YX")
        out = np.empty((self.shape[0], bottom - top, right - left), self.dtype)
        for row in range(top - top % high, bottom, high):
            for column in range(left - left % wide, right, wide):
                piece = self._piece(level, (row, column), (high, wide))
                a, b = max(top, row), min(bottom, row + piece.shape[1])
                c, d = max(left, column), min(right, column + piece.shape[2])
                part = piece[:, a - row : b - row, c - column : d - column]
                out[:, a - top : b - top, c - left : d - left] = part
        return out

    def _piece(self, level: int, corner: Grid, sides: Grid) -> Array:
        """Return all channels `(channels, rows, columns)` of the chunks at a corner."""
        found = self._decoded.get((level, corner))
        if found is None:
            found = self._decode(level, corner, sides)
            self._decoded.put((level, corner), found)
        return found

    def _decode(self, level: int, corner: Grid, sides: Grid) -> Array:
        rows, columns = (slice(at, at + side) for at, side in zip(corner, sides, strict=True))
        places = {"Y": rows, "X": columns, self._letter: slice(None)}
        try:
            region = self._arrays[level][tuple(places.get(axis, 0) for axis in self._axes)]
        # Any: each codec raises errors of its own.
        except Exception as error:
            message = (
                f"{self._path} is damaged, or cannot be decoded ({brief(error)}); copy it again, "
                "or save it with another compression, such as deflate"
            )
            raise FormatError(message) from error
        kept = [axis for axis in self._axes if axis in places]
        order = [kept.index(axis) for axis in (self._letter, "Y", "X") if axis]
        pixels = np.asarray(region).transpose(order)
        return np.ascontiguousarray(pixels.reshape(self.shape[0], *pixels.shape[-2:]))


def brief(error: Exception) -> str:
    """Return the message of a library in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def checked_box(
    image: LargeImage, start: Sequence[int], stop: Sequence[int], level: int
) -> tuple[int, int, int, int]:
    """Return top, left, bottom and right of a region, or say why it cannot be read."""
    size = size_of_level(image, level)
    (top, left), (bottom, right) = start, stop
    if not (0 <= top < bottom <= size[0] and 0 <= left < right <= size[1]):
        message = (
            f"start={tuple(start)} to stop={tuple(stop)} is no region of level {level} of "
            f"{image.name}, which has {size[0]} x {size[1]} pixels; pass one inside it"
        )
        raise ArgumentError(message)
    return int(top), int(left), int(bottom), int(right)


def size_of_level(image: LargeImage, level: object) -> Grid:
    """Return height and width of a level, or name the levels that there are."""
    number = checks.integer("level", level, minimum=0)
    if number >= len(image.levels):
        sizes = ", ".join(f"{n}: {h} x {w}" for n, (h, w) in enumerate(image.levels))
        message = f"level={number}, but {image.name} has no such level; pass one of {sizes}"
        raise ArgumentError(message)
    return image.levels[number]


def refuse_large_piece(name: str, sides: Sequence[int], size: int) -> None:
    """Refuse a file whose pieces are too large to be decoded one at a time."""
    if size > MOST_PIECE:
        piece = " x ".join(map(str, sides))
        message = (
            f"{name} is not tiled: one piece of {piece} takes {size:,} bytes, more than "
            f"{MOST_PIECE:,}; save it with tiles, for example by tifffile.imwrite(..., "
            'tile=(256, 256)), or "vips tiffsave --tile"'
        )
        raise FormatError(message)


def planes(name: str, axes: str, shape: Sequence[int], channels: str = "CS") -> str:
    """Return the letter of the channels' axis, or an empty text; refuse axes of no picture.

    >>> planes("a.tif", "TCYX", (1, 3, 8, 8))
    'C'
    """
    lengths = dict(zip(axes, shape, strict=True))
    found = [axis for axis in axes if axis in channels and lengths[axis] > 1]
    others = [axis for axis in axes if axis not in f"{channels}YX" and lengths[axis] > 1]
    if not {"Y", "X"} <= set(axes) or others or len(found) > 1:
        message = (
            f"{name} has the axes {axes} of lengths {tuple(shape)}; pass a picture: one plane Y, "
            "X, with channels C or S at most"
        )
        raise FormatError(message)
    return found[0] if found else next((axis for axis in axes if axis in channels), "")
