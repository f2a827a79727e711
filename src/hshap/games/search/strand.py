"""A strand: the way from a group of leaves that adds to the score to one leaf in it.

The strand asks about the beginning of the group, cut where the first relevant leaf is as likely
before as after. If the beginning does not add more than the tolerance, the rest holds a relevant
leaf, and the next question is about a longer beginning. So each level takes one question. Under the
OR rule this is Hwang's binary splitting; without any rule, the leaf at the end is the one that
lifts the score of the leaves before it above the tolerance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hshap.games.search.order import Node, area, between

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hshap.games.search.order import Row, Spans


class Strand:
    """One search for a relevant leaf. `wanted` is its next question; None when `found` is there.

    `spans` together add more than the tolerance. Under the OR rule a relevant leaf is among the
    first `likely` places. `rate` tells the relevant leaves in each place that are expected.
    """

    def __init__(
        self, row: Row, spans: Spans, rate: Callable[[], float], likely: int | None = None
    ) -> None:
        self._row, self.spans, self._rate = row, spans, rate
        self.likely = area(spans) if likely is None else likely
        self.low, self.high = 0, self.likely
        self.is_measured = self.likely == area(spans)
        self.found: Node | None = None
        self._steps = self._search()
        self.wanted: Spans | None = next(self._steps)

    @property
    def rest(self) -> Spans:
        """The places after the leaf that was found, about which nothing is known."""
        return between(self.spans, self.high, self.likely)

    @property
    def unsplit(self) -> Spans:
        """The places that hold a relevant leaf, as far as the strand came."""
        return between(self.spans, self.low, self.high)

    @property
    def measured(self) -> Spans:
        """The fewest leading places that were found to add more than the tolerance."""
        return between(self.spans, 0, self.high) if self.is_measured else self.spans

    def advance(self, *, adds: bool) -> None:
        """Take the answer: whether the places that were asked about add more than the tolerance."""
        try:
            self.wanted = self._steps.send(adds)
        except StopIteration as done:
            self.wanted, self.found = None, done.value

    def _search(self) -> Generator[Spans, bool, Node]:
        while True:
            yield from self._narrow()
            leaf = self._row.path(self.unsplit[0][0])[-1]
            alone = yield (leaf.span,)
            if not alone and not self.is_measured:
                self.is_measured = yield between(self.spans, 0, self.high)
                if not self.is_measured:
                    # The OR rule fails: leaves that add nothing by themselves do so together.
                    self.low, self.high, self.is_measured = self.high, area(self.spans), True
                    continue
            if not alone and self._row.root.region.adaptive:
                return (yield from self._climb(leaf))
            return leaf

    def _narrow(self) -> Generator[Spans, bool, None]:
        while True:
            middle = self.low + median(self._rate(), self.high - self.low)
            cut = self._row.cut(self.spans, middle, self.low, self.high)
            if cut == self.high:
                return
            if (yield between(self.spans, 0, cut)):
                self.high, self.is_measured = cut, True
            else:
                self.low = cut

    def _climb(self, leaf: Node) -> Generator[Spans, bool, Node]:
        """Return the smallest region around a leaf that adds to the score by itself.

        The leaf, if no region below the root does. Regions of automatic size end so.
        """
        around = self._row.path(leaf.span[0])[1:-1]
        low, high = -1, len(around)  # regions up to `low` add to the score, those from `high` not
        while high - low > 1:
            middle = (low + high) // 2
            if (yield (around[middle].span,)):
                low = middle
            else:
                high = middle
        return around[low] if low >= 0 else leaf


def median(rate: float, length: int) -> float:
    """Return the place before which the first of some events lies with even chance.

    Events come at a rate for each place, and at least one lies in the whole length.

    >>> median(0.0, 8), round(median(1.0, 8), 2)
    (4.0, 0.69)
    """
    if rate * length < 1e-9:
        return length / 2
    return -math.log1p(0.5 * math.expm1(-rate * length)) / rate
