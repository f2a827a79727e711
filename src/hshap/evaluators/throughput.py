"""Throughput: the batch size that scores most inputs in a second, measured on the batches of a run.

No forward pass is added: the first full batches of a run have other sizes, and the fastest one
stays. A size must be clearly faster than the usual one, so that noise of the clock changes little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hshap._util.types import Heat, Shape

TRIES = 2
"""Full batches of each size; the faster one counts, since the first of a size warms up."""

BETTER = 1.1
"""Times as many inputs in a second that another size must score."""


class Throughput:
    """Chooses the size of batches for each image shape, by the times of full ones.

    The usual size comes first. It is doubled while that is faster; if it is not at once, a quarter
    of the usual size is tried.

    >>> import numpy as np
    >>> seconds = iter([0.0, 8.0, 8.0, 16.0, 16.0, 18.0, 18.0, 26.0])
    >>> found = Throughput(lambda: next(seconds))
    >>> for _ in range(4):
    ...     size = found.size((1, 8, 8), usual=8, most=16)
    ...     _ = found.timed((1, 8, 8), size, lambda: np.zeros(size))
    >>> size, found.size((1, 8, 8), usual=8, most=16)
    (16, 16)
    """

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._trials: dict[Shape, _Trials] = {}

    def size(self, shape: Shape, usual: int, most: int) -> int:
        """Return the size of the next batch: the one on trial, or the fastest, up to `most`."""
        if shape not in self._trials:
            self._trials[shape] = _Trials(usual, most)
        self._trials[shape].limit(most)
        return self._trials[shape].size

    def timed(self, shape: Shape, count: int, act: Callable[[], Heat]) -> Heat:
        """Return the outcome of `act`, which scores a batch of `count` inputs."""
        started = self._clock()
        found = act()
        seconds = self._clock() - started
        if shape in self._trials:
            self._trials[shape].note(count, seconds)
        return found


@dataclass
class _Trials:
    """The sizes that were tried for one shape, and the size of the next batch."""

    usual: int
    most: int
    size: int = 0
    _best: int = 0
    _times: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    _settled: bool = False

    def __post_init__(self) -> None:
        self.size = self._best = self.usual
        self._sizes = self._tried()
        next(self._sizes)

    def limit(self, most: int) -> None:
        """Take a new limit; a larger size on trial is given up, and the best one so far stays."""
        self.most = most
        if self.size > most:
            self.size, self._settled = min(self._best, most), True

    def note(self, count: int, seconds: float) -> None:
        """Take the time of a batch; those of another size than the one on trial do not count."""
        if self._settled or count != self.size:
            return
        times = self._times.setdefault(count, [])
        times.append(seconds / count)
        if len(times) < TRIES:
            return
        if self._is_better(count):
            self._best = count
        size = next(self._sizes, None)
        self._settled, self.size = size is None, size or self._best

    def _tried(self) -> Iterator[int]:
        """Yield the sizes to try, each after the one before has been timed."""
        yield self.usual
        size = 2 * self.usual
        while size <= self.most and self._best == size // 2:
            yield size
            size *= 2
        if self._best == self.usual and self.usual >= 4:
            yield self.usual // 4

    def _is_better(self, count: int) -> bool:
        return min(self._times[count]) * BETTER < min(self._times[self._best])
