"""The engine: drives many searches at once and fills every batch from all of them.

It knows no model, only a session that scores rows. A search waits only for its own rows, so a batch
is smaller than full only when no search asks for more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

import numpy as np

from hshap.errors import ModelError
from hshap.games.jobs import play
from hshap.games.targets import describe_target, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from hshap._util.types import Heat, Shape
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session
    from hshap.games.jobs import Block, Job

IMAGES_IN_FLIGHT = 16
"""Images whose searches are driven at the same time, at most."""

BATCHES_AHEAD = 2
"""Full batches that wait before no further image is begun."""

TOGETHER = 16
"""Batches whose outputs are handed to their jobs at once, at most."""

MOST_BYTES = 2**20
"""Outputs that wait for that: of models with many classes, those of few batches."""


@dataclass(frozen=True)
class Progress:
    """How far a run is, for progress bars.

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=2),
    ... )
    >>> _ = explainer.explain(np.ones((1, 4, 4)), target=0, progress=print)
    Progress(evaluations=16, explanations=0, waiting=1)
    Progress(evaluations=16, explanations=1, waiting=0)
    """

    evaluations: int
    explanations: int
    waiting: int


Run = TypeVar("Run")


def run(
    groups: Iterable[Sequence[Job[Run]]],
    session: Session,
    progress: Callable[[Progress], None] | None = None,
    on_error: OnError | None = None,
) -> Iterator[Job[Run]]:
    """Yield jobs as they finish. The jobs of a group share an image, and so its scores.

    Without `on_error`, the first exception ends the run. With it, the image that caused one is
    given up, `on_error` gets its position and the exception, and the others continue.
    """
    queue = _Queue(session, on_error)
    upcoming, more = iter(groups), True
    evaluations = finished = 0
    while True:
        if queue.ready:
            job = queue.advance()
            if job is not None:
                finished += 1
                if progress is not None:
                    progress(Progress(evaluations, finished, len(queue.in_flight)))
                yield cast("Job[Run]", job)
        elif (
            more
            and len(queue.in_flight) < IMAGES_IN_FLIGHT
            and queue.waiting_batches() < BATCHES_AHEAD
        ):
            group = next(upcoming, ())
            more = bool(group)
            queue.start(group)
        elif queue.in_flight:
            # All full batches in a row: searches and new images then take turns in groups, which
            # the processor's caches like better than one after each batch.
            for rows in queue.score_batches():
                evaluations += rows
                if progress is not None:
                    progress(Progress(evaluations, finished, len(queue.in_flight)))
        else:
            return


Kind: TypeAlias = "tuple[Shape, object]"
"""The shape and type of images, which all rows of a batch share."""

OnError: TypeAlias = "Callable[[int, Exception], None]"
"""Takes the position of an image that failed, and the exception."""


class _Line:
    """The blocks of one kind that wait, and how many rows they have together."""

    __slots__ = ("blocks", "rows", "served")

    def __init__(self) -> None:
        self.blocks: deque[Block] = deque()
        self.rows = 0
        self.served = 0  # number of the last batch that was taken from here

    def add(self, block: Block) -> None:
        """Let the rows of a block wait."""
        self.blocks.append(block)
        self.rows += len(block.rows)

    def take(self, room: int) -> list[Block]:
        """Return the blocks of the next batch; the last one is cut if it does not fit."""
        batch, blocks = list["Block"](), self.blocks
        while blocks and room:
            block = blocks.popleft()
            if len(block.rows) > room:
                block, rest = block.cut(room)
                blocks.appendleft(rest)
            batch.append(block)
            room -= len(block.rows)
            self.rows -= len(block.rows)
        return batch

    def forget(self, canvas: Canvas) -> None:
        """Drop the blocks of an image that failed."""
        self.blocks = deque(one for one in self.blocks if one.job.canvas is not canvas)
        self.rows = _count(self.blocks)


class _Queue:
    """Rows that wait for a batch, by shape and type, and jobs whose scores are all there."""

    def __init__(self, session: Session, on_error: OnError | None) -> None:
        self.ready: deque[Job[object]] = deque()
        self.in_flight: dict[Canvas, int] = {}  # the number of jobs that each image still has
        self._session, self._on_error = session, on_error
        self._lines: defaultdict[Kind, _Line] = defaultdict(_Line)
        self._batches = 0
        self._has_recorded = False

    def waiting_batches(self) -> float:
        """Return how many batches the rows of the next batch's kind would fill."""
        line = self._next()
        return line.rows / self._capacity(line) if line is not None else 0.0

    def start(self, group: Sequence[Job[object]]) -> None:
        """Queue the first coalitions of all jobs of an image."""
        for job in group:
            self.in_flight[job.canvas] = len(group)
            self._ask(job)

    def advance(self) -> Job[object] | None:
        """Let the search of a job that is ready continue, and return the job if it has ended."""
        if not self.ready[0].has_played:
            play(self.ready)
        job = self.ready.popleft()
        try:
            job.advance()
            if job.result is None:
                self._ask(job)
                return None
        except Exception as error:
            if self._on_error is None:
                raise
            self._give_up(job.canvas, error, self._on_error)
            return None
        self.in_flight[job.canvas] -= 1
        if not self.in_flight[job.canvas]:
            del self.in_flight[job.canvas]
        return job

    def _ask(self, job: Job[object]) -> None:
        """Queue the coalitions of a job that no other job has asked for."""
        block = job.table.ask(job)
        if block.rows:
            self._lines[_kind(job.canvas)].add(block)
        if not job.missing:
            self.ready.append(job)

    def score_batches(self) -> Iterator[int]:
        """Score the next batch and all full ones after it; yield the number of rows of each.

        Outputs are handed to their jobs after several batches: between two calls of the model,
        caches hold other code, so the less is done there, the better. Those of the first batch are
        looked at before the second one runs.
        """
        scored: list[tuple[list[Block], Heat]] = []
        size, is_full = 0, True
        while is_full:
            line = self._next()
            if line is None:
                break
            self._batches += 1
            line.served = self._batches
            batch = line.take(self._capacity(line))
            count = _count(batch)
            try:
                outputs = self._session.score([row for block in batch for row in block.rows])
            except Exception as error:
                if self._on_error is None:
                    raise
                self._record(scored)
                scored, size = [], 0
                self._score_apart(batch, error, self._on_error)
            else:
                # A copy, since a session may fill one array with the outputs of every batch.
                scored.append((batch, np.array(outputs)))
                size += scored[-1][1].nbytes
            if not self._has_recorded or len(scored) >= TOGETHER or size >= MOST_BYTES:
                self._record(scored)
                scored, size = [], 0
            yield count
            is_full = self.waiting_batches() >= 1
        self._record(scored)

    def _record(self, scored: Sequence[tuple[list[Block], Heat]]) -> None:
        """Hand the outputs of batches to the jobs that wait for them."""
        for batch, outputs in scored:
            if all(block.job.canvas in self.in_flight for block in batch):
                self._record_batch(batch, outputs)
                continue
            # Of an image that was given up meanwhile.
            ends = accumulate((len(block.rows) for block in batch), initial=0)
            for block, (begin, end) in zip(batch, pairwise(ends), strict=True):
                if block.job.canvas in self.in_flight:
                    self._record_batch([block], outputs[begin:end])

    def _record_batch(self, batch: list[Block], outputs: Heat) -> None:
        try:
            measured = self._measure_batch(batch, outputs)
        except Exception as error:
            if self._on_error is None:
                raise
            self._score_apart(batch, error, self._on_error)
            return
        self._has_recorded = True
        ends = accumulate((len(block.rows) for block in batch), initial=0)
        for block, (begin, end) in zip(batch, pairwise(ends), strict=True):
            block.job.table.note(block.rows, outputs[begin:end])
        for blocks, values in measured:
            end = 0
            for block in blocks:
                begin, end = end, end + len(block.rows)
                self.ready.extend(block.job.table.record(block, values[begin:end]))

    def _score_apart(self, batch: Sequence[Block], error: Exception, on_error: OnError) -> None:
        """Score a batch that failed again, each image by itself: that shows which one is to blame.

        An image that failed by itself is given up.
        """
        by_image: dict[Canvas, list[Block]] = {}
        for block in batch:
            by_image.setdefault(block.job.canvas, []).append(block)
        for canvas, blocks in by_image.items():
            if canvas not in self.in_flight:
                continue  # given up meanwhile
            if len(by_image) == 1:
                self._give_up(canvas, error, on_error)
                return
            try:
                outputs = self._session.score([row for block in blocks for row in block.rows])
            except Exception as own:  # noqa: BLE001, whatever the model raises
                self._give_up(canvas, own, on_error)
            else:
                self._record_batch(blocks, outputs)

    def _measure_batch(
        self, batch: Sequence[Block], outputs: Heat
    ) -> list[tuple[list[Block], Heat]]:
        """Return blocks that share their targets, and the values `(rows, targets)` of all rows."""
        found: list[tuple[list[Block], Heat]] = []
        done = 0
        for _, group in groupby(batch, key=_same_targets):
            blocks = list(group)
            count = _count(blocks)
            found.append((blocks, _measure_blocks(blocks, outputs[done : done + count])))
            done += count
        return found

    def _give_up(self, canvas: Canvas, error: Exception, on_error: OnError) -> None:
        """Forget everything that waits for an image that failed."""
        del self.in_flight[canvas]
        self.ready = deque(job for job in self.ready if job.canvas is not canvas)
        for line in self._lines.values():
            line.forget(canvas)
        on_error(canvas.position, error)

    def _next(self) -> _Line | None:
        """Return the rows of the kind that was not served for longest: none waits for ever."""
        waiting = [line for line in self._lines.values() if line.rows]
        if len(waiting) > 1:
            return min(waiting, key=_served)
        return waiting[0] if waiting else None

    def _capacity(self, line: _Line) -> int:
        canvas = line.blocks[0].job.table.canvas
        return self._session.capacity(canvas.shape, canvas.image.dtype.itemsize)


def _served(line: _Line) -> int:
    return line.served


def _kind(canvas: Canvas) -> Kind:
    return canvas.shape, canvas.image.dtype


def _count(blocks: Iterable[Block]) -> int:
    """Count the rows of blocks."""
    return sum([len(block.rows) for block in blocks])


def _same_targets(block: Block) -> tuple[int, ...]:
    """Return a key that blocks share if they have the very same targets."""
    return block.job.table.same_targets


def _measure_blocks(blocks: Sequence[Block], outputs: Heat) -> Heat:
    """Return the values `(rows, targets)` of model outputs, all finite; blocks share targets."""
    targets = blocks[0].job.table.targets
    measured = [measure(target, outputs) for target in targets]
    values = measured[0][:, None] if len(measured) == 1 else np.stack(measured, axis=1)
    if not np.logical_and.reduce(np.isfinite(values), axis=None):
        number, column = np.argwhere(~np.isfinite(values))[0]
        row = [row for block in blocks for row in block.rows][number]
        kept = row.kept or "nothing, the bare baseline"
        message = (
            f"the model gave {values[number, column]} for target "
            f"{describe_target(targets[column])} on image {row.canvas.position} with "
            f"{kept} kept; explain a finite output, such as a logit"
        )
        raise ModelError(message)
    return values
