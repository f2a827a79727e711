"""The store of results: the rows of a task, its summary with intervals, and the files of both.

The validation images choose a threshold for each method, which the test images are judged by. A
method that failed on an image keeps its row there, with the scores of an empty map.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.folders import RESULTS
from benchmarks.core.measures import SHARES
from benchmarks.core.provenance import versions
from benchmarks.core.tasks import SEED
from hshap import metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Row = dict[str, Any]

QUALITY = (
    "f1",
    "f1_validated",
    "iou_validated",
    "f1_best",
    "iou_best",
    "average_precision",
    "pointing",
    "energy",
    "object_recall",
    "false_positives",
    "deletion",
    "insertion",
)
COST = ("evaluations",)
COLUMNS = ("group", "image", "method", *QUALITY, *COST, "objects", "objects_found", "failed")
# The paper's own method: differences are to it, image by image.
PAIRED_WITH = "h-shap quadtree tau=0"
PAIRED = ("f1", "f1_validated", "average_precision")
DEFAULT_SHARE = int(np.argmin(abs(SHARES - 0.5)))
DRAWS = 2000
FEWEST = 5


@dataclass(frozen=True, eq=False)
class Results:
    """The rows of a task's test images, one dict each, and their summary."""

    rows: list[Row]
    summary: dict[str, Any]


def folder(name: str) -> Path:
    return RESULTS / name


def collate(name: str, made: Iterable[Row]) -> Results:
    """Choose thresholds on validation images, apply them to test images, and summarise."""
    every = list(made)
    # A method that cannot run on any image has no score; the summary says why.
    able = {row["method"] for row in every if "cannot" not in row}
    cannot = {r["method"]: r["cannot"] for r in every if r["method"] not in able}
    usable = [_as_failure(row) for row in every if row["method"] in able]
    chosen = _thresholds([row for row in usable if row["split"] == "validation"])
    test = [row for row in usable if row["split"] == "test"]
    table = [_flat(row, chosen.get(row["method"], DEFAULT_SHARE)) for row in test]
    table.sort(key=lambda row: (row["group"], row["image"], row["method"]))
    summary = {
        "task": name,
        "seed": SEED,
        "commits": sorted({row["commit"] for row in every}),
        "dates": sorted({row["date"] for row in every}),
        "versions": versions(),
        "validation_images": len({r["image"] for r in every if r["split"] == "validation"}),
        "thresholds": {m: float(SHARES[index]) for m, index in sorted(chosen.items())},
        "not_validated": sorted({row["method"] for row in test} - set(chosen)),
        "cannot": cannot,
        "failed": _failures(test),
        "groups": {group: _group(rows) for group, rows in _grouped(table).items()},
        "ablation": {group: _ablation(rows) for group, rows in _grouped(test).items()},
    }
    return Results(table, summary)


def write(results: Results) -> None:
    """Write rows.csv.gz and summary.json into the task's folder of results."""
    target = folder(results.summary["task"])
    target.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _shown(row[name]) for name in COLUMNS} for row in results.rows)
    # No time stamp, so that the same rows give the same file.
    (target / "rows.csv.gz").write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    (target / "summary.json").write_text(json.dumps(results.summary, indent=1) + "\n")


def updated(found: Results) -> Results:
    """Return the committed results with the rows of these methods in place of earlier ones."""
    name = found.summary["task"]
    rows, summary = read_rows(name), read_summary(name)
    new = {row["method"] for row in found.rows}
    kept = [row for row in rows if row["method"] not in new]
    every = sorted(
        [*kept, *found.rows], key=lambda row: (row["group"], row["image"], row["method"])
    )
    reference = [_as_numbers(row) for row in kept if row["method"] == PAIRED_WITH]
    for group, own in _grouped(found.rows).items():
        pairs = [row for row in reference if (row["group"] or "all") == group]
        made = _group([*own, *pairs])
        summary["groups"][group] |= {method: made[method] for method in made if method in new}
        summary["ablation"][group] |= found.summary["ablation"][group]
    for key in ("thresholds", "cannot", "failed"):
        stay = {method: entry for method, entry in summary[key].items() if method not in new}
        summary[key] = dict(sorted((stay | found.summary[key]).items()))
    lacking = set(summary["not_validated"]) - new
    summary["not_validated"] = sorted(lacking | set(found.summary["not_validated"]))
    for key in ("commits", "dates"):
        summary[key] = sorted({*summary[key], *found.summary[key]})
    return Results(every, summary)


def write_experiment(content: dict[str, Any], page: str) -> None:
    """Write summary.json and table.md of an experiment into its folder, and print the table."""
    target = folder(content["task"])
    target.mkdir(parents=True, exist_ok=True)
    (target / "summary.json").write_text(json.dumps(content, indent=1) + "\n")
    (target / "table.md").write_text(page)
    print(page)


def read_rows(name: str) -> list[dict[str, str]]:
    """Return the committed rows of a task, as text."""
    text = gzip.decompress((folder(name) / "rows.csv.gz").read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text)))


def read_summary(name: str) -> dict[str, Any]:
    """Return the committed summary of a task or an experiment."""
    return json.loads((folder(name) / "summary.json").read_text())


def _thresholds(rows: Sequence[Row]) -> dict[str, int]:
    """Return for each method the share of the maximum with the best mean F1 over images."""
    scores = defaultdict(list)
    for row in rows:
        scores[row["method"]].append(row["f1_at_shares"])
    return {method: int(np.mean(curves, axis=0).argmax()) for method, curves in scores.items()}


def _as_failure(row: Row) -> Row:
    """Count it as an empty map if a method that runs on other images could not run on this one."""
    return row | {"failed": row["cannot"]} if "cannot" in row else row


def _flat(row: Row, share: int) -> Row:
    dice = row["f1_at_shares"][share]
    extra = {
        "f1_validated": dice,
        "iou_validated": dice / (2 - dice),  # holds image by image
        "object_recall": row["objects_found"] / row["objects"],
        "failed": row.get("failed", ""),
    }
    return row | extra


def _grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row["group"] or "all"].append(row)
    return dict(groups)


def _by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    methods = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["image"]):
        methods[row["method"]].append(row)
    return dict(methods)


def _group(rows: Sequence[Row]) -> dict[str, Any]:
    methods = _by_method(rows)
    reference = methods.get(PAIRED_WITH)
    summary = {}
    for method, own in methods.items():
        summary[method] = {
            "images": len(own),
            **{name: interval([row[name] for row in own]) for name in QUALITY},
            **{name: quartiles([row[name] for row in own]) for name in COST},
        }
        if reference and method != PAIRED_WITH:
            summary[method]["less_quadtree"] = {m: _paired(own, reference, m) for m in PAIRED}
    return summary


def _as_numbers(row: Row) -> Row:
    """Return a committed row with its measures as numbers; no cost is None."""
    quality = {name: float(row[name]) for name in QUALITY}
    return row | quality | {name: float(row[name]) if row[name] else None for name in COST}


def _paired(own: Sequence[Row], reference: Sequence[Row], name: str) -> list[float]:
    theirs = {row["image"]: row[name] for row in reference}
    pairs = [(row[name], theirs[row["image"]]) for row in own if row["image"] in theirs]
    first, second = zip(*pairs, strict=True)
    return _rounded(metrics.paired_bootstrap(first, second, draws=DRAWS, seed=SEED))


def interval(values: Sequence[float]) -> list[float]:
    """Return the mean with its 95 % interval, or with the range of the values if they are few."""
    if len(values) < FEWEST:
        return _rounded([np.mean(values), min(values), max(values)])
    return _rounded(metrics.bootstrap_mean(values, draws=DRAWS, seed=SEED))


def quartiles(values: Sequence[float | None]) -> list[float] | None:
    known = [value for value in values if value is not None]
    return _rounded(np.quantile(known, [0.5, 0.25, 0.75])) if known else None


def _ablation(rows: Sequence[Row]) -> dict[str, Any]:
    """Average the curves of the images of the commonest size."""
    curves = {}
    for method, own in _by_method(rows).items():
        sizes = Counter(tuple(row["ablation_counts"]) for row in own)
        counts = list(sizes.most_common(1)[0][0])
        same = [row["ablation"] for row in own if row["ablation_counts"] == counts]
        scores = np.array(same)
        low, high = np.quantile(scores, [0.25, 0.75], axis=0)
        curves[method] = {
            "counts": counts,
            "mean": _rounded(scores.mean(axis=0)),
            "low": _rounded(low),
            "high": _rounded(high),
        }
    return curves


def _failures(rows: Sequence[Row]) -> dict[str, Any]:
    failed = defaultdict(list)
    for row in rows:
        if "failed" in row:
            failed[row["method"]].append(row["failed"])
    return {m: {"images": len(why), "first": why[0]} for m, why in failed.items()}


def _rounded(values: Iterable[float] | NDArray[Any]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _shown(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value
