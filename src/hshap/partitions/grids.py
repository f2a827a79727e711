"""Grids: partitions that split an image into boxes and ignore its content."""

from __future__ import annotations

from dataclasses import field, replace
from functools import lru_cache
from itertools import product
from math import floor, prod
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from hshap._util import checks
from hshap._util.axes import checked_spacing, ratios
from hshap._util.recipes import QUIET, recipe, settle
from hshap.errors import ArgumentError
from hshap.partitions.protocol import MayBeFixed, Partition, Region, spaced
from hshap.partitions.regions import Box, rolled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.axes import Spacing
    from hshap._util.types import Image
    from hshap.partitions.protocol import SplitRule

AUTO: Literal["auto"] = "auto"
"""The search ends a branch where no part is enough alone; see `DepthFirst`."""

MinSize: TypeAlias = "int | Sequence[int] | Literal['auto']"
"""Side in pixels, one for all spatial axes or one for each; "auto" leaves it to the search."""


@recipe
class Dyadic:
    """Halve every axis that is longer than `min_size` at once: halves, quadrants, octants.

    A region none of whose axes is longer is a leaf. `min_size` is in pixels, one number or one
    for each spatial axis. `spacing` is the side of a pixel on each axis; `explain` sets it. One
    `min_size` for all axes then counts pixels of the finest one, and pixels that are five times as
    long on another axis are counted five times there.

    >>> [part.area for part in Dyadic(min_size=2)(np.zeros((3, 4, 5))).split()]
    [4, 6, 4, 6]
    """

    min_size: MinSize
    spacing: Spacing | None = field(default=None, metadata=QUIET)

    def __post_init__(self) -> None:
        settle(self, min_size=_checked_min_size(self.min_size))
        settle(self, spacing=checked_spacing(self.spacing))

    def spaced(self, spacing: Spacing) -> Partition:
        """Return the partition for pixels of these sides."""
        return replace(self, spacing=spacing)

    def __call__(self, image: Image) -> Region:
        """Return the box of all pixels."""
        return _root(image, self)

    def split(self, box: Box) -> tuple[Region, ...]:
        """Return the halves, quadrants or octants of a box; none if it is a leaf."""
        limits = limits_of(self.min_size, self.spacing, len(box.start))
        spans = [
            _halves(a, b) if b - a > limit else ((a, b),)
            for a, b, limit in zip(box.start, box.stop, limits, strict=True)
        ]
        if all(len(span) == 1 for span in spans):
            return ()
        starts = product(*([a for a, _ in span] for span in spans))
        stops = product(*([b for _, b in span] for span in spans))
        rule, adaptive = box.rule, box.adaptive
        return tuple(Box(*corners, rule, adaptive) for corners in zip(starts, stops, strict=True))


@recipe
class Bisection:
    """Halve the longest axis: two players, and so two new evaluations for each node.

    Only axes longer than `min_size` are halved, and a region that has none is a leaf. Of equally
    long axes, the first is taken. `spacing` is as for `Dyadic`; the longest axis is that in its
    unit, not in pixels.

    >>> [part.area for part in Bisection(min_size=2)(np.zeros((3, 4, 5))).split()]
    [8, 12]
    """

    min_size: MinSize
    spacing: Spacing | None = field(default=None, metadata=QUIET)

    def __post_init__(self) -> None:
        settle(self, min_size=_checked_min_size(self.min_size))
        settle(self, spacing=checked_spacing(self.spacing))

    def spaced(self, spacing: Spacing) -> Partition:
        """Return the partition for pixels of these sides."""
        return replace(self, spacing=spacing)

    def __call__(self, image: Image) -> Region:
        """Return the box of all pixels."""
        return _root(image, self)

    def split(self, box: Box) -> tuple[Region, ...]:
        """Return the two halves of a box; none if it is a leaf."""
        axes = len(box.start)
        limits = limits_of(self.min_size, self.spacing, axes)
        spans = zip(box.start, box.stop, limits, ratios(self.spacing, axes), strict=True)
        lengths = [(b - a) * side if b - a > limit else 0 for a, b, limit, side in spans]
        longest = max(lengths)
        if not longest:
            return ()
        axis = lengths.index(longest)
        middle = (box.start[axis] + box.stop[axis]) // 2
        stop = (*box.stop[:axis], middle, *box.stop[axis + 1 :])
        start = (*box.start[:axis], middle, *box.start[axis + 1 :])
        # Not dataclasses.replace, which takes a third of the time of a split.
        rule, adaptive = box.rule, box.adaptive
        return Box(box.start, stop, rule, adaptive), Box(start, box.stop, rule, adaptive)


@recipe
class Shifted:
    """Another partition, moved by `offset` pixels around the borders of the image.

    `offset` is one whole number for all spatial axes, or one for each; it may be negative.

    >>> root = Shifted(Dyadic(min_size=2), offset=1)(np.zeros((3, 4, 4)))
    >>> root.split()[0]
    Box(start=(1, 1), stop=(3, 3))
    """

    partition: Partition
    offset: int | Sequence[int]

    def __post_init__(self) -> None:
        if isinstance(self.partition, type) or not callable(self.partition):
            message = (
                f"partition must be a partition, got {checks.shown(self.partition)}; "
                "pass one such as Dyadic(min_size=10)"
            )
            raise ArgumentError(message)
        if isinstance(self.partition, MayBeFixed) and self.partition.is_fixed:
            message = (
                f"partition is {checks.shown(self.partition)}, whose regions are fixed to the "
                "grid: moving the image does not move them; spin over several partitions instead"
            )
            raise ArgumentError(message)
        settle(self, offset=_offset(self.offset))

    def spaced(self, spacing: Spacing) -> Partition:
        """Return the partition for pixels of these sides; the offset stays in pixels."""
        return replace(self, partition=spaced(self.partition, spacing))

    def __call__(self, image: Image) -> Region:
        """Return the region of all pixels, whose parts are shifted."""
        grid = tuple(image.shape[1:])
        offset = checks.per_axis("offset", _offset(self.offset), len(grid))
        axes = tuple(range(1, image.ndim))
        # The inner partition may look at the pixels, so it is shown the image moved back.
        root = self.partition(np.roll(image, [-o for o in offset], axes))
        return rolled(root, offset, grid)


def _root(image: Image, partition: Dyadic | Bisection) -> Box:
    grid = tuple(image.shape[1:])
    limits_of(partition.min_size, partition.spacing, len(grid))  # refuses those of other images
    rule: SplitRule = partition.split
    return Box((0,) * len(grid), grid, rule, adaptive=partition.min_size == AUTO)


def most_regions(partition: Dyadic | Bisection, grid: Sequence[int]) -> int:
    """Return a number that the regions of a grid's tree do not exceed.

    A side is halved until it is no longer than its limit, so that it has at most so many halves as
    the next power of two counts limits in it. Each split adds a region or more.

    >>> most_regions(Dyadic(min_size=8), (100, 120))
    511
    """
    limits = limits_of(partition.min_size, partition.spacing, len(grid))
    sides = zip(grid, limits, strict=True)
    halvings = [((side - 1) // limit).bit_length() for side, limit in sides]
    return 2 * prod(2**count for count in halvings) - 1


def _checked_min_size(min_size: MinSize) -> int | tuple[int, ...] | Literal["auto"]:
    if not isinstance(min_size, str):
        return checks.sides("min_size", min_size)
    if min_size == AUTO:
        return AUTO
    message = (
        f'min_size must be a whole number or "auto", got {min_size!r}; pass 1 or more, or "auto"'
    )
    raise ArgumentError(message)


@lru_cache(maxsize=64)
def limits_of(min_size: MinSize, spacing: Spacing | None, axes: int) -> tuple[int, ...]:
    """Return the longest side of a leaf in pixels of each axis.

    One `min_size` for all axes counts pixels of the finest; at least one pixel is left on each.

    >>> limits_of(10, (5.0, 1.0, 1.0), 3)
    (2, 10, 10)
    """
    sides = ratios(spacing, axes)
    if isinstance(min_size, str):
        return (1,) * axes
    if isinstance(min_size, int):
        return tuple(max(1, floor(min_size / side + 0.5)) for side in sides)
    return checks.per_axis("min_size", tuple(min_size), axes)


def _halves(start: int, stop: int) -> tuple[tuple[int, int], tuple[int, int]]:
    middle = (start + stop) // 2
    return (start, middle), (middle, stop)


def _offset(offset: object) -> int | tuple[int, ...]:
    # Offsets may be negative or longer than the axis: rolling takes them all.
    return checks.whole_numbers("offset", offset, minimum=-(10**9))
