"""Image jobs: the searches of each image; those that the model calls negative become cheap ones.

With `positives`, images are decided in batches of many, before a partition is made. A negative
image is a job whose scores are all known, so no search runs for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np

from hshap.evaluators.canvas import Row, StandIns
from hshap.evaluators.protocol import score_rows
from hshap.explainer.choosing_parts import whole
from hshap.explanation.settings import UNEXPLAINED
from hshap.games.game import game_of
from hshap.games.jobs import Job, ScoreTable
from hshap.games.search.protocol import Question, SearchResult
from hshap.games.targets import measure, not_above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hshap._util.types import Heat
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session
    from hshap.explainer import OnProgress
    from hshap.explainer.choosing_parts import ImageRun, PartChooser
    from hshap.games.engine import OnError, Progress
    from hshap.games.search.protocol import Asking
    from hshap.games.targets import Positives, Target
    from hshap.partitions.protocol import Region

    Jobs = list[Job[ImageRun]]

MOST_BYTES = 2**26
"""Bytes of images that are read to be decided together."""


def search_jobs(
    runs: Iterator[ImageRun], parts: PartChooser, on_error: OnError | None
) -> Iterator[Jobs]:
    """Yield the searches for all targets of each image.

    An image that fails goes to `on_error`; without it, the error is raised.
    """
    for run in runs:
        yield from _try(lambda run=run: [_searches(parts, run)], run.position, on_error)


def _try(make: Callable[[], list[Jobs]], position: int, on_error: OnError | None) -> list[Jobs]:
    """Return the jobs of an image, or none if they cannot be made."""
    try:
        return make()
    except Exception as error:
        if on_error is None:
            raise
        on_error(position, error)
        return []


def _searches(parts: PartChooser, run: ImageRun, known: _Scores | None = None) -> Jobs:
    """Return the searches for all targets of an image; `known` scores are not asked for again."""
    run = parts.choose(run)
    canvas = run.backdrop.canvas(run.pixels, parts.root(run), run.position)
    return _jobs(run, canvas, known)


def _jobs(run: ImageRun, canvas: Canvas, known: _Scores | None) -> Jobs:
    table, root = ScoreTable(canvas, run.targets), canvas.root
    if known is not None:
        run = replace(run, outputs=known.outputs)
        table.know((root,), known.whole)
        if len(known.bare) == canvas.draws:
            table.know((), known.bare)
    search = run.search or _nothing
    columns = range(len(run.targets))
    return [Job(run, table, at, search, root, started=run.started) for at in columns]


def _nothing(root: Region, draws: int, /) -> Asking:
    """Search for nothing: the only game has one player, the whole image."""
    del draws
    bare, full = yield [Question(()), Question((root,))]
    values = np.array([[float(np.mean(cast("Heat", one))) for one in (bare, full)]])
    return SearchResult((), games=(game_of(root, (root,), values),))


class _Scores(NamedTuple):
    """The scores of an image `(targets,)`, and of its bare baseline `(draws, targets)`.

    `outputs` `(1 + draws, classes)` are the model's for both.
    """

    whole: Heat
    bare: Heat
    outputs: Heat

    @property
    def are_finite(self) -> bool:
        return bool(np.isfinite(self.whole).all() and np.isfinite(self.bare).all())

    def of(self, columns: Sequence[int]) -> _Scores:
        return self._replace(whole=self.whole[columns], bare=self.bare[:, columns])


@dataclass(frozen=True, eq=False)
class _Answer:
    """An image, the model's outputs `(classes,)`, and those `(draws, classes)` of its baseline."""

    run: ImageRun
    canvas: Canvas
    outputs: Heat
    hidden: Heat


class Decisions:
    """Asks the model about images and their bare baselines, those of many images in one batch."""

    def __init__(
        self, parts: PartChooser, session: Session, positives: Positives, on_error: OnError | None
    ) -> None:
        self._parts, self._session, self._on_error = parts, session, on_error
        self._positives = positives
        self._evaluations = 0
        # Of a baseline that does not look at the image, all images share one answer.
        self._hidden = WeakKeyDictionary[StandIns, "Heat"]()

    def jobs(self, runs: Iterator[ImageRun]) -> Iterator[Jobs]:
        """Yield the jobs of each image; those of negative targets end at once."""
        for block in self._blocks(runs):
            for answer in self._answers(block):
                decide = partial(_decide, self._parts, answer, self._positives)
                yield from _try(decide, answer.run.position, self._on_error)

    def count_in(self, progress: OnProgress | None) -> OnProgress | None:
        """Return a receiver of progress that counts the evaluations of decisions, too."""
        if progress is None:
            return None

        def receive(made: Progress) -> None:
            progress(replace(made, evaluations=made.evaluations + self._evaluations))

        return receive

    def _blocks(self, runs: Iterator[ImageRun]) -> Iterator[list[ImageRun]]:
        """Yield images to decide together: as many as a full batch, or as memory holds."""
        block, total = list["ImageRun"](), 0
        for run in runs:
            pixels = run.pixels
            block.append(run)
            total += pixels.nbytes
            capacity = self._session.capacity(pixels.shape, pixels.itemsize)
            if total >= MOST_BYTES or len(block) >= capacity:
                yield block
                block, total = [], 0
        if block:
            yield block

    def _answers(self, block: Sequence[ImageRun]) -> Iterator[_Answer]:
        """Yield the images of a block with their outputs; those that fail go to `on_error`."""
        kinds: dict[object, list[tuple[ImageRun, Canvas]]] = {}
        for run in block:
            for canvas in self._canvas(run):
                kinds.setdefault((run.pixels.shape, run.pixels.dtype), []).append((run, canvas))
        for some in kinds.values():
            outputs = self._outputs([canvas for _, canvas in some])
            for run, canvas in some:
                if canvas in outputs:
                    hidden = self._hidden[canvas.stand_ins]
                    yield _Answer(run, canvas, outputs[canvas], hidden)

    def _canvas(self, run: ImageRun) -> list[Canvas]:
        """Return the canvas of the whole image, or nothing if its baseline fails."""
        try:
            return [run.backdrop.canvas(run.pixels, whole(run.pixels), run.position)]
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(run.position, error)
            return []

    def _outputs(self, canvases: Sequence[Canvas]) -> dict[Canvas, Heat]:
        """Return the outputs for images of one shape; where a batch fails, each is scored alone."""
        try:
            return self._score(canvases)
        except Exception as error:
            if self._on_error is None:
                raise
            if len(canvases) == 1:
                self._on_error(canvases[0].position, error)
                return {}
        return {key: value for one in canvases for key, value in self._outputs([one]).items()}

    def _score(self, canvases: Sequence[Canvas]) -> dict[Canvas, Heat]:
        rows = [Row(canvas, (canvas.root,), 0) for canvas in canvases]
        new = {one.stand_ins: one for one in canvases if one.stand_ins not in self._hidden}
        rows += [Row(one, (), draw) for one in new.values() for draw in range(one.draws)]
        outputs = score_rows(self._session, rows)
        self._evaluations += len(rows)
        at = len(canvases)
        for stand_ins in new:
            self._hidden[stand_ins] = outputs[at : at + stand_ins.draws]
            at += stand_ins.draws
        return dict(zip(canvases, outputs, strict=False))


def _decide(parts: PartChooser, answer: _Answer, positives: Positives) -> list[Jobs]:
    """Return the jobs of an image: those that end at once, and the searches."""
    run = answer.run
    targets, every = run.targets, range(len(run.targets))
    outputs = np.concatenate([answer.outputs[None], answer.hidden])
    scores = _Scores(_values(targets, outputs[:1])[0], _values(targets, answer.hidden), outputs)
    if not scores.are_finite:  # the search asks again, and says which input it was
        return [_searches(parts, run)]
    means = scores.bare.mean(axis=0)
    reasons = {
        at: positives.reason(targets[at], answer.outputs, answer.hidden)
        or not_above(float(scores.whole[at]), float(means[at]))
        for at in every
    }
    groups: list[Jobs] = []
    if any(reasons.values()):
        groups.append(_decline(answer, scores, reasons))
    if left := [at for at in every if not reasons[at]]:
        rest = replace(run, targets=tuple(targets[at] for at in left))
        groups.append(_searches(parts, rest, scores.of(left)))
    return groups


def _decline(answer: _Answer, scores: _Scores, reasons: Mapping[int, str]) -> Jobs:
    """Return jobs that end at once, for the targets that `reasons` has a reason for."""
    columns = [at for at, reason in reasons.items() if reason]
    run = replace(
        answer.run,
        targets=tuple(answer.run.targets[at] for at in columns),
        settings=answer.run.settings.updated(partition=UNEXPLAINED, search=UNEXPLAINED),
        negatives={place: reasons[at] for place, at in enumerate(columns)},
    )
    # One number for all draws: there are no games whose errors would follow from them.
    own = scores.of(columns)
    bare = np.repeat(own.bare.mean(axis=0, keepdims=True), answer.canvas.draws, axis=0)
    return _jobs(run, answer.canvas, own._replace(bare=bare))


def _values(targets: Sequence[Target], outputs: Heat) -> Heat:
    return np.stack([measure(target, outputs) for target in targets], axis=1)
