"""The frontier of a search: regions that wait, budgets, and where a branch ends without a size.

Without a given size, a region is a leaf where none of its parts is enough alone; leaves over four
times the median area, usually an object cut by the grid, are split further, once. If the model
detects a concept, one part alone has the whole score, so nothing ends early.
"""

from __future__ import annotations

import heapq
import math
import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from hshap.games.game import Game
    from hshap.partitions.protocol import Region

SUMMED_IN_PAIRS = 8
"""Numbers from which on NumPy does not add one after the other."""


class Waiting(NamedTuple):
    """A region that waits for its game, with its coefficient and its share of the score.

    Entries sort by `priority`, the smallest first: a large share on a large area says least about
    where the evidence is, so it is split first.
    """

    priority: float
    number: int  # unique, so that regions are never compared
    region: Region
    coefficient: float
    share: float


def waiting(region: Region, coefficient: float, share: float, number: int) -> Waiting:
    """Return the entry of a region."""
    return Waiting(-share * region.area**0.5, number, region, coefficient, share)


def first(root: Region) -> Waiting:
    """Return the entry of the root, which has no coefficient."""
    return waiting(root, math.inf, 1.0, -1)


def parts_of(whole: Waiting, game: Game, order: Iterator[int], above: float) -> list[Waiting]:
    """Return the entries of the parts whose coefficient is above a number that is not negative.

    The share of the whole is divided by positive coefficients.
    """
    coefficients = game.coefficients.tolist()
    total = _positive(coefficients) or 1.0
    return [
        waiting(part, coefficient, whole.share * coefficient / total, next(order))
        for part, coefficient in zip(game.children, coefficients, strict=True)
        if coefficient > above
    ]


def _positive(coefficients: list[float]) -> float:
    """Return the sum of positive coefficients, as NumPy adds them."""
    if len(coefficients) >= SUMMED_IN_PAIRS:
        return float(np.maximum(coefficients, 0.0).sum())
    total = 0.0
    for coefficient in coefficients:  # not `sum`, which corrects its rounding from Python 3.12 on
        if not coefficient <= 0.0:  # NaN counts, as in NumPy
            total += coefficient
    return total


def own_coefficient(entry: Waiting, game: Game) -> float:
    """Return a region's coefficient; for the root, the score that it adds to the baseline."""
    return game.total if math.isinf(entry.coefficient) else entry.coefficient


CLOSE = 0.5
"""Under a budget, regions at least this share as urgent as the first are played with it."""


def first_game(draws: int, parts: int) -> int:
    """Count the evaluations of the first game, over a root of so many parts.

    >>> first_game(draws=1, parts=2), first_game(draws=3, parts=0)
    (4, 4)
    """
    return 1 + draws * max(2**parts - 1, 1)


class Budget:
    """Hands out regions, the most urgent first, until evaluations or seconds are spent.

    Regions whose games are `known` cost nothing and come first.
    """

    def __init__(
        self,
        max_evaluations: int | None,
        max_seconds: float | None,
        draws: int,
        clock: Callable[[], float] = time.monotonic,
        known: Collection[Region] = (),
    ) -> None:
        self._limited = max_evaluations is not None or max_seconds is not None
        self._left = math.inf if max_evaluations is None else max_evaluations
        self._seconds = max_seconds
        self._most = self._left
        self._draws, self._known = draws, known
        self._spent = 0
        self._clock = clock
        self._started = self._clock()

    @property
    def most(self) -> int | None:
        """The most evaluations; None without a limit."""
        return None if math.isinf(self._most) else int(self._most)

    def spend(self, heap: list[Waiting], width: int, *, most: float = math.inf) -> list[Waiting]:
        """Take up to `width` affordable regions off the heap.

        `most` is the largest share of all evaluations that may be spent afterwards.
        """
        taken = [entry for entry in heap if entry.region in self._known] if self._known else []
        if taken:
            heap[:] = [entry for entry in heap if entry not in taken]
            heapq.heapify(heap)
            return taken
        allowance = min(self._allowance(), most * self._most - self._spent)
        while heap and len(taken) < width:
            # Less urgent regions wait: the parts of these may deserve the evaluations more.
            if self._limited and taken and heap[0].priority > CLOSE * taken[0].priority:
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

    def take(self, wanted: int, *, cost: int, reserve: int = 0) -> int:
        """Spend evaluations on up to so many questions of one cost; return how many fit.

        `reserve` evaluations are left for later.
        """
        fit = max(0, int(min(self._allowance() - reserve, wanted * cost) // cost))
        self._left -= fit * cost
        self._spent += fit * cost
        return fit

    def begin(self, cost: int, *, least: int) -> None:
        """Spend the evaluations of the first questions; refuse a budget below `least`."""
        if self._left < least:
            message = (
                f"max_evaluations={self._left} is less than the {least} that the first questions "
                f"and the certificate take; pass {least} or more"
            )
            raise ArgumentError(message)
        self._left -= cost
        self._spent += cost

    def _cost(self, region: Region) -> int:
        """Count new evaluations.

        The values of the empty and the full coalition are known, except in the first game.
        """
        if not self._limited:
            return 0
        parts = len(region.split())
        if not self._spent:
            return first_game(self._draws, parts)
        return self._draws * max(2**parts - 2, 0)

    def _allowance(self) -> float:
        """Count the evaluations that may be spent now, at the speed measured so far."""
        if self._seconds is None or not self._spent:
            return self._left
        passed = self._clock() - self._started
        speed = self._spent / max(passed, 1e-9)
        return min(self._left, speed * (self._seconds - passed))

    def _refuse_too_small(self, cost: int) -> None:
        if not self._spent:
            message = (
                f"max_evaluations={self._left} is less than the {cost} that the first game takes; "
                f"pass {cost} or more"
            )
            raise ArgumentError(message)


def checked_limits(
    max_evaluations: int | None, max_seconds: float | None, width: int
) -> dict[str, int | float | None]:
    """Return the limits that every search has, checked."""
    return {
        "max_evaluations": None
        if max_evaluations is None
        else checks.integer("max_evaluations", max_evaluations, minimum=1),
        "max_seconds": None
        if max_seconds is None
        else checks.number("max_seconds", max_seconds, minimum=0.0),
        "width": checks.integer("width", width, minimum=1),
    }


ENOUGH = 0.3
"""A part is enough if it adds this share of the score that its whole region adds."""

LARGE = 4
"""Automatic leaves of more than this many median areas are split further."""

RunEnded: TypeAlias = "Callable[[Region], bool]"
"""Tells, when a run is read again, whether it ended at a region."""


def is_end(game: Game, *, adaptive: bool) -> bool:
    """Tell whether the rule ends a branch at the region of a game."""
    return adaptive and float(game.alone.max()) < ENOUGH * game.total


class Leaves:
    """The leaves so far: final ones, and those that stopped by the automatic rule.

    Parts matter if their coefficient is above `tolerance`. `adaptive` says whether there is a rule.
    Where a finished run is read again, `run_ended` replaces the test of large leaves.
    """

    def __init__(
        self, tolerance: float, *, adaptive: bool, run_ended: RunEnded | None = None
    ) -> None:
        self._tolerance, self._run_ended = tolerance, run_ended
        self._adaptive = adaptive
        self._final: list[Region] = []
        self._automatic: list[tuple[Waiting, Game]] = []
        self._limit = math.inf

    @property
    def regions(self) -> list[Region]:
        """All leaves, final ones first."""
        return [*self._final, *(game.region for _, game in self._automatic)]

    def add(self, region: Region) -> None:
        """Add a final leaf."""
        self._final.append(region)

    def end(self, entry: Waiting, game: Game) -> bool:
        """Keep the region as a leaf if the automatic rule says so, and tell whether it did."""
        ends = is_end(game, adaptive=self._adaptive) and self._is_small(game)
        if ends:
            self._automatic.append((entry, game))
        return ends

    def release_large(self, unfinished: Iterable[Region]) -> list[tuple[Waiting, Game]]:
        """Take back, once, the automatic leaves that are much larger than the median leaf."""
        if not self._automatic or self._limit < math.inf:
            return []
        self._limit = LARGE * median([region.area for region in (*self.regions, *unfinished)])
        large = [(entry, game) for entry, game in self._automatic if not self._is_small(game)]
        self._automatic = [(entry, game) for entry, game in self._automatic if self._is_small(game)]
        return large

    def _is_small(self, game: Game) -> bool:
        """Tell whether a leaf is not too large, or splitting it would only show leaves."""
        if math.isinf(self._limit):
            return True
        if self._run_ended is not None:
            return self._run_ended(game.region)
        if game.region.area <= self._limit:
            return True
        parts = zip(game.children, game.coefficients.tolist(), strict=True)
        relevant = [part for part, coefficient in parts if coefficient > self._tolerance]
        return bool(relevant) and not any(part.split() for part in relevant)
