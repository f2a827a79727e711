"""The image for the browser: colours in eight bits, grey values as they are, up to 16 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.types import Array, Json
    from hshap.explanation.placement import Placement


LEVELS = 2**16
BYTES = (0.0, 255.0)


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
    bits on the grid. A grey value `v` stands for the number `low + step * v` of the image. `window`
    has the numbers that are shown black and white at first; a picture in colour has none.
    """

    pixels: NDArray[np.uint8] | NDArray[np.uint16]
    low: float = 0.0
    step: float = 1.0
    window: tuple[float, float] = BYTES
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
          is_colour=False)
    """
    channels = len(image) if image.ndim > axes else 1
    if axes == 2 and channels in {3, 4}:
        if not all(np.array_equal(image[0], other) for other in image[1:3]):
            return Shown(to_bytes(image), is_colour=True)
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
        return Shown(plane.astype(np.uint8), window=window)
    if plane.dtype == np.uint16:
        return Shown(np.ascontiguousarray(plane), window=window)
    if plane.dtype.kind in "ui" and high - low < LEVELS:
        return Shown(_levels(plane, int(low), 1), low, 1.0, window)
    step = (high - low) / (LEVELS - 1) or 1.0
    return Shown(_levels(plane, low, step), low, step, window)


def _levels(plane: Array, low: float, step: float) -> NDArray[np.uint16]:
    """Return the number of steps above `low`, rounded."""
    out = np.empty(plane.shape, np.uint16)
    wide = np.float64 if plane.dtype.kind == "f" else np.int64
    # By lines, since the differences need four times the memory.
    for line, values in zip(out, plane, strict=True):
        line[...] = np.rint((values.astype(wide) - wide(low)) / step)
    return out


def to_bytes(image: Array) -> NDArray[np.uint8]:
    """Return the image for display: bytes `(height, width)` or `(height, width, 3)`.

    >>> to_bytes(np.array([[[0.0, 0.5, 1.0]]]))
    array([[  0, 128, 255]], dtype=uint8)
    >>> to_bytes(np.array([[[-1.0, 1.0, 3.0]]]))
    array([[  0, 128, 255]], dtype=uint8)
    """
    if image.ndim == 2 or len(image) == 1:
        plane = image.reshape(image.shape[-2:])
    elif len(image) in {3, 4}:
        plane = np.moveaxis(image[:3], 0, -1)
    else:
        plane = image.mean(axis=0, dtype=np.float64)
        if image.dtype == np.uint8:
            plane /= 255
    if plane.dtype == np.uint8:
        return np.ascontiguousarray(plane)
    low, high = float(plane.min()), float(plane.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    return _scaled(plane, low, high)


def _scaled(plane: Array, low: float, high: float) -> NDArray[np.uint8]:
    # In float16, the product would lose half of the grey levels.
    scaled = (plane.astype(np.float32) - np.float32(low)) * np.float32(255 / ((high - low) or 1.0))
    return (np.clip(scaled, 0, 255) + np.float32(0.5)).astype(np.uint8)
