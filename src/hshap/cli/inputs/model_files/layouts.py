"""Models that take channels last, or batches of one fixed size, as ordinary callables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.evaluators.outputs import scores_in
from hshap.evaluators.runners import caller

if TYPE_CHECKING:
    from hshap._util.types import Array, Model, Untyped


class Rearranged:
    """A model as a callable on NumPy batches `(n, channels, height, width)` of any length.

    `last` moves the channels to the end. `batch` is the fixed batch size of the model, if it has
    one; a shorter batch is filled up with copies of its last image.

    >>> seen = []
    >>> def model(batch):
    ...     seen.append(batch.shape)
    ...     return batch.sum(axis=(1, 2, 3))
    >>> Rearranged(model, last=True, batch=2)(np.ones((3, 1, 4, 4))).tolist()
    [16.0, 16.0, 16.0]
    >>> seen
    [(2, 4, 4, 1), (2, 4, 4, 1)]
    """

    def __init__(self, model: Model, *, last: bool, batch: int | None = None) -> None:
        self._call, self._last, self._batch = caller(model), last, batch

    def __call__(self, batch: Array) -> object:
        """Return the scores of a batch."""
        inputs = np.moveaxis(batch, 1, -1) if self._last else batch
        if self._batch is None:
            return self._call(np.ascontiguousarray(inputs))
        scores = [
            self._part(inputs[i : i + self._batch]) for i in range(0, len(inputs), self._batch)
        ]
        return np.concatenate(scores)

    def _part(self, inputs: Array) -> Array:
        missing = (self._batch or 0) - len(inputs)
        filled = np.concatenate([inputs, np.repeat(inputs[-1:], missing, axis=0)])
        return to_numpy("the model's output", scores_in(self._call(filled)))[: len(inputs)]


def own_shape(program: Untyped) -> tuple[int | None, ...] | None:
    """Return the input shape of an exported program; None for an axis of any length."""
    (name,) = program.graph_signature.user_inputs
    (node,) = [node for node in program.graph.nodes if node.name == name]
    value = node.meta.get("val")
    if value is None:
        return None
    return tuple(side if isinstance(side, int) else None for side in value.shape)
