"""The tree of merges of the segments of an image, and the rule that splits its regions.

Segments are numbered from 0; a merge joins two nodes to a new one, numbered on from the segments.
Nothing here knows a game or a model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hshap.partitions.filling import below
from hshap.partitions.regions import Pixels
from hshap.partitions.segmentation import boundaries, higra, joins

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.axes import Spacing
    from hshap._util.types import Heat, Ints
    from hshap.partitions.protocol import Region


@dataclass(frozen=True, eq=False)
class MergeTree:
    """Segments of a grid, and the merges that join them, two nodes at a time, to one."""

    labels: Ints
    merges: Ints

    @property
    def root(self) -> int:
        """Number of the node that holds all pixels."""
        return self._segments + len(self.merges) - 1

    def parts(self, node: int) -> tuple[int, ...]:
        """Return the two nodes that were joined to this one; a segment has none."""
        return () if node < self._segments else tuple(self.merges[node - self._segments].tolist())

    def pixels(self, node: int) -> Ints:
        """Return a node's pixels by their positions in the flattened grid, a view."""
        first, area = self._spans
        return self._order[first[node] : first[node] + area[node]]

    @cached_property
    def _segments(self) -> int:
        return int(self.labels.max()) + 1

    @cached_property
    def _spans(self) -> tuple[Ints, Ints]:
        """First place and number of each node's pixels, in an order that keeps nodes together."""
        leaves, merges = self._segments, self.merges.tolist()
        area = np.bincount(self.labels.ravel(), minlength=leaves).tolist()
        for a, b in merges:
            area.append(area[a] + area[b])
        first = [0] * len(area)
        for node in range(len(area) - 1, leaves - 1, -1):
            a, b = merges[node - leaves]
            first[a], first[b] = first[node], first[node] + area[a]
        return np.array(first), np.array(area)

    @cached_property
    def _order(self) -> Ints:
        first, _ = self._spans
        ranks = np.empty(self._segments, dtype=np.intp)
        ranks[np.argsort(first[: self._segments], kind="stable")] = np.arange(self._segments)
        # Numbers of 16 bits are sorted by counting, in a fraction of the time.
        few = ranks.astype(np.uint16) if self._segments <= 2**16 else ranks
        order = np.argsort(few[self.labels.ravel()], kind="stable")
        order.flags.writeable = False  # regions are views of it, not copies
        return order


@dataclass(frozen=True)
class Segment:
    """The rule of a node's region: undo its merges, up to `parts` pieces.

    A region of at most `min_area` pixels is a leaf. So is a segment, unless it has more than
    `max_area` pixels; it has no inner edge, so it is halved by position. Where the differences from
    the baseline are known (`apart`, one for each pixel of the flattened grid), a segment or a half
    that is mostly like the baseline is split once more, into the pixels that differ and the others.
    `sides` are those of a pixel; without them it is a cube.
    """

    tree: MergeTree
    node: int
    min_area: int
    max_area: float
    parts: int
    adaptive: bool = False
    apart: Heat | None = field(default=None, compare=False, repr=False)
    sides: Spacing = ()

    def region(self) -> Pixels:
        """Return the node's pixels."""
        return Pixels(self.tree.pixels(self.node), self.tree.labels.shape, self, self.adaptive)

    def __call__(self, region: Pixels) -> tuple[Region, ...]:
        """Return the parts of the node's region."""
        return _pieces(region, self.parts)

    def two(self, region: Pixels) -> tuple[Pixels, ...]:
        """Return the two nodes that were merged, or two halves of a segment; none if a leaf."""
        if region.area <= self.min_area:
            return ()
        parts = self.tree.parts(self.node)
        if parts:
            return tuple(replace(self, node=part).region() for part in parts)
        return Halves(self.max_area, self.parts, self.min_area, self.apart, self.sides).two(region)


@dataclass(frozen=True)
class Halves:
    """The rule of a region without inner edges: halve it along its longest axis.

    Both halves hold about the same number of pixels. A region of at most `max_area` pixels is a
    leaf, unless it has more than `min_area` pixels, most of which are like the baseline. The
    longest axis is that by the `sides` of a pixel.
    """

    max_area: float
    parts: int
    min_area: int = 1
    apart: Heat | None = field(default=None, compare=False, repr=False)
    sides: Spacing = ()

    def __call__(self, region: Pixels) -> tuple[Region, ...]:
        """Return the parts of the region."""
        return _pieces(region, self.parts)

    def two(self, region: Pixels) -> tuple[Pixels, ...]:
        """Return the two halves; none if a leaf."""
        if region.area <= self.max_area:
            if self.apart is None or region.area <= self.min_area:
                return ()
            return below(region, self.apart)
        axes = [np.asarray(axis) for axis in region.index]
        sides = self.sides or (1.0,) * len(axes)
        lengths = [
            int(axis.max() - axis.min()) * side for axis, side in zip(axes, sides, strict=True)
        ]
        longest = axes[lengths.index(max(lengths))]
        low, high = int(longest.min()), int(longest.max())
        middle = min(max(int(np.median(longest)), low), high - 1)
        before = longest <= middle
        return tuple(
            Pixels(region.flat[half], region.grid, self, region.adaptive)
            for half in (before, ~before)
        )


def _pieces(region: Pixels, parts: int) -> tuple[Region, ...]:
    """Split in two, and the largest piece that can be in two again, until there are `parts`."""
    pieces, whole = [region], list[Pixels]()
    while pieces and len(pieces) + len(whole) < parts:
        largest = max(range(len(pieces)), key=lambda i: pieces[i].area)
        piece = pieces.pop(largest)
        two = piece.rule.two(piece) if isinstance(piece.rule, (Segment, Halves)) else ()
        pieces[largest:largest] = two
        whole += () if two else (piece,)
    found = (*pieces, *whole)
    return found if len(found) > 1 else ()


def link(labels: Ints, values: NDArray[np.float32], position: float, sides: Spacing = ()) -> Ints:
    """Return the merges of neighbouring segments that keep their pixels most alike (Ward).

    `position` weighs the distance between two segments against their difference in colour: small
    segments are joined by colour, large ones by position. `sides` are those of a pixel.
    """
    flat = labels.ravel()
    area = np.bincount(flat).astype(np.float64)
    if len(area) == 1:
        return np.zeros((0, 2), dtype=np.intp)
    scale = np.array(sides or (1.0,) * labels.ndim)[:, None]
    longest = float((scale[:, 0] * labels.shape).max())
    places = np.indices(labels.shape).reshape(labels.ndim, -1) * (scale * (position / longest))
    centroids = np.stack([np.bincount(flat, f) / area for f in (*values.T, *places)], axis=1)
    library = higra()
    graph = library.UndirectedGraph(len(area))
    graph.add_edges(*boundaries(labels))
    tree, _ = library.binary_partition_tree_ward_linkage(graph, centroids, area)
    return joins(tree)
