"""Known boxes: boxes that were shown, whose activations save work for the boxes inside of them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

from hshap._util.cache import ByIdentity

if TYPE_CHECKING:
    from hshap.evaluators.incremental.activation_cache import Anchor
    from hshap.evaluators.incremental.frames import Corners
    from hshap.evaluators.incremental.traced_network import ShownBox

    Key: TypeAlias = tuple[ByIdentity, ByIdentity]


class KnownBoxes:
    """The boxes of images over anchors. All are forgotten once they take too much memory.

    Pieces of larger boxes belong to smaller ones too, so single boxes cannot be freed.
    """

    def __init__(self) -> None:
        self._boxes: dict[Key, dict[Corners, ShownBox]] = {}
        self._bytes = 0

    @property
    def bytes(self) -> int:
        """Memory that the boxes take."""
        return self._bytes

    def smallest_around(self, corners: Corners, outside: Anchor, image: Anchor) -> ShownBox:
        """Return the smallest known box that holds a box and is larger, or the whole image."""
        known = self._boxes.get(_key(outside, image), {})
        around = [box for box in known.values() if _holds(box.corners, corners)]
        return min(around, key=_area, default=image.network.whole(image.activations))

    def add(self, box: ShownBox, outside: Anchor, image: Anchor, max_bytes: int) -> None:
        """Keep a box, unless it takes more than `max_bytes` alone."""
        if self._bytes + box.bytes > max_bytes:
            self.clear()
        if box.bytes <= max_bytes:
            self._boxes.setdefault(_key(outside, image), {})[box.corners] = box
            self._bytes += box.bytes

    def clear(self) -> None:
        """Forget all boxes."""
        self._boxes, self._bytes = {}, 0


def _key(outside: Anchor, image: Anchor) -> Key:
    return ByIdentity(outside), ByIdentity(image)


def _holds(large: Corners, small: Corners) -> bool:
    """Tell whether a box holds another one, and is not the same."""
    starts = all(a <= b for a, b in zip(large[0], small[0], strict=True))
    stops = all(a >= b for a, b in zip(large[1], small[1], strict=True))
    return starts and stops and large != small


def _area(box: ShownBox) -> int:
    return prod(high - low for low, high in zip(*box.corners, strict=True))
