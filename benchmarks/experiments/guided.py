"""The default call at small budgets against maps of one backward pass, on photographs.

Run `benchmarks/run guided`. Test images of each set; validation images choose the threshold of F1.
The evidence and the rule that ends branches were chosen on images of training and validation
(decision 22). Of boards, the first `MOST` test images are explained.
"""

from __future__ import annotations

import multiprocessing
from itertools import islice
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from benchmarks.core import markdown, results
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.runner import explain
from benchmarks.core.tasks import SEED, TASKS, fitted
from benchmarks.methods.guided import AT, EVIDENCE, METHODS, ONE_PASS
from hshap.metrics import paired_bootstrap

SETS = ("boards", "platelets", "malaria")
MOST = 60  # test images of a set
MEASURES = {
    "average_precision": "AUPRC",
    "iou_best": "best IoU",
    "f1_validated": "F1 validated",
}
KEPT = ("method", "image", "evaluations", "seconds", "average_precision", "iou_best", "failed")


def run() -> None:
    """Explain all images, and write the tables."""
    # Each in a process of its own, the longest first.
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        found = dict(zip(SETS, pool.map(rows_of, SETS, chunksize=1), strict=True))
    content = {"task": "guided", **provenance(), "versions": versions(), "rows": found}
    results.write_experiment(content, page(content))


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return a row for each method and test image of a set."""
    torch.set_num_threads(1)
    task = TASKS[name]()
    subject = task.subject()
    every: dict[str, list[dict[str, Any]]] = {"validation": [], "test": []}
    for split, kept in every.items():
        for example in islice(task.positives(split, quick=False), MOST):
            at_hand = fitted(subject, example)
            kept += [explain(method, at_hand, example, task.concept) for method in METHODS]
            print(f"{name}, {split}, {example.name}", flush=True)
    thresholds = {
        method.name: _best([r for r in every["validation"] if r["method"] == method.name])
        for method in METHODS
    }
    return [
        {key: row[key] for key in KEPT if key in row}
        | {"f1_validated": row["f1_at_shares"][thresholds[row["method"]]]}
        for row in every["test"]
    ]


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown: every method, and ours against the best map of one pass."""
    parts = [part for name in SETS for part in _tables(name, content["rows"][name])]
    source = f"Commit {content['commit']}, {content['date']}. Means over images."
    return "\n\n".join([*parts, source]) + "\n"


def _tables(name: str, rows: list[dict[str, Any]]) -> tuple[str, ...]:
    by = {m.name: [row for row in rows if row["method"] == m.name] for m in METHODS}
    images = len(by[EVIDENCE.name])
    lines = [
        (
            method,
            *(f"{fmean(row[measure] for row in own):.2f}" for measure in MEASURES),
            f"{median(row['evaluations'] for row in own):.0f}",
        )
        for method, own in by.items()
    ]
    every = markdown.table([f"{name}, {images} images", *MEASURES.values(), "evaluations"], lines)
    compared = [
        (ours.name, title, *_compared(by, ours.name, measure))
        for ours in (EVIDENCE, *AT)
        for measure, title in MEASURES.items()
    ]
    header = [name, "measure", "ours", "best map of one pass", "difference", ""]
    return every, markdown.table(header, compared)


def _compared(by: dict[str, list[dict[str, Any]]], ours: str, measure: str) -> tuple[str, ...]:
    def scores(method: str) -> list[float]:
        return [row[measure] for row in sorted(by[method], key=lambda row: row["image"])]

    best = max((m.name for m in ONE_PASS), key=lambda name: fmean(scores(name)))
    middle, low, high = paired_bootstrap(scores(ours), scores(best), draws=results.DRAWS, seed=SEED)
    verdict = "leads" if low > 0 else "behind" if high < 0 else "not told apart"
    difference = f"{middle:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"{fmean(scores(ours)):.2f}", f"{fmean(scores(best)):.2f} ({best})", difference, verdict


def _best(rows: list[dict[str, Any]]) -> int:
    """Return the number of the share of the maximum with the best mean F1."""
    return int(np.mean([row["f1_at_shares"] for row in rows], axis=0).argmax())


if __name__ == "__main__":
    run()
