"""Rows of methods on the photographs of a set, measured against the truth and not by the model.

They cost less than those of the main tables, whose measures ask the model hundreds of times. Each
row goes to the cache as it is made, so a run that was stopped continues where it was.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core.folders import cache
from benchmarks.core.measures import against_truth
from benchmarks.core.meter import Remembered
from benchmarks.core.provenance import provenance
from benchmarks.core.runner import explain
from benchmarks.core.tasks import TASKS, fitted
from benchmarks.methods.budgeted import SMOOTHED
from benchmarks.methods.ours import SMOOTH
from hshap._util.smoothing import gaussian

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.core.protocol import Example, Method, Subject

    Row = dict[str, Any]

SPLITS = ("validation", "test")
KEPT = ("method", "image", "evaluations", "average_precision", "iou_best", "failed")


def rows_of(
    experiment: str,
    name: str,
    methods: Sequence[Method],
    most: int | None = None,
    validation: int | None = None,
) -> list[Row]:
    """Return a row for each of these methods and each test image of a set, or of the first `most`.

    Validation images, or the first so many, choose the threshold of F1 for each method.
    """
    torch.set_num_threads(1)
    limits = dict(zip(SPLITS, (validation, most), strict=True))
    every = {
        split: explained(experiment, name, split, methods, limit) for split, limit in limits.items()
    }
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


def explained(
    experiment: str, name: str, split: str, methods: Sequence[Method], most: int | None
) -> list[Row]:
    """Explain the images of a split, and keep each row in the cache as it is made."""
    path = cache(experiment, f"{name}-{split}.jsonl")
    lines = path.read_text().splitlines() if path.exists() else []
    made = {(row["image"], row["method"]): row for row in map(json.loads, lines)}
    task = TASKS[name]()
    subject, found = task.subject(), []
    with path.open("a") as file:
        for example in islice(task.positives(split, quick=False), most):
            at_hand = fitted(subject, example)
            at_hand = replace(at_hand, model=Remembered(at_hand.model).eval())
            heats: dict[str, Row] = {}
            for method in methods:
                row = made.get((example.name, method.name))
                if row is None:
                    plain = heats.get(method.name.removesuffix(SMOOTHED))
                    if plain is None:
                        row = explain(method, at_hand, example, task.concept) | provenance()
                        heats[method.name] = row
                    else:
                        row = _softened(plain, method, at_hand, example, task.concept)
                    row = {key: row[key] for key in row if key != "_heat"}
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                found.append(row)
            print(f"{name}, {split}, {example.name}", flush=True)
    return found


def _softened(plain: Row, method: Method, subject: Subject, example: Example, concept: str) -> Row:
    """Return the row of a smoothed map from that of the plain one: the method runs once for both.

    A plain map that failed stays empty.
    """
    heat = gaussian(plain["_heat"], subject.size / SMOOTH, range(plain["_heat"].ndim))
    truth, objects = example.truths[concept], example.objects[concept]
    return plain | {"method": method.name} | against_truth(heat, truth, objects)


def _best(rows: list[Row]) -> int:
    """Return the number of the share of the maximum with the best mean F1."""
    return int(np.mean([row["f1_at_shares"] for row in rows], axis=0).argmax())
