"""Placements: where the explained pixels lie in the original image.

A model may see an image resized, cropped, padded or flipped. Each of these maps every axis by
itself, so a placement is one straight line for each axis, from grid pixels to original pixels.
Positions are those of edges: pixel 0 reaches from position 0 to position 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil, floor, isfinite, prod
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.recipes import settle
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from hshap._util.types import Array, Grid, Heat, Mask
    from hshap.partitions.protocol import Region
    from hshap.partitions.regions import Corners

Position = tuple[float, ...]
"""A position in the original image: whole numbers where it lies between two pixels."""

ROUNDING = 1e-6
"""Parts of a pixel that are rounding: a box that reaches so far into a pixel does not touch it."""

FARTHEST = 2.0**50
"""Positions beyond this have lost the fractions of a pixel."""

LONGEST = 2**32
"""Pixels on a side of an original image, at most: a signal of a day at 48 kHz has fewer."""


@dataclass(frozen=True)
class Placement:
    """The place of an explanation's grid in the original image.

    `grid` is the size that the model saw, `shape` the size of the original image, both without
    channels. The grid reaches from position `start` of the original image to position `stop`. By
    default it covers all of it, as it does for an image that was resized. A crop begins later and
    ends earlier; padding reaches beyond the image; an axis that was flipped has its stop before its
    start.

    >>> halved = Placement(grid=(4, 4), shape=(8, 8))
    >>> halved.point((1, 2))
    (2, 4)
    >>> Placement(grid=(4, 4), shape=(8, 8), start=(0, 6), stop=(4, 2)).point((1, 1))
    (1, 5)
    """

    grid: Grid
    shape: Grid = ()
    start: Position = ()
    stop: Position = ()

    def __post_init__(self) -> None:
        grid = _sides("grid", self.grid)
        shape = _sides("shape", self.shape) or grid
        start = _positions("start", self.start) or (0,) * len(grid)
        stop = _positions("stop", self.stop) or shape
        settle(self, grid=grid, shape=shape, start=start, stop=stop)
        for name, value in (("shape", shape), ("start", start), ("stop", stop)):
            if len(value) != len(grid):
                message = (
                    f"{name}={value} has {len(value)} entries, but grid={grid} has {len(grid)}; "
                    "pass one for each axis, without channels"
                )
                raise ArgumentError(message)
        if max(shape) > LONGEST:
            message = f"shape={shape} has a side of more than {LONGEST} pixels; pass a smaller one"
            raise ArgumentError(message)
        if any(a == b for a, b in zip(start, stop, strict=True)):
            message = (
                f"start={start} and stop={stop} agree on an axis; pass two different positions"
            )
            raise ArgumentError(message)
        if any(max(a, b) <= 0 or min(a, b) >= n for a, b, _, n in self._lines()):
            message = (
                f"start={start} to stop={stop} lies beside an image of shape={shape}; "
                "pass positions in pixels of the original image"
            )
            raise ArgumentError(message)

    @property
    def is_identity(self) -> bool:
        """Whether the explained pixels are those of the original image."""
        return self.shape == self.grid == self.stop and not any(self.start)

    def point(self, corner: Sequence[float]) -> Position:
        """Return the position of a corner of grid pixels in the original image."""
        lines = zip(self.start, self.stop, corner, self.grid, strict=True)
        # In this order, corners at both ends, and all that lie between two pixels, are exact.
        return tuple(_plain(a + (b - a) * edge / n) for a, b, edge, n in lines)

    def box(self, start: Sequence[int], stop: Sequence[int]) -> tuple[Position, Position]:
        """Return the place of a box of grid pixels, as far as it lies in the original image."""
        ends = zip(self.point(start), self.point(stop), self.shape, strict=True)
        clipped = [sorted((_clip(a, side), _clip(b, side))) for a, b, side in ends]
        return tuple(a for a, _ in clipped), tuple(b for _, b in clipped)

    def pixels(self, start: Sequence[int], stop: Sequence[int]) -> Corners | None:
        """Return the whole original pixels that a box of grid pixels touches; None for none.

        >>> Placement(grid=(3,), shape=(4,)).pixels((1,), (2,))
        ((1,), (3,))
        """
        spans = zip(start, stop, self.grid, strict=True)
        if self.is_identity and all(_is_span(*one) for one in spans):
            return tuple(start), tuple(stop)
        low, high = self.box(start, stop)
        if any(a == b for a, b in zip(low, high, strict=True)):
            return None
        first = tuple(floor(a + ROUNDING) for a in low)
        return first, tuple(ceil(b - ROUNDING) for b in high)

    def area(self, region: Region) -> float:
        """Return the number of original pixels that a region covers; parts of pixels count."""
        if self.is_inside:
            lengths = (abs(b - a) for a, b in zip(self.start, self.stop, strict=True))
            return _plain(region.area * prod(lengths) / prod(self.grid))
        return _plain(float(self._cells[region.index].sum()))

    @cached_property
    def is_inside(self) -> bool:
        """Whether the whole grid lies in the original image, without padding around it."""
        ends = zip(self.start, self.stop, self.shape, strict=True)
        return all(min(a, b) >= 0 and max(a, b) <= side for a, b, side in ends)

    @property
    def visible(self) -> Corners:
        """The grid pixels that show some of the image: the first, and one past the last."""
        shown = [np.flatnonzero(widths) for widths in self._widths()]
        first = tuple(int(places[0]) if len(places) else 0 for places in shown)
        return first, tuple(int(places[-1]) + 1 if len(places) else 0 for places in shown)

    def nearest(self, values: ArrayLike) -> Array:
        """Return a map of the grid at the size of the original image: each pixel as at its centre.

        For labels, coefficients and masks, whose values must not mix. Pixels that the model did not
        see are 0.

        >>> Placement(grid=(2,), shape=(4,)).nearest([1, 2])
        array([1, 1, 2, 2])
        """
        out = self._checked(values)
        for axis, places in enumerate(self.seen_at()):
            last = self.grid[axis] - 1
            seen = (places >= 0) & (places <= last)
            out = out.take(np.clip(places, 0, last), axis)
            if not seen.all():
                out = np.where(_along(seen, axis, out.ndim), out, out.dtype.type(0))
        return out

    def seen_at(self) -> list[NDArray[np.int64]]:
        """Return, for each axis, the grid pixel at the centre of each original pixel.

        It is below 0 or beyond the grid where the model saw nothing.
        """
        return [
            np.floor((np.arange(side) + 0.5 - a) * n / (b - a)).astype(np.int64)
            for a, b, n, side in self._lines()
        ]

    @property
    def seen(self) -> Mask:
        """The pixels of the original image that the model saw.

        >>> Placement(grid=(2,), shape=(4,), start=(1,), stop=(3,)).seen.tolist()
        [False, True, True, False]
        """
        return self.nearest(np.ones(self.grid, dtype=bool))

    def spread(self, heat: ArrayLike) -> Heat:
        """Return a map of the grid at the size of the original image, with the same total.

        The value of each grid pixel is divided over the original pixels that it covers, by the area
        of each. For attributions and other maps whose sum has a meaning. Only padding loses its
        share, since it has no place in the original image.

        >>> Placement(grid=(2,), shape=(3,)).spread([3.0, 6.0])
        array([2., 3., 4.])
        """
        out = self._checked(heat).astype(np.float64)
        for axis, (a, b, n, side) in enumerate(self._lines()):
            edges = np.unique(np.concatenate([_cuts(a, b, n, side), np.arange(side + 1)]))
            middles, lengths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
            places = np.floor((middles - a) * n / (b - a)).astype(np.int64)
            shares = np.where((places >= 0) & (places < n), lengths * (n / abs(b - a)), 0.0)
            pieces = out.take(np.clip(places, 0, n - 1), axis) * _along(shares, axis, out.ndim)
            first = np.searchsorted(middles, np.arange(side))
            out = np.add.reduceat(pieces, first, axis=axis)
        return out

    def centres(self, axis: int) -> Heat:
        """Return the positions of grid pixels on an axis; the first original pixel is at 0."""
        a, b, n, _ = self._lines()[axis]
        return a + (b - a) * (np.arange(n) + 0.5) / n - 0.5

    @cached_property
    def _cells(self) -> Heat:
        """The area of each grid pixel in the original image."""
        out = np.ones(())
        for widths in self._widths():
            out = np.multiply.outer(out, widths)
        return out

    def _widths(self) -> list[Heat]:
        """Return, for each axis, the widths of grid pixels as far as they lie in the image."""
        return [np.abs(np.diff(_cuts(*line))) for line in self._lines()]

    def _lines(self) -> list[tuple[float, float, int, int]]:
        return list(zip(self.start, self.stop, self.grid, self.shape, strict=True))

    def _checked(self, values: ArrayLike) -> Array:
        array = to_numpy("values", values)
        if array.shape != self.grid:
            message = f"values has shape {array.shape}; pass a map of shape {self.grid}"
            raise ArgumentError(message)
        return array


def _cuts(start: float, stop: float, count: int, side: int) -> Heat:
    """Return the edges of grid pixels on an axis, moved into the original image."""
    return np.clip(start + (stop - start) * np.arange(count + 1) / count, 0, side)


def _along(weights: Array, axis: int, axes: int) -> Array:
    return weights.reshape(-1, *(1,) * (axes - axis - 1))


def _sides(name: str, value: object) -> Grid:
    if value == ():
        return ()
    found = checks.sides(name, value)
    return (found,) if isinstance(found, int) else found


def _positions(name: str, value: Sequence[float]) -> Position:
    try:
        found = tuple(_plain(float(item)) for item in value)
    except (TypeError, ValueError, OverflowError):
        found = None
    if found is None or not all(isfinite(item) and abs(item) <= FARTHEST for item in found):
        message = (
            f"{name} must have one position for each axis, got {checks.shown(value)}; "
            "pass finite numbers, in pixels of the original image"
        )
        raise ArgumentError(message)
    return found


def _plain(value: float) -> float:
    """Return whole numbers without a point: positions between two pixels are exact."""
    return int(value) if isfinite(value) and value == int(value) else float(value)


def _is_span(start: int, stop: int, side: int) -> bool:
    """Tell whether plain whole numbers bound some pixels of a side."""
    return type(start) is int and type(stop) is int and 0 <= start < stop <= side


def _clip(value: float, side: int) -> float:
    return min(max(value, 0), side)


def whole(grid: Grid) -> Placement:
    """Return the placement of an image that the model saw as it is; explanations share it."""
    if type(grid) is tuple and all(type(side) is int for side in grid):
        return _whole(grid)
    return Placement(grid)  # which tells what is wrong with it


@lru_cache(maxsize=64)
def _whole(grid: Grid) -> Placement:
    return Placement(grid)


UNPLACED = Placement((1,))
"""Stands for the identity of any grid, until an explanation tells which."""
