"""Damaged and hostile model files: each is refused in one line, or is a model that answers.

Run `benchmarks/run fuzz models`. Each file is loaded as the command line does it without --trust,
and asked for the scores of one image. A failure is an exception that is not hshap's own, a crash or
a hang of over 5 seconds, code of the file that ran, or a file of torch or with data outside of its
folder that was loaded. Two other processes try the files, so that a crash is seen.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.experiments.fuzz_files import SLOWEST, Outcome
from hshap.cli.faults import one_line
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.models import fitted, load, probe
from hshap.errors import HshapError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    Tried = tuple[Path, str, str, float]

FILES = 500
WORKERS = 2
SECONDS_TO_START = 60.0


def fuzz_models(count: int, *, seed: int = 0, seconds: float = SLOWEST) -> Outcome:
    """Try `count` files; a file that takes over `seconds` is a failure."""
    from benchmarks.experiments.fuzzing.model_files import KINDS

    outcome = Outcome()
    with tempfile.TemporaryDirectory() as folder:
        paths = [_written(number, seed, Path(folder)) for number in range(count)]
        for path, how, said, taken in _all_tried(paths, seconds):
            kind = list(KINDS)[int(path.parent.name) % len(KINDS)]
            outcome.slowest = max(outcome.slowest, taken)
            if fault := said if how == "failed" else _fault(kind, how, said):
                name = f"{kind}, seed {seed}, number {path.parent.name}"
                outcome.failures.append(f"{name}: {fault}")
            else:
                (outcome.refused if how == "refused" else outcome.loaded)[kind] += 1
    return outcome


def _written(number: int, seed: int, folder: Path) -> Path:
    """Write one file into a folder of its own, with other files that a model may name."""
    from benchmarks.experiments.fuzzing import model_files, onnx_attacks

    # A generator for each file: a failure can be repeated by its number alone.
    rng = np.random.default_rng([seed, number])
    make = list(model_files.KINDS.values())[number % len(model_files.KINDS)]
    suffix, content = make(rng)
    path = folder / str(number) / f"model{suffix}"
    weights = np.ones((4, 2), np.float32).tobytes()
    for other in (folder / onnx_attacks.DATA, path.parent / onnx_attacks.MEMORY_ADDRESS):
        other.parent.mkdir(parents=True, exist_ok=True)
        other.write_bytes(weights)
    (path.parent / onnx_attacks.DATA).write_bytes(weights)
    (path.parent / "link.bin").symlink_to(Path("..") / onnx_attacks.DATA)
    os.mkfifo(path.parent / "pipe.bin")
    path.write_bytes(content)
    return path


def _fault(kind: str, how: str, said: str) -> str:
    """Return the fault of an answer that looks fine by itself, or an empty text."""
    from benchmarks.experiments.fuzzing.model_files import NEVER_LOADED

    if how == "loaded" and kind in NEVER_LOADED:
        return "it was loaded"
    if not said.isprintable():  # several lines, or commands for a terminal
        return f"the message is {said!r}"
    return ""


def _all_tried(paths: Sequence[Path], seconds: float) -> list[Tried]:
    shares = [paths[i::WORKERS] for i in range(WORKERS)]
    with ThreadPoolExecutor(WORKERS) as pool:
        found = list(pool.map(lambda share: _tried(share, seconds), shares))
    return [one for share in found for one in share]


def _tried(paths: Sequence[Path], seconds: float) -> list[Tried]:
    """Try files one after another in another process; start a new one after a crash or a hang."""
    from benchmarks.experiments.fuzzing.model_files import MARKER

    found: list[Tried] = []
    with tempfile.TemporaryDirectory() as folder:
        marker, worker = Path(folder) / MARKER, None
        for path in paths:
            worker = worker or Worker(folder)
            started = time.perf_counter()
            how, said = worker.tried(path, seconds)
            taken = time.perf_counter() - started
            if how == "failed":
                worker.end()
                worker = None
            if marker.exists():
                marker.unlink()
                how, said = "failed", "its code ran"
            found.append((path, how, said, taken))
        if worker:
            worker.end()
    return found


class Worker:
    """A process that tries files, in a current folder of its own."""

    def __init__(self, folder: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, folder))
        self._process.start()
        other.close()
        if not self._connection.poll(SECONDS_TO_START) or self._connection.recv() != "ready":
            raise RuntimeError("the process that tries files did not start")

    def tried(self, path: Path, seconds: float) -> tuple[str, str]:
        """Return "refused", "loaded" or "failed", and the message."""
        self._connection.send(str(path))
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()
        except EOFError:
            self._process.join()
            return "failed", f"the process ended with code {self._process.exitcode}"
        return "failed", f"it took over {seconds} s"

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()


def _serve(connection: Connection, folder: str) -> None:
    os.chdir(folder)
    connection.send("ready")
    while True:
        connection.send(_answer(connection.recv()))


def _answer(path: str) -> tuple[str, str]:
    try:
        loaded, wanted = fitted(load(path, trust=False, device="cpu"), Format())
        image = np.zeros((wanted.count, *(wanted.size or (8, 8))), np.float32)
        return "loaded", str(probe(loaded, image).shape)
    except HshapError as error:
        return "refused", one_line(error)
    except BaseException as error:  # noqa: BLE001, any other class is a failure to report
        return "failed", f"{error!r:.200}"
