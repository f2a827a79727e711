"""From an ONNX file to a torch module that gives the same scores."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError, ModelError, require
from hshap.evaluators.outputs import as_scores

if TYPE_CHECKING:
    from pathlib import Path

    from hshap._util.types import Array, Model, Untyped

TOLERANCE = 1e-4
"""Largest difference from onnxruntime, relative to its largest score."""


def from_onnx(file: str | Path, image: Array) -> Model:
    """Return the network of an ONNX file as a torch module, for `Incremental`.

    The operators of convolutional classifiers are known; a file with another one is refused, and
    `Batched` runs its session instead. The module is compared with onnxruntime on `image`, the
    first one to be explained, and on noise; if scores differ, it is refused too. The file is opened
    in this process, without the limits that commands have for untrusted files.

    >>> import numpy as np, onnx
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> def layer(kind, before, after):
    ...     return onnx.helper.make_node(kind, [before], [after])
    >>> layers = [layer("GlobalAveragePool", "x", "means"), layer("Flatten", "means", "scores")]
    >>> x, scores = (
    ...     onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    ...     for name, shape in (("x", ["n", 3, 8, 8]), ("scores", ["n", 3]))
    ... )
    >>> graph = onnx.helper.make_graph(layers, "means", [x], [scores])
    >>> opset = [onnx.helper.make_opsetid("", 18)]
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "means.onnx"
    ...     onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=10), file)
    ...     network = from_onnx(file, np.zeros((3, 8, 8), np.float32))
    >>> network.training
    False
    """
    require("torch", extra="torch", needed_by="from_onnx")
    onnx = require("onnx", extra="onnx-torch", needed_by="from_onnx")
    runtime = require("onnxruntime", extra="onnx-torch", needed_by="from_onnx")
    from hshap.evaluators.onnx_import.calls import UnsupportedError  # noqa: PLC0415
    from hshap.evaluators.onnx_import.graph import module_of  # noqa: PLC0415, torch is optional

    try:
        model = onnx.load(str(file))
    except Exception as error:
        message = f"file is {str(file)!r}, which is no ONNX file ({type(error).__name__}: {error})"
        raise ArgumentError(message) from error
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    given = to_numpy("image", image)
    wanted = session.get_inputs()[0].shape[1:]
    fits = len(wanted) == given.ndim and all(
        side == n for side, n in zip(wanted, given.shape, strict=True) if isinstance(side, int)
    )
    if not fits:
        message = f"image has shape {given.shape}, but {file} takes {tuple(wanted)}; resize it"
        raise ArgumentError(message)
    try:
        module = module_of(onnx, model, given.shape)
    except UnsupportedError as error:
        message = f"{file} has {error}, which has no torch form here; use Batched(session) instead"
        raise ArgumentError(message) from None
    _check(module, session, given, str(file))
    return module


def _check(module: Model, session: Untyped, image: Array, file: str) -> None:
    """Raise `ModelError` unless a module gives a session's scores, on an image and on noise."""
    torch = sys.modules["torch"]
    noise = np.random.default_rng(0).random(image.shape).astype(image.dtype)
    wanted = session.get_inputs()[0]
    numbers = {"tensor(double)": np.float64, "tensor(float16)": np.float16}
    for one in (image, noise):
        batch = one[None].astype(numbers.get(wanted.type, np.float32))
        rows = wanted.shape[0] if isinstance(wanted.shape[0], int) else 1
        batch = np.concatenate([batch] * rows)
        expected = as_scores(session.run(None, {wanted.name: batch})[0], rows)
        with torch.inference_mode():
            found = as_scores(module(torch.from_numpy(batch)), rows)
        scale = float(np.abs(expected).max(initial=1e-6))
        same = found.shape == expected.shape
        apart = float(np.abs(found - expected).max()) / scale if same else np.inf
        if not apart <= TOLERANCE:
            message = (
                f"the torch form of {file} differs from onnxruntime by {apart:.2g} of the largest "
                "score on the first input; use Batched(session) instead"
            )
            raise ModelError(message)
