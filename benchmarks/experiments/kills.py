"""Killed runs: drivers and workers die at random points, and the final table is as without.

Run `benchmarks/run kills`; `HSHAP_KILLS=50` is a short form. Every file operation of a run folder
may kill its own process with SIGKILL: before the temporary file, in the middle of it, between write
and rename, and after the rename. A folder is worked on by one or two drivers at once that die again
and again; then one undisturbed call goes on, and its table must equal, row for row, that of a run
without kills. Results go to `results/kills`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import hshap
from benchmarks.core.folders import RESULTS
from hshap import runs
from hshap.runs.storing.files import LocalFiles
from hshap.runs.storing.schema import VOLATILE

if TYPE_CHECKING:
    from hshap._util.types import Untyped

KILLS = 1000
IMAGES = 24
POISONED, UNREADABLE = 5, 11
POINTS = ("before", "inside", "between", "after")
OFTEN = 0.12
"""Chance of a death at each point."""

EACH = 12
"""Kills for each folder."""


@dataclass(frozen=True)
class DeadlyFiles(LocalFiles):
    """Files that kill the process that uses them, at random points, and note the point."""

    log: Path = Path("kills")
    spared: int = 0
    """Number of a process that is not killed."""

    most: int | None = None
    """Kills after which no process is killed any more; a job or an actor takes seconds to start."""

    def _is_hit(self) -> bool:
        # A new generator each time: a process that was forked must not repeat its parent.
        is_hit = os.getpid() != self.spared and random.SystemRandom().random() < OFTEN
        return is_hit and (self.most is None or len(self.log.read_text().split()) < self.most)

    def _die(self, point: str) -> None:
        with self.log.open("a") as file:
            file.write(f"{point}\n")
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, name: str, data: bytes) -> None:
        if self._is_hit():
            self._die("before")
        if self._is_hit():
            super().write(name, data[: len(data) // 2])
            self._die("inside")
        super().write(name, data)

    def rename(self, name: str, to: str) -> None:
        if self._is_hit():
            self._die("between")
        super().rename(name, to)
        if self._is_hit():
            self._die("after")


@dataclass(frozen=True)
class Images:
    """Small images with one bright pixel; one is poisoned, and one cannot be read."""

    count: int = IMAGES

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> np.ndarray:
        if number == UNREADABLE:
            raise ValueError("this image cannot be read")
        image = np.random.default_rng(number).random((1, 8, 8)) / 4
        image[0, number % 8, number * 3 % 8] = np.nan if number == POISONED else 1.0
        return image


def bright(batch: np.ndarray) -> np.ndarray:
    """Score the brightest pixel."""
    return (batch > 0.5).any(axis=(1, 2, 3)).astype(float)


def explainer() -> hshap.Explainer:
    """Return the explainer of all runs here."""
    return hshap.Explainer(bright, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(1))


def explain(files: LocalFiles, executor: Untyped = None) -> runs.Run:
    """Explain all images into a folder."""
    return runs.explain_dataset(
        explainer(),
        Images(),
        files,
        target=0,
        positives=None,
        task_images=6,
        shard_rows=3,
        executor=executor,
    )


def table(run: runs.Run) -> tuple[list[dict], list[tuple]]:
    """Return the rows that a run must have, and its errors."""
    rows = [{k: v for k, v in row.items() if k not in VOLATILE} for row in run.rows()]
    return rows, [(row["image"], row["kind"], row["reason"]) for row in run.errors]


@dataclass
class Campaign:
    """Kills until there were enough, and every difference that they made."""

    executor: Untyped = None
    drivers: int = 1
    spare_driver: bool = False
    kills: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    folders: int = 0

    def run(self, count: int) -> Campaign:
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

    def _one_folder(self, folder: Path, expected: tuple, most: int) -> None:
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

    def _compare(self, folder: Path, expected: tuple) -> None:
        """Go on without kills; the table must be that of a run that was never disturbed."""
        try:
            found = table(explain(LocalFiles(folder)))
        except Exception:  # noqa: BLE001, told with the other failures
            self.failures.append(traceback.format_exc())
            return
        if found != expected:
            self.failures.append(_difference(found, expected))

    def _disturbed(self, folder: Path, log: Path, wanted: int) -> list[int]:
        """Let drivers work on a folder until they end or die; return their exit codes."""
        if self.spare_driver:
            explain(DeadlyFiles(folder, log, os.getpid(), wanted), self.executor)
            return [0]
        children = [self._driver(DeadlyFiles(folder, log)) for _ in range(self.drivers)]
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]

    def _driver(self, files: DeadlyFiles) -> int:
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

    def __str__(self) -> str:
        told = ", ".join(f"{self.kills[point]} {point}" for point in POINTS)
        head = f"{self.kills.total()} kills in {self.folders} folders ({told}): "
        return "\n".join([f"{head}{len(self.failures)} differences", *self.failures[:5]])


def _difference(found: tuple, expected: tuple) -> str:
    rows, wanted = ({(r["image"], r["identity"]): r for r in side[0]} for side in (found, expected))
    lost, more = sorted(wanted.keys() - rows.keys()), sorted(rows.keys() - wanted.keys())
    other = [key for key in rows.keys() & wanted.keys() if rows[key] != wanted[key]]
    return f"lost {lost}, too many {more}, other {other}, errors {found[1]}"


def campaigns(folder: str) -> dict[str, Campaign]:
    """Return the ways to work on a folder; `folder` is for the files of submitit."""
    return {
        "driver": Campaign(),
        "drivers": Campaign(drivers=2),
        "processes": Campaign(runs.Processes(2, start="fork")),
        "dask": Campaign(runs.DaskWorkers(2), spare_driver=True),
        "ray": Campaign(runs.RayActors(1), spare_driver=True),
        "slurm": Campaign(runs.Slurm(folder, workers=2, cluster="local"), spare_driver=True),
    }


def kill(name: str, count: int) -> Campaign:
    """Kill `count` times while a folder is worked on in one way, and print the outcome."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        campaign = campaigns(folder)[name].run(count)
    print(f"{name}: {campaign} [{time.monotonic() - begun:.0f} s]")
    return campaign


def run() -> None:
    """Kill a thousand times in all, and write the outcome; end with exit code 1 on a difference."""
    most = int(os.environ.get("HSHAP_KILLS", KILLS))
    few = ("dask", "ray", "slurm")  # a worker takes seconds to start
    shares = {"driver": 0.3, "drivers": 0.3, "processes": 0.3} | dict.fromkeys(few, 0.1 / 3)
    made = {name: kill(name, max(1, round(share * most))) for name, share in shares.items()}
    failed = sum(len(campaign.failures) for campaign in made.values())
    document = {
        "kills": sum(campaign.kills.total() for campaign in made.values()),
        "differences": failed,
        "ways": {
            name: {
                "kills": campaign.kills.total(),
                "folders": campaign.folders,
                "differences": len(campaign.failures),
                "points": {point: campaign.kills[point] for point in POINTS},
            }
            for name, campaign in made.items()
        },
    }
    folder = RESULTS / "kills"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kills.json").write_text(json.dumps(document, indent=1) + "\n")
    sys.exit(bool(failed))


if __name__ == "__main__":  # the tests run one way by itself: python -m ... driver 30
    sys.exit(bool(kill(sys.argv[1], int(sys.argv[2])).failures))
