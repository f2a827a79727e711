"""Whether running inputs in part pays: what whole ones take, and what was spent beyond that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

QUICK = 0.05  # seconds: networks below run several inputs in much less than one after another
SETUP = 5e-4  # seconds for each of a network's modules: about what tracing takes
ODDS = 0.1  # of what whole inputs would have taken: what setting up and trying may cost besides


@dataclass
class Ledger:
    """What whole inputs would have taken so far, and what has been spent beyond that, in seconds.

    A short run of a quick network is over before setting up has paid; this bounds what it costs.
    """

    whole: float = 0.0
    beyond: float = 0.0

    def add(self, whole: float, spent: float) -> None:
        self.whole += whole
        self.beyond += spent - whole

    def allows(self, cost: float) -> bool:
        return self.beyond + cost <= ODDS * self.whole


class Pace:
    """Seconds, by the shape of images and the size of what differs."""

    def __init__(self, modules: int) -> None:
        self._setup = SETUP * modules
        self._ledger = Ledger()
        self._whole: dict[tuple[int, ...], float] = {}  # for one of many whole inputs
        self.slow: set[Any] = set()
        self.measured: set[Any] = set()

    def whole(self, shape: tuple[int, ...], one: float) -> float:
        """Return what a whole input takes; `one` is what a single one took by itself."""
        return self._whole.get(shape) or one

    def allows_setup(self, shape: tuple[int, ...], passes: int) -> bool:
        """Tell whether tracing, and so many inputs run as a whole besides, may be paid for."""
        return self._ledger.allows(self._setup + passes * self._whole.get(shape, 0.0))

    def allows_anchor(self, shape: tuple[int, ...]) -> bool:
        """Tell whether activations of one more input may be computed."""
        pace = self._whole.get(shape, QUICK)
        return pace >= QUICK or self._ledger.allows(pace)

    def pays(self, shape: tuple[int, ...], size: tuple[int, ...], count: int, one: float) -> bool:
        """Tell whether rectangles of a size are quicker than whole inputs, or may be tried."""
        key, quick = (shape, size), self.whole(shape, one) < QUICK
        barred = quick and key not in self.measured and not self._ledger.allows(0.0)
        # Whole inputs are run once, to learn how fast several at a time are.
        unknown = one < QUICK and count > 1 and shape not in self._whole
        return key not in self.slow and not barred and not unknown

    def set_up(self, seconds: float) -> None:
        """Note what was spent on something that whole inputs do not need."""
        self._ledger.add(0.0, seconds)

    def saved(self, whole: float) -> None:
        """Note what whole inputs would have taken, where nothing was spent."""
        self._ledger.add(whole, 0.0)

    def ran_whole(self, shape: tuple[int, ...], count: int, seconds: float) -> None:
        self._ledger.add(seconds, seconds)
        if count > 1:
            pace = seconds / count
            self._whole[shape] = min(pace, self._whole.get(shape, pace))

    def ran_in_part(
        self, shape: tuple[int, ...], size: tuple[int, ...], whole: float, seconds: float
    ) -> None:
        """Note what rectangles took, and what as many whole inputs would have."""
        self._ledger.add(whole, seconds)
        # The second time, since the first also sets things up.
        if (shape, size) in self.measured and seconds > whole:
            self.slow.add((shape, size))
        self.measured.add((shape, size))
