"""The contract of a large image: sizes are known, and pixels are read region by region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hshap._util import checks
from hshap.errors import ArgumentError, FormatError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from hshap._util.types import Array, Grid, Shape

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


def refuse_large_piece(name: str, piece: str, size: int) -> None:
    """Refuse a file whose pieces are too large to be decoded one at a time."""
    if size > MOST_PIECE:
        message = (
            f"{name} is not tiled: {piece} takes {size:,} bytes, more than {MOST_PIECE:,}; save it "
            'with tiles, for example by tifffile.imwrite(..., tile=(256, 256)), or "vips tiffsave '
            '--tile"'
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
