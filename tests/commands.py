"""The commands of `hshap` inside the process of a test, and the small files that they are given."""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer")
Image = pytest.importorskip("PIL.Image")

from typer.testing import CliRunner

from hshap.cli.app import app

GIVEN = ("--all", "--baseline", "constant:0", "--partition", "quadtree", "--min-size", 4)
"""Nothing is left to choose, so that nothing is told of it."""

MODELS = """
import os, pathlib, signal, time
import numpy as np
calls = []
def brightest(batch):
    calls.append(len(batch))
    return batch.max(axis=(1, 2, 3))
def two(batch):
    score = batch.max(axis=(1, 2, 3))
    return np.stack([score, 1 - score], axis=1)
def half(batch):
    return two(batch) * 0.5
"""


def run(*words):
    """Run a command in this process; return its exit code, its output and its messages."""
    return CliRunner().invoke(app, [str(word) for word in words])


def fine(*words, code=0):
    """Run a command that ends with this exit code."""
    done = run(*words)
    assert done.exit_code == code, f"{words}: {done.output} {done.exception}"
    return done


def environment(**more):
    """Return the variables of a process that imports what this one does."""
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    return {**os.environ, "PYTHONPATH": paths, "MPLBACKEND": "agg", **more}


def real(*words, **more):
    """Run the command as users do, in a process of its own."""
    return subprocess.run(  # noqa: S603, our own command
        [sys.executable, "-m", "hshap", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**more),
    )


def refused(done, code, said):
    """Check that a command ended by one line with this text; return the line."""
    (line,) = done.stderr.splitlines()
    assert line.startswith("hshap: ")
    assert said in line, line
    assert "Traceback" not in done.output
    assert (done.exit_code, done.stdout) == (code, "")
    return line


def files_below(path="."):
    """Return all files with their bytes, but those that Python makes of modules."""
    found = (file for file in Path(path).rglob("*") if "__pycache__" not in file.parts)
    return {str(file): file.read_bytes() if file.is_file() else b"" for file in sorted(found)}


def names(path="found"):
    return sorted(file.name for file in Path(path).iterdir())


def picture(path, value=255, *, size=(16, 16), column=4):
    """Save a black image with a square of 4 x 4 pixels, and return its path."""
    array = np.zeros((*size, 3), np.uint8)
    array[4:8, column : column + 4] = value
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)
    return Path(path)


def pixels(path):
    with Image.open(path) as image:
        return np.asarray(image)


def written(path, data):
    """Write a file of bytes or text, and return its path as text."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


@contextmanager
def folder_of_user(path, monkeypatch, text=MODELS):
    """Work in a folder with a module of models; give the name of the module."""
    name = f"models_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    monkeypatch.chdir(path)
    monkeypatch.syspath_prepend(str(path))
    (path / f"{name}.py").write_text(text)
    try:
        yield name
    finally:
        sys.modules.pop(name, None)


@functools.cache
def demo_network(*, channels_last=False, batch="n"):
    """Return the bundled demo network as bytes of ONNX, made without torch."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import helper, numpy_helper

    weights = pytest.importorskip("safetensors.numpy").load(
        files("hshap.demo").joinpath("weights.safetensors").read_bytes()
    )
    at = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "conv_1.weight", "conv_1.bias"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], **at),
        helper.make_node("Conv", ["c", "conv_2.weight", "conv_2.bias"], ["d"]),
        helper.make_node("Relu", ["d"], ["e"]),
        helper.make_node("MaxPool", ["e"], ["f"], kernel_shape=[5, 5], strides=[5, 5]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "fc_1.weight", "fc_1.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["i"]),
        helper.make_node("Gemm", ["i", "fc_2.weight", "fc_2.bias"], ["j"], transB=1),
        helper.make_node("Relu", ["j"], ["k"]),
        helper.make_node("Gemm", ["k", "fc_3.weight", "fc_3.bias"], ["logits"], transB=1),
    ]
    shape = [batch, 3, 100, 120]
    if channels_last:
        shape = [batch, 100, 120, 3]
        nodes.insert(0, helper.make_node("Transpose", ["images"], ["x"], perm=[0, 3, 1, 2]))
    floats = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "demo",
        [helper.make_tensor_value_info("images" if channels_last else "x", floats, shape)],
        [helper.make_tensor_value_info("logits", floats, [batch, 2])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return made.SerializeToString()
