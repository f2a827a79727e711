"""The size of batches: limited by memory that runs out, and chosen by measured throughput.

Where memory runs out, the batch is halved and the run continues. To measure throughput, no forward
pass is added: the first full batches of a run have other sizes, and the fastest one stays. A size
must be clearly faster than the usual one, so that noise of the clock changes little.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ModelFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hshap._util.types import Heat, Shape
    from hshap.evaluators.canvas import Row


class BatchLimits:
    """The batch that memory allows for each image shape, where it ran out once."""

    def __init__(self) -> None:
        self._limits: dict[Shape, int] = {}

    @property
    def known(self) -> bool:
        """Whether memory ran out for any shape."""
        return bool(self._limits)

    def get(self, shape: Shape) -> int | None:
        """Return the largest batch of a shape, or None where memory was always enough."""
        return self._limits.get(shape)

    def scores(
        self,
        rows: Sequence[Row],
        run: Callable[[Sequence[Row]], Heat],
        release: Callable[[], None] = lambda: None,
    ) -> Heat:
        """Score rows with `run`, in halves where memory runs out; `release` frees memory before.

        The error of a batch of one input is not caught.
        """
        parts: list[Heat] = []
        done, shape = 0, rows[0].canvas.shape
        while done < len(rows):
            batch = rows[done : done + self._limits.get(shape, len(rows))]
            try:
                parts.append(run(batch))
            except Exception as error:
                cause = error.__cause__ if isinstance(error, ModelFailedError) else error
                if not out_of_memory(cause) or len(batch) == 1:
                    raise
            else:
                done += len(batch)
                continue
            # Outside the except clause: the traceback no longer holds the batch that was too big.
            self._limits[shape] = len(batch) // 2
            release()
            free_memory()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an exception reports missing memory, whichever library raised it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    # torch on the CPU and onnxruntime have no exception class for it.
    phrases = ("out of memory", "can't allocate memory", "failed to allocate", "bad allocation")
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)


def free_memory() -> None:
    """Return the memory that torch keeps in reserve on a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


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
        self._sizes = self._sizes_to_try()
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

    def _sizes_to_try(self) -> Iterator[int]:
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
