from __future__ import annotations

import functools
import gc
import importlib.metadata
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

# Before NumPy and torch start their threads: the tests already run in one process for each core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

# Tests import `oracle` and `skips`, and tests of benchmarks import `benchmarks`.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import pictures
import skips
from browsers import browser, show, visit  # noqa: F401, fixtures of several files

# Machines are noisy: a slow example says nothing about the code.
hypothesis.settings.register_profile("hshap", deadline=None, derandomize=True)
hypothesis.settings.load_profile("hshap")


# Limits in seconds that a busy machine would exceed, and the values that tests work with: a command
# writes a line of progress every five seconds, and stops a model that hangs after two.
PATIENT = {
    ("hshap.cli.progress", "EVERY"): 3600.0,
    ("hshap.cli.inputs.onnx_files", "SECONDS"): 120.0,
}
USUAL = {}
PATCHES = pytest.MonkeyPatch()


def pytest_configure(config):
    # Not by imports: hooks of a conftest are not called for the examples in src/hshap.
    config.pluginmanager.register(skips, "skips")
    if find_spec("typer") is not None:
        for (module, name), patient in PATIENT.items():
            USUAL[module, name] = getattr(importlib.import_module(module), name)
            PATCHES.setattr(f"{module}.{name}", patient)
        # Reading the options of all commands takes longer than most commands that tests run.
        reading = importlib.import_module("typer.testing")._get_command
        PATCHES.setattr("typer.testing._get_command", functools.cache(reading))


def pytest_unconfigure():
    PATCHES.undo()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep imported objects out of garbage collections, which take a tenth of the time else."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def usual_limits(monkeypatch):
    """The limits of users, for a test of them."""
    for (module, name), value in USUAL.items():
        monkeypatch.setattr(f"{module}.{name}", value)


@pytest.fixture
def blank_pictures(monkeypatch):
    """Save pictures of one pixel, for tests of files."""
    pictures.blank(monkeypatch)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def support():
    """Return a function that notes a row of the tables in docs/support.md.

    `support("models", kind=..., library="keras", checked=..., difference=1e-7)`: rows of one table
    have the same fields. `scripts/support_table.py` runs the tests and writes the tables.
    """

    def note(table, *, library, **fields):
        out = os.environ.get("HSHAP_SUPPORT")
        if out:
            version = importlib.metadata.version(library)
            row = {"table": table, "library": f"{library} {version}", **fields}
            with Path(out).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, default=float) + "\n")

    return note
