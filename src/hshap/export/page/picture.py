"""The image for the browser: colours in eight bits, grey values as they are, up to 16 bits.

It is cut into tiles: squares at full resolution, and at a half, a quarter and so on. The page loads
only those in sight, so an image may be larger than a browser can decode at once. A volume is stored
in slabs of planes.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.raster import png
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Json
    from hshap.explanation.placement import Placement

    Pixels = NDArray[np.uint8] | NDArray[np.uint16]

LEVELS = 2**16
BYTES = (0.0, 255.0)

TILE = 1024
"""The side of a tile, in pixels."""

SLAB = 2**22
"""The pixels of a slab of planes, at most, if it has more than one."""

THUMB = 256
"""The longest side of the small picture in the gallery."""

EFFORT = 1
"""Level of zlib: more takes a photograph three times as long, and makes it 3 % smaller."""


def check_picture(image: Array, place: Placement, name: str) -> None:
    """Refuse an image that is no picture and no volume, or neither the grid's nor the original."""
    grid = place.grid
    axes = len(grid)
    if axes not in {2, 3}:
        message = (
            f"explanations[{name!r}] has the grid {grid}, but a page shows pictures and volumes; "
            "pass explanations of two or three spatial axes, or use explanation.plot"
        )
        raise ArgumentError(message)
    if (
        image.ndim - axes not in {0, 1}
        or image.shape[-axes:] not in {grid, place.shape}
        or image.size == 0
    ):
        message = (
            f"image has shape {image.shape}, but explanations[{name!r}] has the grid {grid}; "
            f"pass the image that was explained, (channels, {', '.join(map(str, grid))}), or the "
            f"original image of {' x '.join(map(str, place.shape))} pixels"
        )
        raise ArgumentError(message)
    if image.dtype.kind == "f" and not (np.isfinite(image.min()) and np.isfinite(image.max())):
        message = "image has values that are not finite; replace them, with numpy.nan_to_num"
        raise ArgumentError(message)


@dataclass(frozen=True, eq=False)
class Shown:
    """An image as the page shows it.

    `pixels` are bytes `(height, width, 3)` for a picture in colour, else grey values of 8 or 16
    bits on the grid. A grey value `v` stands for the number `low + step * v` of the image, up to
    `high`. `window` has the numbers that are shown black and white at first; a picture in colour
    has none.
    """

    pixels: NDArray[np.uint8] | NDArray[np.uint16]
    low: float = 0.0
    step: float = 1.0
    window: tuple[float, float] = BYTES
    high: float = BYTES[1]
    is_colour: bool = False

    @property
    def is_volume(self) -> bool:
        """Whether the image has three spatial axes."""
        return self.pixels.ndim == 3 and not self.is_colour

    def table(self) -> dict[str, Json]:
        """Return the facts that the page needs to show it."""
        return {
            "kind": "colour" if self.is_colour else "grey",
            "bits": 8 * self.pixels.dtype.itemsize,
            "low": self.low,
            "step": self.step,
            "high": self.high,
            "window": list(self.window),
        }

    def as_bytes(self) -> NDArray[np.uint8]:
        """Return the pixels in eight bits, at the first window."""
        if self.is_colour or (self.pixels.dtype == np.uint8 and self.window == BYTES):
            return self.pixels.astype(np.uint8, copy=False)
        numbers = self.pixels.astype(np.float32) * np.float32(self.step) + np.float32(self.low)
        return _scaled(numbers, *self.window)


def shown(image: Array, axes: int, window: tuple[float, float] | None = None) -> Shown:
    """Return an image for the page; three or four channels of a picture are its colours.

    Colours that are all grey are shown as grey values. `window` has the numbers that are black and
    white at first.

    >>> shown(np.array([[1000, 1500]], np.uint16), 2)
    Shown(pixels=array([[1000, 1500]], dtype=uint16), low=0.0, step=1.0, window=(1000.0, 1500.0),
          high=1500.0, is_colour=False)
    """
    channels = len(image) if image.ndim > axes else 1
    if axes == 2 and channels in {3, 4}:
        if not all(np.array_equal(image[0], other) for other in image[1:3]):
            return Shown(_colours(image), is_colour=True)
        image, channels = image[:1], 1  # a scan or an X-ray, stored as colours
    if channels > 1:
        plane = image.mean(axis=0, dtype=np.float64)
        return _grey(plane, window or (BYTES if image.dtype == np.uint8 else None))
    return _grey(image.reshape(image.shape[-axes:]), window)


def _grey(plane: Array, window: tuple[float, float] | None) -> Shown:
    if plane.dtype == np.uint8:
        return Shown(np.ascontiguousarray(plane), window=window or BYTES)
    low, high = float(plane.min()), float(plane.max())
    window = window or ((0.0, 1.0) if low >= 0 and high <= 1 else (low, high))
    if plane.dtype.kind == "b":
        return Shown(plane.astype(np.uint8), window=window, high=1.0)
    if plane.dtype == np.uint16:
        return Shown(np.ascontiguousarray(plane), window=window, high=high)
    if plane.dtype.kind in "ui" and high - low < LEVELS:
        return Shown(_levels(plane, int(low), 1), low, 1.0, window, high)
    step = (high - low) / (LEVELS - 1) or 1.0
    return Shown(_levels(plane, low, step), low, step, window, high)


def _levels(plane: Array, low: float, step: float) -> NDArray[np.uint16]:
    """Return the number of steps above `low`, rounded."""
    out = np.empty(plane.shape, np.uint16)
    wide = np.float64 if plane.dtype.kind == "f" else np.int64
    # By lines, since the differences need four times the memory.
    for line, values in zip(out, plane, strict=True):
        line[...] = np.rint((values.astype(wide) - wide(low)) / step)
    return out


def _colours(image: Array) -> NDArray[np.uint8]:
    """Return the first three channels as bytes `(height, width, 3)`."""
    plane = np.moveaxis(image[:3], 0, -1)
    if plane.dtype == np.uint8:
        return np.ascontiguousarray(plane)
    low, high = float(plane.min()), float(plane.max())
    return _scaled(plane, *((0.0, 1.0) if low >= 0 and high <= 1 else (low, high)))


def _scaled(plane: Array, low: float, high: float) -> NDArray[np.uint8]:
    # In float16, the product would lose half of the grey levels.
    scaled = (plane.astype(np.float32) - np.float32(low)) * np.float32(255 / ((high - low) or 1.0))
    return (np.clip(scaled, 0, 255) + np.float32(0.5)).astype(np.uint8)


def levels_of(shown: Shown) -> list[list[int]]:
    """Return height and width of each level, the full one first; one for a volume."""
    if shown.is_volume:
        return [list(shown.pixels.shape)]
    return sizes_of(shown.pixels.shape[:2])


def sizes_of(size: Grid) -> list[list[int]]:
    """Return height and width of each level of a picture, the full one first.

    >>> sizes_of((3000, 1000))
    [[3000, 1000], [1500, 500], [750, 250]]
    """
    sizes = [list(size)]
    while max(sizes[-1]) > TILE:
        sizes.append([-(-side // 2) for side in sizes[-1]])
    return sizes


def tiles(shown: Shown) -> Iterator[tuple[str, bytes]]:
    """Yield the name of each tile, level-row-column, and its bytes; slabs of a volume in order."""
    pixels = shown.pixels
    if shown.is_volume:
        planes = max(1, SLAB // pixels[0].size)
        for number, start in enumerate(range(0, len(pixels), planes)):
            slab = pixels[start : start + planes]
            yield f"slab-{number}", encoded(slab.reshape(-1, slab.shape[-1]), EFFORT)
        return
    for level in range(len(levels_of(shown))):
        pixels = halved(pixels) if level else pixels
        for row in range(0, pixels.shape[0], TILE):
            for column in range(0, pixels.shape[1], TILE):
                tile = pixels[row : row + TILE, column : column + TILE]
                data = (
                    png(np.ascontiguousarray(cast("NDArray[np.uint8]", tile)), effort=EFFORT)
                    if shown.is_colour
                    else encoded(tile, EFFORT)
                )
                yield f"{level}-{row // TILE}-{column // TILE}", data


def thumb(shown: Shown) -> bytes:
    """Return a small picture as a PNG file; the middle plane of a volume."""
    pixels = shown.pixels
    if shown.is_volume:
        pixels = pixels[len(pixels) // 2]
    # Whole steps first, since the mean of a large image takes long.
    step = max(1, max(pixels.shape[:2]) // (4 * THUMB))
    pixels = pixels[::step, ::step]
    while max(pixels.shape[:2]) > THUMB:
        pixels = halved(pixels)
    small = replace(shown, pixels=pixels)
    return png(np.ascontiguousarray(small.as_bytes()), effort=EFFORT)


def halved(pixels: Pixels) -> Pixels:
    """Return the picture at half its size, the mean of four pixels each.

    >>> halved(np.array([[0, 2, 9], [4, 6, 9]], np.uint8))
    array([[3, 9]], dtype=uint8)
    """
    height, width = pixels.shape[:2]
    out = np.empty((-(-height // 2), -(-width // 2), *pixels.shape[2:]), pixels.dtype)
    # In bands, since the sums need four times the memory.
    for top in range(0, height, TILE):
        band = pixels[top : top + TILE]
        pad = [(0, len(band) % 2), (0, width % 2), *[(0, 0)] * (pixels.ndim - 2)]
        band = np.pad(band, pad, mode="edge").astype(np.uint32)
        total = band[::2, ::2] + band[1::2, ::2] + band[::2, 1::2] + band[1::2, 1::2]
        out[top // 2 : top // 2 + len(total)] = (total + 2) // 4
    return cast("Pixels", out)


def encoded(plane: Pixels, effort: int = EFFORT) -> bytes:
    """Return grey values as compressed differences along each line; high bytes before low ones.

    Browsers cut PNG files of 16 bits to eight.
    """
    steps = plane.copy()
    steps[:, 1:] -= plane[:, :-1]
    if steps.dtype == np.uint8:
        return zlib.compress(steps.tobytes(), effort)
    split = np.stack([steps >> 8, steps & 255]).astype(np.uint8)
    return zlib.compress(split.tobytes(), effort)
