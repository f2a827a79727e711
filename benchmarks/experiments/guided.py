"""The default call at small budgets against other maps with gradients, on photographs.

Run `benchmarks/run guided`. Test images of each set; validation images choose the threshold of F1.
The evidence and the rule that ends branches were chosen on images of training and validation
(decision 22). `MOST` limits the test images of a set.

Rows of a method on a set that are in the results already are not made again; delete the results to
make all of them anew. A run that was stopped continues where it was.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core import markdown, results
from benchmarks.core.comparison import MEASURES, by_method, compared, evaluations, within
from benchmarks.core.folders import cache
from benchmarks.core.meter import Remembered
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.runner import explain
from benchmarks.core.tasks import TASKS, fitted
from benchmarks.methods.guided import AT, BUDGETS, EVIDENCE, METHODS, RIVALS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.core.protocol import Method

    Row = dict[str, Any]

SETS = ("boards", "platelets", "malaria", "malaria-made")
MADE = ("malaria-made",)  # no photographs: parasites pasted into smears
MOST = {"boards": 60, "malaria-made": 20}  # test images; all, where a set is not named
KEPT = ("method", "image", "evaluations", "average_precision", "iou_best", "failed")


def run(sets: Sequence[str] = SETS) -> None:
    """Make the rows that the results lack, set after set, and write the tables."""
    torch.set_num_threads(1)
    content = stored()
    for name in sets:
        rows = content["rows"].setdefault(name, [])
        done = {row["method"] for row in rows}
        lacking = tuple(method for method in METHODS if method.name not in done)
        if lacking:
            rows += rows_of(name, lacking)
            results.write_experiment(content | {"versions": versions()}, page(content))


def stored() -> dict[str, Any]:
    """Return the committed results, or empty ones."""
    path = results.folder("guided") / "summary.json"
    return json.loads(path.read_text()) if path.exists() else {"task": "guided", "rows": {}}


def rows_of(name: str, methods: Sequence[Method]) -> list[Row]:
    """Return a row for each of these methods and each test image of a set."""
    every = {split: _explained(name, split, methods) for split in ("validation", "test")}
    thresholds = {
        method.name: _best([r for r in every["validation"] if r["method"] == method.name])
        for method in methods
    }
    return [
        {key: row[key] for key in KEPT if key in row}
        | {"f1_validated": row["f1_at_shares"][thresholds[row["method"]]]}
        | {key: row[key] for key in ("commit", "date")}
        for row in every["test"]
    ]


def _explained(name: str, split: str, methods: Sequence[Method]) -> list[Row]:
    """Explain the images of a split, and keep each row in the cache as it is made."""
    path = cache("guided", f"{name}-{split}.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    made = {(row["image"], row["method"]): row for row in map(json.loads, lines)}
    task = TASKS[name]()
    subject, found = task.subject(), []
    with path.open("a") as file:
        for example in islice(task.positives(split, quick=False), MOST.get(name)):
            at_hand = fitted(subject, example)
            at_hand = replace(at_hand, model=Remembered(at_hand.model).eval())
            for method in methods:
                row = made.get((example.name, method.name))
                if row is None:
                    row = explain(method, at_hand, example, task.concept) | provenance()
                    row = {key: row[key] for key in row if key != "_heat"}
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                found.append(row)
            print(f"{name}, {split}, {example.name}", flush=True)
    return found


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown: every method, and ours against the best other map."""
    there = [name for name in SETS if name in content["rows"]]
    parts = [part for name in there for part in _tables(name, content["rows"][name])]
    rows = [row for name in there for row in content["rows"][name]]
    commits, dates = (", ".join(sorted({row[key] for row in rows})) for key in ("commit", "date"))
    return "\n\n".join([*parts, f"Commit {commits}, {dates}. Means over images."]) + "\n"


def _tables(name: str, rows: list[Row]) -> tuple[str, ...]:
    by = by_method(rows)
    lines = [
        (
            method.name,
            *(f"{fmean(r[measure] for r in by[method.name].values()):.2f}" for measure in MEASURES),
            f"{evaluations(by[method.name]):.0f}",
        )
        for method in METHODS
        if method.name in by
    ]
    images = f"{len(by[EVIDENCE.name])} {'made images' if name in MADE else 'images'}"
    every = markdown.table([f"{name}, {images}", *MEASURES.values(), "evaluations"], lines)
    ours = {EVIDENCE.name: evaluations(by[EVIDENCE.name])}
    ours |= {method.name: budget for method, budget in zip(AT, BUDGETS, strict=True)}
    against = [
        (method, title, *compared(by, method, within(by, RIVALS, budget), measure))
        for method, budget in ours.items()
        for measure, title in MEASURES.items()
    ]
    header = [name, "measure", "ours", "best other map that asks no more", "difference", ""]
    return every, markdown.table(header, against)


def _best(rows: list[Row]) -> int:
    """Return the number of the share of the maximum with the best mean F1."""
    return int(np.mean([row["f1_at_shares"] for row in rows], axis=0).argmax())


if __name__ == "__main__":
    run()
