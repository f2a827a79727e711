"""The engine: drives many searches at once and fills every batch from all of them.

It knows no model, only a session that scores rows. A search waits only for its own rows, so a batch
is smaller than full only when no search asks for more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

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


def run(
    groups: Iterable[Sequence[Job]],
    session: Session,
    progress: Callable[[Progress], None] | None = None,
    on_error: OnError | None = None,
) -> Iterator[Job]:
    """Yield jobs as they finish. The jobs of a group share an image, and so its scores.

    Without `on_error`, the first exception ends the run. With it, the image that caused one is
    given up, `on_error` gets its position and the exception, and the others go on.
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
                yield job
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
            is_full = True
            while is_full:
                evaluations += queue.score_batch()
                if progress is not None:
                    progress(Progress(evaluations, finished, len(queue.in_flight)))
                is_full = queue.waiting_batches() >= 1
        else:
            return


Kind: TypeAlias = "tuple[Shape, object]"
"""The shape and type of images, which all rows of a batch share."""

OnError: TypeAlias = "Callable[[int, Exception], None]"
"""Takes the position of an image that failed, and the exception."""


class _Queue:
    """Rows that wait for a batch, by shape and type, and jobs whose scores are all there."""

    def __init__(self, session: Session, on_error: OnError | None) -> None:
        self.ready: deque[Job] = deque()
        self.in_flight: dict[Canvas, int] = {}  # the number of jobs that each image still has
        self._session, self._on_error = session, on_error
        self._blocks: defaultdict[Kind, deque[Block]] = defaultdict(deque)
        self._batches = 0
        self._served: defaultdict[Kind, int] = defaultdict(int)

    def waiting_batches(self) -> float:
        """Return how many batches the rows of the next batch's kind would fill."""
        blocks = self._next()
        return _count(blocks) / self._capacity(blocks) if blocks else 0.0

    def start(self, group: Sequence[Job]) -> None:
        """Queue the first coalitions of all jobs of an image."""
        for job in group:
            self.in_flight[job.canvas] = len(group)
            self._ask(job)

    def advance(self) -> Job | None:
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

    def _ask(self, job: Job) -> None:
        """Queue the coalitions of a job that no other job has asked for."""
        block = job.table.ask(job)
        if block.rows:
            self._blocks[_kind(job.canvas)].append(block)
        if not job.missing:
            self.ready.append(job)

    def score_batch(self) -> int:
        """Score one batch, and return its number of rows."""
        blocks = self._next()
        self._batches += 1
        self._served[_kind(blocks[0].job.canvas)] = self._batches
        batch, room = list["Block"](), self._capacity(blocks)
        while blocks and room:
            block = blocks.popleft()
            if len(block.rows) > room:
                block, rest = block.cut(room)
                blocks.appendleft(rest)
            batch.append(block)
            room -= len(block.rows)
        self._score_blocks(batch)
        return _count(batch)

    def _score_blocks(self, batch: Sequence[Block]) -> None:
        try:
            measured = self._measured(batch)
        except Exception as error:
            if self._on_error is None:
                raise
            by_image: dict[Canvas, list[Block]] = {}
            for block in batch:
                by_image.setdefault(block.job.canvas, []).append(block)
            if len(by_image) == 1:
                self._give_up(batch[0].job.canvas, error, self._on_error)
                return
            # The others of the batch are not to blame: each image by itself shows which one is.
            for blocks in by_image.values():
                self._score_blocks(blocks)
            return
        for blocks, values in measured:
            end = 0
            for block in blocks:
                begin, end = end, end + len(block.rows)
                self.ready.extend(block.job.table.record(block, values[begin:end]))

    def _measured(self, batch: Sequence[Block]) -> list[tuple[list[Block], Heat]]:
        """Return blocks that share their targets, and the values `(rows, targets)` of all rows."""
        outputs = self._session.score([row for block in batch for row in block.rows])
        found: list[tuple[list[Block], Heat]] = []
        done = 0
        for _, group in groupby(batch, key=_same_targets):
            blocks = list(group)
            count = _count(blocks)
            found.append((blocks, _measured(blocks, outputs[done : done + count])))
            done += count
        return found

    def _give_up(self, canvas: Canvas, error: Exception, on_error: OnError) -> None:
        """Forget everything that waits for an image that failed."""
        del self.in_flight[canvas]
        self.ready = deque(job for job in self.ready if job.canvas is not canvas)
        for kind, blocks in self._blocks.items():
            self._blocks[kind] = deque(one for one in blocks if one.job.canvas is not canvas)
        on_error(canvas.position, error)

    def _next(self) -> deque[Block]:
        """Return the rows of the kind that was not served for longest: none waits for ever."""
        waiting = [(kind, blocks) for kind, blocks in self._blocks.items() if blocks]
        if len(waiting) > 1:
            return min(waiting, key=lambda one: self._served[one[0]])[1]
        return waiting[0][1] if waiting else deque()

    def _capacity(self, blocks: deque[Block]) -> int:
        canvas = blocks[0].job.canvas
        return self._session.capacity(canvas.shape, canvas.image.dtype.itemsize)


def _kind(canvas: Canvas) -> Kind:
    return canvas.shape, canvas.image.dtype


def _count(blocks: Iterable[Block]) -> int:
    """Count the rows of blocks."""
    return sum([len(block.rows) for block in blocks])


def _same_targets(block: Block) -> tuple[int, ...]:
    """Return a key that blocks share if they have the very same targets."""
    return block.job.table.same_targets


def _measured(blocks: Sequence[Block], outputs: Heat) -> Heat:
    """Return the values `(rows, targets)` of model outputs, all finite; blocks share targets."""
    targets = blocks[0].job.table.targets
    measured = [measure(target, outputs) for target in targets]
    values = measured[0][:, None] if len(measured) == 1 else np.stack(measured, axis=1)
    if not np.isfinite(values).all():
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
