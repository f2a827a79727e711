"""Workers: they explain images in shared batches, and commit shards themselves.

A worker sends its driver only counts. If it is killed, the rows in its memory are lost and
computed again; rows in a shard are safe.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from hshap.errors import MissingExtraError
from hshap.explainer import Explainer
from hshap.games.targets import POSITIVES, Positives
from hshap.runs.asking import Asking, UnreadError
from hshap.runs.large import LargeResult, LargeWork, explain_large, forget_parts, parts_key
from hshap.runs.storing.folder import Writer
from hshap.runs.storing.rows import Origin, as_rows, attempt, negative_row
from hshap.runs.storing.schema import TABLES
from hshap.runs.storing.tiled import store_tiled
from hshap.runs.tasks import Outcome, error_row, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hshap.evaluators.tiles import Tiles
    from hshap.explainer.readings import Pair
    from hshap.explanation.explanation import Explanation
    from hshap.games.targets import Target
    from hshap.runs.asking import Asked
    from hshap.runs.sources.protocol import Source
    from hshap.runs.storing.files import Files
    from hshap.runs.storing.identity import Fingerprint
    from hshap.runs.storing.rows import Row
    from hshap.runs.tasks import AnyTarget, Task, Work

TOGETHER = 16
"""Explanations that become rows at once: between batches of the model, caches hold other code."""


@dataclass(frozen=True)
class Job:
    """All that a worker needs: it is pickled once for each worker, and read from no file."""

    explainer: Explainer | Callable[[], Explainer]
    source: Source
    files: Files
    fingerprint: Fingerprint
    targets: tuple[AnyTarget, ...] | None
    layout: str | None = None
    shard_rows: int = 256
    shard_seconds: float = 60.0
    tiles: Tiles | None = None
    positives: Positives | None = POSITIVES

    def open(self) -> Worker:
        """Return a worker, with the model in memory."""
        made = self.explainer if isinstance(self.explainer, Explainer) else self.explainer()
        unfinished = None if self.tiles is None else self.files
        asking = Asking(made, self.source, self.fingerprint, self.targets, unfinished)
        return Worker(self, made, asking, Writer(self.files))


@dataclass
class Worker:
    """Explains the images of tasks, and commits the rows."""

    job: Job
    explainer: Explainer
    asking: Asking
    writer: Writer

    def do(self, task: Task) -> Outcome:
        """Explain the images of a task that the folder lacks; all rows are committed on return."""
        turn = _Turn(self, task)
        try:
            for found in self._explained(turn):
                turn.add(found)
            turn.commit()
            turn.forget()
        except (MissingExtraError, MemoryError, OSError) as error:
            return Outcome(task, stop=reason_of(error))
        return turn.outcome()

    def _explained(self, turn: _Turn) -> Iterator[Explanation | LargeResult]:
        """Yield the explanations of the images of a task: whole ones, or large ones by tiles."""
        job = self.job
        if job.tiles is None:
            yield from self.explainer.explain_many(
                turn.pairs(),
                layout=job.layout,
                positives=job.positives,
                on_error=turn.on_error,
            )
        else:
            works = turn.large_works()
            yield from explain_large(
                self.explainer, works, job.tiles, job.files, turn.on_error, job.positives
            )

    def rows(
        self, given: Sequence[tuple[Explanation | LargeResult, Asked]]
    ) -> Iterable[Row | Exception]:
        """Return the row of each explanation, or its error; those of large images one by one."""
        if self.job.tiles is not None:
            # A full disk ends the run at the first file that does not fit: no other one is tried.
            return (
                attempt(self._large_row, cast("LargeResult", found), one) for found, one in given
            )
        placed = [attempt(self._placed, cast("Explanation", found), one) for found, one in given]
        made = iter(as_rows([one for one in placed if not isinstance(one, Exception)]))
        return [one if isinstance(one, Exception) else next(made) for one in placed]

    def _large_row(self, found: LargeResult, one: Asked) -> Row:
        origin = one.origins[found.target]
        return store_tiled(found.found, origin, self.job.files)

    def _placed(self, found: Explanation, one: Asked) -> tuple[Explanation, Origin]:
        numbered = replace(found, position=one.work.item.number)
        if one.place is not None:
            shape, start, stop = one.place
            numbered = numbered.placed(shape, start=start, stop=stop)
        return numbered, one.origins[found.target]


class _Turn:
    """A task while it is worked on: its images in hand, its counts, and rows in no shard yet."""

    def __init__(self, worker: Worker, task: Task) -> None:
        self._worker, self._task = worker, task
        self._asked: list[Asked] = []
        self._rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._found: list[Explanation | LargeResult] = []
        self._done, self._negative = set[int](), set[int]()
        self._failed: dict[int, str] = {}
        self._skipped = self._evaluations = 0
        self._since = time.monotonic()

    def pairs(self) -> Iterator[Pair]:
        """Yield images and targets for the explainer; an image is read when it is needed."""
        for work in self._task.works:
            try:
                pair = self._worker.asking.pair(work, self._asked)
            except UnreadError as error:
                told = error.work
                row = error_row(told, error.identity, error.sha256, error.wanted, error.reason)
                self._fail(told, row, error.reason)
                continue
            if pair is None:
                self._skipped += 1
            else:
                yield pair

    def large_works(self) -> Iterator[LargeWork]:
        """Yield large images with their targets."""
        for position, pair in enumerate(self.pairs()):
            one = self._asked[position]
            path, targets = cast("tuple[str, list[Target]]", pair)
            texts = [origin.target for origin in one.origins.values()]
            key = parts_key(one.identity, one.work.item.name)
            yield LargeWork(position, key, path, list(zip(texts, targets, strict=True)))

    def on_error(self, position: int, error: Exception) -> None:
        """Note that an image failed."""
        one = self._asked[position]
        row = error_row(one.work, one.identity, one.sha256, one.wanted, error)
        self._fail(one.work, row, error)

    def add(self, found: Explanation | LargeResult) -> None:
        """Take an explanation, and commit a shard when it is time."""
        job = self._worker.job
        rows = len(self._rows["explanations"]) + len(self._rows["negatives"])
        self._found.append(found)
        late = time.monotonic() - self._since > job.shard_seconds
        if late or rows + len(self._found) >= job.shard_rows:
            self.commit()
        elif len(self._found) >= TOGETHER:
            self._make_rows()

    def _make_rows(self) -> None:
        """Make rows of the explanations that have none yet."""
        given = [(found, self._asked[found.position]) for found in self._found]
        for (found, one), row in zip(given, self._worker.rows(given), strict=True):
            if isinstance(row, OSError):
                raise row  # of the run folder, which gets files of large images: ends the run
            if isinstance(row, Exception):  # any other fault is that of this image
                self.on_error(found.position, row)
                continue
            self._add_row(found, row, one.work.item.number)
            self._evaluations += found.evaluations
        self._found.clear()

    def _add_row(self, found: Explanation | LargeResult, row: Row, number: int) -> None:
        """Take the row of an explanation, or of an image that was not explained."""
        positives = self._worker.job.positives
        if found.is_explained or positives is None:
            self._rows["explanations"].append(row)
            self._done.add(number)
        else:
            self._rows["negatives"].append(negative_row(row, found.negative, positives.rule))
            self._negative.add(number)

    def commit(self) -> None:
        """Write all explanations and errors that are in no shard yet."""
        self._make_rows()
        for table, rows in self._rows.items():
            if rows:
                self._worker.writer.commit(table, rows)
                rows.clear()
        self._since = time.monotonic()

    def forget(self) -> None:
        """Remove the finished parts of large images whose rows are all committed."""
        for one in self._asked if self._worker.job.tiles is not None else ():
            if one.work.item.number not in self._failed:
                key = parts_key(one.identity, one.work.item.name)
                forget_parts(self._worker.job.files, key)

    def outcome(self) -> Outcome:
        """Return the counts of the task."""
        return Outcome(
            self._task,
            done=len(self._done - self._failed.keys()),
            negative=len(self._negative - self._done - self._failed.keys()),
            skipped=self._skipped,
            failed=len(self._failed),
            evaluations=self._evaluations,
            first_error=next(iter(self._failed.values()), ""),
        )

    def _fail(self, work: Work, row: Row, error: Exception) -> None:
        if isinstance(error, (MissingExtraError, MemoryError)):
            raise error  # concerns all images
        self._failed.setdefault(work.item.number, row["reason"])
        if row["identity"] not in work.failed:
            self._rows["errors"].append(row)
