"""The only code that knows what a model is: a callable, a torch module or an ONNX session.

Each kind becomes a runner, which holds the inputs of a batch where the model wants them and calls
it. torch and onnxruntime are never imported unless the model comes from them.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Array = Any

ONNX_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
}


class Runner(Protocol):
    """Calls one kind of model on inputs that it keeps where the model wants them."""

    @property
    def largest_batch(self) -> int | None:
        """The batch that the model insists on, if any."""
        ...

    def put(self, array: NDArray[Any]) -> Array:
        """Bring an array to where inputs are painted; never a copy that is not needed."""
        ...

    def inputs(self, count: int, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return room for `count` inputs, filled with anything."""
        ...

    def run(self, inputs: Array, count: int) -> tuple[NDArray[Any], bool]:
        """Score the first `count` inputs; say also whether the model left them untouched."""
        ...


def runner(model: Any, *, autocast: str | None, channels_last: bool) -> Runner:
    """Return what runs a model of any kind."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return TorchRunner(model, autocast=autocast, channels_last=channels_last)
    for name, value in (("autocast", autocast), ("channels_last", channels_last)):
        if value:
            message = (
                f"{name}={value!r} is for torch modules, but the model is a "
                f"{type(model).__name__}; leave it out"
            )
            raise ArgumentError(message)
    onnx = sys.modules.get("onnxruntime")
    if onnx is not None and isinstance(model, onnx.InferenceSession):
        return OnnxRunner(model)
    if isinstance(model, type) or not callable(model):
        message = (
            f"model is {checks.shown(model)}, which cannot be called; pass a torch module, an ONNX "
            "session or a callable from inputs (n, *image.shape) to scores (n, classes)"
        )
        raise ArgumentError(message)
    return CallableRunner(model)


class CallableRunner:
    """Runs any function of NumPy inputs. It sees them read-only: they are painted over later."""

    largest_batch = None

    def __init__(self, model: Callable[[Any], Any]) -> None:
        self._model = model

    def put(self, array: NDArray[Any]) -> Array:
        return array

    def inputs(self, count: int, shape: tuple[int, ...], dtype: Any) -> Array:
        return np.empty((count, *shape), dtype)

    def run(self, inputs: Array, count: int) -> tuple[NDArray[Any], bool]:
        batch = inputs[:count]
        batch.flags.writeable = False
        before = _sample(batch)
        scores = as_scores(self._model(batch), count)
        # torch.from_numpy does not care that the batch is read-only.
        return scores, np.array_equal(before, _sample(batch))


class OnnxRunner:
    """Runs an onnxruntime session that has one input and one output."""

    def __init__(self, session: Any) -> None:
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
        self._shape = tuple(inputs[0].shape)
        self.largest_batch = self._shape[0] if isinstance(self._shape[0], int) else None

    def put(self, array: NDArray[Any]) -> Array:
        return array.astype(self._dtype, copy=False)

    def inputs(self, count: int, shape: tuple[int, ...], dtype: Any) -> Array:
        del dtype
        wanted = self._shape[1:]
        fits = len(shape) == len(wanted) and all(
            not isinstance(side, int) or side == given
            for side, given in zip(wanted, shape, strict=True)
        )
        if not fits:
            message = f"image has shape {shape}, but the ONNX model takes {wanted}; resize it"
            raise ArgumentError(message)
        return np.zeros((self.largest_batch or count, *shape), self._dtype)

    def run(self, inputs: Array, count: int) -> tuple[NDArray[Any], bool]:
        # A session with a fixed batch is given all of it; what lies behind `count` is ignored.
        batch = inputs if self.largest_batch else inputs[:count]
        (scores,) = self._session.run(None, {self._name: batch})
        return as_scores(scores, len(batch))[:count], True


class TorchRunner:
    """Runs a torch module on its own device, in its own type, without gradients.

    On the CPU inputs are painted in NumPy, which is quicker on small pieces, and lent to torch; on
    other devices they are painted there.
    """

    largest_batch = None

    def __init__(self, module: Any, *, autocast: str | None, channels_last: bool) -> None:
        torch = sys.modules["torch"]
        _refuse_training(module)
        tensors = chain(module.parameters(), module.buffers())
        first = next((tensor for tensor in tensors if tensor.is_floating_point()), torch.empty(0))
        self._device, self._dtype = first.device, first.dtype
        self._torch, self._module, self._channels_last = torch, module, channels_last
        self._autocast = _autocast_type(torch, autocast)
        numpy_types = {torch.float32: np.float32, torch.float64: np.float64}
        on_host = self._device.type == "cpu"
        self._host_dtype = numpy_types.get(self._dtype) if on_host else None

    def put(self, array: NDArray[Any]) -> Array:
        if self._host_dtype is not None:
            return array.astype(self._host_dtype, copy=False)
        # A copy: torch refuses arrays that are read-only or repeat one value without memory.
        tensor = self._torch.from_numpy(np.array(array))
        pinned = tensor.pin_memory() if self._device.type == "cuda" else tensor
        return pinned.to(self._device, self._dtype, non_blocking=True)

    def inputs(self, count: int, shape: tuple[int, ...], dtype: Any) -> Array:
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

    def run(self, inputs: Array, count: int) -> tuple[NDArray[Any], bool]:
        sampled = _sample(inputs[:count]) if self._host_dtype is not None else None
        # Tensors made under inference mode, which the caller may be in, do not count writes.
        with self._torch.inference_mode(mode=False):
            batch = inputs[:count] if sampled is None else self._torch.from_numpy(inputs[:count])
        before = batch._version  # noqa: SLF001, the only way to see a module write to its input
        cast = (
            nullcontext()
            if self._autocast is None
            else self._torch.autocast(self._device.type, self._autocast)
        )
        with self._torch.inference_mode(), cast:
            scores = self._module(batch)
        counted = batch._version == before  # noqa: SLF001
        seen = sampled is None or np.array_equal(sampled, _sample(inputs[:count]))
        return as_scores(scores, count), counted and seen


def _sample(batch: NDArray[Any]) -> NDArray[Any]:
    """Copy a few pixels of each input, to see afterwards whether the model wrote to them."""
    steps = [max(1, side // 8) for side in batch.shape[2:]]
    spread = (slice(step // 2, None, step) for step in steps)
    return batch[(slice(None), slice(None), *spread)].copy()


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception says that memory ran out, whoever raised it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    # torch on the CPU and onnxruntime have no exception of their own for it.
    phrases = ("out of memory", "can't allocate memory", "failed to allocate", "bad allocation")
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)


def free_memory() -> None:
    """Give back what torch holds in reserve on a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def as_scores(raw: Any, count: int) -> NDArray[np.float64]:
    """Return scores `(count, classes)`, or say why the model's output cannot be used."""
    if isinstance(raw, (tuple, list, dict)) and not _is_numeric(raw):
        message = (
            f"the model returned a {type(raw).__name__}; wrap it in a function that returns the "
            "scores alone, for example lambda batch: model(batch)[0]"
        )
        raise ModelError(message)
    scores = to_numpy("the model's output", raw)
    if scores.dtype.kind not in "fiub":
        message = f"the model returned {scores.dtype} values; it must return real numbers"
        raise ModelError(message)
    if count == 1 and scores.ndim < 2:
        scores = scores.reshape(1, -1)  # a model that squeezes a batch of one
    if scores.ndim not in (1, 2) or len(scores) != count or scores.size == 0:
        message = (
            f"the model returned shape {scores.shape} for {count} inputs; it must return "
            f"({count},) or ({count}, classes)"
        )
        raise ModelError(message)
    return scores.reshape(count, -1).astype(np.float64)


def _is_numeric(raw: Any) -> bool:
    try:
        return not isinstance(raw, dict) and np.asarray(raw).dtype.kind in "fiub"
    except (ValueError, TypeError, RuntimeError):
        return False


def _refuse_training(module: Any) -> None:
    torch = sys.modules["torch"]
    # Exported graphs cannot change their flags, and only whole layers in them heed theirs.
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


def _autocast_type(torch: Any, name: str | None) -> Any:
    known = {"float16": torch.float16, "bfloat16": torch.bfloat16}
    if name is not None and name not in known:
        message = f"autocast={name!r} is not known; pass one of {', '.join(known)}, or None"
        raise ArgumentError(message)
    return None if name is None else known[name]
