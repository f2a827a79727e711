"""Regions: hashable sets of pixels.

A region knows its pixels and its parts, nothing of images, baselines or models. Two regions of one
class are equal if their pixels are, whatever partition they come from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from operator import sub
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hshap._util.arrays import frozen
from hshap._util.recipes import settle

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.types import Array, Ints, Mask, Tensor
    from hshap.partitions.protocol import Coalition, Index, Region, SplitRule

DENSE = 8
"""A region that holds at least one pixel in so many is handled faster as a mask."""

FORGOTTEN = frozenset({"_hash", "_parts", "_pixels"})
"""Attributes that a region remembers and its copies do not."""

Corners: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""First pixel, and the one past the last, on each axis."""


class _Splitting:
    """Remembers its parts: a search asks whether a region can be split before its game is played.

    Copies forget them: a deep tree, region in region, would be more than pickle can follow.
    """

    rule: SplitRule | None

    @property
    def area(self) -> int:
        """Number of pixels."""
        raise NotImplementedError

    def split(self) -> tuple[Region, ...]:
        """Return the parts that the region's rule gives; without a rule it is a leaf."""
        return self._parts

    @cached_property
    def _parts(self) -> tuple[Region, ...]:
        return () if self.rule is None else self.rule(self)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in FORGOTTEN}


@dataclass(frozen=True)
class Box(_Splitting):
    """A block of pixels from `start` up to, not including, `stop`.

    >>> Box((0, 0), (2, 3)).area
    6
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    rule: SplitRule | None = field(default=None, compare=False, repr=False)
    adaptive: bool = field(default=False, compare=False, repr=False)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # A box is looked up ten times and more for an image: in searches, audits and rows.
        return hash((self.start, self.stop))

    @property
    def index(self) -> Index:
        """One slice for each axis."""
        return self._pixels[1:]

    @cached_property
    def _pixels(self) -> Index:
        """The block in an array `(channels, *grid)`."""
        return (slice(None), *map(slice, self.start, self.stop))

    @property
    def shape(self) -> tuple[int, ...]:
        """Side lengths."""
        return tuple(map(sub, self.stop, self.start))

    @property
    def area(self) -> int:
        """Number of pixels."""
        return prod(map(sub, self.stop, self.start))


@dataclass(frozen=True)
class Rolled(_Splitting):
    """A block that crosses the border of the grid and continues on the opposite side.

    >>> region = Rolled(start=(3,), shape=(2,), grid=(4,))
    >>> np.arange(4)[region.index]
    array([3, 0])
    """

    start: tuple[int, ...]
    shape: tuple[int, ...]
    grid: tuple[int, ...]
    rule: SplitRule | None = field(default=None, compare=False, repr=False)
    adaptive: bool = field(default=False, compare=False, repr=False)

    @property
    def index(self) -> Index:
        """An open mesh of integer arrays."""
        return self._mesh

    @cached_property
    def _mesh(self) -> Index:
        spans = zip(self.start, self.shape, self.grid, strict=True)
        return np.ix_(*(np.arange(a, a + n) % side for a, n, side in spans))

    @property
    def area(self) -> int:
        """Number of pixels."""
        return prod(self.shape)


@dataclass(frozen=True, eq=False, repr=False)
class Pixels(_Splitting):
    """Any set of pixels, by their positions in the flattened grid, in any order.

    `flat` may be a view of a larger array. Nothing else is stored for each pixel, because a tree
    over a large image holds many large regions at once.

    >>> Pixels(np.array([0, 5, 10]), grid=(4, 4)).index
    (array([0, 1, 2]), array([0, 1, 2]))
    """

    flat: Ints
    grid: tuple[int, ...]
    rule: SplitRule | None = None
    adaptive: bool = False

    def __post_init__(self) -> None:
        # A partition may fill one array with the pixels of one image after another.
        settle(self, flat=frozen(self.flat))

    @property
    def index(self) -> tuple[Ints, ...]:
        """One integer array for each axis."""
        return np.unravel_index(self.flat, self.grid)

    @property
    def area(self) -> int:
        """Number of pixels."""
        return len(self.flat)

    @property
    def is_dense(self) -> bool:
        """Whether a mask of the grid is quicker to work with than so many positions."""
        return self.area * DENSE >= prod(self.grid)

    @cached_property
    def _digest(self) -> str:
        content = np.packbits(mask((self,), self.grid)) if self.is_dense else np.sort(self.flat)
        return hashlib.sha256(content.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pixels):
            return NotImplemented
        if self is other:
            return True
        if self.area != other.area or self._quick_hash != other._quick_hash:
            return False
        return (self.grid, self._digest) == (other.grid, other._digest)

    def __hash__(self) -> int:
        return self._quick_hash

    @cached_property
    def _quick_hash(self) -> int:
        # A table of regions then needs no digest, unless two regions have the same sum.
        return hash((self.grid, self.area, int(self.flat.sum())))

    @cached_property
    def corners(self) -> Corners:
        """First pixel, and the one past the last, of the box around all pixels."""
        if self.is_dense:
            whole, axes = mask((self,), self.grid), range(len(self.grid))
            found = [np.flatnonzero(whole.any(tuple(set(axes) - {axis}))) for axis in axes]
            return tuple(int(a[0]) for a in found), tuple(int(a[-1]) + 1 for a in found)
        places = self.index
        return tuple(int(a.min()) for a in places), tuple(int(a.max()) + 1 for a in places)

    def __repr__(self) -> str:
        return f"Pixels({self.area} of {self.grid}, {self._digest[:16]})"


@dataclass(frozen=True)
class _RolledParts:
    """The rule of a rolled region: split the original region, and roll its parts.

    Parts are sorted by position after the shift, so that coalitions that coincide under two shifts
    are equal, and scored once.
    """

    origin: Region
    offset: tuple[int, ...]
    grid: tuple[int, ...]

    def __call__(self, _: Region) -> tuple[Region, ...]:
        parts = (rolled(part, self.offset, self.grid) for part in self.origin.split())
        return tuple(sorted(parts, key=_first_pixel))


def _first_pixel(region: Box | Rolled | Pixels) -> tuple[int, ...]:
    return (int(region.flat.min()),) if isinstance(region, Pixels) else region.start


def rolled(region: Region, offset: tuple[int, ...], grid: tuple[int, ...]) -> Box | Rolled | Pixels:
    """Return a region moved by `offset` pixels around the borders of the grid.

    The answer is a plain box wherever the pixels form one, so that shifted partitions share it.
    """
    rule, adaptive = _RolledParts(region, offset, grid), region.adaptive
    if not isinstance(region, (Box, Rolled)):
        moved = tuple(
            (np.asarray(axis) + o) % n
            for axis, o, n in zip(_coordinates(region, grid), offset, grid, strict=True)
        )
        return Pixels(np.ravel_multi_index(moved, grid), grid, rule, adaptive)
    start = tuple(
        # A block as long as its axis covers it wherever it starts.
        0 if side == n else (a + o) % n
        for a, side, o, n in zip(region.start, region.shape, offset, grid, strict=True)
    )
    stop = tuple(a + side for a, side in zip(start, region.shape, strict=True))
    if all(b <= n for b, n in zip(stop, grid, strict=True)):
        return Box(start, stop, rule, adaptive)
    return Rolled(start, region.shape, grid, rule, adaptive)


def mask(regions: Coalition, grid: tuple[int, ...]) -> Mask:
    """Return an array that is True on the pixels of any of the regions."""
    out = np.zeros(grid, dtype=bool)
    for region in regions:
        if isinstance(region, Pixels):
            out.reshape(-1)[region.flat] = True
        else:
            out[region.index] = True
    return out


def pixels_of(region: Region, array: Array) -> Array:
    """Return the values of an array `(*grid)` on the pixels of a region."""
    if isinstance(region, Pixels):
        return array.reshape(-1)[region.flat]  # faster than by one index for each axis
    return array[region.index]


def fill(region: Region, array: Array, values: Array | float) -> None:
    """Set the values of an array `(*grid)`, in C order, on the pixels of a region."""
    if isinstance(region, Pixels):
        array.reshape(-1)[region.flat] = values
    else:
        array[region.index] = values


def copy(regions: Coalition, source: Tensor, target: Tensor) -> None:
    """Copy the pixels of regions from one array `(channels, *grid)`, or tensor, to another."""
    for region in regions:
        if type(region) is Box:
            pixels = region._pixels  # noqa: SLF001, of this module
            target[pixels] = source[pixels]
        elif isinstance(region, Pixels) and region.is_dense and isinstance(target, np.ndarray):
            np.copyto(target, source, casting="unsafe", where=mask((region,), region.grid))
        else:
            places = (slice(None), *region.index)
            target[places] = source[places]


def runs(flat: Ints) -> NDArray[np.int64]:
    """Return the starts and ends of runs of consecutive pixels, alternating.

    >>> runs(np.array([3, 4, 5, 9])).tolist()
    [3, 6, 9, 10]
    """
    after = np.flatnonzero(np.diff(flat) > 1)
    starts = flat[np.concatenate([[0], after + 1])]
    stops = flat[np.concatenate([after, [len(flat) - 1]])] + 1
    return np.stack([starts, stops], axis=1).ravel()


def extent(region: Region, grid: tuple[int, ...]) -> tuple[int, ...]:
    """Return the side lengths of a box, or of the bounding box of any other region."""
    if isinstance(region, (Box, Rolled)):
        return region.shape
    (start, stop), *_ = blocks(region, grid)
    return tuple(b - a for a, b in zip(start, stop, strict=True))


def blocks(region: Region, grid: tuple[int, ...]) -> list[Corners]:
    """Return the boxes that a region fills, or the bounding box of a region of another shape."""
    if isinstance(region, Box):
        return [(region.start, region.stop)]
    if isinstance(region, Rolled):
        spans = zip(region.start, region.shape, grid, strict=True)
        corners = product(*(_wrapped_spans(a, a + n, side) for a, n, side in spans))
        return [(tuple(a for a, _ in c), tuple(b for _, b in c)) for c in corners]
    if isinstance(region, Pixels):
        return [region.corners]
    axes = _coordinates(region, grid)
    return [(tuple(int(a.min()) for a in axes), tuple(int(a.max()) + 1 for a in axes))]


def _wrapped_spans(start: int, stop: int, side: int) -> list[tuple[int, int]]:
    return [(start, stop)] if stop <= side else [(start, side), (0, stop - side)]


def _coordinates(region: Region, grid: tuple[int, ...]) -> tuple[Ints, ...]:
    """Return the pixels of any region, one flat array of positions for each axis."""
    return np.nonzero(mask((region,), grid))
