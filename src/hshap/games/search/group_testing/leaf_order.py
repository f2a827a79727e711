"""The leaves of a tree in a row: spans of it, and the fewest regions that cover them.

Each leaf takes one place, and the parts of a region follow each other in the order of the
partition. A tree of many leaves is split only where it is asked about, so that a grid of a million
leaves costs nothing beforehand; its regions then take a place for each pixel.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hshap.partitions.protocol import Coalition, Region

Span: TypeAlias = tuple[int, int]
"""The first place, and the one past the last."""

Spans: TypeAlias = tuple[Span, ...]
"""Spans that do not overlap, in the order in which they are asked about."""

MOST_COUNTED = 2048
"""Leaves of a tree that is split to the end beforehand, to count them."""


class SpannedRegion:
    """A region and its span in the row."""

    __slots__ = ("_parts", "region", "span")

    def __init__(
        self, region: Region, span: Span, parts: tuple[SpannedRegion, ...] | None = None
    ) -> None:
        self.region, self.span, self._parts = region, span, parts

    @property
    def parts(self) -> tuple[SpannedRegion, ...]:
        """The parts in the order of the row; empty for a leaf."""
        if self._parts is None:
            parts = self.region.split()
            ends = list(accumulate((part.area for part in parts), initial=self.span[0]))
            spans = pairwise(ends)
            self._parts = tuple(map(SpannedRegion, parts, spans))
        return self._parts


class LeafOrder:
    """The leaves below a root in a row.

    >>> import hshap
    >>> import numpy as np
    >>> row = LeafOrder(hshap.Bisection(min_size=1)(np.zeros((1, 4))))
    >>> row.cover(((0, 3),))
    (Box(start=(0,), stop=(2,)), Box(start=(2,), stop=(3,)))
    """

    def __init__(self, root: Region) -> None:
        self.root = _tree_by_leaves(root) or SpannedRegion(root, (0, root.area))

    def path(self, place: int) -> list[SpannedRegion]:
        """Return the regions around a place, from the root down to a leaf."""
        found = [self.root]
        while found[-1].parts:
            found.append(next(part for part in found[-1].parts if place < part.span[1]))
        return found

    def cover(self, spans: Spans) -> Coalition:
        """Return the fewest regions that fill some spans, in the order of the row."""
        return tuple(node.region for node in self._fill(spans))

    def nodes(self, spans: Spans) -> list[SpannedRegion]:
        """Return the same regions with their spans; parts of the root instead of the root."""
        found = self._fill(spans)
        return list(self.root.parts) or found if found == [self.root] else found

    def _fill(self, spans: Spans) -> list[SpannedRegion]:
        found: list[SpannedRegion] = []
        waiting = [(self.root, join(spans))]
        while waiting:
            node, wanted = waiting.pop()
            own = _clip(wanted, node.span)
            if own == (node.span,):
                found.append(node)
            elif own:
                waiting += [(part, own) for part in reversed(node.parts)]
        return found

    def cut(self, spans: Spans, amount: float, low: int, high: int) -> int:
        """Return the end of a leaf that is nearest to an amount of the spans, in between two.

        `low`, `high` and the answer count places from the beginning of the spans. Returns `high`
        if only one leaf is in between.
        """
        amount = min(max(amount, low + 0.5), high - 0.5)
        before = 0
        for start, stop in spans:
            if amount < before + stop - start:
                leaf = self.path(start + int(amount - before))[-1]
                ends = [before + end - start for end in leaf.span]
                possible = [end for end in ends if low < end < high]
                return min(possible, key=lambda end: abs(end - amount), default=high)
            before += stop - start
        return high


def area(spans: Spans) -> int:
    """Count the places in some spans.

    >>> area(((0, 3), (5, 6)))
    4
    """
    return sum(stop - start for start, stop in spans)


def between(spans: Spans, low: int, high: int) -> Spans:
    """Return the places from one number to another, counted along the spans.

    >>> between(((0, 3), (5, 9)), 2, 5)
    ((2, 3), (5, 7))
    """
    found: list[Span] = []
    before = 0
    for start, stop in spans:
        first, last = start + max(low - before, 0), start + min(high - before, stop - start)
        if first < last:
            found.append((first, last))
        before += stop - start
    return tuple(found)


def without(spans: Spans, holes: Iterable[Span]) -> Spans:
    """Return the places of some spans that lie in none of the holes, in the same order.

    >>> without(((0, 9),), [(2, 4), (8, 9)])
    ((0, 2), (4, 8))
    """
    ordered = sorted(holes)
    return tuple(kept for span in spans for kept in _outside(span, ordered))


def join(spans: Iterable[Span]) -> Spans:
    """Return spans in the order of the row; those that touch become one.

    >>> join([(3, 5), (0, 3), (7, 8)])
    ((0, 5), (7, 8))
    """
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and found[-1][1] == start:
            found[-1] = found[-1][0], stop
        else:
            found.append((start, stop))
    return tuple(found)


def inside(span: Span, spans: Iterable[Span]) -> bool:
    """Tell whether one of some spans holds a span.

    >>> inside((2, 3), [(0, 1), (2, 5)])
    True
    """
    return any(start <= span[0] and span[1] <= stop for start, stop in spans)


def _tree_by_leaves(root: Region) -> SpannedRegion | None:
    """Return a tree whose regions take a place for each leaf; None if it has too many leaves."""
    order = [root]
    parts: list[tuple[Region, ...]] = []
    for region in order:  # parents before their parts
        parts.append(region.split())
        order += parts[-1]
        # A tree has fewer inner regions than leaves.
        if len(order) >= 2 * MOST_COUNTED:
            return None
    # The parts of a region come one after another, after those of all regions before it.
    firsts = list(accumulate((len(few) for few in parts), initial=1))
    counts = [1] * len(order)
    for i in reversed(range(len(order))):
        if parts[i]:
            counts[i] = sum(counts[firsts[i] : firsts[i + 1]])
    starts = [0] * len(order)
    for i, few in enumerate(parts):
        own = counts[firsts[i] : firsts[i] + len(few)]
        starts[firsts[i] : firsts[i] + len(few)] = list(accumulate(own, initial=starts[i]))[:-1]
    nodes: list[SpannedRegion] = []
    for i in reversed(range(len(order))):
        inner = tuple(reversed(nodes[len(order) - firsts[i + 1] : len(order) - firsts[i]]))
        nodes.append(SpannedRegion(order[i], (starts[i], starts[i] + counts[i]), inner))
    return nodes[-1]


def _clip(spans: Spans, limits: Span) -> Spans:
    low, high = limits
    return tuple(
        (max(start, low), min(stop, high)) for start, stop in spans if start < high and stop > low
    )


def _outside(span: Span, holes: Iterable[Span]) -> Iterator[Span]:
    start, stop = span
    for first, last in holes:
        if last <= start or first >= stop:
            continue
        if start < first:
            yield start, first
        start = last
    if start < stop:
        yield start, stop
