"""Searches: recipes that decide which games to play and which regions matter.

A search is a generator: it asks for the games of some regions, is sent those games, and returns
what it found. It never sees an image or a model, so any driver can run it: the engine with a model,
`Explanation.at` with games played before.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap import checks
from hshap.errors import ArgumentError
from hshap.recipes import recipe
from hshap.regions import is_adaptive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap.regions import Region


@dataclass(frozen=True, eq=False, slots=True)
class Game:
    """A region's game: its parts are the players.

    `values[c]` is the mean score with the parts in `c` shown (part `i` if bit `i` is set) and the
    baseline elsewhere; `coefficients` are the parts' Shapley values, `errors` their standard errors
    over the draws of a random baseline, 0 for a fixed one.

    >>> import hshap
    >>> left, right = hshap.Box((0,), (2,)), hshap.Box((2,), (4,))
    >>> values = np.array([0.0, 1.0, 1.0, 1.0])  # none, left, right, both
    >>> whole = hshap.Box((0,), (4,))
    >>> game = Game(whole, (left, right), values, hshap.shapley(values), np.zeros(2))
    >>> game.total, game.alone
    (1.0, array([1., 1.]))
    """

    region: Region
    children: tuple[Region, ...]
    values: NDArray[np.float64]
    coefficients: NDArray[np.float64]
    errors: NDArray[np.float64]

    @property
    def total(self) -> float:
        """What the whole region adds to the bare baseline."""
        return float(self.values[-1] - self.values[0])

    @property
    def alone(self) -> NDArray[np.float64]:
        """What each part adds to the bare baseline by itself."""
        return self.values[1 << np.arange(len(self.children))] - self.values[0]


@dataclass(frozen=True)
class Found:
    """What a search returns: its leaves, and those among them that it had no budget to split.

    >>> import hshap
    >>> leaf = hshap.Box((0, 0), (2, 2))
    >>> Found(leaves=(leaf,)).unfinished
    ()
    """

    leaves: tuple[Region, ...]
    unfinished: tuple[Region, ...] = ()


ENOUGH = 0.3
"""A part is enough if it adds this share of what its whole region adds; see `min_size="auto"`."""

LARGE = 4
"""Of regions that size themselves, those with more than this many median areas are split on."""

CLOSE = 0.5
"""Under a budget, regions at least this share as urgent as the first go with it."""

Steps = Generator[list["Region"], Sequence[Game], Found]
Search = Callable[["Region", int], Steps]
"""Takes the root region and the number of draws that each value costs; asks for `[root]` first."""


@recipe
class DepthFirst:
    """Keep parts whose coefficient is above an absolute tolerance (paper, algorithm 1).

    Without a budget the order of visits cannot change the outcome, so up to `width` regions go at
    once. With one, regions with a large share of the score on a large area go first, those about as
    urgent together, and what is not yet split when the budget ends stays as it is. `keep_whole`
    keeps a relevant region none of whose parts is relevant alone, which the paper drops. Regions of
    a partition with `min_size="auto"` are leaves where no part is enough alone, that is, adds 30 %
    of what the region adds. When all are found, those of more than four times their median area,
    which a cut through a thing left large, are split on, down to that size.

    >>> DepthFirst(tolerance=0.05, max_evaluations=500).tolerance
    0.05
    """

    tolerance: float = 0.0
    keep_whole: bool = False
    max_evaluations: int | None = None
    max_seconds: float | None = None
    width: int = 64

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "tolerance", checks.number("tolerance", self.tolerance, minimum=0.0)
        )
        _check_budget(self)

    def __call__(self, root: Region, draws: int = 1) -> Steps:
        """Ask for games, receive them and return what matters."""
        budget = _Budget(self.max_evaluations, self.max_seconds, draws)
        leaves, order = _Leaves(self.tolerance), count()
        frontier = [_entry(root, math.inf, 1.0, -1)]
        while True:
            while asked := budget.spend(frontier, self.width):
                games = yield [entry.region for entry in asked]
                for played in zip(asked, games, strict=True):
                    self._go_on(*played, frontier, leaves, order)
            large = leaves.give_up_large(entry.region for entry in frontier)
            for played in large:
                self._go_on(*played, frontier, leaves, order)
            if not large:
                break
        unfinished = tuple(entry.region for entry in sorted(frontier))
        return Found((*leaves.regions, *unfinished), unfinished)

    def _go_on(
        self, entry: _Entry, game: Game, frontier: list[_Entry], leaves: _Leaves, order: count[int]
    ) -> None:
        """Put a region's relevant parts, or itself if it ends here, where they belong."""
        matters = _own(entry, game) > self.tolerance
        if matters and leaves.ends(entry, game):
            return
        relevant = [part for part in _parts(entry, game, order) if part.phi > self.tolerance]
        for part in relevant:
            if part.region.split():
                heapq.heappush(frontier, part)
            else:
                leaves.add(part.region)
        if self.keep_whole and matters and not relevant:
            leaves.add(game.region)


@recipe
class BreadthFirst:
    """Keep parts at or above a percentile of all coefficients of their level (algorithm 2).

    A part must also be above 0. A budget and `keep_whole` work as in `DepthFirst`.

    >>> BreadthFirst(percentile=70).percentile
    70.0
    """

    percentile: float = 70.0
    keep_whole: bool = False
    max_evaluations: int | None = None
    max_seconds: float | None = None
    width: int = 64

    def __post_init__(self) -> None:
        percentile = checks.number("percentile", self.percentile, minimum=0.0, maximum=100.0)
        object.__setattr__(self, "percentile", percentile)
        _check_budget(self)

    def __call__(self, root: Region, draws: int = 1) -> Steps:
        """Ask for games level by level, receive them and return what matters."""
        budget = _Budget(self.max_evaluations, self.max_seconds, draws)
        leaves = _Leaves(0.0)
        unfinished: list[Region] = []
        level = [_entry(root, math.inf, 1.0, -1)]
        while level:
            played: list[tuple[_Entry, Game]] = []
            while asked := budget.spend(level, self.width):
                games = yield [entry.region for entry in asked]
                played += zip(asked, games, strict=True)
            unfinished += [entry.region for entry in sorted(level)]
            level = self._next_level(played, leaves)
            if not level:
                level = self._next_level(leaves.give_up_large(unfinished), leaves)
        return Found((*leaves.regions, *unfinished), tuple(unfinished))

    def _next_level(self, played: Sequence[tuple[_Entry, Game]], leaves: _Leaves) -> list[_Entry]:
        """Return what goes on to the next level, and add to the leaves what does not."""
        if not played:
            return []
        pooled = np.concatenate([game.coefficients for _, game in played])
        cut = np.percentile(pooled, self.percentile)
        level: list[_Entry] = []
        order = count()
        for entry, game in played:
            matters = _own(entry, game) > 0
            if matters and leaves.ends(entry, game):
                continue
            for part in _parts(entry, game, order):
                if part.phi >= cut and part.phi > 0:
                    if part.region.split():
                        level.append(part)
                    else:
                        leaves.add(part.region)
            if self.keep_whole and matters and not (game.coefficients > 0).any():
                leaves.add(game.region)
        heapq.heapify(level)
        return level


class _Entry(NamedTuple):
    """A region that waits for its game, with its coefficient and its share of the score.

    The first in order goes first: what has a large share on a large area is least known.
    """

    late: float
    number: int  # no two have the same, so that nothing below is ever compared
    region: Region
    phi: float
    share: float


def _entry(region: Region, phi: float, share: float, number: int) -> _Entry:
    return _Entry(-share * region.size**0.5, number, region, phi, share)


def _parts(whole: _Entry, game: Game, order: Iterator[int]) -> list[_Entry]:
    """Return the parts of a game's region; a share goes by positive coefficients."""
    positive = np.maximum(game.coefficients, 0.0)
    shares = whole.share * positive / (positive.sum() or 1.0)
    return [
        _entry(part, phi, share, next(order))
        for part, phi, share in zip(
            game.children, game.coefficients.tolist(), shares.tolist(), strict=True
        )
    ]


class _Leaves:
    """The leaves so far. Of those that sized themselves, some may turn out too large.

    Parts matter if their coefficient is above `tolerance`.
    """

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance
        self._final: list[Region] = []
        self._ended: list[tuple[_Entry, Game]] = []
        self._limit = math.inf

    @property
    def regions(self) -> list[Region]:
        return [*self._final, *(game.region for _, game in self._ended)]

    def add(self, region: Region) -> None:
        self._final.append(region)

    def ends(self, entry: _Entry, game: Game) -> bool:
        """Keep a region that sizes itself, and whose parts stopped being enough, as a leaf."""
        here = (
            is_adaptive(game.region)
            and float(game.alone.max()) < ENOUGH * game.total
            and self._fits(game)
        )
        if here:
            self._ended.append((entry, game))
        return here

    def give_up_large(self, unfinished: Iterable[Region]) -> list[tuple[_Entry, Game]]:
        """Give up, once, the leaves that are much larger than usual: a cut went through a thing."""
        if not self._ended or self._limit < math.inf:
            return []
        self._limit = LARGE * median([region.size for region in (*self.regions, *unfinished)])
        large = [(e, game) for e, game in self._ended if not self._fits(game)]
        self._ended = [(e, game) for e, game in self._ended if self._fits(game)]
        return large

    def _fits(self, game: Game) -> bool:
        """Tell whether a region is not too large, or all of its parts that matter are leaves."""
        if math.isinf(self._limit):
            return True
        before: bool | None = getattr(game.region, "ended", None)  # in a run that is read again
        if before is not None:
            return before
        if game.region.size <= self._limit:
            return True
        parts = zip(game.children, game.coefficients.tolist(), strict=True)
        relevant = [part for part, phi in parts if phi > self._tolerance]
        return bool(relevant) and not any(part.split() for part in relevant)


def _own(entry: _Entry, game: Game) -> float:
    """Return a region's coefficient; the root has none, and is measured by what it adds alone."""
    return game.total if math.isinf(entry.phi) else entry.phi


class _Budget:
    """Hands out regions, the most urgent first, until evaluations or seconds are spent."""

    def __init__(self, max_evaluations: int | None, max_seconds: float | None, draws: int) -> None:
        self._limited = max_evaluations is not None or max_seconds is not None
        self._left = math.inf if max_evaluations is None else max_evaluations
        self._seconds = max_seconds
        self._draws = draws
        self._spent = 0
        self._started = time.monotonic()

    def spend(self, heap: list[_Entry], width: int) -> list[_Entry]:
        """Take up to `width` regions that can be paid for off the heap."""
        taken: list[_Entry] = []
        allowance = self._allowance()
        while heap and len(taken) < width:
            # What is much less urgent waits: its turn may be better spent on parts of these.
            if self._limited and taken and heap[0].late > CLOSE * taken[0].late:
                break
            cost = self._cost(heap[0].region)
            if cost > allowance:
                self._refuse_too_small(cost)
                break
            allowance -= cost
            self._left -= cost
            self._spent += cost
            taken.append(heapq.heappop(heap))
        return taken

    def _cost(self, region: Region) -> int:
        """Count new evaluations: a region's own value and the baseline's are known but at first."""
        if not self._limited:
            return 0
        inner = self._draws * max(2 ** len(region.split()) - 2, 0)
        return inner + (0 if self._spent else self._draws + 1)

    def _allowance(self) -> float:
        """Count the evaluations that may be spent now; the pace so far tells how many fit."""
        if self._seconds is None or not self._spent:
            return self._left
        passed = time.monotonic() - self._started
        pace = self._spent / max(passed, 1e-9)
        return min(self._left, pace * (self._seconds - passed))

    def _refuse_too_small(self, cost: int) -> None:
        if not self._spent:
            message = (
                f"max_evaluations={self._left} is less than the {cost} that the first game takes; "
                f"pass {cost} or more"
            )
            raise ArgumentError(message)


def _check_budget(search: DepthFirst | BreadthFirst) -> None:
    checks.flag("keep_whole", search.keep_whole)
    object.__setattr__(search, "width", checks.integer("width", search.width, minimum=1))
    if search.max_evaluations is not None:
        most = checks.integer("max_evaluations", search.max_evaluations, minimum=1)
        object.__setattr__(search, "max_evaluations", most)
    if search.max_seconds is not None:
        seconds = checks.number("max_seconds", search.max_seconds, minimum=0.0)
        object.__setattr__(search, "max_seconds", seconds)
