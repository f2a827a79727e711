"""Damaged and hostile model files, loaded in other processes, so that a crash or a hang is seen."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import onnx_attacks

from fuzzing import model_files
from hshap.cli.faults import one_line
from hshap.cli.inputs.formats import Format
from hshap.cli.inputs.models import fitted, load, probe
from hshap.errors import HshapError

SLOWEST, SECONDS_TO_START = 5.0, 120.0


def fuzz_models(count, *, seed=0, seconds=SLOWEST):
    """Try `count` files: return the kinds refused and loaded, and every failure.

    A failure is an exception that is not hshap's own, a crash, a hang, code of the file that ran, a
    message of several lines, or a file that must never be loaded and was.
    """
    refused, loaded, failures = Counter(), Counter(), []
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as current:
        marker, worker = Path(current) / model_files.MARKER, None
        for number in range(count):
            kind = list(model_files.KINDS)[number % len(model_files.KINDS)]
            path = _written(number, kind, seed, Path(folder))
            worker = worker or Worker(current)
            how, said = worker.tried(path, seconds)
            if how == "failed":
                worker.end()
                worker = None
            if marker.exists():
                marker.unlink()
                how, said = "failed", "its code ran"
            if how == "loaded" and kind in model_files.NEVER_LOADED:
                how, said = "failed", "it was loaded"
            if how != "failed" and not said.isprintable():
                how, said = "failed", f"the message is {said!r}"
            if how == "failed":
                failures.append(f"{kind}, seed {seed}, number {number}: {said}")
            else:
                (refused if how == "refused" else loaded)[kind] += 1
        if worker:
            worker.end()
    return refused, loaded, failures


def _written(number, kind, seed, folder):
    """Write one file into a folder of its own, with other files that a model may name."""
    # A generator for each file: a failure can be repeated by its number alone.
    suffix, content = model_files.KINDS[kind](np.random.default_rng([seed, number]))
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


class Worker:
    """A process that tries files, in a current folder of its own."""

    def __init__(self, folder):
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(other, folder))
        self._process.start()
        other.close()
        if not self._connection.poll(SECONDS_TO_START) or self._connection.recv() != "ready":
            raise RuntimeError("the process that tries files did not start")

    def tried(self, path, seconds):
        """Return "refused", "loaded" or "failed", and the message."""
        self._connection.send(str(path))
        begun = time.perf_counter()
        try:
            if self._connection.poll(seconds):
                return self._connection.recv()
        except EOFError:
            self._process.join()
            return "failed", f"the process ended with code {self._process.exitcode}"
        return "failed", f"it took over {time.perf_counter() - begun:.1f} s"

    def end(self):
        self._process.kill()
        self._process.join()
        self._connection.close()


def _serve(connection, folder):
    os.chdir(folder)
    connection.send("ready")
    while True:
        connection.send(_answer(connection.recv()))


def _answer(path):
    try:
        loaded, wanted = fitted(load(path, trust=False, device="cpu"), Format())
        image = np.zeros((wanted.count, *(wanted.size or (8, 8))), np.float32)
        return "loaded", str(probe(loaded, image).shape)
    except HshapError as error:
        return "refused", one_line(error)
    except BaseException as error:  # noqa: BLE001, any other class is a failure to report
        return "failed", f"{error!r:.200}"
