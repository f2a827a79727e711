"""Best first: games in several contexts, and the region with the largest share is split next."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError
from hshap.games.contexts import ALONE, MISSING, Sides, context_count, siblings_shown
from hshap.games.game import InContext, subsets_of
from hshap.games.search.frontier import Budget, first, first_game, is_end
from hshap.games.search.paper import kept_above
from hshap.games.search.protocol import Question, SearchResult
from hshap.games.tree import ratios

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hshap._util.types import Heat
    from hshap.games.game import Game
    from hshap.games.search.protocol import Asking
    from hshap.partitions.protocol import Coalition, Region

    Asked = Generator[Sequence[Region | Question], Sequence[Game | Heat], None]
    Adding = Generator[Sequence[Region | Question], Sequence[Game | Heat], int]
    Checking = Generator[Sequence[Region | Question], Sequence[Game | Heat], bool]

MOST_EVALUATIONS = 200
"""The default budget; `docs/theory.md` shows how little the answer changes beyond it."""

CLEAR = 0.05
"""The model is taken for a detector if each score is this close to none or all of the image's."""

WORTH = 0.1
"""A context counts if a region changes the score in it by this share of the largest such change."""

HALF = 0.5
"""Between none and all: a clear score is far from it."""

TOGETHER = 4
"""Regions that are split at once, at most: their coalitions share a batch."""


@recipe
class BestFirst:
    """Play every game in several contexts, and split the region with the largest share next.

    A context is what else of the image is shown while the parts of a region play. In the paper's
    game nothing else is: it says what *suffices* alone. With everything else shown, the same game
    says what *cannot be missing*. Further contexts show random halves of the rest, in complementary
    pairs. All are exact Shapley games of the same few parts. A region's share of the score is
    divided among its parts in proportion to the sums of their coefficients over all contexts, so a
    context in which the region changes nothing does not count.

    The first games show whether the model is a detector: a part of the image has the whole score or
    none of it. If so, no other context is played, and the answer is that of `DepthFirst`. Else
    contexts are added as evaluations are spent: a first pair (alone, missing) from the start, a
    second from 50 evaluations on, a third from 200 on. `contexts` is a fixed even number of them
    instead, or 1 for the paper's alone; both leave out the check for a detector.

    The search ends with its budget, or where no region that could be split has a share. A larger
    budget begins with the same steps, so an answer is refined and never replaced. `seed` draws the
    halves.

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch[:, 0, 0, 0] * batch[:, 0, 7, 7],  # two places are needed at once
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ...     search=BestFirst(max_evaluations=60),
    ... )
    >>> heat = explainer.explain(np.ones((1, 8, 8)), target=0).attribution(smooth=0)
    >>> float(heat[0, 0]), float(heat[7, 7]), float(heat.sum())
    (0.5, 0.5, 1.0)
    """

    max_evaluations: int = MOST_EVALUATIONS
    contexts: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        most = checks.integer("max_evaluations", self.max_evaluations, minimum=1)
        settle(self, max_evaluations=most, seed=checks.integer("seed", self.seed, minimum=0))
        if self.contexts is not None:
            count = checks.integer("contexts", self.contexts, minimum=1)
            if count > 1 and count % 2:
                message = f"contexts is {count}; pass 1, or an even number: they come in pairs"
                raise ArgumentError(message)
            settle(self, contexts=count)

    def __call__(self, root: Region, draws: int = 1) -> Asking:
        """Ask for games and for scores in other contexts; return the regions that are left."""
        least = first_game(draws, len(root.split()))
        if self.max_evaluations < least:
            message = (
                f"max_evaluations={self.max_evaluations} is less than the {least} that the first "
                f"game takes; pass {least} or more"
            )
            raise ArgumentError(message)
        games: dict[Region, Game] = {}
        budget = Budget(self.max_evaluations, None, draws, known=games)
        if self.contexts is None and (yield from _descend(root, games, budget)):
            tolerance = CLEAR * games[root].total / max(len(root.split()), 1)
            kept = kept_above(tolerance, root, draws, games, budget)
            return (yield from cast("Asking", kept))
        forest = _Forest(root, draws, self, games)
        yield from forest.grow()
        return forest.result()


def _descend(root: Region, games: dict[Region, Game], budget: Budget) -> Checking:
    """Play the games on the way to the part that scores most alone; tell whether all are clear.

    They are as long as every score is none or all of the image's, and a detector's way ends in a
    leaf that has the whole score alone.
    """
    region, alone = root, 1.0
    while budget.spend([first(region)], 1):
        (games[region],) = cast("Sequence[Game]", (yield [region]))
        game, total = games[region], games[root].total
        if total <= 0 or not _is_clear((game.values - games[root].values[0]) / total):
            return False
        best = int(np.argmax(game.alone))
        if is_end(game, adaptive=root.adaptive):
            return region is not root and alone > HALF
        region, alone = game.children[best], float(game.alone[best]) / total
        if region is root or not region.split():
            return alone > HALF
    return False


def _is_clear(scores: Heat) -> bool:
    return bool(np.minimum(np.abs(scores), np.abs(scores - 1)).max() <= CLEAR)


@dataclass(eq=False)
class _Node:
    """A region of the forest, its share of the score, and its sides in each context."""

    region: Region
    number: int
    share: float
    sides: dict[int, Sides] = field(default_factory=dict[int, Sides])
    shown: dict[int, int] = field(default_factory=dict[int, int])
    """The siblings that each context shows."""
    parts: tuple[_Node, ...] = ()
    played: dict[int, InContext] = field(default_factory=dict[int, InContext])

    @property
    def priority(self) -> float:
        """A large share on a large area says least about where the evidence is."""
        return abs(self.share) * self.region.area**0.5

    def __lt__(self, other: _Node) -> bool:
        return (-self.priority, self.number) < (-other.priority, other.number)


class _Forest:
    """The regions that were split so far, in their order, and those that wait."""

    def __init__(
        self, root: Region, draws: int, recipe_: BestFirst, games: dict[Region, Game]
    ) -> None:
        self._recipe, self._draws = recipe_, draws
        self._games = games
        self._spent = 1 + draws + sum(self._cost(one) for one in games)
        self._root = _Node(root, 0, 0.0)
        self._nodes = 1
        self._split: list[_Node] = []
        self._waiting = [self._root]
        self._ends: list[Region] = []
        self._silent: list[_Node] = []  # they change the score in no context so far

    def grow(self) -> Asked:
        """Split regions until the evaluations are spent, in more and more contexts."""
        count = self._count()
        while nodes := self._next(count):
            for node in nodes:
                self._divide(node)
            yield from self._play(nodes, count)
            self._split += nodes
            for node in nodes:
                self._share_out(node)
                for part in node.parts:
                    heapq.heappush(self._waiting, part)
            if self._count() > count:
                count = yield from self._add_contexts(count, self._count())

    def result(self) -> SearchResult:
        """Return the regions that are left, and every game with its contexts."""
        games = tuple(self._game(node) for node in self._split)
        waiting = [node.region for node in sorted([*self._waiting, *self._silent])]
        unsplit = tuple(region for region in waiting if region.split())
        return SearchResult((*self._ends, *waiting), unsplit, games=games)

    def _count(self) -> int:
        fixed = self._recipe.contexts
        return context_count(self._spent) if fixed is None else fixed

    def _next(self, count: int) -> list[_Node]:
        """Take the regions to split next off the heap, as far as the evaluations allow."""
        nodes: list[_Node] = []
        left = self._recipe.max_evaluations - self._spent
        while self._waiting and len(nodes) < TOGETHER:
            first = self._waiting[0]
            if not first.region.split() and first is not self._root:
                self._ends.append(heapq.heappop(self._waiting).region)
                continue
            if first is not self._root and not self._changes_score(first, count):
                self._silent.append(heapq.heappop(self._waiting))
                continue
            cost = self._cost(first.region) * self._contexts_of(first, count)
            if cost > left or (not first.share and first is not self._root):
                break
            left -= cost
            nodes.append(heapq.heappop(self._waiting))
        return nodes

    def _contexts_of(self, node: _Node, count: int) -> int:
        """Count the contexts in which a region's game is to be asked for."""
        return (node.region not in self._games) + len(self._asked_in(node, count))

    def _asked_in(self, node: _Node, count: int) -> set[Coalition]:
        """Return what contexts show around a region, where that was not shown around it before."""
        known = {node.sides[number].hidden for number in node.played}
        new = {node.sides[number].hidden for number in self._new_contexts(node, count)}
        return new - known - {()}  # with nothing around it, the game is that of alone

    def _changes_score(self, node: _Node, count: int) -> bool:
        """Tell whether a region changes the score in any context: else games cannot divide it."""
        return any(s.high != s.low for number, s in node.sides.items() if number < count)

    def _new_contexts(self, node: _Node, count: int) -> list[int]:
        """Return the contexts in which to play a region's game: those in which it matters."""
        worth = {n: abs(s.high - s.low) for n, s in node.sides.items() if n < count}
        least = WORTH * max(worth.values(), default=0.0)
        return [n for n in sorted(worth) if n and n not in node.played and worth[n] > least]

    def _cost(self, region: Region) -> int:
        """Count the evaluations of a game in one context."""
        return self._draws * max(2 ** len(region.split()) - 2, 0)

    def _divide(self, node: _Node) -> None:
        regions = node.region.split()
        node.parts = tuple(_Node(part, self._nodes + i, 0.0) for i, part in enumerate(regions))
        self._nodes += len(regions)

    def _play(self, nodes: Sequence[_Node], count: int) -> Asked:
        """Play the games of regions in all contexts in which they are not known yet."""
        alone = [node.region for node in nodes if node.region not in self._games]
        others = [(node, around) for node in nodes for around in self._asked_in(node, count)]
        questions = [self._questions(node, around) for node, around in others]
        asked = [*alone, *(question for some in questions for question in some)]
        answers = iter((yield asked) if asked else ())
        for region in alone:
            self._games[region] = cast("Game", next(answers))
            self._spent += self._cost(region)
        found: dict[tuple[int, Coalition], list[float]] = {}
        for (node, around), some in zip(others, questions, strict=True):
            inner = [float(np.mean(cast("Heat", next(answers)))) for _ in some]
            found[node.number, around] = inner
            self._spent += self._cost(node.region)
        for node in nodes:
            for number in self._new_contexts(node, count):
                side = node.sides[number]
                inner = found.get((node.number, side.hidden)) or self._known(node, side.hidden)
                values = np.array([side.low, *inner, side.high])
                node.played[number] = InContext(number, node.shown[number], values)
        for node in nodes:
            self._hand_down(node, count)

    def _known(self, node: _Node, around: Coalition) -> list[float]:
        """Return the scores of a region's parts in a context that was played before."""
        if not around:
            return self._games[node.region].values[1:-1].tolist()
        same = (number for number in node.played if node.sides[number].hidden == around)
        return node.played[next(same)].values[1:-1].tolist()

    @staticmethod
    def _questions(node: _Node, around: Coalition) -> list[Question]:
        _, *proper, _ = subsets_of([part.region for part in node.parts], node.region)
        return [Question(around + some) for some in proper]

    def _hand_down(self, node: _Node, count: int) -> None:
        """Give the parts of a region their sides in the contexts that were played."""
        game = self._games[node.region]
        regions = [part.region for part in node.parts]
        for number in range(1, count):
            if node is self._root:
                side, values = Sides((), (node.region,), 0.0, 0.0), game.values
            elif number in node.played:
                side, values = node.sides[number], node.played[number].values
            else:
                continue
            every = len(values) - 1
            seed = (self._recipe.seed, node.number)
            for i, bits in enumerate(siblings_shown(number, len(regions), seed)):
                part = node.parts[i]
                if number in part.sides:
                    continue
                both = bits | 1 << i
                hidden = side.hidden + _members(regions, bits)
                shown = side.shown if both == every else side.hidden + _members(regions, both)
                low, high = float(values[bits]), float(values[both])
                part.sides[number], part.shown[number] = Sides(hidden, shown, low, high), bits
        for i, part in enumerate(node.parts):  # alone
            low, high = float(game.values[0]), float(game.values[1 << i])
            part.sides[0] = Sides((), (part.region,), low, high)

    def _game(self, node: _Node) -> Game:
        game = self._games[node.region]
        if node is self._root:  # all contexts are one: nothing lies outside of the image
            return replace(game, contexts=(InContext(MISSING, 0, game.values),))
        contexts = tuple(node.played[number] for number in sorted(node.played))
        return replace(game, contexts=contexts or (InContext(ALONE, 0, game.values),))

    def _share_out(self, node: _Node) -> None:
        game = self._game(node)
        share = game.total if node is self._root else node.share
        for part, ratio in zip(node.parts, ratios([game])[0] or (), strict=False):
            part.share = share * ratio

    def _add_contexts(self, before: int, after: int) -> Adding:
        """Play all games so far in more contexts, larger regions first, if the budget has room.

        Return the number of contexts from now on.
        """
        cost = sum(self._cost(node.region) for node in self._split[1:]) * (after - before)
        if cost > self._recipe.max_evaluations - self._spent:
            return before
        self._hand_down(self._root, after)
        wave = [self._root]
        while wave := [part for node in wave for part in node.parts if part.parts]:
            yield from self._play(wave, after)
        for node in self._split:
            self._share_out(node)
        self._waiting += self._silent
        self._silent = []
        heapq.heapify(self._waiting)
        return after


def _members(regions: Sequence[Region], bits: int) -> tuple[Region, ...]:
    return tuple(region for i, region in enumerate(regions) if bits >> i & 1)
