"""What the measures are given: maps, truths and boxes become checked arrays and tuples."""

from __future__ import annotations

from operator import lt
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util.arrays import as_floats, to_numpy
from hshap._util.checks import shown
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Box = tuple[tuple[float, ...], tuple[float, ...]]


def as_map(name: str, value: Any) -> NDArray[np.float64]:
    """Return finite real numbers as floats of full precision, or say what is wrong with them."""
    array = to_numpy(name, value)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    return as_floats(name, array).astype(np.float64, copy=False)


def as_values(name: str, value: Any) -> NDArray[np.float64]:
    """Return one finite number for each image, at least one."""
    values = as_map(name, value)
    if values.ndim != 1:
        message = f"{name} has shape {values.shape}; pass one number for each image"
        raise ArgumentError(message)
    return values


def as_truth(truth: Any, grid: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the mask of all that is there: a mask itself, or the union of a list of objects."""
    if not isinstance(truth, (list, tuple)):
        return _as_mask(truth, grid)
    mask = np.zeros(grid, np.bool_)
    for item in truth:
        if isinstance(item, (list, tuple)):
            mask[_as_slices(item, grid)] = True
        else:
            mask |= _as_mask(item, grid)
    return mask


def as_box(name: str, value: Any) -> Box:
    """Return the corners of a box, which may be a finding with its score."""
    try:
        start, stop = (tuple(float(side) for side in corner) for corner in value[:2])
    except (TypeError, ValueError, LookupError):
        start, stop = (), ()
    if not start or len(start) != len(stop) or not all(map(lt, start, stop)):
        message = (
            f"{name} holds {shown(value)}, which is no box; "
            "pass (start, stop) with start below stop on every axis"
        )
        raise ArgumentError(message)
    return start, stop


def same_length(one: str, other: str, lengths: tuple[int, int]) -> None:
    """Refuse two lists over images that do not match, or that are empty."""
    if lengths[0] != lengths[1] or not lengths[0]:
        message = (
            f"{one} has {lengths[0]} entries and {other} has {lengths[1]}; "
            "pass one of each for every image, and at least one image"
        )
        raise ArgumentError(message)


def _as_mask(value: Any, grid: tuple[int, ...]) -> NDArray[np.bool_]:
    mask = to_numpy("truth", value)
    if mask.dtype != np.bool_ or mask.shape != grid:
        message = (
            f"truth holds an array of {mask.dtype} of shape {mask.shape}; pass a bool mask of the "
            f"map's shape {grid}, for example truth > 0, or a list of masks or (start, stop) boxes"
        )
        raise ArgumentError(message)
    return mask


def _as_slices(value: Any, grid: tuple[int, ...]) -> tuple[slice, ...]:
    start, stop = as_box("truth", value)
    inside = len(start) == len(grid) and all(
        first >= 0 and last <= side and first.is_integer() and last.is_integer()
        for first, last, side in zip(start, stop, grid, strict=True)
    )
    if not inside:
        message = (
            f"truth holds the box {shown(value)}, which does not lie on whole pixels of the grid "
            f"{grid}; round and clip it"
        )
        raise ArgumentError(message)
    return tuple(slice(int(first), int(last)) for first, last in zip(start, stop, strict=True))
