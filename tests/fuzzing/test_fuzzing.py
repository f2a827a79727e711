"""Random and hostile inputs: files are refused or valid, models do no harm, kills lose nothing.

Random networks are in `tests/test_incremental.py`. A failure names its kind, seed and number.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
KILLS = {"driver": 300, "drivers": 300, "processes": 300, "dask": 33, "ray": 33, "slurm": 33}
NEEDED = {"dask": "distributed", "ray": "ray", "slurm": "submitit"}


@pytest.mark.parametrize(
    ("count", "seed"), [(48, 7), pytest.param(2000, 0, marks=pytest.mark.fuzz)]
)
def test_damaged_explanations_are_refused_or_valid(count, seed):
    from fuzzing.explanation_files import MUTATIONS, fuzz_explanations

    refused, loaded, failures = fuzz_explanations(count, seed=seed)
    assert failures == []
    assert refused.total() + loaded.total() == count
    assert refused.total() > count / 2
    assert loaded["none"] == -(-count // len(MUTATIONS))


@POSIX
@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("count", "seed"), [(30, 7), (500, 0)])
def test_hostile_models_are_refused_or_answer(count, seed):
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    from fuzzing.loading import fuzz_models

    # Machines are noisy: a hang lasts for ever.
    refused, loaded, failures = fuzz_models(count, seed=seed, seconds=60.0)
    assert failures == []
    assert refused.total() + loaded.total() == count
    assert loaded["ONNX as it is"] > 0


@POSIX
@pytest.mark.parametrize(
    ("way", "count"),
    [
        ("driver", 12),
        *(
            pytest.param(way, KILLS[way], marks=pytest.mark.kills)
            for way in KILLS
            if way not in NEEDED
        ),
        *(
            pytest.param(way, KILLS[way], marks=[pytest.mark.kills, pytest.mark.cluster])
            for way in NEEDED
        ),
    ],
)
def test_killed_runs_lose_and_double_nothing(way, count):
    """The driver dies, one of two, processes, workers of Dask, actors of Ray, jobs of Slurm."""
    pytest.importorskip("pyarrow")
    pytest.importorskip("cloudpickle")
    if way in NEEDED:
        pytest.importorskip(NEEDED[way])
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-m", "fuzzing.kills", way, str(count)],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        cwd=TESTS,
        env={**os.environ, "RAY_DEDUP_LOGS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    found = re.search(r"(\d+) kills in .*\((.*)\): 0 differences", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert found, done.stdout
    assert int(found[1]) >= count
    points = {point: int(number) for number, point in re.findall(r"(\d+) (\w+)", found[2])}
    assert sum(points.values()) == int(found[1])
    assert set(points) == {"before", "inside", "between", "after"}
    assert count < 60 or min(points.values()) > 0
