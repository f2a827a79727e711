"""Drivers that are killed, disks that are full, and processes that end: no row is lost.

Processes that die at any file operation are in `tests/fuzzing`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("cloudpickle")

import hshap

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def bright(batch):
    return batch.max(axis=(1, 2, 3))


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


@pytest.mark.kills
def test_workers_end_with_their_driver(tmp_path):
    """Kill the driver alone: its workers see that it is gone, and the folder can be worked on."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py")]
    command += [str(tmp_path / "run"), str(tmp_path / "quick")]
    driver = subprocess.Popen(command, start_new_session=True)  # noqa: S603
    deadline = time.monotonic() + 300
    while not list(tmp_path.glob("run/explanations/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    while members(driver.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not members(driver.pid)
    assert 0 < len(hshap.runs.open(tmp_path / "run")) < 40
    (tmp_path / "quick").touch()
    subprocess.run(command, check=True, timeout=900)  # noqa: S603
    assert len(hshap.runs.open(tmp_path / "run")) == 40


def members(session):
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


def test_a_disk_that_is_full_in_truth(tmp_path):
    """A small file system of its own; it needs the right to mount one."""
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
import os, tempfile
import numpy as np
import pyarrow as pa, pyarrow.compute, pyarrow.parquet as pq
import hshap

def threads():
    return len(os.listdir("/proc/self/task"))

explainer = hshap.Explainer(
    lambda batch: batch.max(axis=(1, 2, 3)), hshap.Constant(0.0), hshap.Dyadic(min_size=1)
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
def test_no_thread_of_a_library_outlives_a_run():
    """A thread that frees an object while Python ends would abort the process, now and then.

    So none is started: this can be seen each time, and the abort only under load.
    """
    words = [sys.executable, "-W", "ignore", "-c", THREADS]
    done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert after == before
