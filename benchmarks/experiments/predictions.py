"""How well `hshap cost` predicts: evaluations and CPU time of runs, beside those that it expects.

Run `benchmarks/run predictions`. The user's guess of findings is the number of objects. A factor
for each partition and search, the median of measured over predicted evaluations, is chosen on one
stream of images and judged on another; it shows how much of the error is one of scale. Seconds are
CPU time: those of a run beside its predicted evaluations times the time of one in a full batch.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import write_experiment
from benchmarks.core.tasks import Synthetic, fitted
from benchmarks.methods.common import probability
from benchmarks.methods.ours import tree_of
from hshap.cli.commands.cost import predicted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EACH = 10
WITHIN = 0.3
TOLERANCE = 0.15
SEARCHES: dict[str, tuple[str, Any]] = {
    "DepthFirst": ("games", hshap.DepthFirst(TOLERANCE)),
    "BreadthFirst": ("games", hshap.BreadthFirst(70)),
    "Share": ("games", hshap.Share(0.2)),
    "GroupTesting": ("group", hshap.GroupTesting(TOLERANCE)),
}
STREAMS = {"chosen on": "choice", "judged on": "fresh"}
HEAD = (
    "partition",
    "search",
    "runs",
    "within 30 %",
    "with factor",
    "factor",
    "CPU time within 30 %",
)


def run() -> None:
    """Explain, compare and write the tables."""
    torch.set_num_threads(1)
    rows = {name: list(_runs(split)) for name, split in STREAMS.items()}
    found = summary(rows["chosen on"], rows["judged on"])
    content = {"task": "predictions", **provenance(), "versions": versions(), "rows": found}
    write_experiment(content | {"runs": rows}, page(found))


def summary(chosen: Sequence[Any], judged: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the share of runs within 30 % of the prediction, for each partition and search."""
    keys = sorted({(row["partition"], row["search"]) for row in judged})
    found = [_row(key, chosen, judged) for key in keys]
    names = ("within", "with_factor", "seconds")
    weights = [row["runs"] for row in found]
    means = {
        name: float(np.average([row[name] for row in found], weights=weights)) for name in names
    }
    every = {"partition": "all", "search": "all", "runs": sum(weights), "factor": None}
    return [*found, {**every, **means}]


def _row(key: tuple[str, str], chosen: Sequence[Any], judged: Sequence[Any]) -> dict[str, Any]:
    def ratios(rows: Sequence[Any], measured: str, expected: str) -> Any:
        own = [row for row in rows if (row["partition"], row["search"]) == key]
        return np.array([row[measured] / row[expected] for row in own])

    factor = float(np.median(ratios(chosen, "evaluations", "predicted")))
    evaluations = ratios(judged, "evaluations", "predicted")
    seconds = ratios(judged, "seconds", "predicted_seconds")
    partition, search = key
    return {
        "partition": partition,
        "search": search,
        "runs": len(evaluations),
        "within": _share(evaluations),
        "with_factor": _share(evaluations / factor),
        "factor": factor,
        "seconds": _share(seconds / factor),
    }


def _share(ratios: Any) -> float:
    """Return the share of predictions within 30 % of the measured number."""
    return float(np.mean(np.abs(1 / ratios - 1) <= WITHIN))


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Return the table as Markdown."""
    lines = [
        (
            row["partition"],
            row["search"],
            row["runs"],
            f"{row['within']:.0%}",
            f"{row['with_factor']:.0%}",
            "" if row["factor"] is None else f"{row['factor']:.2f}",
            f"{row['seconds']:.0%}",
        )
        for row in rows
    ]
    return f"Predictions of `hshap cost` beside runs on synthetic images:\n\n{table(HEAD, lines)}\n"


def _runs(split: str) -> Iterator[dict[str, Any]]:
    task = replace(Synthetic(), each=EACH)
    subject = task.subject()
    each = _seconds_of_an_evaluation(subject.model, subject.baseline.shape)
    for example in task.positives(split, quick=False):
        own = fitted(subject, example)
        findings = len(example.objects[task.concept])
        partitions: dict[str, Any] = {
            "quadtree": hshap.Dyadic(own.size),
            "bisection": hshap.Bisection(own.size),
            "superpixels": tree_of(own),
        }
        for (kind, partition), (name, (way, search)) in product(
            partitions.items(), SEARCHES.items()
        ):
            model = hshap.Batched(own.model, check_batches=False)
            explainer = hshap.Explainer(model, hshap.Fixed(own.baseline), partition, search)
            started = time.process_time()
            done = explainer.explain(example.image, target=probability)
            seconds = time.process_time() - started
            expected = predicted(example.image.shape[1:], kind, own.size, findings, way).expected
            yield {
                "image": example.name,
                "partition": kind,
                "search": name,
                "findings": findings,
                "evaluations": done.evaluations,
                "predicted": expected,
                "seconds": seconds,
                "predicted_seconds": expected * each,
            }


def _seconds_of_an_evaluation(model: Any, shape: tuple[int, ...]) -> float:
    """Return the CPU time of one input in a full batch, the median of a few."""
    batch, found = torch.rand(32, *shape), list[float]()
    with torch.inference_mode():
        for _ in range(5):
            started = time.process_time()
            model(batch)
            found.append(time.process_time() - started)
    return float(np.median(found)) / len(batch)
