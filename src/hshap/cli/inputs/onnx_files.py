"""ONNX files: a session of onnxruntime, in the command's process or in a sandbox.

onnxruntime checks a file itself: it reads external data from the model's folder alone. A file that
makes it crash, run forever or take all memory ends the sandbox, and the command says so.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.sandbox import ProcessEndedError, Sandbox, machine_memory
from hshap.errors import HshapError, require
from hshap.evaluators.runners import ONNX_TYPES, OnnxRunner, runner
from hshap.models.onnx_sessions import KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hshap._util.types import Array, Untyped

SECONDS = 2.0
"""Time limit to load a small model and to score its first image, together."""

SECONDS_ON_GPU = 60.0
BYTES_A_SECOND = 2 * 2**20
"""A larger model has a second more for each of these bytes, and so has a larger image."""

MAX_INPUTS = 2**29
"""Numbers in the smallest batch that a model takes: 2 GiB of 32 bits."""

MAX_OUTPUTS = 2**24
"""Numbers in one answer; a classifier has a few thousand for each image."""

MAX_ENTRY = 2**20
"""Characters of one entry of metadata; 20 thousand names of classes have half as many."""

MIN_MEMORY = 2**32
"""Bytes that a model may take on any machine; else half of the machine's memory."""

GPU = "CUDAExecutionProvider"


@dataclass(frozen=True)
class Entry:
    """An input of an ONNX model; an axis of any length is None or has a name."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]


class Signature(NamedTuple):
    """The inputs of a model, the number of its outputs, and the entries of metadata that count."""

    inputs: tuple[Entry, ...]
    outputs: int
    metadata: Mapping[str, str]

    @property
    def shape(self) -> tuple[int | None, ...] | None:
        """The shape of the input, with None for an axis of any length; None without a shape."""
        sides = self.inputs[0].shape if self.inputs else ()
        return tuple(side if isinstance(side, int) else None for side in sides) or None


class OnnxFile(NamedTuple):
    """A model that was opened, as the runners take it, and its signature."""

    model: Untyped
    device: str
    signature: Signature


def open_onnx(path: Path, device: str, *, trust: bool) -> OnnxFile:
    """Open an ONNX file on a device; in this process only with `trust`."""
    onnx: Untyped = require("onnxruntime", extra="onnx", needed_by=f"the model {path}")
    device = _checked_device(onnx.get_available_providers(), device)
    if not trust:
        made = SandboxedModel(path, device)
        return OnnxFile(made, device, made.signature)
    try:
        session = open_session(str(path), device)
        runner(session, autocast=None, channels_last=False)  # refuses sessions that cannot be used
        return OnnxFile(session, device, signature_of(session))
    except HshapError as error:
        raise Refusal(Code.MODEL, f"{path}: {error}") from error
    except Exception as error:
        message = f"{path} is not an ONNX model that can be loaded ({brief(error)})"
        raise Refusal(Code.MODEL, message) from error


def open_session(path: str, device: str) -> Untyped:
    """Open a session of onnxruntime, whose other format is not read."""
    onnx: Untyped = require("onnxruntime", extra="onnx", needed_by=f"the model {path}")
    options = onnx.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.load_model_format", "ONNX")
    number = {"device_id": int(device.partition(":")[2] or 0)}
    gpu = [] if device == "cpu" else [(GPU, number)]
    providers = [*gpu, "CPUExecutionProvider"]
    return onnx.InferenceSession(path, options, providers=providers, enable_fallback=0)


def signature_of(session: Untyped) -> Signature:
    """Return the signature of a session."""
    inputs = tuple(Entry(one.name, one.type, tuple(one.shape)) for one in session.get_inputs())
    every: Mapping[str, str] = session.get_modelmeta().custom_metadata_map
    metadata = {key: every[key] for key in KEYS if key in every}
    for key, text in metadata.items():
        if len(text) > MAX_ENTRY:
            raise ValueError(f"its metadata {key} has {len(text)} characters")
    return Signature(inputs, len(session.get_outputs()), metadata)


def serve_model(path: str, device: str) -> Callable[[Array | None], object]:
    """Return the function that scores batches in a sandbox; None asks for the signature."""
    session = open_session(path, device)
    signature = signature_of(session)

    def answer(batch: Array | None) -> object:
        if batch is None:
            return signature
        (scores,) = session.run(None, {signature.inputs[0].name: batch})
        if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "fiub":
            raise TypeError("its output is no array of numbers")
        if scores.size > MAX_OUTPUTS:
            raise ValueError(f"its output has shape {scores.shape}")
        return scores

    return answer


class SandboxedModel:
    """An ONNX model in a sandbox, as a callable on NumPy batches.

    Loading and the first batch have a time limit: `SECONDS`, and more for large models. Later
    batches have none, as an honest one may be slow; an interrupt ends them at once.
    """

    def __init__(self, path: Path, device: str) -> None:
        limit = SECONDS if device == "cpu" else SECONDS_ON_GPU
        try:
            limit += _bytes_of(path) / BYTES_A_SECOND
        except OSError as error:
            message = f"--model {path} cannot be read ({error.strerror or error})"
            raise Refusal(Code.MODEL, f"{message}; pass another file") from error
        # CUDA reserves addresses without taking memory.
        memory = max(machine_memory() // 2, MIN_MEMORY) if device == "cpu" else None
        started = time.monotonic()
        try:
            self._sandbox = Sandbox(
                serve_model, str(path), device, needs=["onnxruntime"], memory=memory, seconds=limit
            )
            self.signature: Signature = self._sandbox.ask(None, seconds=limit)
        except RuntimeError as error:
            message = f"{path} is not an ONNX model that can be loaded ({_explained(error)})"
            raise Refusal(Code.MODEL, f"{message}; check its origin") from error
        self._left: float | None = max(limit - (time.monotonic() - started), SECONDS)
        _refuse_unusable(self, path)
        self._dtype = np.dtype(ONNX_TYPES[self.signature.inputs[0].type])

    def get_inputs(self) -> tuple[Entry, ...]:
        """Return the inputs, as a session of onnxruntime does."""
        return self.signature.inputs

    def get_outputs(self) -> range:
        """Return an object as long as the list of outputs of a session."""
        return range(self.signature.outputs)

    def __call__(self, batch: Array) -> Array:
        """Return the scores of a batch.

        A model that reports an error raises `RuntimeError`; one that crashes or takes too long,
        `ProcessEndedError`.
        """
        inputs = np.ascontiguousarray(batch, self._dtype)
        limit = None if self._left is None else self._left + inputs.nbytes / BYTES_A_SECOND
        try:
            scores: Array = self._sandbox.ask(inputs, seconds=limit)
        except ProcessEndedError as error:
            raise ProcessEndedError(_explained(error), is_late=error.is_late) from None
        self._left = None
        return scores


def _explained(error: RuntimeError) -> str:
    """Return the reason of an error; a model that was stopped for its time may be an honest one."""
    text = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", str(error))
    if isinstance(error, ProcessEndedError) and error.is_late:
        return f"it {text}; if you trust its author, pass --trust to run it without a limit"
    return text


def _bytes_of(path: Path) -> int:
    """Return the size of a model, with files beside it whose names begin alike: external data."""
    beside = [file for file in path.parent.iterdir() if file.name.startswith(path.stem)]
    return sum(file.stat().st_size for file in beside if file.is_file())


def _refuse_unusable(model: SandboxedModel, path: Path) -> None:
    """Refuse a model that hshap cannot call."""
    if len(model.get_inputs()) == 1:
        sides = [1 if side is None else side for side in model.signature.shape or ()]
        if not sides or min(sides) < 1 or math.prod(sides) > MAX_INPUTS:
            shown = " x ".join(map(str, sides))[:80] or "no shape"
            raise Refusal(Code.MODEL, f"{path} takes inputs of {shown}; pass a model of images")
    try:
        OnnxRunner(model)
    except HshapError as error:
        raise Refusal(Code.MODEL, f"{path}: {error}") from error


def _checked_device(available: list[str], device: str) -> str:
    if device == "auto":
        device = "cuda" if GPU in available else "cpu"
    kind, _, number = device.partition(":")
    if device != "cpu" and (
        kind != "cuda" or GPU not in available or not (number or "0").isdecimal()
    ):
        message = (
            f"--device {device} is not one that onnxruntime has here ({', '.join(available)}); "
            "pass --device cpu"
        )
        raise Refusal(Code.USAGE, message)
    return device
