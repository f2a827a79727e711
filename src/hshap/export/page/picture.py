"""The image for the browser: eight bits for each channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid


def check_picture(image: Array, grid: Grid, name: str) -> None:
    """Refuse an image that is not two-dimensional, or not of the explained grid."""
    if len(grid) != 2:
        message = (
            f"explanations[{name!r}] has the grid {grid}, but a page shows pictures; "
            "pass explanations of two spatial axes, or use explanation.plot"
        )
        raise ArgumentError(message)
    if image.ndim not in {2, 3} or image.shape[-2:] != grid or image.size == 0:
        message = (
            f"image has shape {image.shape}, but explanations[{name!r}] has the grid {grid}; "
            f"pass the image that was explained, (channels, {grid[0]}, {grid[1]})"
        )
        raise ArgumentError(message)
    if image.dtype.kind not in "uifb":
        message = f"image has type {image.dtype}; pass bytes or floats"
        raise ArgumentError(message)
    if image.dtype.kind == "f" and not (np.isfinite(image.min()) and np.isfinite(image.max())):
        message = "image has values that are not finite; replace them, with numpy.nan_to_num"
        raise ArgumentError(message)


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
    # In float16, the product would lose half of the grey levels.
    scaled = (plane.astype(np.float32) - np.float32(low)) * np.float32(255 / ((high - low) or 1.0))
    return (np.clip(scaled, 0, 255) + np.float32(0.5)).astype(np.uint8)
