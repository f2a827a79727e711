"""The kinds of models: a callable, a torch module or an ONNX session.

Only this module tells them apart. Each kind becomes a runner, which keeps inputs in the memory that
the model reads, and calls it. torch and onnxruntime are never imported here: a model of theirs
means that the caller has imported them.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.evaluators.outputs import as_scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike

    from hshap._util.types import Array, Heat, Model, ScoreFunction, Shape, Tensor, Untyped

ONNX_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
}


HIDDEN_PRECISION = 2.0**-10
"""Assumed of models that may compute in half precision inside, as GPUs do."""


class Runner(Protocol):
    """Calls one kind of model on inputs that it keeps in the memory that the model reads."""

    @property
    def largest_batch(self) -> int | None:
        """The only batch size that the model takes, or None."""
        ...

    @property
    def precision(self) -> float:
        """Relative precision of the model's numbers, as far as known."""
        ...

    @property
    def batch_dependence(self) -> str:
        """Why scores depend on the other inputs of a batch, or "" if that is not known."""
        ...

    def put(self, array: Array) -> Tensor:
        """Bring an array to the memory in which inputs are painted, without a needless copy."""
        ...

    def inputs(self, count: int, shape: Shape, dtype: DTypeLike) -> Tensor:
        """Return memory for `count` inputs, with any content."""
        ...

    def forward(self, inputs: Tensor, count: int) -> object:
        """Return what the model gives for the first `count` inputs, as it is."""
        ...

    def run(self, inputs: Tensor, count: int) -> Heat:
        """Return the scores of the first `count` inputs, in memory of their own."""
        ...


def is_torch_module(model: object) -> bool:
    """Tell whether a model is a torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def is_onnx_session(model: object) -> bool:
    """Tell whether a model is a session of onnxruntime."""
    onnx = sys.modules.get("onnxruntime")
    return onnx is not None and isinstance(model, onnx.InferenceSession)


def caller(model: Model) -> Callable[[Array], object]:
    """Return a function from a batch to what the model of any kind gives for it, as it is."""
    made = runner(model, autocast=None, channels_last=False)
    if isinstance(made, CallableRunner):
        return model
    return lambda batch: made.forward(made.put(batch), len(batch))


def runner(model: Model, *, autocast: str | None, channels_last: bool) -> Runner:
    """Return the runner of a model, or say why it cannot be called."""
    if is_torch_module(model):
        return TorchRunner(model, autocast=autocast, channels_last=channels_last)
    for name, value in (("autocast", autocast), ("channels_last", channels_last)):
        if value:
            message = (
                f"{name}={value!r} is for torch modules, but the model is a "
                f"{type(model).__name__}; leave it out"
            )
            raise ArgumentError(message)
    if is_onnx_session(model):
        return OnnxRunner(model)
    if isinstance(model, type) or not callable(model):
        message = (
            f"model is {checks.shown(model)}, which cannot be called; pass a torch module, an ONNX "
            "session or a callable from inputs (n, *image.shape) to scores (n, classes)"
        )
        raise ArgumentError(message)
    return CallableRunner(model)


class CallableRunner:
    """Runs any function of NumPy inputs, which it may write to: each is painted anew."""

    largest_batch = None
    precision = HIDDEN_PRECISION
    batch_dependence = ""

    def __init__(self, model: ScoreFunction) -> None:
        self._model = model

    def put(self, array: Array) -> Tensor:
        return array

    def inputs(self, count: int, shape: Shape, dtype: DTypeLike) -> Tensor:
        return np.empty((count, *shape), dtype)

    def forward(self, inputs: Tensor, count: int) -> object:
        # Not read-only: torch would warn of such an array, and writes do no harm.
        return self._model(inputs[:count])

    def run(self, inputs: Tensor, count: int) -> Heat:
        return as_scores(self.forward(inputs, count), count)


class OnnxRunner:
    """Runs an onnxruntime session that has one input and one output."""

    batch_dependence = ""

    def __init__(self, session: Model) -> None:
        inputs, outputs = session.get_inputs(), session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1:
            message = (
                f"model is an ONNX session with {len(inputs)} inputs and {len(outputs)} outputs; "
                "pass a callable that takes one batch and returns one score array"
            )
            raise ArgumentError(message)
        if inputs[0].type not in ONNX_TYPES:
            message = f"model takes {inputs[0].type}; pass one that takes {', '.join(ONNX_TYPES)}"
            raise ArgumentError(message)
        self._session, self._name = session, inputs[0].name
        self._dtype = ONNX_TYPES[inputs[0].type]
        self.precision = max(HIDDEN_PRECISION, float(np.finfo(self._dtype).eps))
        self._shape = tuple(inputs[0].shape)
        self.largest_batch = self._shape[0] if isinstance(self._shape[0], int) else None

    def put(self, array: Array) -> Tensor:
        return array.astype(self._dtype, copy=False)

    def inputs(self, count: int, shape: Shape, dtype: DTypeLike) -> Tensor:
        del dtype
        wanted = self._shape[1:]
        fits = len(shape) == len(wanted) and all(
            not isinstance(side, int) or side == given
            for side, given in zip(wanted, shape, strict=True)
        )
        if not fits:
            message = f"image has shape {shape}, but the ONNX model takes {wanted}; resize it"
            raise ArgumentError(message)
        return np.empty((count, *shape), self._dtype)

    def forward(self, inputs: Tensor, count: int) -> object:
        # A session with a fixed batch size gets copies of the first input in the places left over.
        extra = max(0, (self.largest_batch or count) - count)
        batch = np.concatenate([inputs[:count], *[inputs[:1]] * extra]) if extra else inputs[:count]
        (made,) = self._session.run(None, {self._name: batch})
        return made[:count] if extra and len(made) == len(batch) else made

    def run(self, inputs: Tensor, count: int) -> Heat:
        return as_scores(self.forward(inputs, count), count)


class TorchRunner:
    """Runs a torch module on its own device, in its own type, without gradients.

    On the CPU, inputs are NumPy arrays that share their memory with torch: NumPy paints small
    regions faster. On other devices they are painted on the device.
    """

    largest_batch = None

    def __init__(self, module: Model, *, autocast: str | None, channels_last: bool) -> None:
        torch = sys.modules["torch"]
        _refuse_training(module)
        tensors = chain(module.parameters(), module.buffers())
        first = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))
        self._device, self._dtype = first.device, first.dtype
        self._torch, self._module, self._channels_last = torch, module, channels_last
        self._autocast = _autocast_type(torch, autocast)
        self.batch_dependence = _batch_statistics(module)
        self.precision = _precision(torch, first, self._autocast)
        numpy_types = {torch.float32: np.float32, torch.float64: np.float64}
        on_host = self._device.type == "cpu"
        self._host_dtype = numpy_types.get(self._dtype) if on_host else None

    def put(self, array: Array) -> Tensor:
        if self._host_dtype is not None:
            return array.astype(self._host_dtype, copy=False)
        # A copy: torch refuses arrays that are read-only or repeat one value without memory.
        tensor = self._torch.from_numpy(np.array(array))
        pinned = tensor.pin_memory() if self._device.type == "cuda" else tensor
        return pinned.to(self._device, self._dtype, non_blocking=True)

    def inputs(self, count: int, shape: Shape, dtype: DTypeLike) -> Tensor:
        del dtype
        channels, *grid = shape
        last = self._channels_last
        room = (count, *grid, channels) if last else (count, *shape)
        if self._host_dtype is not None:
            made = np.empty(room, self._host_dtype)
            return np.moveaxis(made, -1, 1) if last else made
        with self._torch.inference_mode(mode=False):
            made = self._torch.empty(room, dtype=self._dtype, device=self._device)
        return made.movedim(-1, 1) if last else made

    def run(self, inputs: Tensor, count: int) -> Heat:
        return as_scores(self.forward(inputs, count), count)

    def forward(self, inputs: Tensor, count: int) -> object:
        is_host = self._host_dtype is not None
        batch = self._torch.from_numpy(inputs[:count]) if is_host else inputs[:count]
        cast = (
            nullcontext()
            if self._autocast is None
            else self._torch.autocast(self._device.type, self._autocast)
        )
        with self._torch.inference_mode(), cast:
            return self._module(batch)


def _refuse_training(module: Model) -> None:
    torch = sys.modules["torch"]
    # Exported graphs cannot change their flags, and only complete layers in them obey theirs.
    exported = isinstance(module, torch.fx.GraphModule) and "eval" in vars(module)
    for name, part in module.named_modules():
        kind = type(part)
        layer = kind.__module__.startswith("torch.nn.modules.") and kind is not torch.nn.Module
        # Frozen scripts have no flag.
        if getattr(part, "training", False) and (layer or not exported):
            which = f"its part {name!r} ({type(part).__name__})" if name else "it"
            message = (
                f"model is a {type(module).__name__} in training mode ({which} is), so dropout and "
                "batch statistics would make scores random; call model.eval() first"
            )
            raise ArgumentError(message)


def _autocast_type(torch: Untyped, name: str | None) -> Untyped:
    known = {"float16": torch.float16, "bfloat16": torch.bfloat16}
    if name is not None and name not in known:
        message = f"autocast={name!r} is not known; pass one of {', '.join(known)}, or None"
        raise ArgumentError(message)
    return None if name is None else known[name]


def _precision(torch: Untyped, first: Tensor, autocast: Untyped) -> float:
    """Return the coarsest relative precision that a module computes in."""
    # By default, NVIDIA GPUs convolve 32-bit numbers with a 10-bit mantissa.
    hidden = 0.0 if first.device.type == "cpu" else HIDDEN_PRECISION
    types = [first.dtype] if autocast is None else [first.dtype, autocast]
    return max(hidden, *(float(torch.finfo(kind).eps) for kind in types))


def _batch_statistics(module: Model) -> str:
    """Name the first batch norm that takes its statistics from the batch, or return ""."""
    norms = sys.modules["torch"].nn.modules.batchnorm._BatchNorm  # noqa: SLF001, has no public name
    for name, part in module.named_modules():
        if isinstance(part, norms) and part.running_mean is None:
            return f"its part {name!r} ({type(part).__name__}) has no running statistics"
    return ""
