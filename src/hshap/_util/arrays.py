"""Inputs of users: NumPy arrays and torch tensors become checked NumPy arrays.

torch is never imported here: a caller who passes a tensor has imported it already.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from hshap._util.axes import arranged, by_name
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from hshap._util.types import Array, Image, Shape, Tensor

MOST_COLOURS = 4
"""An axis of up to this length looks like the channels of a picture."""

SMALLEST_SIDE = 8
"""Axes of at least this length look like the sides of a picture."""

MANY_CHANNELS = 16
"""Signals of so many channels are expected to be at least twice as long."""


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


def frozen(array: Array) -> Array:
    """Return the array if nobody can write to its memory, else a read-only copy.

    An axis along which the array repeats one value, as `numpy.broadcast_to` makes them, takes no
    memory in the copy either.

    >>> held = np.zeros(3)
    >>> kept = frozen(held)
    >>> held += 1
    >>> kept.tolist(), frozen(kept) is kept
    ([0.0, 0.0, 0.0], True)
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner.base is None and not owner.flags.writeable:
        return array
    distinct = tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)
    copied = array[distinct].copy()
    copied.flags.writeable = False
    return copied if copied.shape == array.shape else np.broadcast_to(copied, array.shape)


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
    return array


def read_image(name: str, value: object, layout: str | None) -> Image:
    """Return an image `(channels, *grid)` from an array whose axes are in any order.

    `layout` has one letter for each axis; an image with named axes needs none. Without either the
    channels come first, and an array that looks otherwise, such as a batch or a video, is refused.
    """
    named = by_name(name, value, layout)
    if named.layout is not None:
        return arranged(name, as_floats(name, named.array), named.layout)
    array = as_image(name, named.array)
    likely = _likely(name, array.shape)
    if likely is not None:
        looks, fix = likely
        channels, *grid = array.shape
        count = "1 channel" if channels == 1 else f"{channels} channels"
        message = (
            f"{name} has shape {array.shape}, that is {count} of {' x '.join(map(str, grid))} "
            f"pixels, but looks like {looks}; {fix}"
        )
        raise ArgumentError(message)
    return array


def _likely(name: str, shape: Shape) -> tuple[str, str] | None:
    """Return the likely meaning of a shape and the fix; None if channels first is plausible."""
    first, last = shape[0], shape[-1]
    if len(shape) == 2:
        if first < MANY_CHANNELS or last >= 2 * first:
            return None
        return (
            "a grey image without channels, or a signal with channels last",
            f"pass {name}[None], or say the order of the axes: layout='YX', 'TC' or 'CT'",
        )
    if last <= MOST_COLOURS and min(shape[-3:-1]) >= SMALLEST_SIDE:
        orders = "'HWC' or 'CHW'" if len(shape) == 3 else "'THWC', 'ZYXC' or 'CZYX'"
        moved = f"pass it channels first: numpy.moveaxis({name}, -1, 0)"
        return "channels last", f"{moved}, or say the order of the axes: layout={orders}"
    if len(shape) > 3 and shape[1] <= MOST_COLOURS and min(shape[-2:]) >= SMALLEST_SIDE:
        orders = "'TCHW' for a video, 'CZYX' for a thin volume"
        fix = f"pass one image: {name}[0], or say the order of the axes: layout={orders}"
        return "a batch of images, or a video with time first", fix
    return None


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
