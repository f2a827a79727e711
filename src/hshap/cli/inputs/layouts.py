"""Models that want their inputs otherwise: channels last, or batches of one size only."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hshap.evaluators.runners import ONNX_TYPES


class Rearranged:
    """A model as a callable of NumPy batches `(n, channels, height, width)` of any length.

    `last` puts the channels last; `batch` is the only number of images that the model takes at
    once, and what is missing is filled up with the last image.

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
        self, model: Any, *, last: bool, batch: int | None = None, device: str = "cpu"
    ) -> None:
        self._call, self._last, self._batch = _caller(model, device), last, batch

    def __call__(self, batch: Any) -> Any:
        """Return the scores of a batch."""
        inputs = np.moveaxis(batch, 1, -1) if self._last else batch
        if self._batch is None:
            return self._call(np.ascontiguousarray(inputs))
        scores = [
            self._part(inputs[i : i + self._batch]) for i in range(0, len(inputs), self._batch)
        ]
        return np.concatenate(scores)

    def _part(self, inputs: Any) -> Any:
        missing = (self._batch or 0) - len(inputs)
        filled = np.concatenate([inputs, np.repeat(inputs[-1:], missing, axis=0)])
        return np.asarray(self._call(filled))[: len(inputs)]


def own_shape(program: Any) -> tuple[int | None, ...] | None:
    """Return the input shape that an exported program was made for; None for free sides."""
    (name,) = program.graph_signature.user_inputs
    (node,) = [node for node in program.graph.nodes if node.name == name]
    value = node.meta.get("val")
    if value is None:
        return None
    return tuple(side if isinstance(side, int) else None for side in value.shape)


def _caller(model: Any, device: str) -> Any:
    torch, onnx = sys.modules.get("torch"), sys.modules.get("onnxruntime")
    if onnx is not None and isinstance(model, onnx.InferenceSession):
        entry = model.get_inputs()[0]
        dtype = ONNX_TYPES.get(entry.type, np.float32)
        return lambda batch: model.run(None, {entry.name: batch.astype(dtype, copy=False)})[0]
    if torch is None or not isinstance(model, torch.nn.Module):
        return model
    first = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))

    def call(batch: Any) -> Any:
        with torch.inference_mode():
            tensor = torch.from_numpy(np.array(batch)).to(device, first.dtype)
            return model(tensor).float().cpu().numpy()

    return call
