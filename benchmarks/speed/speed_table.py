"""The speed table, against the authors' package and peers: `benchmarks/run speed`, half an hour.

Every measurement has a process of its own with two threads. Measurements for goals are taken three
times, in turns, and tables show medians; measurements that take minutes, those of growth and
agreement, and the reference's games with channels last and as found are taken once. Nothing else
should run meanwhile: each measurement records the share of the CPUs that other processes took.

The authors' package would take ten minutes for one explanation of ten findings at 1200 x 1600. Its
time there is therefore the sum of its own bookkeeping, measured in full, and of its games: their
number times the measured time of one game's 16 inputs, scaled down by the ratio that a full run
with one finding shows.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.core.folders import cache
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.reference import install_reference
from benchmarks.models.names import NARROW, SHORT, ZOO
from benchmarks.speed import plots, speed_goals, speed_page
from benchmarks.speed.process import run_alone

if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "speed.json"
TIMES = 3
SIDES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
GIB = 2**30
AS_FOUND = "as found"
"""In the names of measurements without the allocator's settings of `benchmarks/run`."""
BY_COMMAND = "by command"
"""In the names of those without them too, but with `hshap.keep_memory()`, as commands run."""

Task = dict[str, Any]


def tasks() -> list[tuple[str, Task, int]]:
    """Return all measurements: the name, the task, and how often it is run."""
    photo, large = {"size": "photo"}, {"size": "large"}
    found: list[tuple[str, Task, int]] = [
        ("forward", {"measure": "photographs.forward_pass", **photo}, TIMES),
        ("tree", {"measure": "photographs.superpixel_tree", **photo}, TIMES),
        ("game", {"measure": "photographs.reference_game", **photo}, TIMES),
        (
            "game, channels last",
            {"measure": "photographs.reference_game", **photo, "channels_last": True},
            1,
        ),
    ]
    for markers in (1, 10):
        given = {**photo, "markers": markers}
        name = f"k = {markers}"
        found += [
            (
                f"reference's own, {name}",
                {"measure": "photographs.reference_own_time", **given},
                TIMES,
            ),
            (f"ours, {name}", {"measure": "photographs.ours", **given}, TIMES),
            (
                f"ours, channels last, {name}",
                {"measure": "photographs.ours", **given, "channels_last": True},
                TIMES,
            ),
        ]
    quadtree = {"measure": "photographs.ours", **photo, "markers": 1, "partition": "Dyadic"}
    dense = {"measure": "photographs.ours", **photo, "markers": 1, "incremental": False}
    found += [
        (
            "reference, k = 1",
            {"measure": "photographs.reference_in_full", **photo, "markers": 1},
            1,
        ),
        ("ours, quadtree, k = 1", quadtree, 1),
        ("ours, not incremental, k = 1", dense, 1),
        (
            "ours, 4096",
            {"measure": "photographs.ours", **large, "markers": 10, "max_memory": 4 * GIB},
            1,
        ),
        ("crosses", {"measure": "crosses.one_by_one"}, TIMES),
        ("together", {"measure": "crosses.in_one_call"}, TIMES),
    ]
    found += [
        (
            f"share, {name}, {height} x {width}",
            {"measure": "shares.shares", "name": name, "grid": [height, width]},
            1,
        )
        for names, grids in ((NARROW, ((600, 800), (1200, 1600))), (ZOO, ((448, 512),)))
        for name in names
        for height, width in grids
    ]
    narrow = {"measure": "shares.against_full_passes", "name": NARROW[0], "grid": [600, 800]}
    found += [(f"narrow, {machine}", narrow, 1) for machine in ("tuned", AS_FOUND)]
    found += [(f"narrow, {BY_COMMAND}", {**narrow, "keep_memory": True}, 1)]
    found += [
        (
            f"ours, {BY_COMMAND}, k = {markers}",
            {"measure": "photographs.ours", **photo, "markers": markers, "keep_memory": True},
            TIMES,
        )
        for markers in (1, 10)
    ]
    found += [
        (f"game, {AS_FOUND}", {"measure": "photographs.reference_game", **photo}, 1),
        *(
            (
                f"ours, {AS_FOUND}, k = {markers}",
                {"measure": "photographs.ours", **photo, "markers": markers, "channels_last": True},
                TIMES,
            )
            for markers in (1, 10)
        ),
    ]
    found += [
        (f"agreement, {name}", {"measure": "incremental.agreement", "name": name}, 1)
        for name in ZOO
    ]
    found += [
        (f"options, {name}", {"measure": "incremental.options", "name": name}, 1)
        for name in ("ConvNet", "ResNet-18")
    ]
    found += [
        (f"command line, {name}", {"measure": "command_line.against_tuned", "name": name}, 1)
        for name in ("ConvNet", "FCN", "ResNet-18")
    ]
    found += [
        (f"short, {name}", {"measure": "short_runs.ratios", "name": name}, 1) for name in SHORT
    ]
    found += [
        (f"findings, {n}", {"measure": "growth.by_findings", "side": n}, 1) for n in (64, 256, 1024)
    ]
    found += [(f"side, {n}", {"measure": "growth.by_side", "side": n}, 1) for n in SIDES]
    found += [(n, {"measure": f"growth.{n}"}, 1) for n in ("by_size", "by_classes", "by_images")]
    return found


def run(*, fresh: bool = False, only: Sequence[str] = ()) -> None:
    """Take the measurements that are missing, judge the goals, and write the page and the plots.

    `only` takes those again whose names begin with one of these, and keeps the committed values of
    all others.
    """
    install_reference()
    if only:
        _take_again(only)
        return
    kept = cache("speed.json")
    done = json.loads(kept.read_text()) if kept.exists() and not fresh else {}
    wanted = tasks()
    for turn in range(TIMES):
        for name, task, times in wanted:
            taken = done.setdefault(name, [])
            if turn < times and len(taken) <= turn:
                taken.append(run_alone(task, return_freed_memory=_is_untuned(name, task)))
                kept.write_text(json.dumps(done))
                print(f"{name}: {_short(taken[-1])}", file=sys.stderr, flush=True)
    _write({**provenance(), "versions": versions(), "measured": done})


def _is_untuned(name: str, task: Task) -> bool:
    return task.get("size") == "large" or AS_FOUND in name or BY_COMMAND in name


def _take_again(only: Sequence[str]) -> None:
    """Repeat some measurements, in turns. The page then has the commit of the newest of them."""
    content = json.loads(RESULTS.read_text()) | provenance() | {"versions": versions()}
    wanted = [one for one in tasks() if one[0].startswith(tuple(only))]
    taken: dict[str, list[dict[str, Any]]] = {name: [] for name, _, _ in wanted}
    for turn in range(TIMES):
        for name, task, times in wanted:
            if turn < times:
                taken[name].append(run_alone(task, return_freed_memory=_is_untuned(name, task)))
                print(f"{name}: {_short(taken[name][-1])}", file=sys.stderr, flush=True)
    content["measured"] |= taken
    _write(content)


def _write(content: dict[str, Any]) -> None:
    done = content["measured"]
    content["goals"] = [asdict(goal) for goal in speed_goals.judged(done)]
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    (FOLDER / "speed.md").write_text(speed_page.markdown(content))
    plots.draw(done, FOLDER / "speed.png")
    print(speed_page.markdown(content))


def _short(found: dict[str, Any]) -> str:
    keys = ("failed", "seconds", "evaluations", "peak_gb", "ratio", "share", "difference")
    return ", ".join(
        f"{k} {found[k]:.3g}" if isinstance(found[k], int | float) else f"{k} {found[k]}"
        for k in keys
        if k in found
    )


if __name__ == "__main__":
    run()
