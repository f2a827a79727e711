"""Inputs of users: NumPy arrays and torch tensors become checked NumPy arrays.

torch is never imported here: a caller who passes a tensor has imported it already.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from hshap._util.types import Array, Image, Tensor

CHANNEL_COUNTS = (1, 3, 4)
SMALLEST_SIDE = 16


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Tell whether a value is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(name: str, value: object) -> Array:
    """Return an array that shares memory with the value where it can."""
    if is_tensor(value):
        tensor = value.detach().cpu()
        # NumPy has no bfloat16, and every one of its values is a float32.
        is_bfloat16 = tensor.dtype == sys.modules["torch"].bfloat16
        return (tensor.float() if is_bfloat16 else tensor).numpy()
    try:
        return np.asarray(value)
    except Exception as error:
        message = f"{name} is a {type(value).__name__}, not an array; pass an array of floats"
        raise ArgumentError(message) from error


def as_floats(name: str, value: object) -> Image:
    """Return an array of finite floating-point numbers, or raise an error that names the fault."""
    array = to_numpy(name, value)
    if array.dtype.kind in "iub":
        message = (
            f"{name} holds {array.dtype} numbers; convert and scale it as the model expects, "
            "for example image.astype('float32') / 255"
        )
        raise ArgumentError(message)
    if array.dtype.kind != "f":
        message = f"{name} has type {array.dtype}; pass an array of floats"
        raise ArgumentError(message)
    if array.size == 0:
        message = f"{name} has shape {array.shape} and so no pixels; pass at least one"
        raise ArgumentError(message)
    # The extremes of an array with NaN are NaN; unlike isfinite, they need no second array.
    if not (np.isfinite(array.min()) and np.isfinite(array.max())):
        bad = np.argwhere(~np.isfinite(array))
        where = tuple(int(i) for i in bad[0])
        message = (
            f"{name} has {len(bad)} values that are not finite, the first {array[where]} at "
            f"{where}; replace them, for example with numpy.nan_to_num"
        )
        raise ArgumentError(message)
    return array


def as_image(name: str, value: object) -> Image:
    """Return an image `(channels, *grid)`, or raise an error that names the fault."""
    array = as_floats(name, value)
    if array.ndim < 2:
        message = (
            f"{name} has shape {array.shape}, but must be (channels, *grid); "
            f"for a single channel pass {name}[None]"
        )
        raise ArgumentError(message)
    _refuse_channels_last(name, array)
    return array


def as_pixels(name: str, value: object) -> Array:
    """Return numbers `(channels, *grid)`; unlike an image for a model, they may be integers."""
    array = to_numpy(name, value)
    if array.ndim < 2 or not array.size:
        message = f"{name} has shape {array.shape}; pass (channels, *grid), with a pixel at least"
        raise ArgumentError(message)
    if array.dtype.kind not in "iubf":
        message = f"{name} has type {array.dtype}; pass an array of numbers"
        raise ArgumentError(message)
    if not (np.isfinite(array.min()) and np.isfinite(array.max())):
        message = f"{name} holds values that are not finite; replace them before it is split"
        raise ArgumentError(message)
    return array


def as_images(name: str, value: object) -> Image:
    """Return several images `(count, channels, *grid)`, or raise an error that names the fault."""
    array = to_numpy(name, value)
    if array.ndim < 3:
        message = (
            f"{name} has shape {array.shape}, but must be (count, channels, *grid); "
            f"for a single image pass {name}[None]"
        )
        raise ArgumentError(message)
    if len(array) == 0:
        message = f"{name} has shape {array.shape} and so no images; pass at least one"
        raise ArgumentError(message)
    as_image(f"{name}[0]", array[0])
    return as_floats(name, array)


def _refuse_channels_last(name: str, array: Array) -> None:
    """Refuse `(height, width, 3)`, which would be read as `height` channels."""
    shape = array.shape
    if len(shape) == 3 and shape[-1] in CHANNEL_COUNTS and min(shape[:2]) >= SMALLEST_SIDE:
        message = (
            f"{name} has shape {shape}, which looks like channels last; "
            f"pass it channels first: numpy.moveaxis({name}, -1, 0)"
        )
        raise ArgumentError(message)
