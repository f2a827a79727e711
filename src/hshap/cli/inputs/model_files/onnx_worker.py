"""The process that runs an ONNX model: a crash, a hang or a lack of memory ends this one alone.

A program of its own, started by `onnx_process` with the model's path, a CUDA device or "cpu", the
bytes of memory that it may take, and the entries of the file's metadata to tell. It needs NumPy and
onnxruntime, and nothing of hshap. Messages are a line of JSON, with the bytes of an array behind it
where the line has a shape.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from io import BufferedIOBase as BinaryFile

    from numpy.typing import NDArray

    from hshap._util.types import Untyped

MAX_OUTPUTS = 2**24
"""Numbers in one answer; a classifier has a few thousand for each image."""
MAX_ENTRY = 2**20
"""Characters of one entry of metadata; 20 thousand names of classes have half as many."""


def main() -> None:
    """Load the model, tell its inputs and outputs, and answer batches until the input ends."""
    source, target = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries print, and must not break messages
    path, device, memory = sys.argv[1], sys.argv[2], int(sys.argv[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    onnxruntime = importlib.import_module("onnxruntime")

    if device == "cpu":  # CUDA reserves addresses without taking memory
        _limit(memory)
    _send(target, {})
    try:
        session = _session(onnxruntime, path, device)
        inputs = [(one.name, one.type, one.shape) for one in session.get_inputs()]
        count, entries = len(session.get_outputs()), _entries(session, sys.argv[4:])
        _send(target, {"inputs": inputs, "outputs": count, "metadata": entries})
    except Exception as error:  # noqa: BLE001, the parent tells any error
        _send(target, {"error": _said(error)})
        return
    while line := source.readline():
        try:
            scores = _scores(session, inputs[0][0], _array(source, line))
        except Exception as error:  # noqa: BLE001, as above
            _send(target, {"error": _said(error)})
        else:
            _send(target, {"shape": scores.shape, "dtype": scores.dtype.str}, scores.tobytes())


def _session(onnxruntime: Untyped, path: str, device: str) -> Untyped:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # The other format of onnxruntime is not checked by hshap.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    number = {"device_id": int(device.partition(":")[2] or 0)}
    gpu = [] if device == "cpu" else [("CUDAExecutionProvider", number)]
    providers = [*gpu, "CPUExecutionProvider"]
    return onnxruntime.InferenceSession(path, options, providers=providers, enable_fallback=0)


def _entries(session: Untyped, keys: list[str]) -> dict[str, str]:
    """Return those entries of the file's metadata that count."""
    every = session.get_modelmeta().custom_metadata_map
    found = {key: every[key] for key in keys if key in every}
    for key, text in found.items():
        if len(text) > MAX_ENTRY:
            raise ValueError(f"its metadata {key} has {len(text)} characters")
    return found


def _scores(session: Untyped, name: str, batch: NDArray[np.generic]) -> NDArray[np.generic]:
    (scores,) = session.run(None, {name: batch})
    if not isinstance(scores, np.ndarray) or scores.dtype.kind not in "fiub":
        raise TypeError("its output is no array of numbers")
    if scores.size > MAX_OUTPUTS:
        raise ValueError(f"its output has shape {scores.shape}")
    return scores


def _limit(memory: int) -> None:
    """Limit the memory of this process where the system can, and leave no core files."""
    try:
        import resource  # noqa: PLC0415, not on Windows
    except ImportError:
        return
    with suppress(OSError, ValueError):  # a lower limit holds already, or there is none here
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    with suppress(OSError):  # Linux: if memory runs out, this process goes first
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _array(source: BinaryFile, line: bytes) -> NDArray[np.generic]:
    header = json.loads(line)
    shape, dtype = header["shape"], np.dtype(header["dtype"])
    try:
        room = np.empty(shape, dtype)
    except MemoryError:
        left = math.prod(shape) * dtype.itemsize
        while left:  # the next message starts behind these bytes
            left -= len(source.read(min(left, 2**20)))
        raise
    source.readinto(room.reshape(-1).view(np.uint8).data)
    return room


def _said(error: Exception) -> str:
    """Return the first line of an error, in words that `out_of_memory` of hshap knows."""
    text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return "out of memory" if isinstance(error, MemoryError) or "bad_alloc" in text else text[:300]


def _send(target: BinaryFile, header: dict[str, object], content: bytes = b"") -> None:
    target.write(json.dumps(header).encode() + b"\n" + content)
    target.flush()


if __name__ == "__main__":
    main()
