from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from pathlib import Path

# Before NumPy and torch start their threads: the tests already run in one process for each core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

# Tests import `oracle` and `skips`, and tests of benchmarks import `benchmarks`.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

import skips
from browsers import browser, show, visit  # noqa: F401, fixtures of several files

# Machines are noisy: a slow example says nothing about the code.
hypothesis.settings.register_profile("hshap", deadline=None, derandomize=True)
hypothesis.settings.load_profile("hshap")


def pytest_configure(config):
    # Not by imports: hooks of a conftest are not called for the examples in src/hshap.
    config.pluginmanager.register(skips, "skips")


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
