"""Evaluators: score rows, that is coalitions shown on canvases, with a model.

An evaluator is a recipe; `open_session()` gives the session that does the work of one run and
holds what the run can reuse. An accelerator implements these two protocols and nothing else.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import HshapError, ModelError, ModelFailedError
from hshap.evaluators.runners import Runner, free_memory, out_of_memory, runner
from hshap.partitions.regions import copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Tensor
    from hshap.evaluators.canvas import Row
    from hshap.partitions.protocol import Coalition

LARGEST_BATCH = 32  # larger ones run slower per image on CPUs: activations leave the cache
LARGEST_BYTES = 128 * 2**20


@recipe
class Batched:
    """Paint every coalition in full and call the model on batches of them.

    `model` is a torch module in eval mode (its device and type are used), an onnxruntime session,
    or any callable from a read-only NumPy batch `(n, *image.shape)` to scores `(n,)` or
    `(n, classes)`. By default a batch has up to 32 images and 128 MiB of input. When memory runs
    out, the batch is halved and the run goes on. `autocast` ("bfloat16", "float16") and
    `channels_last` are for torch.

    >>> Batched(lambda batch: batch.mean(axis=(1, 2, 3)), batch_size=8).batch_size
    8
    """

    model: Any
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
    """Paints rows into inputs that are kept, and calls the model on them."""

    def __init__(self, run: Runner, batch_size: int | None) -> None:
        self._runner = run
        self._batch_size = batch_size
        self._most: dict[tuple[int, ...], int] = {}  # what memory turned out to allow
        self._inputs: Inputs | None = None

    def put(self, array: NDArray[Any]) -> Tensor:
        return self._runner.put(array)

    def painted(self, row: Row) -> Tensor:
        """Return a row's input; it is painted over with the next."""
        inputs = self._room([row])
        inputs.paint(0, row)
        return inputs.array[0]

    def capacity(self, shape: tuple[int, ...], itemsize: int) -> int:
        by_memory = max(1, LARGEST_BYTES // (prod(shape) * itemsize))
        wanted = self._batch_size or min(LARGEST_BATCH, by_memory)
        limits = (wanted, self._most.get(shape), self._runner.largest_batch)
        return min(limit for limit in limits if limit is not None)

    def score(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        parts: list[NDArray[np.float64]] = []
        done, shape = 0, rows[0].canvas.shape
        while done < len(rows):
            batch = rows[done : done + self._most.get(shape, len(rows))]
            try:
                parts.append(self._run(batch))
            except ModelError as error:
                canvas, kept, _ = batch[0]
                message = f"{error} (the first: image {canvas.position} with {kept} kept)"
                raise ModelError(message) from error
            except HshapError:
                raise
            except Exception as error:
                if not out_of_memory(error) or len(batch) == 1:
                    raise _failure(error, batch) from error
            else:
                done += len(batch)
                continue
            # Outside the except clause: the traceback no longer holds the batch that was too big.
            self._most[shape] = len(batch) // 2
            self._inputs = None
            free_memory()
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _run(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        inputs = self._room(rows)
        for place, row in enumerate(rows):
            inputs.paint(place, row)
        scores, untouched = self._runner.run(inputs.array, len(rows))
        if not untouched:
            inputs.forget()
        return scores

    def _room(self, rows: Sequence[Row]) -> Inputs:
        """Return inputs for rows to be painted on: those of the last time, if they fit."""
        image = rows[0].canvas.image
        shape = rows[0].canvas.shape
        if self._inputs is None or not self._inputs.fit(shape, image.dtype, len(rows)):
            self._inputs = None  # let go of the old ones before asking for new
            # All at once: batches grow as a search widens, and each new size would start blank.
            usual = min(self.capacity(shape, image.dtype.itemsize), LARGEST_BATCH)
            count = max(len(rows), usual)
            made = self._runner.inputs(count, shape, image.dtype)
            self._inputs = Inputs(made, shape, image.dtype, count)
        return self._inputs


class Inputs:
    """A batch of inputs; each remembers what was painted on it, so that only that is undone."""

    def __init__(self, array: Tensor, shape: tuple[int, ...], dtype: Any, count: int) -> None:
        self.array, self._shape, self._dtype = array, shape, dtype
        self._under: list[Tensor | None] = [None] * count
        self._over: list[Coalition] = [()] * count

    def fit(self, shape: tuple[int, ...], dtype: Any, count: int) -> bool:
        """Tell whether rows of a shape and type can be painted here."""
        return (shape, dtype) == (self._shape, self._dtype) and count <= len(self._under)

    def paint(self, place: int, row: Row) -> None:
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
        self._under = [None] * len(self._under)


def _failure(error: Exception, rows: Sequence[Row]) -> ModelFailedError:
    """Return the exception that says which inputs the model failed on."""
    canvas = rows[0].canvas
    message = (
        f"the model failed on a batch of {len(rows)} inputs of shape {canvas.shape}, the first "
        f"from image {canvas.position} of the run: {type(error).__name__}: {error}"
    )
    return ModelFailedError(message)
