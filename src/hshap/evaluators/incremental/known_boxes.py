"""Known boxes: boxes that were shown, whose activations save work for the boxes inside of them.

Needs torch.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod
from operator import ge, le
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch

from hshap._util.cache import ByIdentity
from hshap.evaluators.incremental.frames import unshared
from hshap.evaluators.outputs import as_scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat
    from hshap.evaluators.incremental.activation_cache import Anchor
    from hshap.evaluators.incremental.drawing import Corners, Sides
    from hshap.evaluators.incremental.traced_network import ShownBox

    Boxes: TypeAlias = dict[Corners, ShownBox]
    Kind: TypeAlias = tuple[ByIdentity, Sides, Sides]


class BoxOfImage(NamedTuple):
    """A box, and the image that it shows."""

    corners: Corners
    image: Anchor


class KnownBoxes:
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
    """Return the facts that boxes must share to run together, see `frames.framed`."""
    size = tuple(b - a for a, b in zip(*box.corners, strict=True))
    axes = tuple(axis for axis, _ in unshared(box.corners, around))
    return ByIdentity(box.image), size, axes


def _holds(large: Corners, small: Corners) -> bool:
    """Tell whether a box holds another one, and is not the same."""
    starts, stops = all(map(le, large[0], small[0])), all(map(ge, large[1], small[1]))
    return starts and stops and large != small


def _area(box: ShownBox) -> int:
    return prod(high - low for low, high in zip(*box.corners, strict=True))
