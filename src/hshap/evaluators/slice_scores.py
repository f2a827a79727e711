"""Slices: a model of single slices scores a whole exam; a slice is scored once for each state."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.cache import BoundedCache, ByIdentity
from hshap._util.recipes import recipe, settle
from hshap.baselines.protocol import Still
from hshap.errors import ArgumentError
from hshap.evaluators.canvas import Canvas, Row, StandIns
from hshap.evaluators.protocol import Provenance, provenance_of
from hshap.evaluators.tiles import BEST_TILE, check_bags, embedded, outputs_of
from hshap.partitions.by_slices import check_axis, in_slices
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Heat, Shape, Tensor
    from hshap.evaluators.bags import Bags
    from hshap.evaluators.protocol import Evaluator, Session
    from hshap.partitions.protocol import Coalition, Region

MOST_ROWS = 64
"""Exams in a batch; the slices that they need are batched by the evaluator of slices."""

MOST_EXAMS = 8
"""Exams whose scores of slices are kept at a time."""


@recipe
class Slices:
    """Score an exam by a model of its slices: their outputs are pooled.

    `slices` is the evaluator of single slices, such as `Batched(model)`. `axis` is the number of
    the spatial axis that they lie along. `bags` pools the outputs over slices; by default the exam
    scores as its best slice does, for each output. A slice is scored once for each set of regions
    that is shown in it, so showing and hiding whole slices costs two evaluations for each slice.

    >>> import hshap
    >>> Slices(hshap.Batched(lambda slices: slices.max(axis=(1, 2, 3)))).axis
    0
    """

    slices: Evaluator
    axis: int = 0
    bags: Bags = BEST_TILE

    def __post_init__(self) -> None:
        settle(self, axis=checks.integer("axis", self.axis, minimum=0))
        check_bags(self.bags)

    def open_session(self) -> SliceSession:
        """Start a run."""
        return SliceSession(self)


class SliceSession:
    """Scores the slices that rows need, and pools them."""

    def __init__(self, recipe: Slices) -> None:
        self._recipe = recipe
        self._inner = recipe.slices.open_session()
        self._exams = BoundedCache[_Exam](MOST_EXAMS)
        self._seen = Counter[int]()

    def provenance(self, position: int) -> Provenance:
        """Return how the scores of an exam were made; `full` counts slices."""
        made = provenance_of(self._inner, position)
        return made if made.is_told else Provenance(full=self._seen[position])

    def put(self, array: Array) -> Tensor:
        return array

    def capacity(self, shape: Shape, itemsize: int) -> int:
        del shape, itemsize
        return MOST_ROWS

    def score(self, rows: Sequence[Row]) -> Heat:
        exams = [self._exam(row.canvas) for row in rows]
        asked = [exam.states(row) for exam, row in zip(exams, rows, strict=True)]
        waiting: dict[tuple[int, State], tuple[_Exam, State]] = {}
        for exam, states in zip(exams, asked, strict=True):
            for state in states:
                if state not in exam.outputs:
                    waiting.setdefault((id(exam), state), (exam, state))
        self._fill(list(waiting.values()))
        bags = self._recipe.bags
        pooled = [
            _pool(bags, np.stack([exam.outputs[state] for state in states]))
            for exam, states in zip(exams, asked, strict=True)
        ]
        return outputs_of(bags, np.stack(pooled))

    def _fill(self, waiting: Sequence[tuple[_Exam, State]]) -> None:
        start = 0
        while start < len(waiting):
            exam = waiting[start][0]
            most = max(1, self._inner.capacity(exam.shape, exam.itemsize))
            # Exams of a batch have one shape, and so have their slices.
            some = waiting[start : start + most]
            made = self._inner.score([own.row(state) for own, state in some])
            for (own, state), output in zip(some, made, strict=True):
                own.outputs[state] = output
                self._seen[own.position] += 1
            start += len(some)

    def _exam(self, canvas: Canvas) -> _Exam:
        key = ByIdentity(canvas.stand_ins), ByIdentity(canvas.image)
        found = self._exams.get(key)
        if found is None:
            found = _Exam(canvas, self._recipe.axis, self._inner)
            self._exams.put(key, found)
        return found


State = tuple[int, int, "Coalition | None"]
"""A slice, a draw of its stand-in, and the regions that are shown in it; None for all of it."""


class _Exam:
    """The slices of one exam, and the model's outputs for the states of each."""

    def __init__(self, canvas: Canvas, axis: int, inner: Session) -> None:
        check_axis(axis, canvas.grid)
        if not canvas.is_still:
            message = (
                "baseline depends on the shown pixels, so slices cannot be scored one by one; pass "
                "one such as Constant, Mean or Blur"
            )
            raise ArgumentError(message)
        self._axis, self._grid = axis, canvas.grid
        self.outputs: dict[State, Heat] = {}
        self._parts: dict[Region, dict[int, Region]] = {}
        self.position = canvas.position
        image = to_numpy("image", canvas.image)
        self._draws = canvas.draws
        hidden = np.stack([canvas.stand_ins((), draw) for draw in range(canvas.draws)])
        pictures = np.moveaxis(image, axis + 1, 0)
        stand_ins = np.moveaxis(hidden, axis + 2, 0)
        self.shape = pictures.shape[1:]
        self.itemsize = image.dtype.itemsize
        root = Box((0,) * (len(self.shape) - 1), self.shape[1:])
        self._root, self._canvases = root, list[Canvas]()
        self._like: list[int] = []  # the first slice whose stand-in is the same
        for number, (picture, behind) in enumerate(zip(pictures, stand_ins, strict=True)):
            fill = Still(np.ascontiguousarray(behind))
            made = StandIns(fill, self.shape, inner.put)
            pixels = np.ascontiguousarray(picture)
            self._canvases.append(
                Canvas(pixels, made, root, put=inner.put, position=canvas.position)
            )
            same = number and np.array_equal(behind, stand_ins[self._like[-1]])
            self._like.append(self._like[-1] if same else number)

    def states(self, row: Row) -> list[State]:
        """Return the state of each slice in a row."""
        shown: dict[int, list[Region]] = {}
        for region in row.kept:
            for number, part in self._in_slices(region).items():
                shown.setdefault(number, []).append(part)
        return [
            self._state(number, tuple(shown.get(number, ())), row.draw)
            for number in range(len(self._canvases))
        ]

    def row(self, state: State) -> Row:
        """Return the input of the model for a state of a slice."""
        number, draw, kept = state
        return Row(self._canvases[number], (self._root,) if kept is None else kept, draw)

    def _state(self, number: int, kept: Coalition, draw: int) -> State:
        if sum(region.area for region in kept) == self._root.area:
            return number, 0, None
        return (number, draw, kept) if kept else (self._like[number], draw, ())

    def _in_slices(self, region: Region) -> dict[int, Region]:
        if region not in self._parts:
            self._parts[region] = dict(in_slices(region, self._axis, self._grid))
        return self._parts[region]


def _pool(bags: Bags, outputs: Heat) -> Heat:
    """Return the bag of the slices' outputs `(slices, classes)`."""
    made = embedded(bags, outputs)
    return made.sum(axis=0) if bags.pool == "sum" else made.max(axis=0)
