"""Gaussian smoothing along any axes, and linear interpolation to a finer grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Mask

WIDEST = 4
"""Largest standard deviation, in lengths of the longest axis: beyond it the result is even."""


def smoothed(
    heat: NDArray[np.float64], smooth: float | str, shut: Mask | None = None
) -> NDArray[np.float64]:
    """Return a map smoothed over all axes by `smooth` pixels, or the map itself for 0.

    Nothing flows into or out of the pixels that are `shut`. The total stays the same.
    """
    if isinstance(smooth, str):
        message = f'smooth is {checks.shown(smooth)}; pass a number of pixels, or "auto"'
        raise ArgumentError(message)
    sigma = checks.number("smooth", smooth, minimum=0.0)
    if not sigma:
        return heat
    axes = range(heat.ndim)
    if shut is None or not shut.any():
        return gaussian(heat, sigma, axes)
    # Each pixel divides its value among the open pixels around it, so the total stays.
    room = gaussian(~shut, sigma, axes)
    divided = np.divide(heat, room, out=np.zeros_like(heat), where=~shut)
    return np.where(shut, heat, gaussian(divided, sigma, axes))


def gaussian(array: Array, sigma: float, axes: Iterable[int]) -> NDArray[np.float64]:
    """Return a smoothed copy. Borders are mirrored, so the sum of all pixels stays the same."""
    out = array.astype(np.float64)
    sigma = min(sigma, WIDEST * max(array.shape))
    radius = reach(sigma)
    steps = np.arange(-radius, radius + 1)
    kernel = np.exp(-0.5 * (steps / sigma) ** 2)
    kernel /= kernel.sum()
    for axis in axes:
        # What is 0 all around stays 0: most of a map is, and a filter takes long.
        box = _occupied(out, axis, radius)
        smooth = np.zeros_like(out)
        smooth[box] = _convolve(out[box], kernel, axis)
        out = smooth
    return out


def _occupied(array: NDArray[np.float64], axis: int, radius: int) -> tuple[slice, ...]:
    """Return the box around all values that are not 0, wider by the radius along an axis."""
    box: list[slice] = []
    seen = array != 0
    for each, side in enumerate(array.shape):
        places = np.flatnonzero(seen.any(axis=tuple(i for i in range(seen.ndim) if i != each)))
        more = radius if each == axis else 0
        first, last = (int(places[0]), int(places[-1])) if len(places) else (0, 0)
        box.append(slice(max(first - more, 0), min(last + 1 + more, side)))
    return tuple(box)


def reach(sigma: float) -> int:
    """Return the pixels that a Gaussian filter reaches to each side; farther ones do not count."""
    return int(4 * sigma + 0.5)


def enlarged(array: Array, grid: Grid) -> NDArray[np.float64]:
    """Return an array interpolated linearly to another grid, one axis after another.

    >>> enlarged(np.array([0.0, 4.0]), (4,))
    array([0., 1., 3., 4.])
    """
    out = array.astype(np.float64)
    for axis, (side, wanted) in enumerate(zip(array.shape, grid, strict=True)):
        places = np.clip((np.arange(wanted) + 0.5) * side / wanted - 0.5, 0, side - 1)
        below = np.minimum(places.astype(np.intp), max(side - 2, 0))
        above = np.minimum(below + 1, side - 1)
        share = (places - below).reshape(-1, *(1,) * (out.ndim - axis - 1))
        lower, upper = out.take(below, axis), out.take(above, axis)
        lower *= 1 - share  # in place: fresh memory takes longer than the arithmetic
        upper *= share
        lower += upper
        out = lower
    return out


def _convolve(
    array: NDArray[np.float64], kernel: NDArray[np.float64], axis: int
) -> NDArray[np.float64]:
    radius, length = len(kernel) // 2, array.shape[axis]
    # Places beyond a border are mirrored, again and again for a filter wider than the array.
    places = np.arange(-radius, length + radius) % (2 * length)
    mirrored = np.minimum(places, 2 * length - 1 - places)
    padded = np.moveaxis(array, axis, 0)[mirrored]
    out = np.zeros_like(padded[:length])
    product = np.empty_like(out)
    for place, weight in enumerate(kernel.tolist()):
        np.multiply(padded[place : place + length], weight, out=product)
        out += product
    return np.moveaxis(out, 0, axis)
