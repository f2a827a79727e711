"""How fast, against whom: one command, one table. Run `benchmarks/run speed`; allow half an hour.

Every measurement has a process of its own with two threads. Those of the goals are taken three
times, in turns, and tables show medians; those of minutes, growth and agreement once. Nothing else
should run meanwhile: each measurement tells what share of the CPUs others took. The
authors' package would take ten minutes for one explanation of ten findings at 1200 x 1600, so its
time there is its own bookkeeping, measured in full, plus its number of games times the measured
time of one game's 16 inputs, brought down to what a game took where it was run in full, with one
finding.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.core.provenance import provenance, versions
from benchmarks.core.reference import install_reference
from benchmarks.models.names import SHORT, ZOO
from benchmarks.speed import goals, plots

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
RESULTS = FOLDER / "speed.json"
TIMES = 3
SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
GIB = 2**30

Task = dict[str, Any]


def tasks() -> list[tuple[str, Task, int]]:
    """Return what is measured: a name, what to run, and how often."""
    photo, large = {"size": "photo"}, {"size": "large"}
    found: list[tuple[str, Task, int]] = [
        ("forward", {"measure": "forward", **photo}, TIMES),
        ("tree", {"measure": "tree", **photo}, TIMES),
        ("game", {"measure": "game_of_reference", **photo}, TIMES),
        (
            "game, channels last",
            {"measure": "game_of_reference", **photo, "channels_last": True},
            TIMES,
        ),
    ]
    for markers in (1, 10):
        given = {**photo, "markers": markers}
        name = f"k = {markers}"
        found += [
            (f"reference's own, {name}", {"measure": "own_of_reference", **given}, TIMES),
            (f"ours, {name}", {"measure": "ours", **given}, TIMES),
            (
                f"ours, channels last, {name}",
                {"measure": "ours", **given, "channels_last": True},
                TIMES,
            ),
        ]
    quadtree = {"measure": "ours", **photo, "markers": 1, "partition": "Dyadic"}
    dense = {"measure": "ours", **photo, "markers": 1, "incremental": False}
    found += [
        ("reference, k = 1", {"measure": "reference", **photo, "markers": 1}, 1),
        ("ours, quadtree, k = 1", quadtree, 1),
        ("ours, not incremental, k = 1", dense, 1),
        ("ours, 4096", {"measure": "ours", **large, "markers": 10, "max_memory": 5 * GIB}, 1),
        ("crosses", {"measure": "one_by_one"}, TIMES),
        ("together", {"measure": "together"}, TIMES),
    ]
    found += [(f"agreement, {name}", {"measure": "agreement", "name": name}, 1) for name in ZOO]
    found += [
        (f"options, {name}", {"measure": "options", "name": name}, 1)
        for name in ("ConvNet", "ResNet-18")
    ]
    found += [(f"short, {name}", {"measure": "short", "name": name}, 1) for name in SHORT]
    found += [(f"findings, {n}", {"measure": "by_findings", "side": n}, 1) for n in (64, 256, 1024)]
    found += [(f"side, {n}", {"measure": "by_side", "side": n}, 1) for n in SIDES]
    found += [(n, {"measure": n}, 1) for n in ("by_size", "by_classes", "by_images")]
    return found


def measure(task: Task) -> dict[str, Any]:
    """Run one measurement in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.speed.measure", json.dumps(task)]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    if task.get("size") == "large":
        # What keeps freed memory for speed would count as memory that is needed.
        environment = {k: v for k, v in environment.items() if not k.startswith("MALLOC_")}
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, env=environment
    )
    if done.returncode:
        return {"failed": f"ended with {done.returncode}"}
    return json.loads(done.stdout.splitlines()[-1])


def run(*, fresh: bool = False) -> None:
    """Measure what is not measured yet, judge the goals, and write table and plots."""
    install_reference()
    cache = FOLDER.parent / ".cache" / "speed.json"
    done = json.loads(cache.read_text()) if cache.exists() and not fresh else {}
    wanted = tasks()
    for turn in range(TIMES):
        for name, task, times in wanted:
            taken = done.setdefault(name, [])
            if turn < times and len(taken) <= turn:
                taken.append(measure(task))
                cache.parent.mkdir(exist_ok=True)
                cache.write_text(json.dumps(done))
                print(f"{name}: {_short(taken[-1])}", file=sys.stderr, flush=True)
    content = {**provenance(), "versions": versions(), "measured": done}
    content["goals"] = goals.judged(done)
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    (FOLDER / "speed.md").write_text(goals.markdown(content))
    plots.draw(done, FOLDER / "speed.png")
    print(goals.markdown(content))


def _short(found: dict[str, Any]) -> str:
    keys = ("failed", "seconds", "evaluations", "peak_gb", "ratio", "share", "difference")
    return ", ".join(
        f"{k} {found[k]:.3g}" if k != "failed" else found[k] for k in keys if k in found
    )


if __name__ == "__main__":
    run()
