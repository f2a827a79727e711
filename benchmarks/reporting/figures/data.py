"""The data of figures: committed summaries and rows, and the figures' own files."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core import results
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import COST, QUALITY, interval, quartiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Entries = dict[str, dict[str, Any]]

TASKS = ("synthetic", "malaria", "boards")
SPLIT = ("synthetic",)  # whose groups have a panel each; others are pooled over theirs
ABOUT = "about"


class NoResultsError(Exception):
    """Results that a figure shows do not exist yet; the message names the command for them."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Hold the content of one panel: the entries of a group's summary, and its ablation curves."""

    task: str
    title: str
    entries: Entries
    curves: Entries


def figure_file(name: str) -> Path:
    return results.folder("figures") / name


def panels(tasks: Sequence[str] = TASKS) -> list[Panel]:
    """Return the panels of all tasks that have results, and say which do not."""
    there = [task for task in tasks if (results.folder(task) / "summary.json").exists()]
    lacking = [f"`benchmarks/run {task}`" for task in tasks if task not in there]
    message = f"results are missing, run {' and '.join(lacking)}"
    if not there:
        raise NoResultsError(message)
    if lacking:
        print(f"drawn without some panels: {message}.")
    return [panel for task in there for panel in _task_panels(task)]


def group_entries(task: str, group: str) -> Entries:
    """Return the summary of one group of a task."""
    _must_exist(results.folder(task) / "summary.json", task)
    return results.read_summary(task)["groups"][group]


def _task_panels(task: str) -> list[Panel]:
    summary = results.read_summary(task)
    groups, curves = summary["groups"], summary["ablation"]
    if task in SPLIT or len(groups) == 1:
        return [
            Panel(task, _title(task, group, entries), entries, curves[group])
            for group, entries in groups.items()
        ]
    entries = pooled(results.read_rows(task))
    return [Panel(task, _title(task, "all", entries), entries, _pooled_curves(groups, curves))]


def _title(task: str, group: str, entries: Entries) -> str:
    images = max(entry["images"] for entry in entries.values())
    shown = task if group == "all" else f"{task}, {group}"
    return f"{shown} ({images} image{'s' * (images != 1)})"


def pooled(rows: Sequence[Mapping[str, str]]) -> Entries:
    """Sum up all rows of each method as the summary does those of a group."""
    methods: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["image"]):
        methods[row["method"]].append(row)
    return {
        method: {
            "images": len(own),
            **{name: interval([float(row[name]) for row in own]) for name in QUALITY},
            **{
                name: quartiles([float(row[name]) if row[name] else None for row in own])
                for name in COST
            },
        }
        for method, own in methods.items()
    }


def _pooled_curves(groups: Entries, curves: Entries) -> Entries:
    """Average the groups' mean curves by their images; quartiles cannot be pooled and are left."""
    pooled = {}
    for method in next(iter(curves.values())):
        having = [group for group in curves if method in curves[group]]
        counts = curves[having[0]][method]["counts"]
        same = [group for group in having if curves[group][method]["counts"] == counts]
        weights = [groups[group][method]["images"] for group in same]
        means = [curves[group][method]["mean"] for group in same]
        mean = np.average(means, axis=0, weights=weights).tolist()
        pooled[method] = {"counts": counts, "mean": mean}
    return pooled


def read_json(path: Path, command: str) -> dict[str, Any]:
    _must_exist(path, command)
    return json.loads(path.read_text())


def read_arrays(path: Path, command: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays of a file, and the notes stored with them."""
    _must_exist(path, command)
    with np.load(path) as stored:
        arrays = dict(stored)
    return arrays, json.loads(str(arrays.pop(ABOUT)))


def write_json(path: Path, content: dict[str, Any], seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**_origin(seed), **content}, indent=1) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], seed: int, **more: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {ABOUT: np.array(json.dumps({**_origin(seed), **more}))}
    np.savez_compressed(path, **arrays, **about)


def as_bytes(heat: NDArray[Any]) -> NDArray[np.int8]:
    """Return a map as shares of its greatest magnitude, from -127 to 127."""
    return np.rint(127 * heat / (np.abs(heat).max() or 1.0)).astype(np.int8)


def _must_exist(path: Path, command: str) -> None:
    if not path.exists():
        message = f"{path.parent.name}/{path.name} is missing, run `benchmarks/run {command}`"
        raise NoResultsError(message)


def _origin(seed: int) -> dict[str, Any]:
    return {"seed": seed, **provenance(), "versions": versions()}
