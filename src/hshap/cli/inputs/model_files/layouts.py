"""Models that take channels last, or batches of one fixed size, as ordinary callables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from hshap.evaluators.runners import ONNX_TYPES

if TYPE_CHECKING:
    from hshap._util.types import Array, Model, ScoreFunction, Untyped


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

    def __init__(
        self, model: Model, *, last: bool, batch: int | None = None, device: str = "cpu"
    ) -> None:
        self._call, self._last, self._batch = _caller(model, device), last, batch

    def __call__(self, batch: Array) -> Array:
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
        return np.asarray(self._call(filled))[: len(inputs)]


def own_shape(program: Untyped) -> tuple[int | None, ...] | None:
    """Return the input shape of an exported program; None for an axis of any length."""
    (name,) = program.graph_signature.user_inputs
    (node,) = [node for node in program.graph.nodes if node.name == name]
    value = node.meta.get("val")
    if value is None:
        return None
    return tuple(side if isinstance(side, int) else None for side in value.shape)


def _caller(model: Model, device: str) -> ScoreFunction:
    torch, onnx = sys.modules.get("torch"), sys.modules.get("onnxruntime")
    if onnx is not None and isinstance(model, onnx.InferenceSession):
        entry = model.get_inputs()[0]
        dtype = ONNX_TYPES.get(entry.type, np.float32)

        def run(batch: Array) -> Array:
            return model.run(None, {entry.name: batch.astype(dtype, copy=False)})[0]

        return run
    if torch is None or not isinstance(model, torch.nn.Module):
        return model
    first = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))

    def call(batch: Array) -> Array:
        with torch.inference_mode():
            tensor = torch.from_numpy(np.array(batch)).to(device, first.dtype)
            return model(tensor).float().cpu().numpy()

    return call
