"""Frames: the activations of one box of an image, from those of a larger box. Needs torch.

An input shows a box, and the baseline elsewhere. A larger box around it is known, at first the
whole image. An activation that sees only pixels inside of the box, or beyond the sides that both
boxes share, equals that of the larger box. One that sees no pixel of the box equals the baseline's.
The rest is computed: strips along the sides that the boxes do not share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from hshap.evaluators.incremental.patches import Patch, Piece

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from hshap.evaluators.incremental.patches import Sides

    Side: TypeAlias = tuple[int, bool]
    Corners: TypeAlias = tuple[Sides, Sides]

Pieces: TypeAlias = tuple[Piece, ...]
"""Everything in which a tensor differs from its anchor; later pieces lie on top."""

LARGEST_SHARE = 0.8
"""Of the rectangle around all pieces: where strips cover more, it is computed as a whole."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One tensor: strips, the tensor of a larger box on one side of them, the anchor on the other.

    `sides` gives the axis of each strip, and whether it lies at the far side of the box. `inside`
    are the pieces of the larger box. Strips overlap in corners.
    """

    strips: tuple[Patch, ...]
    sides: tuple[Side, ...]
    inside: Pieces

    @property
    def anchor(self) -> torch.Tensor:
        """The anchor outside of the box."""
        return self.strips[0].anchor

    @property
    def starts(self) -> tuple[Sides, ...]:
        """Start of the rectangle around all pieces."""
        return (self._around[0],)

    @property
    def size(self) -> Sides:
        """Side lengths of that rectangle."""
        return _lengths(self._around)

    @property
    def grid(self) -> Sides:
        """Side lengths of the full tensor."""
        return self.strips[0].grid

    @property
    def share(self) -> float:
        """The strips' share of the rectangle around all pieces; corners count twice."""
        return sum(prod(strip.size) for strip in self.strips) / prod(self.size)

    @cached_property
    def pieces(self) -> Pieces:
        """Everything in which the tensor differs from its anchor."""
        return (*self._core, *(_piece(strip) for strip in self.strips))

    def strip(self, number: int) -> Patch:
        """Return one strip as a patch, with everything else around it."""
        others = (_piece(strip) for strip in self.strips if strip is not self.strips[number])
        return replace(self.strips[number], over=(*self._core, *others))

    def patch(self) -> Patch:
        """Return the rectangle around all pieces as one patch."""
        data = self.strip(0).window(self.starts, self.size)
        return Patch(data, self.starts, self.anchor, is_owned=True)

    def full(self) -> torch.Tensor:
        """Return the full tensor, `(1, channels, *grid)`."""
        return self.strip(0).full()

    @cached_property
    def _core(self) -> Pieces:
        """The pieces of the larger box on the inner side of all strips."""
        low, high = [0] * len(self.grid), list(self.grid)
        for strip, (axis, is_far) in zip(self.strips, self.sides, strict=True):
            first = strip.starts[0][axis]
            if is_far:
                high[axis] = first
            else:
                low[axis] = first + strip.size[axis]
        clipped = (clip(piece, (tuple(low), tuple(high))) for piece in self.inside)
        return tuple(piece for piece in clipped if piece is not None)

    @cached_property
    def _around(self) -> Corners:
        starts = zip(*(piece.start for piece in self.pieces), strict=True)
        stops = zip(*(_stop(piece) for piece in self.pieces), strict=True)
        return tuple(map(min, starts)), tuple(map(max, stops))


def framed(box: Corners, around: Corners, outside: torch.Tensor, image: torch.Tensor) -> Frame:
    """Return the input that shows a box of `image`, as part of a larger box, over `outside`.

    Its strips are the outermost pixels of the box, at the sides that the larger box does not share.
    The boxes must differ.
    """
    strips: list[Patch] = []
    sides: list[Side] = []
    for axis in range(len(box[0])):
        for is_far in (False, True):
            if box[is_far][axis] == around[is_far][axis]:
                continue
            first, last = list(box[0]), list(box[1])
            if is_far:
                first[axis] = last[axis] - 1
            else:
                last[axis] = first[axis] + 1
            data = image[(slice(None), slice(None), *map(slice, first, last))]
            strips.append(Patch(data, (tuple(first),), outside))
            sides.append((axis, is_far))
    shown = Piece(box[0], image[0][(slice(None), *map(slice, *box))])
    return Frame(tuple(strips), tuple(sides), (shown,))


def clip(piece: Piece, corners: Corners) -> Piece | None:
    """Return the part of a piece between two corners, in the same memory; None if it is empty."""
    low: list[int] = []
    spans: list[slice] = []
    # A loop, not generators: this runs for every piece of every layer.
    for start, length, first, last in zip(piece.start, piece.size, *corners, strict=True):
        begin, end = max(start, first), min(start + length, last)
        if begin >= end:
            return None
        low.append(begin)
        spans.append(slice(begin - start, end - start))
    return Piece(tuple(low), piece.data[(slice(None), *spans)])


def _piece(patch: Patch) -> Piece:
    return Piece(patch.starts[0], patch.data[0])


def pieces_of(value: Patch | Frame) -> Pieces:
    """Return everything in which the tensor of one row differs from its anchor."""
    return value.pieces if isinstance(value, Frame) else (_piece(value),)


def size_of_own(values: Sequence[Patch | Frame]) -> int:
    """Return the bytes of the patches and strips among values, without pieces of larger boxes."""
    patches = (each.strips if isinstance(each, Frame) else (each,) for each in values)
    return sum(patch.data.nbytes for several in patches for patch in several)


def _stop(piece: Piece) -> Sides:
    return tuple(a + n for a, n in zip(piece.start, piece.size, strict=True))


def _lengths(corners: Corners) -> Sides:
    return tuple(b - a for a, b in zip(*corners, strict=True))
