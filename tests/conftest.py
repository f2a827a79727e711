from __future__ import annotations

import os
import sys
from pathlib import Path

# Before NumPy and torch start their threads: the tests already run in one process for each core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import numpy as np
import pytest

# Tests import `oracle`, and those of benchmarks import `benchmarks`.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

# Machines are noisy: a slow example says nothing about the code.
hypothesis.settings.register_profile("hshap", deadline=None, derandomize=True)
hypothesis.settings.load_profile("hshap")


@pytest.fixture
def rng():
    return np.random.default_rng(0)
