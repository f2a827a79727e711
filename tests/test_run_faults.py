"""A run is killed at random points, and the final table is that of a run which was not.

Each test kills in processes of its own, which hold no torch: `tests/fuzzing` does the same a
thousand times.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("cloudpickle")

ROOT = Path(__file__).parents[1]
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


KILLS = {"driver": 80, "drivers": 60, "processes": 60, "dask": 3, "ray": 3, "slurm": 3}
NEEDED = {"dask": "distributed", "ray": "ray", "slurm": "submitit"}


@pytest.fixture(scope="module")
def started(request, tmp_path_factory):
    """Start the kills of all wanted tests at once, since they mostly wait; return processes."""
    folder, running = tmp_path_factory.mktemp("kills"), {}
    for way in {item.callspec.params["way"] for item in request.session.items if is_kill(item)}:
        if way in NEEDED and find_spec(NEEDED[way]) is None:
            continue
        module, out = "fuzzing.kills", folder / way
        with out.open("w") as file:
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-W", "ignore", "-m", module, way, str(KILLS[way])],
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=ROOT / "tests",
                env={**os.environ, "RAY_DEDUP_LOGS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )
        running[way] = process, out
    yield running
    for process, _ in running.values():
        process.kill()
        process.wait()


def is_kill(item):
    return (
        getattr(item, "originalname", "") == "test_a_run_that_is_killed_loses_and_doubles_nothing"
    )


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("way", KILLS)
def test_a_run_that_is_killed_loses_and_doubles_nothing(way, started):
    """The driver dies, one of two, processes, workers of Dask, actors of Ray, jobs of Slurm."""
    if way in NEEDED:
        pytest.importorskip(NEEDED[way])
    process, out = started[way]
    code = process.wait(1800)
    told = out.read_text()
    assert code == 0, told
    found = re.search(r"(\d+) kills in .*\((.*)\): 0 differences", told)
    assert found, told
    assert int(found[1]) >= KILLS[way]
    points = {point: int(number) for number, point in re.findall(r"(\d+) (\w+)", found[2])}
    assert set(points) == {"before", "inside", "between", "after"}
    assert sum(points.values()) == int(found[1])
    if KILLS[way] >= 60:
        assert min(points.values()) > 0


SCRIPT = """
import sys
import time
from pathlib import Path
import numpy as np
import hshap

class Slow:
    def __len__(self):
        return 40
    def __getitem__(self, number):
        is_killed_soon = not Path(sys.argv[2]).exists()
        time.sleep(1.0 if number >= 12 and is_killed_soon else 0.02)
        return np.full((1, 4, 4), number / 40)

def model(batch):
    return batch.max(axis=(1, 2, 3))

if __name__ == "__main__":
    explainer = hshap.Explainer(
        model, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(2)
    )
    hshap.runs.explain_dataset(
        explainer, Slow(), sys.argv[1], target=0, task_images=4, positives=None,
        executor=hshap.runs.Processes(2),
    )
"""


@POSIX
@pytest.mark.slow
def test_workers_end_with_their_driver(tmp_path):
    """Kill the driver alone: its workers see that it is gone, and the folder can be worked on."""
    import hshap

    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py")]
    command += [str(tmp_path / "run"), str(tmp_path / "quick")]
    driver = subprocess.Popen(command, start_new_session=True)  # noqa: S603
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("run/explanations/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    while _members(driver.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _members(driver.pid)
    before = len(hshap.runs.open(tmp_path / "run"))
    assert 0 < before < 40
    (tmp_path / "quick").touch()
    subprocess.run(command, check=True, timeout=900)  # noqa: S603
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
    from fuzzing.kills import bright

    import hshap

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


THREADS = """
import os, sys, tempfile
import numpy as np
import pyarrow as pa, pyarrow.compute, pyarrow.parquet as pq
import hshap

def threads():
    return len(os.listdir("/proc/self/task"))

explainer = hshap.Explainer(
    lambda batch: batch.max(axis=(1, 2, 3)),
    baseline=hshap.Constant(0.0),
    partition=hshap.Dyadic(min_size=1),
)
images, before = np.eye(4).reshape(4, 1, 2, 2), threads()
with tempfile.TemporaryDirectory() as folder:
    for number, image in enumerate(images):
        np.save(f"{folder}/{number}.npy", image)
    names = [f"{number}.npy" for number in range(4)]
    pq.write_table(pa.table({"image": names, "target": [0] * 4}), f"{folder}/list.parquet")
    for given in (images, f"{folder}/list.parquet"):
        out = f"{folder}/{type(given).__name__}"
        for _ in range(2):
            run = hshap.runs.explain_dataset(explainer, given, out, target=0)
        read = run.errors, run.table(), run.boxes(), list(run), hshap.runs.verify(out)
        assert len(read[2]) == 4, read
print(before, threads())
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="lists threads as Linux does")
def test_no_thread_of_another_library_holds_objects_of_python_when_a_run_ends():
    """A thread that frees one while Python ends would abort the process, now and then.

    So none is started: this can be seen each time, and the abort only under load.
    """
    words = [sys.executable, "-W", "ignore", "-c", THREADS]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert after == before
