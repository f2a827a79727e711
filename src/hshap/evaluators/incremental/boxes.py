"""Boxes of an image: computed along their borders, and kept for the boxes inside of them.

An input shows a box, and the baseline elsewhere. A larger box around it is known, at first the
whole image. An activation that sees only pixels inside of the box, or beyond the sides that both
boxes share, equals that of the larger box. One that sees no pixel of the box equals the baseline's.
The rest is computed: strips along the sides that the boxes do not share. Needs torch.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from operator import ge, le
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch

from hshap._util.cache import ByIdentity
from hshap.evaluators.incremental.patches import Patch, of_one_size
from hshap.evaluators.incremental.windows import Corners, KnownPiece, Sides, tiles_of
from hshap.evaluators.outputs import as_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat
    from hshap.evaluators.incremental.activation_cache import Anchor
    from hshap.evaluators.incremental.network import ShownBox
    from hshap.evaluators.incremental.windows import Corners, Known, Sides

    Side: TypeAlias = tuple[int, bool]
    Boxes: TypeAlias = dict[Corners, ShownBox]
    Kind: TypeAlias = tuple[ByIdentity, Sides, Sides]


Pieces: TypeAlias = tuple[KnownPiece, ...]
"""Everything in which a tensor differs from its anchor; later pieces lie on top."""

LARGEST_SHARE = 0.8
"""Of the rectangle around all pieces: where strips cover more, it is computed as a whole."""


@dataclass(frozen=True, eq=False)
class Borders:
    """Rows of a tensor: strips, a larger box on one side of them, the anchor on the other.

    `sides` gives for each row the axis of each strip, and whether it lies at the far side of the
    box. `inside` are the pieces of each row's larger box. Strips overlap in corners.
    """

    strips: tuple[Patch, ...]
    sides: tuple[tuple[Side, ...], ...]
    inside: tuple[Pieces, ...]

    @property
    def anchor(self) -> Known:
        """The anchor outside of the boxes."""
        return self.strips[0].anchor

    @property
    def starts(self) -> tuple[Sides, ...]:
        """Starts of the rectangles around all pieces of each row."""
        return self._around[0]

    @property
    def size(self) -> Sides:
        """Side lengths of these rectangles."""
        return self._around[1]

    @property
    def grid(self) -> Sides:
        """Side lengths of the full tensor."""
        return self.strips[0].grid

    @property
    def share(self) -> float:
        """The strips' share of the rectangles that would be computed without them.

        These have one size for all rows: that of the largest. Corners count twice.
        """
        return sum(prod(strip.size) for strip in self.strips) / prod(self.size)

    def pieces(self, row: int) -> Pieces:
        """Return everything in which a row differs from its anchor."""
        return (*self._cores[row], *(strip.rows[row] for strip in self.strips))

    def strip(self, number: int) -> Patch:
        """Return one strip of each row as a patch, with everything else around it."""
        others = self.strips[:number] + self.strips[number + 1 :]
        over = tuple(
            (*core, *(strip.rows[row] for strip in others)) for row, core in enumerate(self._cores)
        )
        return replace(self.strips[number], over=over)

    def patch(self) -> Patch:
        """Return the rectangles around all pieces as patches."""
        data = self.strip(0).window(self.starts, self.size)
        return Patch(data, self.starts, self.anchor)

    def full(self) -> torch.Tensor:
        """Return the full tensors, `(rows, channels, *grid)`."""
        return self.strip(0).full()

    @cached_property
    def _cores(self) -> tuple[Pieces, ...]:
        """The pieces of each larger box on the inner side of all strips."""
        return tuple(self._core(row) for row in range(len(self.sides)))

    def _core(self, row: int) -> Pieces:
        low, high = [0] * len(self.grid), list(self.grid)
        for strip, (axis, is_far) in zip(self.strips, self.sides[row], strict=True):
            first = strip.starts[row][axis]
            if is_far:
                high[axis] = first
            else:
                low[axis] = first + strip.size[axis]
        if any(first >= last for first, last in zip(low, high, strict=True)):
            return ()  # the strips of a narrow box cover it
        inner = tuple(low), tuple(high)
        clipped = (piece.clipped(inner) for piece in self.inside[row])
        return tuple(piece for piece in clipped if piece is not None)

    @cached_property
    def _around(self) -> tuple[tuple[Sides, ...], Sides]:
        spans = [_spans(self.pieces(row)) for row in range(len(self.sides))]
        return of_one_size(spans, self.grid)


def _spans(pieces: Pieces) -> list[tuple[int, int]]:
    """Return the rectangle around all pieces, axis by axis."""
    lows, highs = zip(*(piece.corners for piece in pieces), strict=True)
    first, last = map(min, zip(*lows, strict=True)), map(max, zip(*highs, strict=True))
    return list(zip(first, last, strict=True))


def unshared_sides(box: Corners, around: Corners) -> tuple[Side, ...]:
    """Return the sides of a box that a larger box does not share: the axis, and if it is far."""
    return tuple(
        (axis, is_far)
        for axis in range(len(box[0]))
        for is_far in (False, True)
        if box[is_far][axis] != around[is_far][axis]
    )


def borders_of(
    boxes: Sequence[Corners], around: Sequence[Corners], outside: Known, image: torch.Tensor
) -> Borders:
    """Return inputs that each show a box of `image`, as part of a larger box, over `outside`.

    Strips are the outermost pixels of a box, at the sides that its larger box does not share. All
    boxes have one size, and sides of the same axes that are not shared, at least one.
    """
    sides = [unshared_sides(box, larger) for box, larger in zip(boxes, around, strict=True)]
    strips: list[Patch] = []
    for several in zip(*sides, strict=True):
        corners = [_outermost(box, side) for box, side in zip(boxes, several, strict=True)]
        data = [image[(slice(None), slice(None), *map(slice, *each))] for each in corners]
        together = data[0] if len(data) == 1 else torch.cat(data)
        strips.append(Patch(together, tuple(first for first, _ in corners), outside))
    (whole,) = tiles_of(image)
    shown = tuple((whole._replace(corners=box),) for box in boxes)
    return Borders(tuple(strips), tuple(sides), shown)


def _outermost(box: Corners, side: Side) -> Corners:
    """Return the outermost pixels of a box at one side."""
    (axis, is_far), first, last = side, list(box[0]), list(box[1])
    if is_far:
        first[axis] = last[axis] - 1
    else:
        last[axis] = first[axis] + 1
    return tuple(first), tuple(last)


def size_of_own(values: Sequence[Patch | Borders]) -> int:
    """Return the bytes of the patches and strips among values, without pieces of larger boxes."""
    patches = (each.strips if isinstance(each, Borders) else (each,) for each in values)
    return sum(patch.data.nbytes for several in patches for patch in several)


class BoxOfImage(NamedTuple):
    """A box, and the image that it shows."""

    corners: Corners
    image: Anchor


class BoxCache:
    """The boxes of images over anchors. All are forgotten once they take too much memory.

    Pieces of larger boxes belong to smaller ones too, so single boxes cannot be freed. Those of an
    anchor that the cache dropped are forgotten with it: they would hold its activations.
    """

    def __init__(self) -> None:
        self._boxes = WeakKeyDictionary["Anchor", WeakKeyDictionary["Anchor", "Boxes"]]()

    @property
    def bytes(self) -> int:
        """Memory that the boxes take."""
        known = (boxes for over in self._boxes.values() for boxes in over.values())
        return sum(box.bytes for boxes in known for box in boxes.values())

    def _known(self, outside: Anchor, image: Anchor) -> Boxes:
        over = self._boxes.get(outside)
        return {} if over is None else over.get(image, {})

    def scores(self, boxes: Sequence[BoxOfImage], outside: Anchor, max_bytes: int) -> Heat:
        """Score boxes along their sides, over an anchor; boxes of one kind run together.

        They are kept, unless one batch takes more than `max_bytes`; older ones make room.
        """
        around = [self.smallest_around(box, outside, image) for box, image in boxes]
        kinds: defaultdict[Kind, list[int]] = defaultdict(list)
        for number, (box, larger) in enumerate(zip(boxes, around, strict=True)):
            kinds[_kind(box, larger.corners)].append(number)
        found: dict[int, Heat] = {}
        for numbers in kinds.values():
            image, larger = boxes[numbers[0]].image, [around[n] for n in numbers]
            with torch.inference_mode():
                outputs, shown = outside.network.run_boxes(
                    [boxes[n].corners for n in numbers], larger, outside.activations, image.tensor
                )
            parts = any(box.bytes for box in larger)
            self.add(shown, outside, image, max_bytes=max_bytes, parts=parts)
            found.update(zip(numbers, as_scores(outputs, len(numbers)), strict=True))
        return np.stack([found[n] for n in range(len(boxes))])

    def smallest_around(self, corners: Corners, outside: Anchor, image: Anchor) -> ShownBox:
        """Return the smallest known box that holds a box and is larger, or the whole image."""
        known = self._known(outside, image)
        around = [box for box in known.values() if _holds(box.corners, corners)]
        return min(around, key=_area) if around else image.network.whole(image.activations)

    def add(
        self,
        batch: Sequence[ShownBox],
        outside: Anchor,
        image: Anchor,
        *,
        max_bytes: int,
        parts: bool,
    ) -> None:
        """Keep the boxes of a batch: all or none, since they share memory.

        `parts` tells whether some of them are parts of other known boxes. Where memory is short,
        all older boxes are forgotten, and parts of these too, which would hold their memory.
        """
        known, size = self._known(outside, image), sum(box.bytes for box in batch)
        if all(box.corners in known for box in batch):
            return
        is_short = self.bytes + size > max_bytes
        if is_short:
            self.clear()
        if size <= max_bytes and not (is_short and parts):
            kept = self._boxes.setdefault(outside, WeakKeyDictionary()).setdefault(image, {})
            kept.update((box.corners, box) for box in batch)

    def clear(self) -> None:
        """Forget all boxes."""
        self._boxes.clear()


def _kind(box: BoxOfImage, around: Corners) -> Kind:
    """Return the facts that boxes must share to run together, see `borders_of`."""
    size = tuple(b - a for a, b in zip(*box.corners, strict=True))
    axes = tuple(axis for axis, _ in unshared_sides(box.corners, around))
    return ByIdentity(box.image), size, axes


def _holds(large: Corners, small: Corners) -> bool:
    """Tell whether a box holds another one, and is not the same."""
    starts, stops = all(map(le, large[0], small[0])), all(map(ge, large[1], small[1]))
    return starts and stops and large != small


def _area(box: ShownBox) -> int:
    return prod(high - low for low, high in zip(*box.corners, strict=True))
