"""The driver: finds the images that a folder lacks, hands them out, and notes lost ones.

Several drivers may work on one folder. A claim keeps them from the same images; if two work on
one image all the same, its rows have one identity, and the table shows them once.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from hshap._util.visible import as_text
from hshap.errors import ArgumentError, HshapError
from hshap.formats.listing import elsewhere
from hshap.runs.executors.in_process import InProcess
from hshap.runs.sources.protocol import Item, Listed
from hshap.runs.storing.protocol import Committed
from hshap.runs.tasks import Task, Work, error_row, split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hshap.games.engine import Progress
    from hshap.runs.executors.protocol import Executor
    from hshap.runs.storing.rows import Row
    from hshap.runs.tasks import Outcome
    from hshap.runs.worker import Job

TASK = 64
"""Images of a task: batches of the model are filled from all of them."""

SHARES = 16
"""Tasks that an archive is cut into at least, so that several workers share a small one."""

GIVE_UP = 20
"""Failures before the first success after which a run ends: then its options are wrong."""

PATIENCE = 2
"""Workers that may die on a task before it is halved, and on one image before it has failed."""

POLL = 0.2
"""Seconds between looks at tasks that another driver has."""

QUIET = 300.0
"""Seconds without a sign of life after which a driver of another machine counts as ended."""


class RunStoppedError(HshapError, RuntimeError):
    """A run ended early; all committed rows are kept, and the same call resumes it.

    >>> import hshap, numpy as np, tempfile
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:  # doctest: +ELLIPSIS
    ...     hshap.runs.explain_dataset(explainer, np.full((30, 1, 2, 2), np.nan), folder, target=0)
    Traceback (most recent call last):
    hshap.runs.driver.RunStoppedError: the run has given up: its first 30 images failed, ...
    """


@dataclass(frozen=True)
class RunProgress:
    """How far a run is. Counts are of images; `total` is None if it is not known.

    `done` images were explained. `negative` ones were looked at and not explained, see `Positives`.
    `under_way` counts the results of a task that has not ended, where that is known.

    >>> print(RunProgress(done=30, skipped=0, failed=1, total=100, seconds=10.0, negative=9))
    40 of 100 images (30 explained, 9 negative, 1 failed), 4 images/s, 15 s left
    """

    done: int
    skipped: int
    failed: int
    total: int | None
    seconds: float
    evaluations: int = 0
    negative: int = 0
    under_way: int = 0

    @property
    def finished(self) -> int:
        """Images that need no more work."""
        return self.done + self.negative + self.skipped + self.failed

    @property
    def rate(self) -> float:
        """Images a second, without those that an earlier run had explained."""
        now = self.done + self.negative + self.failed
        return now / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Time to go at this rate; None if it is not known."""
        if self.total is None or not self.rate:
            return None
        return (self.total - self.finished) / self.rate

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        counts = f"{self.done} explained, {self.negative} negative, {self.failed} failed"
        told = [f"{self.finished}{of} images ({counts})"]
        told += [f"{self.skipped} from before"] if self.skipped else []
        told.append(f"{self.rate:.3g} images/s")
        left = self.seconds_left
        told += [] if left is None else [f"{_time(left)} left"]
        return ", ".join(told)


@dataclass
class Driver:
    """Works through all images of a job once."""

    job: Job
    items: Iterator[Item]
    task_images: int
    retry_failed: bool
    progress: Callable[[RunProgress], None] | None = None
    quiet: float = QUIET
    _queue: deque[Task] = field(default_factory=deque[Task])
    _held: deque[Task] = field(default_factory=deque[Task])
    _ready: Task | None = None
    _refused: int = 0
    _noted: int = 0

    def run(self, executor: Executor) -> RunProgress:
        """Explain all images that the folder lacks; return the counts of this run."""
        store = self.job.store
        self._committed = Committed(store)
        self._committed.refresh()
        self._begun = time.monotonic()
        store.tidy()
        self._tally = self._refuse()
        job = replace(self.job, watch=self._tell_more if isinstance(executor, InProcess) else None)
        with store.at_work(self.quiet) as self._is_quiet:
            while self._find_ready():
                for outcome in executor.run(job, self._next_task):
                    self._take(outcome)
        store.seal()
        return self._tally

    def _refuse(self) -> RunProgress:
        """Note the large images of a folder as errors, unless it has them; return the counts."""
        source = self.job.source
        refused = source.refused if isinstance(source, Listed) else ()
        names = [as_text(name) for name in refused]
        rows: list[Row] = []
        for name in names:
            identity = self.job.fingerprint.identity("no image", name)
            if identity not in self._committed.of(name).failed:
                reason = ArgumentError(elsewhere(name))
                rows.append(error_row(Work(Item(-1, name, None)), identity, None, (), reason))
        if rows:
            self.job.store.writer().commit("errors", rows)
        self._refused, self._noted = len(rows), len(names) - len(rows)
        total = None if source.count is None else source.count + len(names)
        return RunProgress(0, self._noted, len(rows), total, 0.0)

    def _find_ready(self) -> bool:
        """Wait for a task that can be worked on; False if none is left."""
        while self._ready is None:
            self._ready = self._next_task()
            if self._ready is None and not self._held:
                return False
            if self._ready is None:
                # Another driver has them. It commits them, or it dies and they are free.
                time.sleep(POLL)
            self._queue.extend(self._held)
            self._held.clear()
        return True

    def _next_task(self) -> Task | None:
        """Return a task that no other driver has; None if there is none at the moment."""
        if self._ready is not None:
            task, self._ready = self._ready, None
            return task
        for task in self._candidates():
            if not self.job.store.claim(task.name, self._is_quiet):
                self._held.append(task)
                continue
            self._committed.refresh()
            return replace(task, works=tuple(self._known(work.item) for work in task.works))
        return None

    def _candidates(self) -> Iterator[Task]:
        while self._queue:
            yield self._queue.popleft()
        while works := tuple(Work(item) for item in islice(self.items, self.task_images)):
            text = "\n".join(work.item.name for work in works)
            yield Task(hashlib.sha256(text.encode()).hexdigest()[:32], works)

    def _known(self, item: Item) -> Work:
        known, positives = self._committed.of(item.name), self.job.positives
        failed = frozenset[str]() if self.retry_failed else frozenset(known.failed)
        negative = known.negative.get("" if positives is None else positives.rule, ())
        explained = frozenset(known.explained)
        return Work(
            item,
            known.version,
            known.sha256,
            explained,
            failed,
            frozenset(negative),
            known.last_error,
        )

    def _take(self, outcome: Outcome) -> None:
        task = outcome.task
        if outcome.stop:
            self.job.store.release(task.name)
            message = (
                f"the run ended early: {outcome.stop}; all committed rows are kept in "
                f"{self.job.store.location}, and the same call goes on"
            )
            raise RunStoppedError(message) from outcome.error
        if outcome.lost:
            self._lost(task, outcome.lost)
        else:
            self._count(outcome)
        self.job.store.release(task.name)

    def _count(self, outcome: Outcome) -> None:
        now = self._tally
        self._tally = replace(
            now,
            done=now.done + outcome.done,
            negative=now.negative + outcome.negative,
            skipped=now.skipped + outcome.skipped,
            failed=now.failed + outcome.failed,
            evaluations=now.evaluations + outcome.evaluations,
            seconds=time.monotonic() - self._begun,
        )
        if self.progress is not None:
            self.progress(self._tally)
        self._refused += outcome.unread  # a model may be fine that has seen none of them
        failed = self._tally.failed - self._refused
        useful = self._tally.done + self._tally.negative + self._tally.skipped - self._noted
        if not useful and failed >= GIVE_UP:
            message = (
                f"the run has given up: its first {failed} images failed, the first "
                f"with: {outcome.first_error}"
            )
            raise RunStoppedError(message)

    def _tell_more(self, progress: Progress) -> None:
        """Tell of a task that is being worked on: its evaluations, and explanations so far."""
        if self.progress is not None:
            now, seconds = self._tally, time.monotonic() - self._begun
            evaluations = now.evaluations + progress.evaluations
            found = progress.explanations
            self.progress(replace(now, evaluations=evaluations, seconds=seconds, under_way=found))

    def _lost(self, task: Task, reason: str) -> None:
        """Queue the images of a lost task again; a single one that keeps killing workers failed."""
        again = replace(task, deaths=task.deaths + 1)
        if again.deaths <= PATIENCE:
            self._queue.append(again)
            return
        if len(task.works) > 1:
            self._queue.extend(split(task))
            return
        for work in task.works:
            identity = self.job.fingerprint.identity("worker", work.item.name)
            told = f"{reason}, {again.deaths} times"
            self.job.store.writer().commit("errors", [error_row(work, identity, None, (), told)])
            self._tally = replace(self._tally, failed=self._tally.failed + 1)


def task_size(count: int | None) -> int:
    """Return the images of a task for several workers; `count` is the number of all images.

    >>> task_size(10_000), task_size(60), task_size(None)
    (64, 4, 64)
    """
    return TASK if count is None else min(TASK, max(1, -(-count // SHARES)))


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
