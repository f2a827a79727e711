from __future__ import annotations

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
