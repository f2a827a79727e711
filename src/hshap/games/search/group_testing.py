"""Group testing: as few questions as the number of possible answers allows, and a certificate."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.games.search.answers import Answers
from hshap.games.search.budget import Budget, checked_limits
from hshap.games.search.order import Node, Row, area, between, inside, joined, without
from hshap.games.search.protocol import Certificate, SearchResult
from hshap.games.search.strand import Strand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat
    from hshap.games.game import Game
    from hshap.games.search.answers import Asked
    from hshap.games.search.order import Span, Spans
    from hshap.games.search.protocol import Asking
    from hshap.partitions.protocol import Region

EXPECTED = 0.5
"""Relevant leaves that are expected before any was found, in `EXPECTED_AREA` of the image."""

EXPECTED_AREA = 0.25

LAST = 0.7
"""A group of this share of all open leaves, or more, is asked about with all the others."""

AT_ONCE = 4
"""Groups that are asked about at once, for each leaf found: the first ones tell their size."""

ROUNDING = 1e-6
"""Of the score: a smaller lack of it is rounding."""


@recipe
class GroupTesting:
    """Find the relevant leaves with about as few questions as possible, and certify the answer.

    A question shows the union of some leaves. They are asked about in the order of the tree, in
    groups whose size follows the relevant leaves found so far (Hwang's generalised binary
    splitting). A group is relevant if it adds more than `tolerance` to the baseline, in units of
    the target, and more than `share` of the score that the image adds.

    Under the paper's assumption the result is that of `DepthFirst` on the same partition, with
    about half of the evaluations. The games on the way to the leaves are then inferred, not played.
    `explanation.certificate` says whether measurements confirm it: every leaf has the score by
    itself, all leaves together keep it, and the image without them has lost it. If one of these
    fails, the search goes on until the image without the leaves has lost the score, and plays the
    games of all regions that hold a leaf without the score by itself. `explanation.concerns` then
    says so.

    With `min_size="auto"`, a leaf that does not add to the score by itself is replaced by the
    smallest region around it that does. Up to `width` questions are asked at once. With
    `max_evaluations` or `max_seconds`, regions that are still unsplit at the end are leaves.

    >>> import hshap
    >>> image = np.zeros((1, 64, 64))
    >>> image[0, 20, 50] = 1.0
    >>> explanation = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ...     search=GroupTesting(),
    ... ).explain(image, target=0)
    >>> explanation.leaves, explanation.certificate.held
    ((Box(start=(20, 50), stop=(21, 51)),), True)
    """

    tolerance: float = 0.0
    share: float = 0.0
    max_evaluations: int | None = None
    max_seconds: float | None = None
    width: int = 64

    def __post_init__(self) -> None:
        settle(self, tolerance=checks.number("tolerance", self.tolerance, minimum=0.0))
        settle(self, share=checks.number("share", self.share, minimum=0.0, maximum=1.0))
        settle(self, **checked_limits(self.max_evaluations, self.max_seconds, self.width))

    def __call__(self, root: Region, draws: int = 1) -> Asking:
        """Ask about coalitions, receive their scores and return the leaves."""
        budget = Budget(self.max_evaluations, self.max_seconds, draws)
        answers = Answers(Row(root), budget, draws)
        yield from answers.begin()
        tolerance = max(self.tolerance, self.share * max(answers.total, 0.0))
        hunt = _Hunt(answers, tolerance, self.width)
        yield from hunt.run()
        equal_to = replace(self, tolerance=tolerance, share=0.0) if self.share else None
        return replace(hunt.result(), equal_to=equal_to)


class _Hunt:
    """One search: the findings so far, and the leaves about which nothing is known."""

    def __init__(self, answers: Answers, tolerance: float, width: int) -> None:
        self._answers, self._row = answers, answers.row
        self._tolerance, self._width = tolerance, width
        self._slack = max(tolerance, ROUNDING * abs(answers.total))
        self._image: Spans = (self._row.root.span,)
        self._found: list[Node] = []
        self._strands: list[Strand] = []
        self._open: Spans = ()
        self._begin_pass()
        self._failures: list[str] = []

    def run(self) -> Asked:
        """Find leaves until the image without them has lost the score; certify, and go on."""
        if self._answers.total > self._tolerance:
            self._strands = [self._strand(self._image)]
            yield from self._find_all()
        yield from self._answers.ask((self._together, self._others))
        if not self._answers.spent:
            self._note_failures()
            if self._failures:
                yield from self._play()
        yield from self._answers.ask_finally((self._together, self._others))

    def result(self) -> SearchResult:
        """Return the leaves, the games on the way to them, and the certificate."""
        found = self._worth()
        games = self._answers.games(found)
        unfinished = self._unfinished()
        certificate = Certificate(
            held=not self._reason(),
            kept=self._answers.adds(self._together),
            left=self._answers.adds(self._others),
            gap=self._answers.gap(found),
            questions=self._answers.count,
            reason=self._reason(),
        )
        leaves = (*(node.region for node in self._found), *(node.region for node in unfinished))
        left = tuple(node.region for node in unfinished)
        return SearchResult(leaves, left, games=games, certificate=certificate)

    def _find_all(self) -> Asked:
        """Find leaves until the others do not add more than the tolerance, or the budget ends."""
        while not self._answers.spent:
            yield from self._sweep()
            others = self._others
            if not others or self._answers.spent:
                return
            yield from self._answers.ask((others,))
            if self._answers.spent or not self._adds(others):
                return
            likely = area(self._open)
            if likely:
                # By the OR rule, the groups that did not add to the score have no part in this.
                others = (*self._open, *without(others, self._open))
            else:
                self._note("the image without the first findings still had its score")
                self._begin_pass()
            self._open = ()
            self._strands = [self._strand(others, likely or None)]

    def _sweep(self) -> Asked:
        """Follow all strands, and ask about new groups, until the open leaves are one last group.

        They are left open: the question about all leaves but the findings is about them, too.
        """
        while True:
            groups = self._new_groups()
            wanted = [spans for strand in self._strands if (spans := strand.wanted)]
            if not wanted and not groups:
                return
            yield from self._answers.ask((*wanted, *groups))
            for group in groups:
                if not self._answers.knows(group):
                    self._open = joined((*self._open, *group))
                elif self._adds(group):
                    self._strands.append(self._strand(group))
                else:
                    self._searched += area(group)
            going = list[Strand]()
            for strand in self._strands:
                while strand.wanted is not None and self._answers.knows(strand.wanted):
                    strand.advance(adds=self._adds(strand.wanted))
                if strand.found is None:
                    going.append(strand)
                else:
                    self._keep(strand, strand.found)
            self._strands = going
            if self._answers.spent:
                return

    def _new_groups(self) -> list[Spans]:
        """Take groups off the open leaves; each adds to the score with even chance."""
        groups: list[Spans] = []
        room = min(self._width, max(AT_ONCE * self._hits, 1)) - len(self._strands)
        size = math.log(2) / self._rate()
        while self._open and len(groups) < room and size < LAST * area(self._open):
            left = area(self._open)
            cut = self._row.cut(self._open, size, 0, left)
            groups.append(between(self._open, 0, cut))
            self._open = between(self._open, cut, left)
        return groups

    def _keep(self, strand: Strand, node: Node) -> None:
        self._searched += strand.high
        self._open = joined((*self._open, *strand.rest))
        if inside(node.span, (one.span for one in self._found)):
            return  # a region around an earlier leaf holds it already
        self._hits += 1
        self._found = [one for one in self._found if not inside(one.span, (node.span,))]
        self._found.append(node)
        self._open = without(self._open, [node.span])

    def _strand(self, spans: Spans, likely: int | None = None) -> Strand:
        return Strand(self._row, spans, self._rate, likely)

    def _begin_pass(self) -> None:
        self._hits, self._searched = 0, 0

    def _rate(self) -> float:
        """Return the relevant leaves that are expected in each place of the row."""
        expected = EXPECTED_AREA * area(self._image)
        return (self._hits + EXPECTED) / (self._searched + expected)

    def _play(self) -> Asked:
        """Play the games of regions that hold a leaf without the score, and follow their parts."""
        unsettled = [node.span for node in self._found if not self._is_settled(node)]
        waiting = [self._row.root]
        while waiting and not self._answers.spent:
            nodes, waiting = waiting[: self._width], waiting[self._width :]
            yield from self._answers.ask(spans for node in nodes for spans in _coalitions(node))
            if self._answers.spent:
                return
            for node in nodes:
                waiting += self._followed(node, unsettled)

    def _followed(self, node: Node, unsettled: Sequence[Span]) -> list[Node]:
        """Return the parts whose games are played next; parts that matter and end are findings."""
        if not node.parts:
            return []
        followed: list[Node] = []
        game = self._answers.game(node, {})
        spans = [one.span for one in self._found]
        for part, phi in zip(node.parts, game.coefficients.tolist(), strict=True):
            holds = [span for span in spans if inside(span, (part.span,))]
            is_found = part.span in holds
            is_new = not holds and phi > self._tolerance and not inside(part.span, spans)
            if any(span in unsettled for span in holds) or is_new:
                if part.parts and not is_found:
                    followed.append(part)
                elif is_new:
                    self._found.append(part)
        return followed

    def _is_settled(self, node: Node) -> bool:
        """Tell whether a leaf has the score by itself, in a run where all of them keep it."""
        lacks = self._answers.total - self._answers.adds(self._together)
        own = self._answers.total - self._answers.adds((node.span,))
        return max(lacks, own) <= self._slack

    def _note_failures(self) -> None:
        answers, total = self._answers, self._answers.total
        lacking = [
            node for node in self._found if total - answers.adds((node.span,)) > self._slack
        ]
        if lacking:
            of = f"{len(lacking)} of {len(self._found)} findings"
            self._note(f"{of} {_lack(len(lacking))} the score alone")
        if total - answers.adds(self._together) > self._slack:
            self._note("the findings together lack some of the score")
        if answers.adds(self._others) > self._slack:
            self._note("the image without the findings still has some of the score")

    def _note(self, failure: str) -> None:
        if failure not in self._failures:
            self._failures.append(failure)

    def _reason(self) -> str:
        spent = ["the budget ended the search"] if self._answers.spent else []
        return ", and ".join((*self._failures, *spent))

    @property
    def _together(self) -> Spans:
        """All findings, and the regions that a budget left unsplit."""
        unfinished = (node.span for node in self._unfinished())
        return joined((*(node.span for node in self._found), *unfinished))

    @property
    def _others(self) -> Spans:
        """The image without them."""
        return without(self._image, self._together)

    def _adds(self, spans: Spans) -> bool:
        return self._answers.adds(spans) > self._tolerance

    def _unfinished(self) -> list[Node]:
        """Return the regions that hold a relevant leaf and were not split to the end."""
        return [node for node, _ in self._unsplit()]

    def _unsplit(self) -> list[tuple[Node, Spans]]:
        """Return unfinished regions, each with the coalition whose score speaks for it."""
        if not self._answers.spent:
            return []
        known = [node.span for node in self._found]
        return [
            (node, strand.measured)
            for strand in self._strands
            for node in self._row.nodes(without(strand.unsplit, known))
        ]

    def _worth(self) -> dict[Span, Heat]:
        """Return the score of each finding; for an unfinished one, that of its group."""
        found = {node.span: self._answers.score((node.span,)) for node in self._found}
        return found | {node.span: self._answers.score(spans) for node, spans in self._unsplit()}


def _coalitions(node: Node) -> list[Spans]:
    """Return the coalitions of a region's game."""
    parts = [part.span for part in node.parts]
    return [
        joined(part for i, part in enumerate(parts) if coalition >> i & 1)
        for coalition in range(1, 2 ** len(parts))
    ]


def _lack(count: int) -> str:
    return "does not have" if count == 1 else "do not have"
