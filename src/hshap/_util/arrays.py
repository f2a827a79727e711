"""Inputs of users: NumPy arrays and torch tensors become checked NumPy arrays.

torch is never imported here: a caller who passes a tensor has imported it already.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeGuard, cast

import numpy as np

from hshap._util.axes import arranged, by_name
from hshap._util.checks import shown
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Image, Shape, Tensor

MOST_COLOURS = 4
"""An axis of up to this length looks like the channels of a picture."""

SMALLEST_SIDE = 8
"""Axes of at least this length look like the sides of a picture."""

MANY_CHANNELS = 16
"""Signals of so many channels are expected to be at least twice as long."""

FLOATS = ("float16", "float32", "float64")
"""Floating-point types of torch that NumPy has too."""

FILLED = "pass .filled(value) with the value that they stand for"


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Tell whether a value is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_numpy(name: str, value: object) -> Array:
    """Return real numbers as an array that shares memory with the value where it can.

    A value that means more than its numbers is refused: a masked array, whose hidden values would
    count as pixels, a sparse or quantised tensor, complex numbers, dates, records and objects.
    """
    fix = _refused_tensor(value) if is_tensor(value) else _refused_array(value)
    if fix:
        message = f"{name} is a {type(value).__name__} {fix}"
        raise ArgumentError(message)
    try:
        array = _from_tensor(value) if is_tensor(value) else np.asarray(value)
    except Exception as error:
        message = f"{name} is a {type(value).__name__}, not an array; pass an array of floats"
        raise ArgumentError(message) from error
    if array.dtype.kind not in "fiub":
        message = f"{name} is {shown(value)}, of type {array.dtype}; pass an array of floats"
        raise ArgumentError(message)
    return array


def _refused_array(value: object) -> str:
    """Return the reason why a value is no plain array, and the fix; empty if it may be one."""
    if type(value) is np.ndarray:
        return ""
    if isinstance(value, (list, tuple)):
        inside = map(_refused_array, cast("Sequence[object]", value))
        return next((each for each in inside if each), "")
    is_masked = isinstance(value, np.ndarray) and np.any(getattr(value, "mask", False))
    return f"with masked values; {FILLED}" if is_masked else ""


def _refused_tensor(value: Tensor) -> str:
    """Return the reason why a tensor is not a plain array, and the fix; empty if it is one."""
    torch = sys.modules["torch"]
    if isinstance(value, torch.masked.MaskedTensor):
        return f"with masked values; {FILLED.replace('filled', 'to_tensor')}"
    if value.is_quantized:
        return f"of {value.dtype}; pass .dequantize()"
    if value.is_nested or value.layout != torch.strided:
        return f"with the layout {value.layout}; pass .to_dense()"
    return "on the meta device, which holds no values; pass one that does" if value.is_meta else ""


def _from_tensor(value: Tensor) -> Array:
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    # NumPy has no bfloat16 nor floats of 8 bits, and every one of their values is a float32.
    is_rare = tensor.is_floating_point() and str(tensor.dtype).removeprefix("torch.") not in FLOATS
    return (tensor.float() if is_rare else tensor).numpy()


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
