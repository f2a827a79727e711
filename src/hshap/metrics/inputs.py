"""Checks of arguments: maps, truths and boxes become arrays and tuples."""

from __future__ import annotations

from operator import lt
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np

from hshap._util.arrays import as_floats, to_numpy
from hshap._util.checks import shown
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Grid, Heat, Mask

Box: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
"""First corner, and the one past the last."""


def as_map(name: str, value: object) -> Heat:
    """Return an array of finite real numbers as 64-bit floats."""
    array = to_numpy(name, value)
    if array.dtype.kind in "iub":
        array = array.astype(np.float64)
    return as_floats(name, array).astype(np.float64, copy=False)


def as_values(name: str, value: object) -> Heat:
    """Return one finite number for each image, at least one."""
    values = as_map(name, value)
    if values.ndim != 1:
        message = f"{name} has shape {values.shape}; pass one number for each image"
        raise ArgumentError(message)
    return values


def as_truth(truth: object, grid: Grid) -> Mask:
    """Return the mask of all objects: the given mask, or the union of a list of masks and boxes."""
    if not isinstance(truth, (list, tuple)):
        return _as_mask(truth, grid)
    mask = np.zeros(grid, np.bool_)
    for item in cast("Sequence[object]", truth):
        if not isinstance(item, (list, tuple)):
            mask |= _as_mask(item, grid)
        else:
            mask[_as_slices(cast("object", item), grid)] = True
    return mask


def as_objects(name: str, truth: object, grid: Grid) -> Mask:
    """Return the mask of all objects; refuse a clean image, on which there is nothing to find."""
    mask = as_truth(truth, grid)
    if not mask.any():
        message = (
            f"{name} marks no pixel, so there is nothing to find and no score is defined; "
            "leave this image out"
        )
        raise ArgumentError(message)
    return mask


def as_box(name: str, value: object) -> Box:
    """Return the corners of a box or of a finding `(start, stop, score)`."""
    try:
        start, stop = (tuple(float(side) for side in corner) for corner in _items(value)[:2])
    except (TypeError, ValueError, LookupError):
        start, stop = (), ()
    if not start or len(start) != len(stop) or not all(map(lt, start, stop)):
        message = (
            f"{name} holds {shown(value)}, which is no box; "
            "pass (start, stop) with start below stop on every axis"
        )
        raise ArgumentError(message)
    return start, stop


def _items(value: object) -> Sequence[Sequence[float]]:
    """Return a value as a sequence of corners; the caller handles the errors of using it so."""
    return cast("Sequence[Sequence[float]]", value)


def same_length(one: str, other: str, lengths: tuple[int, int]) -> None:
    """Refuse two lists over images that do not match, or that are empty."""
    if lengths[0] != lengths[1] or not lengths[0]:
        message = (
            f"{one} has {lengths[0]} entries and {other} has {lengths[1]}; "
            "pass one of each for every image, and at least one image"
        )
        raise ArgumentError(message)


def _as_mask(value: object, grid: Grid) -> Mask:
    mask = to_numpy("truth", value)
    if mask.dtype != np.bool_ or mask.shape != grid:
        message = (
            f"truth holds an array of {mask.dtype} of shape {mask.shape}; pass a bool mask of the "
            f"map's shape {grid}, for example truth > 0, or a list of masks or (start, stop) boxes"
        )
        raise ArgumentError(message)
    return mask


def _as_slices(value: object, grid: Grid) -> tuple[slice, ...]:
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
