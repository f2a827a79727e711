"""ONNX models in a process of their own.

onnxruntime is native code: a file can make it crash, run forever or take all memory. Here, each of
these ends the model's process, and the command says so in one line.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

import numpy as np

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.model_files.onnx_files import check_onnx_file, machine_memory
from hshap.errors import HshapError
from hshap.evaluators.runners import ONNX_TYPES, OnnxRunner
from hshap.models.onnx_sessions import KEYS

if TYPE_CHECKING:
    from hshap._util.types import Array

    Answer = dict[str, object]
    Process = subprocess.Popen[bytes]

SECONDS = 2.0
"""Time limit to load a small model and to score its first image, together."""
SECONDS_ON_GPU = 60.0
SECONDS_TO_START = 60.0
BYTES_A_SECOND = 2 * 2**20
"""A larger model has a second more for each of these bytes, and so has a larger image."""
MAX_INPUTS = 2**29
"""Numbers in the smallest batch that a model takes: 2 GiB of 32 bits."""
MIN_MEMORY = 2**32
"""Bytes that a model may take on any machine; else half of the machine's memory."""
WORKER = Path(__file__).with_name("onnx_worker.py")


class ModelEndedError(RuntimeError):
    """The process of a model ended before it answered."""


@dataclass(frozen=True)
class Entry:
    """An input of an ONNX model; an axis of any length is None or has a name."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]


class OnnxProcess:
    """An ONNX model in another process, as a callable on NumPy batches.

    Loading and the first batch have a time limit: `seconds`, and more for large models. Later
    batches have none, as an honest one may be slow; an interrupt ends them at once.
    """

    def __init__(self, path: Path, device: str, seconds: float | None = None) -> None:
        size = check_onnx_file(path)
        if seconds is None:
            seconds = SECONDS if device == "cpu" else SECONDS_ON_GPU
        self._limit = seconds + size / BYTES_A_SECOND
        self._process = _started(path, device)
        self._end = weakref.finalize(self, _end, self._process)
        try:
            self._load(path)
        except BaseException:
            self._end()
            raise

    def _load(self, path: Path) -> None:
        try:
            self._ask(SECONDS_TO_START)
            started = time.monotonic()
            told = self._ask(self._limit)
            self._left = self._limit - (time.monotonic() - started)
        except RuntimeError as error:
            message = f"{path} is not an ONNX model that can be loaded ({error})"
            raise Refusal(Code.MODEL, message) from error
        entries = cast("list[tuple[str, str, list[int | str | None]]]", told["inputs"])
        self._inputs = [Entry(name, kind, tuple(shape)) for name, kind, shape in entries]
        self._outputs = cast("int", told["outputs"])
        self.metadata = cast("dict[str, str]", told["metadata"])
        _check(self, path)
        self._dtype = np.dtype(ONNX_TYPES[self._inputs[0].type])

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape of the input; None for an axis of any length."""
        return tuple(side if isinstance(side, int) else None for side in self._inputs[0].shape)

    def get_inputs(self) -> list[Entry]:
        """Return the inputs, as a session of onnxruntime does."""
        return self._inputs

    def get_outputs(self) -> range:
        """Return an object as long as the list of outputs of a session."""
        return range(self._outputs)

    def __call__(self, batch: Array) -> Array:
        """Return the scores of a batch.

        A model that reports an error raises `RuntimeError`; one that crashes or takes too long,
        `ModelEndedError`.
        """
        inputs = np.ascontiguousarray(batch, self._dtype)
        limit = None if self._left is None else self._left + inputs.nbytes / BYTES_A_SECOND
        told = self._ask(limit, inputs)
        self._left = None
        return cast("Array", told["array"])

    def _ask(self, seconds: float | None, batch: Array | None = None) -> Answer:
        """Send a batch if there is one, and return the answer; end the process if it is late."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(seconds or 0.0, stop)
        try:
            if seconds is not None:
                timer.start()
            told = _exchanged(self._process, batch)
        except (OSError, ValueError):  # the pipe is closed, or an answer is cut short
            self._end()
            if late.is_set():
                message = (
                    f"it took over {self._limit:.0f} s to load and score one image, and was "
                    "stopped; if you trust its author, pass --trust to run it without a limit"
                )
                raise ModelEndedError(message) from None
            raise ModelEndedError(_reason(self._process.returncode)) from None
        except BaseException:  # an interrupt: the next answer would belong to this batch
            self._end()
            raise
        finally:
            timer.cancel()
        if "error" in told:
            text = "".join(sign if sign.isprintable() else "?" for sign in str(told["error"]))
            raise RuntimeError(text)
        return told


def _started(path: Path, device: str) -> Process:
    # -P: a folder with a file numpy.py must not become a library of the new process.
    memory = max(machine_memory() // 2, MIN_MEMORY)
    words = [sys.executable, "-P", str(WORKER), str(path), device, str(memory), *KEYS]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)  # noqa: S603, our own program


def _end(process: Process) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):  # bytes that were not sent yet
            cast("IO[bytes]", pipe).close()


def _exchanged(process: Process, batch: Array | None) -> Answer:
    source, target = cast("IO[bytes]", process.stdout), cast("IO[bytes]", process.stdin)
    if batch is not None:
        header = {"shape": batch.shape, "dtype": batch.dtype.str}
        target.write(json.dumps(header).encode() + b"\n")
        target.write(batch.data)
        target.flush()
    told: Answer = json.loads(source.readline())
    if "shape" in told:
        shape, dtype = cast("list[int]", told["shape"]), np.dtype(cast("str", told["dtype"]))
        content = source.read(math.prod(shape) * dtype.itemsize)
        told["array"] = np.frombuffer(content, dtype).reshape(shape)
    return told


def _check(model: OnnxProcess, path: Path) -> None:
    """Refuse a model that hshap cannot call."""
    if len(model.get_inputs()) == 1:
        sides = [1 if side is None else side for side in model.shape]
        if not sides or min(sides) < 1 or math.prod(sides) > MAX_INPUTS:
            shown = " x ".join(map(str, sides))[:80] or "no shape"
            raise Refusal(Code.MODEL, f"{path} takes inputs of {shown}; pass a model of images")
    try:
        OnnxRunner(model)
    except HshapError as error:
        raise Refusal(Code.MODEL, f"{path}: {error}") from error


def _reason(code: int) -> str:
    try:
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    except ValueError:
        how = f"by signal {-code}"
    return f"its process ended {how}: the file makes onnxruntime crash, or memory ran out"
