"""Batched: paint every coalition in full and call the model on batches of inputs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ModelFailedError
from hshap.evaluators.outputs import free_memory, naming_inputs, out_of_memory
from hshap.evaluators.runners import Runner, runner
from hshap.partitions.regions import copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Heat, Model, Shape, Tensor
    from hshap.evaluators.canvas import Row
    from hshap.partitions.protocol import Coalition

LARGEST_BATCH = 32
"""Default batch; larger ones take longer per image on CPUs, whose caches the activations leave."""

LARGEST_BYTES = 128 * 2**20
"""Default limit of a batch's inputs."""


@recipe
class Batched:
    """Paint every coalition in full and call the model on batches of inputs.

    `model` is a torch module in eval mode (its device and type are used), an onnxruntime session,
    or any callable from a read-only NumPy batch `(n, *image.shape)` to scores `(n,)` or
    `(n, classes)`. By default a batch has up to 32 images and 128 MiB of input. When memory runs
    out, the batch is halved and the run continues. `autocast` ("bfloat16", "float16") and
    `channels_last` are for torch. An exception of the model becomes a `ModelFailedError`.

    >>> Batched(lambda batch: batch.mean(axis=(1, 2, 3)), batch_size=8).batch_size
    8
    """

    model: Model
    batch_size: int | None = None
    autocast: str | None = None
    channels_last: bool = False

    def __post_init__(self) -> None:
        if self.batch_size is not None:
            size = checks.integer("batch_size", self.batch_size, minimum=1)
            settle(self, batch_size=size)
        checks.flag("channels_last", self.channels_last)
        self._runner()

    def open_session(self) -> BatchedSession:
        """Start a run."""
        return BatchedSession(self._runner(), self.batch_size)

    def _runner(self) -> Runner:
        return runner(self.model, autocast=self.autocast, channels_last=self.channels_last)


class BatchedSession:
    """Paints rows into inputs that it reuses, and calls the model on them."""

    def __init__(self, run: Runner, batch_size: int | None) -> None:
        self._runner = run
        self._batch_size = batch_size
        self._limits: dict[Shape, int] = {}  # the batch that memory allows, where it ran out
        self._inputs: Inputs | None = None

    def put(self, array: Array) -> Tensor:
        return self._runner.put(array)

    def painted(self, row: Row) -> Tensor:
        """Return a row's input; the next call paints over it."""
        inputs = self._inputs_for([row])
        inputs.paint(0, row)
        return inputs.array[0]

    def capacity(self, shape: Shape, itemsize: int) -> int:
        by_memory = max(1, LARGEST_BYTES // (prod(shape) * itemsize))
        wanted = self._batch_size or min(LARGEST_BATCH, by_memory)
        limits = (wanted, self._limits.get(shape), self._runner.largest_batch)
        return min(limit for limit in limits if limit is not None)

    def score(self, rows: Sequence[Row]) -> Heat:
        parts: list[Heat] = []
        done, shape = 0, rows[0].canvas.shape
        while done < len(rows):
            batch = rows[done : done + self._limits.get(shape, len(rows))]
            try:
                parts.append(self._run(batch))
            except Exception as error:
                cause = error.__cause__ if isinstance(error, ModelFailedError) else error
                if not out_of_memory(cause) or len(batch) == 1:
                    raise
            else:
                done += len(batch)
                continue
            # Outside the except clause: the traceback no longer holds the batch that was too big.
            self._limits[shape] = len(batch) // 2
            self._inputs = None
            free_memory()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _run(self, rows: Sequence[Row]) -> Heat:
        with naming_inputs(rows):
            inputs = self._inputs_for(rows)
        # A baseline may fail here; the model is not to blame for that.
        for place, row in enumerate(rows):
            inputs.paint(place, row)
        with naming_inputs(rows):
            scores, untouched = self._runner.run(inputs.array, len(rows))
        if not untouched:
            inputs.forget()
        return scores

    def _inputs_for(self, rows: Sequence[Row]) -> Inputs:
        """Return inputs that rows can be painted on: the last ones, if they fit."""
        image = rows[0].canvas.image
        shape = rows[0].canvas.shape
        if self._inputs is None or not self._inputs.fit(shape, image.dtype, len(rows)):
            self._inputs = None  # free the old inputs before asking for new ones
            # As many as will ever be needed: batches grow as a search widens, and inputs of every
            # new size would have to be painted in full.
            usual = min(self.capacity(shape, image.dtype.itemsize), LARGEST_BATCH)
            count = max(len(rows), usual)
            made = self._runner.inputs(count, shape, image.dtype)
            self._inputs = Inputs(made, shape, image.dtype, count)
        return self._inputs


class Inputs:
    """A batch of inputs. Each remembers its painted regions, so that only those are undone."""

    def __init__(self, array: Tensor, shape: Shape, dtype: object, count: int) -> None:
        self.array, self._shape, self._dtype = array, shape, dtype
        self._under: list[Tensor | None] = [None] * count
        self._over: list[Coalition] = [()] * count

    def fit(self, shape: Shape, dtype: object, count: int) -> bool:
        """Tell whether rows of a shape and type can be painted here."""
        return (shape, dtype) == (self._shape, self._dtype) and count <= len(self._under)

    def paint(self, place: int, row: Row) -> None:
        """Paint one row over the last one at a place of the batch."""
        target, under = self.array[place], row.canvas.stand_ins(row.kept, row.draw)
        if self._under[place] is under:
            for region in self._over[place]:
                copy(region, under, target)
        else:
            target[...] = under
        for region in row.kept:
            copy(region, row.canvas.image, target)
        self._under[place], self._over[place] = under, row.kept

    def forget(self) -> None:
        """Paint every input in full the next time: the model has written to some."""
        self._under = [None] * len(self._under)
