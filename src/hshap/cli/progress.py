"""Progress: one line that says how far a long work is, and how long it will take."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from hshap.cli.output import STATUS, duration, say

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from typing import Self

    from hshap.games.engine import Progress

T = TypeVar("T")

EVERY = 5.0
"""Seconds between two lines, where there is no terminal that shows one line again and again."""

OFTEN = 0.2
"""Seconds between two states of the line on a terminal."""

_under_way: list[Shown] = []
"""The works that have begun, the outer one first; the line is about the last of them."""


class Shown:
    """How far a long work is: a line that changes on a terminal, elsewhere one every few seconds.

    The lines come from a thread, so that also a single slow step is seen to be under way. Of works
    inside each other, the inner one is shown.
    """

    def __init__(self, name: str, every: float | None = None) -> None:
        self._every = EVERY if every is None else every
        self._name, self._text = name, ""
        self._share: float | None = None
        self.left: float | None = None
        self._started, self._done = monotonic(), Event()
        self._thread = Thread(target=self._write_lines, daemon=True)

    def __enter__(self) -> Self:
        _under_way.append(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        _under_way.remove(self)
        with suppress(OSError, ValueError):  # the terminal may be closed
            STATUS.clear()

    @property
    def seconds(self) -> float:
        """Seconds since the work began."""
        return monotonic() - self._started

    def update(
        self, share: float, text: str, *, left: float | None = None, is_bound: bool = False
    ) -> None:
        """Tell how far the work is: its share from 0 to 1, in words, and the seconds that it needs.

        Without the seconds, they follow from the share, unless it is a bound and may be far less.
        """
        self._text, self.left = text, left
        self._share = None if is_bound else min(share, 1.0)

    @property
    def line(self) -> str:
        """What is said of the work now."""
        past, left = self.seconds, self.left
        if left is None and self._share is not None and self._share > 0.01:
            left = past * (1 - self._share) / self._share
        parts = [self._text, duration(past), f"about {duration(left)} left" if left else ""]
        return f"{self._name}: {', '.join(part for part in parts if part)}"

    def _write_lines(self) -> None:
        said = monotonic()
        while not self._done.wait(min(OFTEN, self._every)):
            with suppress(OSError, ValueError):  # closed
                if _under_way[-1] is not self or STATUS.show(self.line):
                    continue
                if monotonic() - said >= self._every:
                    said = monotonic()
                    say(self.line)


class EvaluationCounter:
    """Receives the progress of explanations, and shows it.

    The time that is left comes from the evaluations that are left: as many for each explanation as
    the finished ones took, and no more than the budget.
    """

    def __init__(self, shown: Shown, total: int, budget: int | None) -> None:
        self.evaluations = 0
        self.shown, self._total, self._budget = shown, total, budget

    def __call__(self, progress: Progress) -> None:
        """Show the progress."""
        self.evaluations = progress.evaluations
        done, rate = progress.explanations, self.evaluations / max(self.shown.seconds, 1e-9)
        counts = f"{done} of {self._total}, {self.evaluations} evaluations, {rate:.0f}/s"
        each = self.evaluations / done if done else None
        if self._budget is not None:
            each = self._budget if each is None else min(each, self._budget)
        left = None if each is None else max(each * self._total - self.evaluations, 0) / rate
        self.shown.update(done / self._total, counts, left=left, is_bound=True)


@contextmanager
def bar(
    total: int, budget: int | None = None, every: float | None = None
) -> Generator[EvaluationCounter, None, None]:
    """Show the progress of explanations: how many are finished, evaluations and the time left."""
    with Shown("explaining", every) as shown:
        yield EvaluationCounter(shown, total, budget)


@contextmanager
def each(
    name: str, items: Sequence[T], every: float | None = None
) -> Generator[Iterator[T], None, None]:
    """Give the items one by one, and show how many are done."""

    def counted() -> Iterator[T]:
        for number, item in enumerate(items):
            shown.update(number / len(items), f"{number} of {len(items)}")
            yield item

    with Shown(name, every) as shown:
        yield counted()
