"""Budgets: limits on evaluations and seconds."""

from __future__ import annotations

import heapq
import math
import time
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from hshap.games.search.frontier import Waiting
    from hshap.partitions.protocol import Region

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
