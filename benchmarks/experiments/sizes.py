"""Does `"auto"` find the size that somebody who knows the truth would choose? On every set.

Run `benchmarks/run sizes`. Each image is explained once with the smallest size, from which every
larger one is read without the model, and once with `"auto"`. The best fixed size is the one whose
mean F1 over all images of the group is highest, chosen with their truth in view. Recall is the
share of true pixels that are found. Boards are also judged by the pixels within their boxes that
differ from the template: the boxes are drawn loosely around these.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core.folders import MissingDataError
from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import write_experiment
from benchmarks.core.tasks import TASKS, Synthetic, fitted
from benchmarks.methods.common import probability
from hshap import Bisection, DepthFirst, Explainer, Fixed, Superpixels, metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.core.protocol import Example, Subject
    from hshap import Explanation

Scores = tuple[float, float]  # F1 and recall
SETS = ("synthetic", "malaria", "boards")
CROSSES = 100  # images of each number of them
MOST = 30  # images of a set of photographs
DIFFERS = 0.1  # of full scale: a pixel of a board that is not as in its template
SIDES = (5, 7, 10, 14, 20, 28, 40, 56, 80, 113, 160)
SEARCH = DepthFirst(0.15, max_evaluations=2000)
THRESHOLD = 1e-6
COLUMNS = (
    "set",
    "partition",
    "images",
    "best side",
    "its F1",
    "its recall",
    "F1 of auto",
    "recall of auto",
    "share of F1",
    "evaluations",
)
PARTITIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Explanation, int], Explanation]]] = {
    "bisection": (Bisection, lambda found, side: found.at(min_size=side)),
    "superpixels": (
        lambda size: Superpixels(size if size == "auto" else size**2),
        lambda found, side: found.at(min_area=side**2),
    ),
}


def run() -> None:
    """Explain, compare, and write the table."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in SETS:
        try:
            rows += _rows(name)
        except MissingDataError as missing:
            print(f"{name} is skipped: {missing}.")
    content = {"task": "sizes", **provenance(), "versions": versions(), "rows": rows}
    write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    rows: list[tuple[object, ...]] = []
    for row in content["rows"]:
        share = row["auto"] / row["best"] if row["best"] else 1.0
        best = f"{row['best']:.3f}", f"{row['recall']:.2f}"
        auto = f"{row['auto']:.3f}", f"{row['auto_recall']:.2f}", f"{share:.0%}"
        which = row["group"], row["partition"], row["images"], row["side"]
        rows.append((*which, *best, *auto, f"{row['evaluations']:.0f}"))
    source = f"commit {content['commit']}, {content['date']}"
    return f"{table(COLUMNS, rows)}\n\nF1 at 1e-6, tolerance 0.15; {source}.\n"


def _rows(name: str) -> list[dict[str, Any]]:
    task: Any = TASKS[name]()
    if isinstance(task, Synthetic):
        task = replace(task, each=CROSSES)
        examples = list(task.positives("fresh", quick=False))
    else:
        examples = list(islice(task.positives("test", quick=False), MOST))
    subject = task.subject()
    rows: list[dict[str, Any]] = []
    for kind in PARTITIONS:
        fixed: defaultdict[str, list[list[Scores]]] = defaultdict(list)
        auto: defaultdict[str, list[tuple[Scores, int]]] = defaultdict(list)
        for example in examples:
            judged = _scores(fitted(subject, example), example, task.concept, kind)
            for truth, (by_side, by_itself) in judged.items():
                group = ", ".join(filter(None, (name, example.group, truth)))
                fixed[group].append(by_side)
                auto[group].append(by_itself)
        for group, scores in fixed.items():
            means, recalls = np.mean(scores, axis=0).T
            own, own_recall = np.mean([score for score, _ in auto[group]], axis=0)
            best = int(means.argmax())
            rows.append(
                {
                    "group": group,
                    "partition": kind,
                    "images": len(scores),
                    "side": SIDES[best],
                    "best": float(means[best]),
                    "by_side": means.tolist(),
                    "recall": float(recalls[best]),
                    "auto": float(own),
                    "auto_recall": float(own_recall),
                    "evaluations": float(np.mean([spent for _, spent in auto[group]])),
                }
            )
            print(rows[-1], flush=True)
    return rows


def _scores(
    subject: Subject, example: Example, concept: str, kind: str
) -> dict[str, tuple[list[Scores], tuple[Scores, int]]]:
    """Return F1 and recall at every side and by itself, for each idea of the truth."""
    make, read = PARTITIONS[kind]

    def explained(size: Any) -> Explanation:
        baseline = Fixed(subject.baseline)
        explainer = Explainer(subject.model, baseline, make(size), SEARCH)
        return explainer.explain(example.image, target=probability)

    finest, auto = explained(SIDES[0]), explained("auto")
    by_side = [read(finest, side) for side in SIDES]
    return {
        name: (
            [_judged(found, truth) for found in by_side],
            (_judged(auto, truth), auto.evaluations),
        )
        for name, truth in _truths(example, concept).items()
    }


def _truths(example: Example, concept: str) -> dict[str, Any]:
    boxes = example.truths[concept]
    if example.counterfactual is None:
        return {"": boxes}
    differs = np.abs(example.image - example.counterfactual).max(axis=0) > DIFFERS
    return {"": boxes, "what differs": boxes & differs}


def _judged(found: Explanation, truth: Any) -> Scores:
    heat = found.saliency()
    recall = (heat > THRESHOLD)[truth].mean() if truth.any() else 1.0
    return float(metrics.f1(heat, truth)), float(recall)


if __name__ == "__main__":
    run()
