"""Group testing: as few questions as the number of possible answers allows, and a certificate.

A search asks about groups of leaves, and then about smaller and smaller beginnings of a group that
adds to the score, until one leaf is left.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.games.search.frontier import Budget, checked_limits
from hshap.games.search.group_testing.leaf_order import (
    LeafOrder,
    SpannedRegion,
    area,
    between,
    inside,
    join,
    without,
)
from hshap.games.search.group_testing.measurements import Measurements, coalitions
from hshap.games.search.protocol import Certificate, SearchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hshap._util.types import Heat
    from hshap.games.search.group_testing.leaf_order import Span, Spans
    from hshap.games.search.group_testing.measurements import Asked
    from hshap.games.search.protocol import Asking
    from hshap.partitions.protocol import Region


class LeafSearch:
    """One search for a relevant leaf. `wanted` is its next question; None when `found` is there.

    `spans` together add more than the tolerance. Under the OR rule a relevant leaf is among the
    first `likely` places. `rate` tells the relevant leaves in each place that are expected.
    """

    def __init__(
        self, row: LeafOrder, spans: Spans, rate: Callable[[], float], likely: int | None = None
    ) -> None:
        self._row, self.spans, self._rate = row, spans, rate
        self.likely = area(spans) if likely is None else likely
        self.low, self.high = 0, self.likely
        self.is_measured = self.likely == area(spans)
        self.found: SpannedRegion | None = None
        self._steps = self._search()
        self.wanted: Spans | None = next(self._steps)

    @property
    def rest(self) -> Spans:
        """The places after the leaf that was found, about which nothing is known."""
        return between(self.spans, self.high, self.likely)

    @property
    def unsplit(self) -> Spans:
        """The places that hold a relevant leaf, as far as the search came."""
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

    def _search(self) -> Generator[Spans, bool, SpannedRegion]:
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

    def _climb(self, leaf: SpannedRegion) -> Generator[Spans, bool, SpannedRegion]:
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


EXPECTED = 0.5
"""Relevant leaves that are expected before any was found, in `EXPECTED_AREA` of the image."""

EXPECTED_AREA = 0.25

LAST = 0.7
"""A group of this share of all open leaves, or more, is asked about with all the others."""

AT_ONCE = 4
"""Groups that are asked about at once, for each leaf found: the first ones tell their size."""

ROUNDING = 1e-6
"""Of the score: a smaller lack of it is rounding."""


class GroupSearch:
    """One search: the findings so far, and the leaves about which nothing is known."""

    def __init__(self, measured: Measurements, tolerance: float, width: int, checks: int) -> None:
        self._measured, self._row = measured, measured.row
        self._tolerance, self._width, self._checks = tolerance, width, checks
        self._slack = max(tolerance, ROUNDING * abs(measured.total))
        self._image: Spans = (self._row.root.span,)
        self._found: list[SpannedRegion] = []
        self._searches: list[LeafSearch] = []
        self._open: Spans = ()
        self._begin_pass()
        self._failures: list[str] = []

    def run(self) -> Asked:
        """Find leaves until the image without them has lost the score; certify, and go on."""
        if self._measured.total > self._tolerance:
            self._searches = [self._leaf_search(self._image)]
            yield from self._find_all()
        yield from self._measured.ask((self._together, self._others))
        if not self._measured.spent:
            yield from self._measured.ask(self._draw_checks())
        if not self._measured.spent:
            self._note_failures()
            if self._failures:
                yield from self._complete()
                yield from self._play()
        yield from self._measured.ask_finally((self._together, self._others))

    def result(self) -> SearchResult:
        """Return the leaves, the games on the way to them, and the certificate."""
        found = self._worth()
        games = self._measured.games(found)
        unfinished = self._unfinished()
        certificate = Certificate(
            inferred=sum(game.inferred for game in games),
            kept=self._measured.adds(self._together),
            left=self._measured.adds(self._others),
            gap=self._measured.gap(found),
            questions=self._measured.count,
            reason=self._reason(),
        )
        leaves = (*(node.region for node in self._found), *(node.region for node in unfinished))
        left = tuple(node.region for node in unfinished)
        return SearchResult(leaves, left, games=games, certificate=certificate)

    def _find_all(self) -> Asked:
        """Find leaves until the others do not add more than the tolerance, or the budget ends."""
        while not self._measured.spent:
            yield from self._sweep()
            others = self._others
            if not others or self._measured.spent:
                return
            yield from self._measured.ask((others,))
            if self._measured.spent or not self._adds(others):
                return
            likely = area(self._open)
            if likely:
                # By the OR rule, the groups that did not add to the score have no part in this.
                others = (*self._open, *without(others, self._open))
            else:
                self._note("the image without the first findings still had its score")
                self._begin_pass()
            self._open = ()
            self._searches = [self._leaf_search(others, likely or None)]

    def _sweep(self) -> Asked:
        """Follow all strands, and ask about new groups, until the open leaves are one last group.

        They are left open: the question about all leaves but the findings is about them, too.
        """
        while True:
            groups = self._new_groups()
            wanted = [spans for search in self._searches if (spans := search.wanted)]
            if not wanted and not groups:
                return
            yield from self._measured.ask((*wanted, *groups))
            for group in groups:
                if not self._measured.knows(group):
                    self._open = join((*self._open, *group))
                elif self._adds(group):
                    self._searches.append(self._leaf_search(group))
                else:
                    self._searched += area(group)
            going = list[LeafSearch]()
            for search in self._searches:
                while search.wanted is not None and self._measured.knows(search.wanted):
                    search.advance(adds=self._adds(search.wanted))
                if search.found is None:
                    going.append(search)
                else:
                    self._keep(search, search.found)
            self._searches = going
            if self._measured.spent:
                return

    def _new_groups(self) -> list[Spans]:
        """Take groups off the open leaves; each adds to the score with even chance."""
        groups: list[Spans] = []
        room = min(self._width, max(AT_ONCE * self._hits, 1)) - len(self._searches)
        size = math.log(2) / self._rate()
        while self._open and len(groups) < room and size < LAST * area(self._open):
            left = area(self._open)
            cut = self._row.cut(self._open, size, 0, left)
            groups.append(between(self._open, 0, cut))
            self._open = between(self._open, cut, left)
        return groups

    def _keep(self, search: LeafSearch, node: SpannedRegion) -> None:
        self._searched += search.high
        self._open = join((*self._open, *search.rest))
        if inside(node.span, (one.span for one in self._found)):
            return  # a region around an earlier leaf holds it already
        self._hits += 1
        self._found = [one for one in self._found if not inside(one.span, (node.span,))]
        self._found.append(node)
        self._open = without(self._open, [node.span])

    def _leaf_search(self, spans: Spans, likely: int | None = None) -> LeafSearch:
        return LeafSearch(self._row, spans, self._rate, likely)

    def _begin_pass(self) -> None:
        self._hits, self._searched = 0, 0

    def _rate(self) -> float:
        """Return the relevant leaves that are expected in each place of the row."""
        expected = EXPECTED_AREA * area(self._image)
        return (self._hits + EXPECTED) / (self._searched + expected)

    def _complete(self) -> Asked:
        """Add leaves until all findings together keep the score, one by one.

        Each is the one with which the findings and all leaves before it keep the score.
        """
        measured = self._measured
        while self._lacks(self._together):
            context, others = self._together, self._others
            low, high = 0, area(others)
            while (cut := self._row.cut(others, (low + high) / 2, low, high)) < high:
                shown = (*context, *between(others, 0, cut))
                yield from measured.ask((shown,))
                if measured.spent:
                    return
                low, high = (cut, high) if self._lacks(shown) else (low, cut)
            leaf = self._row.path(between(others, low, high)[0][0])[-1]
            yield from measured.ask(((leaf.span,), (*context, leaf.span)))
            if measured.spent:
                return
            self._found.append(leaf)

    def _draw_checks(self) -> list[Spans]:
        """Draw some of the coalitions whose scores would be inferred."""
        if not self._checks:
            return []
        unknown = self._measured.unknown(self._worth())
        drawn = np.random.default_rng(0).permutation(len(unknown))[: self._checks]
        return [unknown[i] for i in drawn]

    def _play(self) -> Asked:
        """Play the games of all regions that hold a finding, and follow parts that matter.

        The OR rule failed in this run, so no value is left to be inferred by it.
        """
        waiting = [self._row.root]
        while waiting and not self._measured.spent:
            nodes, waiting = waiting[: self._width], waiting[self._width :]
            yield from self._measured.ask(spans for node in nodes for _, spans in coalitions(node))
            if self._measured.spent:
                return
            for node in nodes:
                waiting += self._follow(node)

    def _follow(self, node: SpannedRegion) -> list[SpannedRegion]:
        """Return the parts whose games are played next; parts that matter and end are findings."""
        if not node.parts:
            return []
        followed: list[SpannedRegion] = []
        game = self._measured.game(node, {})
        spans = [one.span for one in self._found]
        for part, phi in zip(node.parts, game.coefficients.tolist(), strict=True):
            holds = [span for span in spans if inside(span, (part.span,))]
            is_found = part.span in holds
            is_new = not holds and phi > self._tolerance and not inside(part.span, spans)
            if holds or is_new:
                if part.parts and not is_found:
                    followed.append(part)
                elif is_new:
                    self._found.append(part)
        return followed

    def _lacks(self, spans: Spans) -> bool:
        """Tell whether a coalition has not the whole score."""
        return self._measured.total - self._measured.adds(spans) > self._slack

    def _note_failures(self) -> None:
        lacking = sum(self._lacks((node.span,)) for node in self._found)
        if lacking:
            self._note(f"{lacking} of {len(self._found)} findings lacked the score alone")
        if self._lacks(self._together):
            self._note("the first findings together lacked some of the score")
        against = self._measured.contradictions(self._worth(), self._tolerance, self._slack)
        if against:
            self._note(f"{against} of {self._measured.count} answers contradict the OR rule")

    def _note(self, failure: str) -> None:
        if failure not in self._failures:
            self._failures.append(failure)

    def _reason(self) -> str:
        """Say which checks failed or were not made; nothing if all agree."""
        ends: list[str] = []
        if self._measured.adds(self._others) > self._slack:
            ends.append("the image without the findings has some of the score")
        if self._measured.spent:
            ends.append("the budget ended the search")
        return ", and ".join((*self._failures, *ends))

    @property
    def _together(self) -> Spans:
        """All findings, and the regions that a budget left unsplit."""
        unfinished = (node.span for node in self._unfinished())
        return join((*(node.span for node in self._found), *unfinished))

    @property
    def _others(self) -> Spans:
        """The image without them."""
        return without(self._image, self._together)

    def _adds(self, spans: Spans) -> bool:
        return self._measured.adds(spans) > self._tolerance

    def _unfinished(self) -> list[SpannedRegion]:
        """Return the regions that hold a relevant leaf and were not split to the end."""
        return [node for node, _ in self._unsplit()]

    def _unsplit(self) -> list[tuple[SpannedRegion, Spans]]:
        """Return unfinished regions, each with the coalition whose score speaks for it."""
        if not self._measured.spent:
            return []
        known = [node.span for node in self._found]
        return [
            (node, search.measured)
            for search in self._searches
            for node in self._row.nodes(without(search.unsplit, known))
        ]

    def _worth(self) -> dict[Span, Heat]:
        """Return the score of each finding; for an unfinished one, that of its group."""
        found = {node.span: self._measured.score((node.span,)) for node in self._found}
        return found | {node.span: self._measured.score(spans) for node, spans in self._unsplit()}


@recipe
class GroupTesting:
    """Find the relevant leaves with about as few questions as possible, and certify the answer.

    A question shows the union of some leaves. They are asked about in the order of the tree, in
    groups whose size follows the relevant leaves found so far (Hwang's generalised binary
    splitting). A group is relevant if it adds more than `tolerance` to the baseline, in units of
    the target, and more than `share` of the score that the image adds.

    Under the paper's assumption the result is that of `DepthFirst` on the same partition, with
    about two thirds of the evaluations. The games on the way to the leaves are then inferred by the
    OR rule, not played. `explanation.certificate` says what was measured: every leaf has
    the score by itself, all leaves together keep it, the image without them has lost it, and no
    answer contradicts the rule. They support the inferred values and prove them only for models
    that never score less for showing more. If a check fails, the search continues until the leaves
    keep the score and the rest has lost it, and plays all games on the way, so that no value is
    inferred.

    `checks` measures so many of the values that would be inferred, drawn at random. It finds a
    model that breaks the rule in a share `p` of them with a chance of `1 - (1 - p) ** checks`. With
    as many checks as values, all are measured.

    With `min_size="auto"`, a leaf that does not add to the score by itself is replaced by the
    smallest region around it that does. Up to `width` questions are asked at once. With
    `max_evaluations` or `max_seconds`, regions that are still unsplit at the end are leaves.

    >>> import hshap
    >>> import numpy as np
    >>> image = np.zeros((1, 64, 64))
    >>> image[0, 20, 50] = 1.0
    >>> explanation = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ...     search=GroupTesting(),
    ... ).explain(image, target=0)
    >>> explanation.leaves, explanation.certificate.word
    ((Box(start=(20, 50), stop=(21, 51)),), 'supported')
    """

    tolerance: float = 0.0
    share: float = 0.0
    max_evaluations: int | None = None
    max_seconds: float | None = None
    width: int = 64
    checks: int = 0

    def __post_init__(self) -> None:
        settle(self, tolerance=checks.number("tolerance", self.tolerance, minimum=0.0))
        settle(self, share=checks.number("share", self.share, minimum=0.0, maximum=1.0))
        settle(self, checks=checks.integer("checks", self.checks, minimum=0))
        settle(self, **checked_limits(self.max_evaluations, self.max_seconds, self.width))

    def __call__(self, root: Region, draws: int = 1) -> Asking:
        """Ask about coalitions, receive their scores and return the leaves."""
        budget = Budget(self.max_evaluations, self.max_seconds, draws)
        measured = Measurements(LeafOrder(root), budget, draws)
        yield from measured.begin()
        tolerance = max(self.tolerance, self.share * max(measured.total, 0.0))
        groups = GroupSearch(measured, tolerance, self.width, self.checks)
        yield from groups.run()
        equal_to = replace(self, tolerance=tolerance, share=0.0) if self.share else None
        return replace(groups.result(), equal_to=equal_to)
