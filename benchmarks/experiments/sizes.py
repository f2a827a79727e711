"""Does `"auto"` find the size that somebody who knows the truth would choose? On every set.

Run `benchmarks/run sizes`. Each image is explained once with the smallest size, from which every
larger one is read without the model, and once with `"auto"`. Cells of `Spots` depend on their size,
so that each size is a run of its own; they need a template, which only boards have. The best fixed
size is the one whose mean F1 over all images of the group is highest, chosen with their truth in
view. Recall is the share of true pixels that are found. Boards are also judged by the pixels within
their boxes that differ from the template: the boxes are drawn loosely around these.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core.folders import MissingDataError
from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import folder, write_experiment
from benchmarks.core.tasks import TASKS, Synthetic, fitted
from benchmarks.methods.common import probability
from hshap import Bisection, DepthFirst, Explainer, Fixed, Spots, Superpixels, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.core.protocol import Example, Subject
    from hshap import Explanation

Scores = tuple[float, float]  # F1 and recall
SETS = ("boards", "malaria", "synthetic")
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
    "commit",
)
CELLS = (7, 9, 11, 13, 15, 17, 19, 21, 25, 29, 41)
READ: dict[str, Callable[[Explanation, int], Explanation]] = {
    "bisection": lambda found, side: found.at(min_size=side),
    "superpixels": lambda found, side: found.at(min_area=side**2),
}
PARTITIONS: dict[str, Callable[[Any], Any]] = {
    "spots": Spots,
    "superpixels": lambda size: Superpixels(size if size == "auto" else size**2),
    "bisection": Bisection,
}


def run() -> None:
    """Explain and compare; the table is written anew after each set and partition."""
    torch.set_num_threads(1)
    for name in SETS:
        try:
            for found in _rows(name):
                write(found, provenance())
        except MissingDataError as missing:
            print(f"{name} is skipped: {missing}.")


def write(found: Sequence[dict[str, Any]], made: dict[str, Any]) -> None:
    """Write rows; other rows of earlier runs stay, and each tells its commit and date."""
    path = folder("sizes") / "summary.json"
    before = json.loads(path.read_text()) if path.exists() else {"rows": []}
    rows = {
        (row["group"], row["partition"]): {k: before.get(k) for k in ("commit", "date")} | row
        for row in before["rows"]
    }
    own = {key: made[key] for key in ("commit", "date")}
    rows |= {(row["group"], row["partition"]): row | own for row in found}
    content = {"task": "sizes", **made, "versions": versions(), "rows": list(rows.values())}
    write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    rows: list[tuple[object, ...]] = []
    for row in content["rows"]:
        share = row["auto"] / row["best"] if row["best"] else 1.0
        best = f"{row['best']:.3f}", f"{row['recall']:.2f}"
        auto = f"{row['auto']:.3f}", f"{row['auto_recall']:.2f}", f"{share:.0%}"
        which = row["group"], row["partition"], row["images"], row["side"]
        made = f"{row['commit']}, {row['date']}"
        rows.append((*which, *best, *auto, f"{row['evaluations']:.0f}", made))
    return f"{table(COLUMNS, rows)}\n\nF1 at 1e-6, tolerance 0.15.\n"


def _rows(name: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a set, those of one partition at a time."""
    task: Any = TASKS[name]()
    if isinstance(task, Synthetic):
        task = replace(task, each=CROSSES)
        examples = list(task.positives("fresh", quick=False))
    else:
        examples = list(islice(task.positives("test", quick=False), MOST))
    subject = task.subject()
    for kind in PARTITIONS:
        if kind == "spots" and examples[0].counterfactual is None:
            continue
        sides = _sides(kind)
        fixed: defaultdict[str, list[list[Scores]]] = defaultdict(list)
        auto: defaultdict[str, list[tuple[Scores, int]]] = defaultdict(list)
        for example in examples:
            judged = _scores(fitted(subject, example), example, task.concept, kind)
            for truth, (by_side, by_itself) in judged.items():
                group = ", ".join(filter(None, (name, example.group, truth)))
                fixed[group].append(by_side)
                auto[group].append(by_itself)
        rows: list[dict[str, Any]] = []
        for group, scores in fixed.items():
            means, recalls = np.mean(scores, axis=0).T
            own, own_recall = np.mean([score for score, _ in auto[group]], axis=0)
            best = int(means.argmax())
            rows.append(
                {
                    "group": group,
                    "partition": kind,
                    "images": len(scores),
                    "side": sides[best],
                    "best": float(means[best]),
                    "by_side": means.tolist(),
                    "recall": float(recalls[best]),
                    "auto": float(own),
                    "auto_recall": float(own_recall),
                    "evaluations": float(np.mean([spent for _, spent in auto[group]])),
                }
            )
        yield rows


def _scores(
    subject: Subject, example: Example, concept: str, kind: str
) -> dict[str, tuple[list[Scores], tuple[Scores, int]]]:
    """Return F1 and recall at every side and by itself, for each idea of the truth."""
    make = PARTITIONS[kind]

    def explained(size: Any) -> Explanation:
        baseline = Fixed(subject.baseline)
        explainer = Explainer(subject.model, baseline, make(size), SEARCH)
        return explainer.explain(example.image, target=probability)

    auto = explained("auto")
    if kind in READ:
        finest = explained(SIDES[0])
        by_side = [READ[kind](finest, side) for side in SIDES]
    else:
        by_side = [explained(side) for side in CELLS]
    return {
        name: (
            [_judged(found, truth) for found in by_side],
            (_judged(auto, truth), auto.evaluations),
        )
        for name, truth in _truths(example, concept).items()
    }


def _sides(kind: str) -> tuple[int, ...]:
    """Return the fixed sizes of a partition."""
    return SIDES if kind in READ else CELLS


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
