"""Deciding: images become jobs, and those that the model calls negative become cheap ones.

Images are decided in batches of many, before a partition is made. A negative image is a job whose
scores are all known, so no search runs for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np

from hshap.evaluators.canvas import Row, StandIns
from hshap.explainer.setups import Chosen, Setup, whole
from hshap.explanation.settings import UNEXPLAINED
from hshap.games.decisions import not_above
from hshap.games.game import game_of
from hshap.games.jobs import Job, ScoreTable
from hshap.games.search.protocol import Question, SearchResult
from hshap.games.targets import measure
from hshap.partitions.grids import AUTO, Bisection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from hshap._util.types import Heat
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session
    from hshap.explainer.setups import Hiding, Reading, Setups
    from hshap.games.decisions import Positives
    from hshap.games.engine import OnError
    from hshap.games.search.protocol import Asking
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Region

MOST_BYTES = 2**26
"""Bytes of images that are read to be decided together."""


class ReadOrder(NamedTuple):
    """An image that was read, its number in the run, its targets, and its own baseline if any."""

    position: int
    reading: Reading
    targets: tuple[Target, ...]
    baseline: Baseline | None


class _Hidden(NamedTuple):
    """The baseline of an image, and the canvas of both."""

    hiding: Hiding
    canvas: Canvas


@dataclass(frozen=True, eq=False)
class Decided:
    """An image, the model's outputs `(classes,)`, and those `(draws, classes)` of its baseline."""

    order: ReadOrder
    below: _Hidden
    outputs: Heat
    hidden: Heat


def as_jobs(
    orders: Iterator[ReadOrder],
    setups: Setups,
    session: Session,
    positives: Positives | None,
    on_error: OnError | None,
) -> Iterator[list[Job]]:
    """Yield the jobs of each image; with `positives`, those of negative targets are cheap.

    An image that fails goes to `on_error`; without it, the error is raised.
    """
    if positives is None:
        for order in orders:
            yield from _tried(partial(_explaining, setups, order), order.position, on_error)
        return
    deciding = _Deciding(setups, session, on_error)
    for block in _blocks(orders, session):
        for one in deciding.decided(block):
            made = partial(_deciding, setups, one, positives)
            yield from _tried(made, one.order.position, on_error)


def _tried(
    make: Callable[[], list[list[Job]]], position: int, on_error: OnError | None
) -> list[list[Job]]:
    """Return the jobs of an image, or none if they cannot be made."""
    try:
        return make()
    except Exception as error:
        if on_error is None:
            raise
        on_error(position, error)
        return []


def _explaining(setups: Setups, order: ReadOrder) -> list[list[Job]]:
    return [_searches(setups, order, setups.hide(order.reading, order.baseline))]


def _searches(
    setups: Setups, order: ReadOrder, hiding: Hiding, known: _Scores | None = None
) -> list[Job]:
    """Return the searches for all targets of an image; `known` scores are not asked for again."""
    pixels, targets = order.reading.pixels, order.targets
    setup = setups.make(order.reading, hiding)
    canvas = setup.easel.canvas(pixels, setup.easel.root(setup.partition, pixels), order.position)
    return _jobs(setups, setup, ScoreTable(canvas, targets), known)


def _jobs(setups: Setups, setup: Setup, table: ScoreTable, known: _Scores | None) -> list[Job]:
    root = table.canvas.root
    if known is not None:
        setup = replace(setup, outputs=known.outputs)
        table.know((root,), known.whole)
        if len(known.bare) == table.canvas.draws:
            table.know((), known.bare)
    setups.keep(table, setup)
    return [
        Job(table, column, setup.search, root, setup.started)
        for column in range(len(table.targets))
    ]


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


def _deciding(setups: Setups, one: Decided, positives: Positives) -> list[list[Job]]:
    """Return the jobs of an image: one group for each baseline that its targets have."""
    order, hiding = one.order, one.below.hiding
    targets, every = order.targets, range(len(order.targets))
    outputs = np.concatenate([one.outputs[None], one.hidden])
    scores = _Scores(_values(targets, outputs[:1])[0], _values(targets, one.hidden), outputs)
    if not scores.are_finite:  # the search asks again, and says which input it was
        return [_searches(setups, order, setups.hide(order.reading, order.baseline))]
    told = {at: positives.reason(targets[at], one.outputs, one.hidden) for at in every}
    against = [at for at in every if told[at]]
    groups = [_declined(setups, order, one.below, scores.of(against), told)] if against else []
    left = [at for at in every if not told[at]]
    if not left:
        return groups
    rest = order._replace(targets=tuple(targets[at] for at in left))
    scores = scores.of(left)
    means = scores.bare.mean(axis=0)
    told = {at: not_above(float(scores.whole[at]), float(means[at])) for at in range(len(left))}
    if below := [at for at in told if told[at]]:
        groups.append(_declined(setups, rest, one.below, scores.of(below), told))
    if above := [at for at in told if not told[at]]:
        rest = rest._replace(targets=tuple(rest.targets[at] for at in above))
        groups.append(_searches(setups, rest, hiding, scores.of(above)))
    return groups


def _declined(
    setups: Setups, order: ReadOrder, hidden: _Hidden, scores: _Scores, told: Mapping[int, str]
) -> list[Job]:
    """Return jobs that end at once, for the targets that `told` has a reason for."""
    columns, hiding = [at for at, reason in told.items() if reason], hidden.hiding
    targets = [order.targets[at] for at in columns]
    setup = Setup(
        easel=hiding.easel,
        partition=Bisection(AUTO),
        search=_nothing,
        settings=hiding.settings.updated(partition=UNEXPLAINED, search=UNEXPLAINED),
        started=hiding.started,
        chosen=Chosen(order.reading.told, hiding.reason),
        class_names=setups.class_names,
        negatives={place: told[at] for place, at in enumerate(columns)},
    )
    # One number for all draws: there are no games whose errors would follow from them.
    bare = np.repeat(scores.bare.mean(axis=0, keepdims=True), hidden.canvas.draws, axis=0)
    return _jobs(setups, setup, ScoreTable(hidden.canvas, targets), scores._replace(bare=bare))


def _nothing(root: Region, draws: int, /) -> Asking:
    """Search for nothing: the only game has one player, the whole image."""
    del draws
    bare, full = yield [Question(()), Question((root,))]
    values = np.array([[float(np.mean(cast("Heat", one))) for one in (bare, full)]])
    return SearchResult((), games=(game_of(root, (root,), values),))


def _values(targets: Sequence[Target], outputs: Heat) -> Heat:
    return np.stack([measure(target, outputs) for target in targets], axis=1)


def _blocks(orders: Iterator[ReadOrder], session: Session) -> Iterator[list[ReadOrder]]:
    """Yield images in blocks to decide together: as many as a full batch, or as memory holds."""
    block, total = list[ReadOrder](), 0
    for order in orders:
        pixels = order.reading.pixels
        block.append(order)
        total += pixels.nbytes
        if total >= MOST_BYTES or len(block) >= session.capacity(pixels.shape, pixels.itemsize):
            yield block
            block, total = [], 0
    if block:
        yield block


class _Deciding:
    """Scores images and their bare baselines, those of many images in one batch."""

    def __init__(self, setups: Setups, session: Session, on_error: OnError | None) -> None:
        self._setups, self._session, self._on_error = setups, session, on_error
        # Of a baseline that does not look at the image, all images share one answer.
        self._hidden = WeakKeyDictionary[StandIns, "Heat"]()

    def decided(self, block: Sequence[ReadOrder]) -> Iterator[Decided]:
        """Yield the images of a block with their outputs; those that fail go to `on_error`."""
        kinds: dict[object, list[tuple[ReadOrder, _Hidden]]] = {}
        for order in block:
            pixels = order.reading.pixels
            for one in self._below(order):
                kinds.setdefault((pixels.shape, pixels.dtype), []).append((order, one))
        for some in kinds.values():
            outputs = self._outputs([one.canvas for _, one in some])
            for order, one in some:
                if one.canvas in outputs:
                    hidden = self._hidden[one.canvas.stand_ins]
                    yield Decided(order, one, outputs[one.canvas], hidden)

    def _below(self, order: ReadOrder) -> list[_Hidden]:
        try:
            hiding, pixels = self._setups.hide(order.reading, order.baseline), order.reading.pixels
            return [_Hidden(hiding, hiding.easel.canvas(pixels, whole(pixels), order.position))]
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(order.position, error)
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
        session = self._session
        rows = [Row(canvas, (canvas.root,), 0) for canvas in canvases]
        new = {one.stand_ins: one for one in canvases if one.stand_ins not in self._hidden}
        rows += [Row(one, (), draw) for one in new.values() for draw in range(one.draws)]
        most = session.capacity(canvases[0].shape, canvases[0].image.dtype.itemsize)
        # Copies, since a session may fill one array with the outputs of every batch.
        starts = range(0, len(rows), most)
        batches = [np.array(session.score(rows[at : at + most])) for at in starts]
        self._setups.spend(len(rows))
        outputs = np.concatenate(batches)
        at = len(canvases)
        for stand_ins in new:
            self._hidden[stand_ins] = outputs[at : at + stand_ins.draws]
            at += stand_ins.draws
        return dict(zip(canvases, outputs, strict=False))
