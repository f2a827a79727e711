"""Measurements: the scores of coalitions that a group test asked about, and what follows from them.

Coalitions are spans of the row of leaves; see `leaf_order`. A score that was not measured follows
from the findings by the OR rule: a coalition scores as the best finding that it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.games.game import game_of, players_of
from hshap.games.search.group_testing.leaf_order import SpannedRegion, inside, join
from hshap.games.search.protocol import Question

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence

    from hshap._util.types import Heat
    from hshap.games.game import Game
    from hshap.games.search.frontier import Budget
    from hshap.games.search.group_testing.leaf_order import LeafOrder, Span, Spans
    from hshap.partitions.protocol import Region

    Asked = Generator[Sequence[Region | Question], Sequence[Game | Heat], None]


class Measurements:
    """All scores that were measured so far, by the spans of their coalitions."""

    def __init__(self, row: LeafOrder, budget: Budget, draws: int) -> None:
        self.row, self._budget, self._draws = row, budget, draws
        self._scores: dict[Spans, Heat] = {}
        self.spent = False

    @property
    def total(self) -> float:
        """Score that the whole image adds to the bare baseline."""
        return self.adds((self.row.root.span,))

    @property
    def count(self) -> int:
        """Coalitions that were asked about."""
        return len(self._scores)

    @property
    def reserve(self) -> int:
        """Evaluations that are kept for the certificate: its two questions."""
        return 2 * self._draws

    def begin(self) -> Asked:
        """Ask about the bare baseline and the whole image."""
        self._budget.begin(1 + self._draws, least=1 + self._draws + self.reserve)
        yield from self._send([(), (self.row.root.span,)])

    def ask(self, wanted: Iterable[Spans]) -> Asked:
        """Ask about the coalitions that are not known, as far as the budget allows."""
        new = [spans for spans in dict.fromkeys(map(join, wanted)) if spans not in self._scores]
        fit = self._budget.take(len(new), cost=self._draws, reserve=self.reserve)
        self.spent |= fit < len(new)
        yield from self._send(new[:fit])

    def ask_finally(self, wanted: Iterable[Spans]) -> Asked:
        """Ask about at most two coalitions, from the reserve."""
        new = dict.fromkeys(map(join, wanted))
        yield from self._send([spans for spans in new if spans not in self._scores])

    def _send(self, new: Sequence[Spans]) -> Asked:
        if new:
            answers = yield [Question(self.row.cover(spans)) for spans in new]
            self._scores |= {
                spans: np.array(answer, dtype=np.float64)
                for spans, answer in zip(new, answers, strict=True)
            }

    def knows(self, spans: Spans) -> bool:
        """Tell whether the score of a coalition was measured."""
        return join(spans) in self._scores

    def score(self, spans: Spans) -> Heat:
        """Return the measured score of a coalition, for each draw."""
        return self._scores[join(spans)]

    def adds(self, spans: Spans) -> float:
        """Return the measured score that a coalition adds to the bare baseline."""
        return float(self.score(spans).mean() - self._scores[()].mean())

    def contradictions(self, found: Mapping[Span, Heat], tolerance: float, slack: float) -> int:
        """Count the answers that the OR rule excludes.

        A coalition scores as the best finding that it holds, up to `slack`, and adds more than the
        tolerance if and only if it holds one. A score below the baseline or below that of a finding
        in the coalition contradicts the rule as much as one above.
        """
        base, count = self._scores[()].mean(), 0
        for spans, score in self._scores.items():
            held = [heat.mean() for span, heat in found.items() if inside(span, spans)]
            is_near = abs(score.mean() - max(held, default=base)) <= slack
            count += not is_near or (self.adds(spans) > tolerance) != bool(held)
        return count

    def gap(self, found: Mapping[Span, Heat]) -> float:
        """Return the mean distance of all answers from the OR rule, weighted by their scores."""
        base = self._scores[()].mean()
        pairs = [
            (score.mean() - base, max((heat.mean() - base for heat in best), default=0.0))
            for spans, score in self._scores.items()
            if spans and not (len(spans) == 1 and spans[0] in found)
            for best in [[heat for span, heat in found.items() if inside(span, spans)]]
        ]
        changes = np.array(pairs).reshape(-1, 2)
        weights = np.abs(changes).max(axis=1, initial=0.0)
        if not weights.any():
            return 0.0
        gaps = np.abs(changes[:, 0] - changes[:, 1]) / weights.max()
        return min(float(np.average(gaps, weights=weights)), 1.0)

    def game(self, node: SpannedRegion, found: Mapping[Span, Heat]) -> Game:
        """Return the game of a region; values that were not measured follow by the OR rule."""
        players = players_of(node.region)
        parts = node.parts or (node,)
        best = [self._best(part.span, found) for part in parts]
        values: list[Heat] = []
        inferred = False
        for chosen, spans in coalitions(node):
            if spans in self._scores:
                values.append(self._scores[spans])
                continue
            inferred = True
            heats = [heat for i in chosen if (heat := best[i]) is not None]
            values.append(max(heats, key=np.mean, default=self._scores[()]))
        return game_of(node.region, players, np.array(values).T, inferred=inferred)

    def _best(self, span: Span, found: Mapping[Span, Heat]) -> Heat | None:
        heats = [heat for one, heat in found.items() if inside(one, (span,))]
        return max(heats, key=np.mean, default=None)

    def games(self, found: Mapping[Span, Heat]) -> tuple[Game, ...]:
        """Return the games of all regions that hold a finding and are none, parents first."""
        return tuple(self.game(node, own) for node, own in self._above(found))

    def unknown(self, found: Mapping[Span, Heat]) -> list[Spans]:
        """Return the coalitions of these games whose scores were not measured."""
        every = (spans for node, _ in self._above(found) for _, spans in coalitions(node))
        return [spans for spans in dict.fromkeys(every) if spans not in self._scores]

    def _above(
        self, found: Mapping[Span, Heat]
    ) -> Iterator[tuple[SpannedRegion, Mapping[Span, Heat]]]:
        """Yield the regions that hold a finding and are none, each with its own, parents first."""
        waiting = [self.row.root]
        while waiting:
            node = waiting.pop(0)
            own = {span: heat for span, heat in found.items() if inside(span, (node.span,))}
            yield node, own
            waiting += [
                part
                for part in node.parts
                if part.span not in own and any(inside(span, (part.span,)) for span in own)
            ]


def coalitions(node: SpannedRegion) -> Iterator[tuple[list[int], Spans]]:
    """Yield the players and the spans of each coalition of a region's game, in its order.

    A region with too many parts is refused.
    """
    players = players_of(node.region)
    parts = node.parts or (node,)
    for coalition in range(2 ** len(players)):
        chosen = [i for i in range(len(players)) if coalition >> i & 1]
        yield chosen, join(parts[i].span for i in chosen)
