"""Processes that die while they work on a run, and the table that remains.

Every file operation of a run folder may kill its own process with SIGKILL: before the temporary
file, in the middle of it, between write and rename, and after the rename. Drivers die again and
again; then one undisturbed call goes on, and its table must equal that of a run without kills.

These processes hold no torch: `python -m fuzzing.kills driver 30` kills one way, from `tests/`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import hshap
from hshap import runs
from hshap.runs.storing.files import LocalFiles
from hshap.runs.storing.schema import VOLATILE

IMAGES, POISONED, UNREADABLE = 24, 5, 11
POINTS = ("before", "inside", "between", "after")
OFTEN, EACH = 0.12, 12  # chance of a death at each point, and kills for each folder


@dataclass(frozen=True)
class DeadlyFiles(LocalFiles):
    """Files that kill the process that uses them, at random points, and note the point."""

    log: Path = Path("kills")
    spared: int = 0  # number of a process that is not killed
    most: int | None = None  # kills after which no process is killed; a job takes seconds to start

    def _is_hit(self):
        # A new generator each time: a process that was forked must not repeat its parent.
        if os.getpid() == self.spared or random.SystemRandom().random() >= OFTEN:
            return False
        return self.most is None or len(self.log.read_text().split()) < self.most

    def _die(self, point):
        with self.log.open("a") as file:
            file.write(f"{point}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, name, data):
        if self._is_hit():
            self._die("before")
        if self._is_hit():
            super().write(name, data[: len(data) // 2])
            self._die("inside")
        super().write(name, data)

    def rename(self, name, to):
        if self._is_hit():
            self._die("between")
        super().rename(name, to)
        if self._is_hit():
            self._die("after")


class Images:
    """Small images with one bright pixel; one is poisoned, and one cannot be read."""

    def __len__(self):
        return IMAGES

    def __getitem__(self, number):
        if number == UNREADABLE:
            raise ValueError("this image cannot be read")
        image = np.random.default_rng(number).random((1, 8, 8)) / 4
        image[0, number % 8, number * 3 % 8] = np.nan if number == POISONED else 1.0
        return image


def bright(batch):
    """Score 1 if a pixel is bright."""
    return (batch > 0.5).any(axis=(1, 2, 3)).astype(float)


def explain(files, executor=None):
    """Explain all images into a folder."""
    made = hshap.Explainer(bright, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(1))
    given = {"target": 0, "positives": None, "task_images": 6, "shard_rows": 3}
    return runs.explain_dataset(made, Images(), files, executor=executor, **given)


def table(run):
    """Return the rows that a run must have, and its errors."""
    rows = [{k: v for k, v in row.items() if k not in VOLATILE} for row in run.rows()]
    return rows, [(row["image"], row["kind"], row["reason"]) for row in run.errors]


@dataclass
class Campaign:
    """Kills until there were enough, and every difference that they made."""

    executor: object = None
    drivers: int = 1
    spare_driver: bool = False
    kills: Counter = field(default_factory=Counter)
    failures: list = field(default_factory=list)
    folders: int = 0

    def run(self, count):
        """Kill `count` times; return this campaign."""
        home = Path(tempfile.mkdtemp(prefix="kills-"))
        try:
            expected = table(explain(LocalFiles(home / "quiet")))
            while self.kills.total() < count:
                self._one_folder(home / str(self.folders), expected, count - self.kills.total())
                self.folders += 1
        finally:
            shutil.rmtree(home, ignore_errors=True)
        return self

    def _one_folder(self, folder, expected, most):
        folder.mkdir()
        log = folder / "log"
        log.touch()
        wanted = min(EACH, most)
        while len(log.read_text().split()) < wanted:
            before = len(log.read_text().split())
            codes = self._disturbed(folder / "run", log, wanted)
            if any(code not in (0, -signal.SIGKILL) for code in codes):
                self.failures.append(f"a driver ended with {codes}")
                break
            if not any(codes) and len(log.read_text().split()) == before:
                self._compare(folder / "run", expected)
                shutil.rmtree(folder / "run")  # complete before enough kills: from the beginning
        self.kills.update(log.read_text().split())
        self._compare(folder / "run", expected)

    def _compare(self, folder, expected):
        """Go on without kills; the table must be that of a run that was never disturbed."""
        try:
            found = table(explain(LocalFiles(folder)))
        except Exception:  # noqa: BLE001, told with the other failures
            self.failures.append(traceback.format_exc())
            return
        if found != expected:
            self.failures.append(f"{found} instead of {expected}"[:2000])

    def _disturbed(self, folder, log, wanted):
        """Let drivers work on a folder until they end or die; return their exit codes."""
        if self.spare_driver:
            explain(DeadlyFiles(folder, log, os.getpid(), wanted), self.executor)
            return [0]
        children = [self._driver(DeadlyFiles(folder, log)) for _ in range(self.drivers)]
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]

    def _driver(self, files):
        """Start a driver in a process of its own; it may die."""
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            explain(files, self.executor)
            code = 0
        except BaseException:  # noqa: BLE001, the parent must see any
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def __str__(self):
        told = ", ".join(f"{self.kills[point]} {point}" for point in POINTS)
        head = f"{self.kills.total()} kills in {self.folders} folders ({told}): "
        return "\n".join([f"{head}{len(self.failures)} differences", *self.failures[:5]])


WAYS = {
    "driver": lambda folder: Campaign(),
    "drivers": lambda folder: Campaign(drivers=2),
    "processes": lambda folder: Campaign(runs.Processes(2, start="fork")),
    "dask": lambda folder: Campaign(runs.DaskWorkers(2), spare_driver=True),
    "ray": lambda folder: Campaign(runs.RayActors(1), spare_driver=True),
    "slurm": lambda folder: Campaign(
        runs.Slurm(folder, workers=2, cluster="local"), spare_driver=True
    ),
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        campaign = WAYS[sys.argv[1]](folder).run(int(sys.argv[2]))
    print(campaign)  # noqa: T201
    sys.exit(bool(campaign.failures))
