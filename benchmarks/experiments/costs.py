"""Time and memory of each method, measured alone: one process, one thread, nothing else running.

A full run keeps both cores busy, so its times depend on the other work. Here every method
explains the same few images, once to warm up and then to be measured.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import folder, quartiles
from benchmarks.core.runner import explain
from benchmarks.core.tasks import TASKS, fitted
from benchmarks.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.core.protocol import Example
    from benchmarks.core.tasks import Task

MEASURED = ("seconds", "seconds_in_model", "megabytes")


def run(name: str, images: int) -> None:
    """Measure so many images of each group, and write costs.json beside the results."""
    torch.set_num_threads(1)
    task = TASKS[name]()
    subject = task.subject()
    found: dict[str, Any] = defaultdict(lambda: defaultdict(list))
    for example in _few(task, images):
        at_hand = fitted(subject, example)
        for method in METHODS:
            key = example.group or "all"
            if not found[key][method.name]:
                explain(method, at_hand, example, task.concept)  # packages compile when first used
            row = explain(method, at_hand, example, task.concept)
            if "cannot" not in row:
                found[key][method.name].append({m: row[m] for m in MEASURED})
            print(f"{example.name}: {method.name}, {row['seconds']:.2f} s", flush=True)
    groups = {
        group: {
            method: {m: quartiles([row[m] for row in rows]) for m in MEASURED}
            for method, rows in methods.items()
            if rows
        }
        for group, methods in found.items()
    }
    content = {"task": name, "images": images, **provenance(), "versions": versions()}
    folder(name).mkdir(parents=True, exist_ok=True)
    path = folder(name) / "costs.json"
    path.write_text(json.dumps(content | {"groups": groups}, indent=1) + "\n")


def _few(task: Task, images: int) -> Iterator[Example]:
    for _, group in groupby(task.positives("test", quick=True), key=lambda e: e.group):
        yield from islice(group, images)
