"""Batched: paint every coalition in full and call the model on batches of inputs."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.evaluators.batch_independence import BatchIndependence
from hshap.evaluators.batch_size import BatchLimits, Throughput
from hshap.evaluators.outputs import naming_inputs, raise_named
from hshap.evaluators.painting import Inputs, Sketch, paint_all
from hshap.evaluators.protocol import Provenance
from hshap.evaluators.runners import Runner, runner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Heat, Model, Shape, Tensor
    from hshap.evaluators.canvas import Row

LARGEST_BATCH = 32
"""Default batch; larger ones take longer per image on CPUs, whose caches the activations leave."""

LARGEST_BYTES = 128 * 2**20
"""Default limit of a batch's inputs."""

AUTO = "auto"


@recipe
class Batched:
    """Paint every coalition in full and call the model on batches of inputs.

    `model` is a torch module in eval mode (its device and type are used), an onnxruntime session,
    or any callable from a NumPy batch `(n, *image.shape)` to scores `(n,)` or
    `(n, classes)`. By default a batch has up to 32 images and 128 MiB of input. With
    `batch_size="auto"`, the first full batches of a run have other sizes, too, and the fastest one
    stays; it may then differ from run to run, and with it the last digits of scores. When memory
    runs out, the batch is halved and the run continues. Three inputs of the first two batches are
    scored again, alone: if scores depend on the other inputs, every input runs alone, and a warning
    says so. `check_batches=False` saves these inputs where evaluations are counted to the last one.
    `autocast` ("bfloat16", "float16") and `channels_last` are for torch. An exception of the model
    becomes a `ModelFailedError`.

    >>> Batched(lambda batch: batch.mean(axis=(1, 2, 3)), batch_size=8).batch_size
    8
    """

    model: Model
    batch_size: int | Literal["auto"] | None = None
    autocast: str | None = None
    channels_last: bool = False
    check_batches: bool = True

    def __post_init__(self) -> None:
        if self.batch_size not in (None, AUTO):
            size = checks.integer("batch_size", self.batch_size, minimum=1)
            settle(self, batch_size=size)
        checks.flag("channels_last", self.channels_last)
        checks.flag("check_batches", self.check_batches)
        self._runner()

    def open_session(self) -> BatchedSession:
        """Start a run."""
        return BatchedSession(self._runner(), self.batch_size, check_batches=self.check_batches)

    def _runner(self) -> Runner:
        return runner(self.model, autocast=self.autocast, channels_last=self.channels_last)


class BatchedSession:
    """Paints rows into inputs that it reuses, and calls the model on them."""

    def __init__(
        self, run: Runner, batch_size: int | Literal["auto"] | None, *, check_batches: bool = True
    ) -> None:
        self._runner = run
        self._batch_size = None if batch_size == AUTO else batch_size
        self._throughput = Throughput() if batch_size == AUTO else None
        self._limits = BatchLimits()
        self.independence = BatchIndependence(
            run.precision, run.batch_dependence, warn=batch_size != 1, check=check_batches
        )
        self._inputs: Inputs | None = None
        self._sketch: Sketch | None = None
        self._scored = Counter[int]()
        self._usual: tuple[Shape, int, int] = ((), 0, 0)  # the last shape that was asked about

    def provenance(self, position: int) -> Provenance:
        """Return how the scores of an image were made so far."""
        return Provenance(full=self._scored[position], batches=self.independence.outcome)

    @property
    def runs_alone(self) -> bool:
        """Whether every input runs alone, since scores depend on the batch."""
        return self.independence.run_alone

    def put(self, array: Array) -> Tensor:
        return self._runner.put(array)

    def painted(self, row: Row) -> Tensor:
        """Return a row's input, which the model must not get; the next call paints over it."""
        if self._sketch is None or not self._sketch.fits(row):
            self._sketch = None  # free the old one before asking for another
            self._sketch = Sketch(self._new_inputs(row, 1))
        return self._sketch.painted(row)

    def capacity(self, shape: Shape, itemsize: int) -> int:
        if self.independence.outcome == "dependent":
            return 1
        if self._throughput is not None or self._limits.known:
            return self._capacity(shape, itemsize)
        # As long as no batch was too large, all full ones of a shape have one size.
        if self._usual[:2] != (shape, itemsize):
            self._usual = (shape, itemsize, self._capacity(shape, itemsize))
        return self._usual[2]

    def _capacity(self, shape: Shape, itemsize: int) -> int:
        by_memory = max(1, LARGEST_BYTES // (prod(shape) * itemsize))
        wanted = self._batch_size or min(LARGEST_BATCH, by_memory)
        auto = by_memory if self._throughput is not None else None
        limits = (auto, self._limits.get(shape), self._runner.largest_batch)
        most = min([limit for limit in limits if limit is not None], default=wanted)
        if self._throughput is None:
            return min(wanted, most)
        return self._throughput.size(shape, min(wanted, most), most)

    def score(self, rows: Sequence[Row]) -> Heat:
        scores = self._limits.scores(rows, self._score_independently, self._drop_inputs)
        for canvas, some in groupby(rows, key=itemgetter(0)):
            self._scored[canvas.position] += len(list(some))
        return scores

    def _score_independently(self, rows: Sequence[Row]) -> Heat:
        run = self._run if self._throughput is None else self._run_timed
        return self.independence.scores(rows, run)

    def _run_timed(self, rows: Sequence[Row]) -> Heat:
        if self._throughput is None:
            return self._run(rows)
        shape = rows[0].canvas.shape
        return self._throughput.timed(shape, len(rows), lambda: self._run(rows))

    def _run(self, rows: Sequence[Row]) -> Heat:
        inputs = self._inputs_for(rows)
        # A baseline may fail here; the model is not to blame for that.
        paint_all(rows, inputs.array)
        before, self._inputs = inputs.holders, None
        try:
            scores = self._runner.run(inputs.array, len(rows))
        except Exception as error:  # noqa: BLE001, whatever the model raises
            raise_named(error, rows)
        # A model that keeps its input could write to it during the next call.
        if before is not None and inputs.holders == before:
            self._inputs = inputs
        return scores

    def _drop_inputs(self) -> None:
        self._inputs = self._sketch = None

    def _inputs_for(self, rows: Sequence[Row]) -> Inputs:
        """Return inputs that rows can be painted on: the last ones, if they fit."""
        canvas, last = rows[0].canvas, self._inputs
        if last is not None and last.fit(canvas.shape, canvas.image.dtype, len(rows)):
            return last
        self._inputs = last = None  # free the old inputs before asking for new ones
        # As many as a usual batch has, since batches grow as a search widens.
        usual = min(self.capacity(canvas.shape, canvas.image.dtype.itemsize), LARGEST_BATCH)
        with naming_inputs(rows):
            return self._new_inputs(rows[0], max(len(rows), usual))

    def _new_inputs(self, row: Row, count: int) -> Inputs:
        dtype = row.canvas.image.dtype
        return Inputs(self._runner.inputs(count, row.canvas.shape, dtype), dtype)
