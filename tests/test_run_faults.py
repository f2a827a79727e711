"""A run is killed at random points, and the final table is that of a run which was not.

Each test kills in processes of its own, which hold no torch: `benchmarks/run kills` does the same a
thousand times.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("cloudpickle")

ROOT = Path(__file__).parents[1]
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def kills(way, count):
    """Kill a run `count` times; return the number of kills at each point."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-m", "benchmarks.experiments.kills", way, str(count)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
        check=False,
        env={**os.environ, "RAY_DEDUP_LOGS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) kills in .*\((.*)\): 0 differences", done.stdout)
    assert found, done.stdout + done.stderr
    assert int(found[1]) >= count
    return {point: int(number) for number, point in re.findall(r"(\d+) (\w+)", found[2])}


@POSIX
@pytest.mark.parametrize(("way", "count"), [("driver", 80), ("drivers", 60), ("processes", 60)])
def test_a_run_that_is_killed_again_and_again_loses_and_doubles_nothing(way, count):
    points = kills(way, count)
    assert set(points) == {"before", "inside", "between", "after"}
    assert min(points.values()) > 0


@POSIX
def test_actors_of_ray_may_die(tmp_path):
    pytest.importorskip("ray")
    kills("ray", 3)


@POSIX
def test_jobs_of_slurm_may_die(tmp_path):
    pytest.importorskip("submitit")
    kills("slurm", 3)


SCRIPT = """
import sys
import time
import numpy as np
import hshap

class Slow:
    def __len__(self):
        return 40
    def __getitem__(self, number):
        time.sleep(0.02)
        return np.full((1, 4, 4), number / 40)

def model(batch):
    return batch.max(axis=(1, 2, 3))

if __name__ == "__main__":
    explainer = hshap.Explainer(
        model, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(2)
    )
    hshap.runs.explain_dataset(
        explainer, Slow(), sys.argv[1], target=0, task_images=4,
        executor=hshap.runs.Processes(2),
    )
"""


@POSIX
def test_workers_end_with_their_driver(tmp_path):
    """Kill the driver alone: its workers see that it is gone, and the folder can be worked on."""
    import hshap

    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "run")]
    driver = subprocess.Popen(command, start_new_session=True)  # noqa: S603
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("run/explanations/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    while _members(driver.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _members(driver.pid)
    before = len(hshap.runs.open(tmp_path / "run"))
    assert 0 < before < 40
    subprocess.run(command, check=True, timeout=300)  # noqa: S603
    assert len(hshap.runs.open(tmp_path / "run")) == 40


def _members(session):
    """Return the processes of a session that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


@POSIX
def test_a_disk_that_is_full_in_truth(tmp_path):
    """A small file system of its own; it needs the right to mount one."""
    import numpy as np

    import hshap
    from benchmarks.experiments.kills import bright

    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:  # noqa: S603
        pytest.skip("no right to mount a file system")
    explainer = hshap.Explainer(bright, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(1))
    images = np.random.default_rng(0).random((60, 1, 8, 8))

    def explain():
        return hshap.runs.explain_dataset(explainer, images, small / "run", target=0, task_images=4)

    try:
        with pytest.raises((hshap.runs.RunStoppedError, OSError), match="No space left"):
            explain()
        kept = [row["digest"] for row in hshap.runs.open(small / "run").rows(["digest"])]
        assert 0 < len(kept) < 60
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)  # noqa: S603, S607
        whole = explain()
        assert len(whole) == 60
        assert set(kept) <= {row["digest"] for row in whole.rows(["digest"])}
        assert hshap.runs.verify(whole).is_sound
    finally:
        subprocess.run(["umount", str(small)], check=False)  # noqa: S603, S607
