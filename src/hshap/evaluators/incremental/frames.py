"""Frames: tensors that equal one anchor inside of a box and another one outside. Needs torch.

An activation that sees only pixels of the box equals the one for the image, and an activation that
sees none equals the one for the baseline. The rest, strips along the sides of the box, is computed.
In large boxes it is a small part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from hshap.evaluators.incremental.patches import Patch, Piece

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from hshap.evaluators.incremental.patches import Sides

    Side: TypeAlias = tuple[int, bool]

LARGEST_SHARE = 0.6
"""Of the box: where strips cover more, one rectangle takes less time."""


@dataclass(frozen=True, eq=False)
class Frame:
    """One tensor: `inside` in the core of a box, the strips around it, their anchor elsewhere.

    `sides` gives the axis of each strip, and whether it is the far one. The core reaches up to the
    strips, and up to the border of the grid where there is none. Strips overlap in corners.
    """

    strips: tuple[Patch, ...]
    sides: tuple[Side, ...]
    inside: torch.Tensor

    @property
    def anchor(self) -> torch.Tensor:
        """The anchor outside of the box."""
        return self.strips[0].anchor

    @property
    def starts(self) -> tuple[Sides, ...]:
        """Start of the rectangle around all strips and the core."""
        return (self._corners(inner=False)[0],)

    @property
    def size(self) -> Sides:
        """Side lengths of that rectangle."""
        return _sides(self._corners(inner=False))

    @property
    def grid(self) -> Sides:
        """Side lengths of the full tensor."""
        return self.strips[0].grid

    @property
    def share(self) -> float:
        """The strips' share of the rectangle around them; corners count twice."""
        return sum(prod(strip.size) for strip in self.strips) / prod(self.size)

    def mapped(self, act: Callable[[int], Patch | None], inside: torch.Tensor) -> Frame | None:
        """Return the frame whose strips `act` computes from their numbers; None if it cannot."""
        made = [act(number) for number in range(len(self.strips))]
        strips = tuple(strip for strip in made if isinstance(strip, Patch))
        return Frame(strips, self.sides, inside) if len(strips) == len(made) else None

    def strip(self, number: int) -> Patch:
        """Return one strip as a patch, with everything else around it."""
        others = tuple(
            Piece(strip.starts[0], strip.data[0])
            for other, strip in enumerate(self.strips)
            if other != number
        )
        return replace(self.strips[number], over=(*self._core(), *others))

    def patch(self) -> Patch:
        """Return the whole rectangle as one patch."""
        last = self.strip(len(self.strips) - 1)
        return Patch(last.window(self.starts, self.size), self.starts, self.anchor, is_owned=True)

    def full(self) -> torch.Tensor:
        """Return the full tensor, `(1, channels, *grid)`."""
        return self.strip(len(self.strips) - 1).full()

    def _core(self) -> tuple[Piece, ...]:
        corners = self._corners(inner=True)
        if min(_sides(corners)) <= 0:
            return ()
        return (Piece(corners[0], self.inside[0][(slice(None), *map(slice, *corners))]),)

    def _corners(self, *, inner: bool) -> tuple[Sides, Sides]:
        """Return start and stop of the core, or of the rectangle around all."""
        low, high = [0] * len(self.grid), list(self.grid)
        for strip, (axis, is_far) in zip(self.strips, self.sides, strict=True):
            first = strip.starts[0][axis]
            bound = high if is_far else low
            bound[axis] = first if is_far == inner else first + strip.size[axis]
        return tuple(low), tuple(high)


def framed(start: Sides, stop: Sides, outside: torch.Tensor, inside: torch.Tensor) -> Frame | None:
    """Return the input that equals `inside` in a box and `outside` elsewhere.

    Its strips are the outermost pixels of the box. None if the box covers everything.
    """
    strips: list[Patch] = []
    sides: list[Side] = []
    grid = tuple(inside.shape[2:])
    for axis, (low, high, most) in enumerate(zip(start, stop, grid, strict=True)):
        for is_far, at_border in ((False, low == 0), (True, high == most)):
            if at_border:
                continue
            first, last = list(start), list(stop)
            if is_far:
                first[axis] = high - 1
            else:
                last[axis] = low + 1
            data = inside[(slice(None), slice(None), *map(slice, first, last))]
            strips.append(Patch(data, (tuple(first),), outside))
            sides.append((axis, is_far))
    return Frame(tuple(strips), tuple(sides), inside) if strips else None


def _sides(corners: tuple[Sides, Sides]) -> Sides:
    return tuple(b - a for a, b in zip(*corners, strict=True))
