"""Slices: a volume is halved into single slices first, and each slice is then split by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError
from hshap.partitions.protocol import ComparesWithBaseline, Partition, Region, as_region, spaced
from hshap.partitions.regions import Box, Pixels

if TYPE_CHECKING:
    from hshap._util.axes import Spacing
    from hshap._util.types import Grid, Image


@recipe
class BySlices:
    """Halve a volume along one axis down to single slices, and split each with another partition.

    `axis` is the number of the spatial axis that the slices lie along. `explain_slices` uses it.

    >>> import hshap
    >>> root = BySlices(hshap.Dyadic(min_size=2))(np.zeros((1, 2, 4, 4)))
    >>> first, last = root.split()
    >>> first
    Box(start=(0, 0, 0), stop=(1, 4, 4))
    >>> first.split()[3]
    Box(start=(0, 2, 2), stop=(1, 4, 4))
    """

    partition: Partition
    axis: int = 0

    def __post_init__(self) -> None:
        settle(self, axis=checks.integer("axis", self.axis, minimum=0))

    def spaced(self, spacing: Spacing) -> BySlices:
        """Return the partition for pixels of these sides, of which slices have all but one."""
        rest = (*spacing[: self.axis], *spacing[self.axis + 1 :])
        return replace(self, partition=spaced(self.partition, rest))

    def __call__(self, image: Image) -> Region:
        """Return the region of all pixels."""
        return self._root(image, None)

    def compare(self, image: Image, hidden: Image) -> Region:
        """Return the region of all pixels; `hidden` is the image with every pixel hidden."""
        return self._root(image, hidden)

    def _root(self, image: Image, hidden: Image | None) -> Region:
        grid = image.shape[1:]
        check_axis(self.axis, grid)
        rule = _Slicing(self.partition, self.axis, image, hidden)
        # The rule by which branches end is that of the partition inside slices.
        adaptive = rule.inside(0).adaptive
        return Box((0,) * len(grid), grid, rule, adaptive)


def check_axis(axis: int, grid: Grid) -> None:
    """Refuse an axis that the grid does not have, and a grid without slices."""
    if axis >= len(grid) or len(grid) < 2:
        message = (
            f"axis={axis} is no axis of slices in a grid of {grid}; pass 0 to {len(grid) - 1}, "
            "and an image (channels, *grid) with at least two spatial axes"
        )
        raise ArgumentError(message)


@dataclass(frozen=True)
class _Slicing:
    """The rule of a block of slices: two halves, or the parts of a single slice."""

    partition: Partition
    axis: int
    image: Image = field(compare=False, repr=False)
    hidden: Image | None = field(compare=False, repr=False)

    def __call__(self, block: Box) -> tuple[Region, ...]:
        """Return the parts of a block."""
        first, stop = block.start[self.axis], block.stop[self.axis]
        if stop - first == 1:
            inside = self.inside(first).split()
            return tuple(_placed(part, self.axis, first, self.image.shape[1:]) for part in inside)
        middle = (first + stop) // 2
        ends = list(block.stop)
        ends[self.axis] = middle
        starts = list(block.start)
        starts[self.axis] = middle
        return replace(block, stop=tuple(ends)), replace(block, start=tuple(starts))

    def inside(self, number: int) -> Region:
        """Return the root region of one slice, on its own grid."""
        image = np.moveaxis(self.image, self.axis + 1, 0)[number]
        if self.hidden is not None and isinstance(self.partition, ComparesWithBaseline):
            hidden = np.moveaxis(self.hidden, self.axis + 1, 0)[number]
            return as_region(self.partition.compare(image, hidden))
        return as_region(self.partition(image))


@dataclass(frozen=True)
class _PlacedParts:
    """The rule of a region inside a slice: split it on the grid of the slice, and place parts."""

    origin: Region
    axis: int
    number: int
    grid: Grid

    def __call__(self, _: Region) -> tuple[Region, ...]:
        parts = self.origin.split()
        return tuple(_placed(part, self.axis, self.number, self.grid) for part in parts)


def _placed(region: Region, axis: int, number: int, grid: Grid) -> Box | Pixels:
    """Return a region of a slice at its place in the volume."""
    rule, adaptive = _PlacedParts(region, axis, number, grid), region.adaptive
    if isinstance(region, Box):
        start = (*region.start[:axis], number, *region.start[axis:])
        stop = (*region.stop[:axis], number + 1, *region.stop[axis:])
        return Box(start, stop, rule, adaptive)
    inside = np.zeros([side for i, side in enumerate(grid) if i != axis], dtype=bool)
    inside[region.index] = True
    places = list(np.nonzero(inside))
    places.insert(axis, np.full(len(places[0]), number))
    return Pixels(np.ravel_multi_index(tuple(places), grid), grid, rule, adaptive)


def in_slices(region: Region, axis: int, grid: Grid) -> dict[int, Box | Pixels]:
    """Return the part of a region in each slice that it touches, on the grid of a slice.

    >>> in_slices(Box((1, 0), (3, 2)), axis=0, grid=(4, 4))
    {1: Box(start=(0,), stop=(2,)), 2: Box(start=(0,), stop=(2,))}
    """
    if isinstance(region, Box):
        part = Box(_without(region.start, axis), _without(region.stop, axis))
        return dict.fromkeys(range(region.start[axis], region.stop[axis]), part)
    inside = np.zeros(grid, dtype=bool)
    inside[region.index] = True
    slices = np.moveaxis(inside, axis, 0)
    rest = _without(grid, axis)
    touched = np.flatnonzero(slices.reshape(len(slices), -1).any(axis=1)).tolist()
    return {number: Pixels(np.flatnonzero(slices[number]), rest) for number in touched}


def _without(sides: Grid, axis: int) -> Grid:
    return (*sides[:axis], *sides[axis + 1 :])
