"""Costs of chains: which layers run on one window. All are estimates, in multiplications.

They are those of a strip along the side of a box, for each pixel of its length. Wrong ones cost
time, nothing else.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.evaluators.incremental.layer_rules import Layer
    from hshap.evaluators.incremental.patches import ReceptiveField

COPY = 128
"""A number of a window that is copied from a patch or an anchor."""

NUMBER = 64
"""A number that is written and read again, besides the multiplications that make it."""

COMPARISON = 32
"""A number that a pool reads, for each of its outputs."""

STEP = 2**14
"""A step with a window of its own, for each pixel of a strip: its Python, mostly.

That takes about 250 µs a row, and strips have a few hundred pixels.
"""


class Reach(NamedTuple):
    """How many places of a tensor one pixel changes on an axis, and the stride of the places."""

    width: float
    stride: float


class Link(NamedTuple):
    """One layer: multiplications for a number of its output, channels before and after it."""

    multiplications: float
    inputs: int
    channels: int
    extent: int  # places before the last one that an output reads
    stride: int
    is_one_place: bool

    @classmethod
    def of_convolution(cls, layer: Layer, field: ReceptiveField) -> Link:
        """Return the link of a convolution."""
        each = layer.in_channels // layer.groups * prod(field.kernel)
        return cls(each, layer.in_channels, layer.out_channels, *_widest(field))

    @classmethod
    def of_pool(cls, channels: int, field: ReceptiveField) -> Link:
        """Return the link of a pool."""
        return cls(COMPARISON * prod(field.kernel), channels, channels, *_widest(field))


def _widest(field: ReceptiveField) -> tuple[int, int, bool]:
    extents = [d * (k - 1) for k, d in zip(field.kernel, field.dilation, strict=True)]
    return max(extents), max(field.stride), field.is_one_place


def reach_after(link: Link, reach: Reach) -> Reach:
    """Return the reach of a pixel after a layer."""
    width, stride = reach
    return Reach((width + link.extent - 1) / link.stride + 1, stride * link.stride)


def cost(links: Sequence[Link], reach: Reach) -> float:
    """Return the cost of a chain, given the reach before it."""
    for link in links:
        reach = reach_after(link, reach)
    width, stride = reach
    found = float(STEP)
    for link in reversed(links):
        found += width / stride * link.channels * (link.multiplications + NUMBER)
        width, stride = (width - 1) * link.stride + link.extent + 1, stride / link.stride
    is_copied = not all(link.is_one_place for link in links)
    return found + is_copied * COPY * width / stride * links[0].inputs


def cheapest(links: Sequence[Link], reach: Reach) -> list[tuple[int, int]]:
    """Return the chains, first and last number of each, that cost least together."""
    reaches = [reach]
    for link in links:
        reaches.append(reach_after(link, reaches[-1]))
    best: list[tuple[float, list[tuple[int, int]]]] = [(0.0, [])]
    for last in range(1, len(links) + 1):
        ways = (
            (best[first][0] + cost(links[first:last], reaches[first]), first)
            for first in range(last)
        )
        least, first = min(ways)
        best.append((least, [*best[first][1], (first, last)]))
    return best[-1][1]
