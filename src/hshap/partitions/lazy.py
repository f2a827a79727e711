"""Lazy regions: pixels by their runs, listed one by one only where they are asked for.

A stored tree has many regions, and most uses look at few of them. Sizes, corners and tables of
regions need the runs alone.
"""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import frozen
from hshap.partitions.regions import Pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Ints
    from hshap.partitions.protocol import Region
    from hshap.partitions.regions import Corners

    Numbers = NDArray[np.int64]


class LazyPixels(Pixels):
    """Pixels that are listed when they are first asked for.

    `area` is their number and `total` the sum of their positions: both are known before, so that a
    table of regions lists none. `spans` returns the first positions and the lengths of their runs.

    >>> spans = np.array([0, 5, 10]), np.array([1, 1, 1])
    >>> region = LazyPixels((4, 4), area=3, total=15, spans=lambda: spans)
    >>> region == Pixels(np.array([10, 5, 0]), grid=(4, 4)), region.corners
    (True, ((0, 0), (3, 3)))
    """

    _area: int
    _spans: Callable[[], tuple[Numbers, Numbers]]

    def __init__(
        self,
        grid: tuple[int, ...],
        *,
        area: int,
        total: int,
        spans: Callable[[], tuple[Numbers, Numbers]],
        adaptive: bool = False,
    ) -> None:
        # One by one: `update` takes twice the time, and a table has thousands of regions.
        own = vars(self)
        own["grid"], own["rule"], own["adaptive"] = grid, None, adaptive
        own["_area"], own["_spans"] = area, spans
        own["_quick_hash"] = hash((grid, area, total))  # as that of the same pixels

    @cached_property
    def flat(self) -> Ints:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Positions in the flattened grid."""
        return frozen(listed(*self._spans()))

    @property
    def is_listed(self) -> bool:
        """Whether somebody asked for the pixels."""
        return "flat" in vars(self)

    @property
    def has_corners(self) -> bool:
        """Whether the box around the pixels is known."""
        return "corners" in vars(self)

    def spans(self) -> tuple[Numbers, Numbers]:
        """Return the first positions and the lengths of the runs of pixels."""
        return self._spans()

    @property
    def area(self) -> int:
        """Number of pixels."""
        return self._area

    @cached_property
    def corners(self) -> Corners:
        """First pixel, and the one past the last, of the box around all pixels."""
        return corners_of(*self._spans(), [0], self.grid)[0]

    def __reduce__(self) -> tuple[type[Pixels], tuple[object, ...]]:
        # A copy lists its pixels, and nothing else of the file that they come from.
        return Pixels, (self.flat, self.grid, None, self.adaptive)


def listed_together(regions: Sequence[Pixels]) -> Ints:
    """Return the positions of the pixels of regions, one after the other.

    Regions that are not listed yet are listed at once, and remember nothing.

    >>> listed_together([Pixels(np.array([3, 4]), (9,)), Pixels(np.array([1]), (9,))]).tolist()
    [3, 4, 1]
    """
    lazy = [one for one in regions if isinstance(one, LazyPixels) and not one.is_listed]
    if len(lazy) < len(regions):
        return np.concatenate([region.flat for region in regions])
    starts, lengths = zip(*(region.spans() for region in lazy), strict=True)
    return listed(np.concatenate(starts), np.concatenate(lengths))


def listed(starts: Numbers, lengths: Numbers) -> Numbers:
    """Return the positions in runs of pixels, one after the other; nobody can write to them."""
    ends = np.cumsum(lengths)
    # Pixels of a run are consecutive: add to each position the offset of its run.
    flat = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
    flat.flags.writeable = False  # a region need not copy it
    return flat


def find_corners(regions: Sequence[Region]) -> None:
    """Let lazy regions of one grid remember their corners, which takes about as long as for one."""
    lazy = [one for one in regions if isinstance(one, LazyPixels) and not one.has_corners]
    spans = [region.spans() for region in lazy]
    if len({region.grid for region in lazy}) != 1 or not all(len(starts) for starts, _ in spans):
        return  # each finds its own when it is asked
    starts, lengths = zip(*spans, strict=True)
    firsts = [0, *accumulate(map(len, starts[:-1]))]
    joined = np.concatenate(starts), np.concatenate(lengths)
    for region, corners in zip(lazy, corners_of(*joined, firsts, lazy[0].grid), strict=True):
        vars(region)["corners"] = corners  # where `cached_property` keeps them


def corners_of(
    starts: Numbers, lengths: Numbers, firsts: Sequence[int], grid: tuple[int, ...]
) -> list[Corners]:
    """Return the corners of the box around the runs of pixels of each region.

    `firsts` is the number of each region's first run. A run that goes on in the next line has both
    ends of the axis.

    >>> corners_of(np.array([3, 11, 5]), np.array([2, 1, 2]), [0, 2], grid=(4, 4))
    [((0, 0), (3, 4)), ((1, 1), (2, 3))]
    """
    first, last = starts, starts + (lengths - 1)
    low: list[list[int]] = []
    high: list[list[int]] = []
    for side in reversed(grid[1:]):
        line, end = first // side, last // side
        begin, in_line = line * side, np.logical_and.reduceat(line == end, firsts)
        low.append(np.where(in_line, np.minimum.reduceat(first - begin, firsts), 0).tolist())
        high.append(np.where(in_line, np.maximum.reduceat(last - begin, firsts) + 1, side).tolist())
        first, last = line, end
    low.append(np.minimum.reduceat(first, firsts).tolist())
    high.append((np.maximum.reduceat(last, firsts) + 1).tolist())
    return list(
        zip(zip(*reversed(low), strict=True), zip(*reversed(high), strict=True), strict=True)
    )
