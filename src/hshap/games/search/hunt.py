"""The hunt of a group test: groups of leaves, the leaves found in them, and their certificate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hshap.games.search.answers import coalitions
from hshap.games.search.order import Node, area, between, inside, joined, without
from hshap.games.search.protocol import Certificate, SearchResult
from hshap.games.search.strand import Strand

if TYPE_CHECKING:
    from hshap._util.types import Heat
    from hshap.games.search.answers import Answers, Asked
    from hshap.games.search.order import Span, Spans

EXPECTED = 0.5
"""Relevant leaves that are expected before any was found, in `EXPECTED_AREA` of the image."""

EXPECTED_AREA = 0.25

LAST = 0.7
"""A group of this share of all open leaves, or more, is asked about with all the others."""

AT_ONCE = 4
"""Groups that are asked about at once, for each leaf found: the first ones tell their size."""

ROUNDING = 1e-6
"""Of the score: a smaller lack of it is rounding."""


class Hunt:
    """One search: the findings so far, and the leaves about which nothing is known."""

    def __init__(self, answers: Answers, tolerance: float, width: int, checks: int) -> None:
        self._answers, self._row = answers, answers.row
        self._tolerance, self._width, self._checks = tolerance, width, checks
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
            yield from self._answers.ask(self._checked())
        if not self._answers.spent:
            self._note_failures()
            if self._failures:
                yield from self._complete()
                yield from self._play()
        yield from self._answers.ask_finally((self._together, self._others))

    def result(self) -> SearchResult:
        """Return the leaves, the games on the way to them, and the certificate."""
        found = self._worth()
        games = self._answers.games(found)
        unfinished = self._unfinished()
        certificate = Certificate(
            inferred=sum(game.inferred for game in games),
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

    def _complete(self) -> Asked:
        """Add leaves until all findings together keep the score, one by one.

        Each is the one with which the findings and all leaves before it keep the score.
        """
        answers = self._answers
        while self._lacks(self._together):
            context, others = self._together, self._others
            low, high = 0, area(others)
            while (cut := self._row.cut(others, (low + high) / 2, low, high)) < high:
                shown = (*context, *between(others, 0, cut))
                yield from answers.ask((shown,))
                if answers.spent:
                    return
                low, high = (cut, high) if self._lacks(shown) else (low, cut)
            leaf = self._row.path(between(others, low, high)[0][0])[-1]
            yield from answers.ask(((leaf.span,), (*context, leaf.span)))
            if answers.spent:
                return
            self._found.append(leaf)

    def _checked(self) -> list[Spans]:
        """Draw some of the coalitions whose scores would be inferred."""
        if not self._checks:
            return []
        unknown = self._answers.unknown(self._worth())
        drawn = np.random.default_rng(0).permutation(len(unknown))[: self._checks]
        return [unknown[i] for i in drawn]

    def _play(self) -> Asked:
        """Play the games of all regions that hold a finding, and follow parts that matter.

        The OR rule failed in this run, so no value is left to be inferred by it.
        """
        waiting = [self._row.root]
        while waiting and not self._answers.spent:
            nodes, waiting = waiting[: self._width], waiting[self._width :]
            yield from self._answers.ask(spans for node in nodes for _, spans in coalitions(node))
            if self._answers.spent:
                return
            for node in nodes:
                waiting += self._followed(node)

    def _followed(self, node: Node) -> list[Node]:
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
            if holds or is_new:
                if part.parts and not is_found:
                    followed.append(part)
                elif is_new:
                    self._found.append(part)
        return followed

    def _lacks(self, spans: Spans) -> bool:
        """Tell whether a coalition has not the whole score."""
        return self._answers.total - self._answers.adds(spans) > self._slack

    def _note_failures(self) -> None:
        lacking = sum(self._lacks((node.span,)) for node in self._found)
        if lacking:
            self._note(f"{lacking} of {len(self._found)} findings lacked the score alone")
        if self._lacks(self._together):
            self._note("the first findings together lacked some of the score")
        against = self._answers.contradictions(self._worth(), self._tolerance, self._slack)
        if against:
            self._note(f"{against} of {self._answers.count} answers contradict the OR rule")

    def _note(self, failure: str) -> None:
        if failure not in self._failures:
            self._failures.append(failure)

    def _reason(self) -> str:
        """Say which checks failed or were not made; nothing if all agree."""
        ends: list[str] = []
        if self._answers.adds(self._others) > self._slack:
            ends.append("the image without the findings has some of the score")
        if self._answers.spent:
            ends.append("the budget ended the search")
        return ", and ".join((*self._failures, *ends))

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
