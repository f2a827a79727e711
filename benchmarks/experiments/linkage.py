"""Which trees? Linkage by colour, by texture too, and by place, on crosses, smears and boards.

Run `benchmarks/run linkage`. Every tree is explained with the same few evaluations, on images of
validation and training that no table is made from.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core.folders import MissingDataError
from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import interval, write_experiment
from benchmarks.core.tasks import TASKS, Synthetic, fitted
from benchmarks.methods.common import probability
from hshap import Bisection, DepthFirst, Explainer, Fixed, Superpixels, metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Example, Image, Subject

BUDGET = 100
SETS = ("synthetic-textured", "malaria", "boards")
EACH = 12
WEIGHT = 1.0  # of the texture channels against colour


def colour(image: Image, size: int) -> Any:
    return _tree(size, position=0.0)(image)


def place_a_little(image: Image, size: int) -> Any:
    return _tree(size, position=3.0)(image)


def place(image: Image, size: int) -> Any:
    return _tree(size, position=10.0)(image)


def place_most(image: Image, size: int) -> Any:
    return _tree(size, position=30.0)(image)


def texture(image: Image, size: int) -> Any:
    return _tree(size, position=0.0)(_with_texture(image))


def texture_and_place(image: Image, size: int) -> Any:
    return _tree(size, position=10.0)(_with_texture(image))


def grid(image: Image, size: int) -> Any:
    return Bisection(size)(image)


LINKAGES: dict[str, Callable[[Any, int], Any]] = {
    "colour": colour,
    "colour and place, 3": place_a_little,
    "colour and place, 10": place,
    "colour and place, 30": place_most,
    "colour and texture": texture,
    "colour, texture and place, 10": texture_and_place,
    "no tree: bisection": grid,
}


def run() -> None:
    """Explain with every linkage, and write the table."""
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for name in SETS:
        try:
            found = list(_examples(name))
        except MissingDataError as missing:
            print(f"{name} is skipped: {missing}.")
            continue
        for linkage, build in LINKAGES.items():
            rows.append({"set": name, "linkage": linkage, **_judged(found, build)})
            print(rows[-1], flush=True)
    source = {**provenance(), "versions": versions()}
    content = {"task": "linkage", "budget": BUDGET, **source, "rows": rows}
    write_experiment(content, page(content))


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown."""

    def interval(values: list[float]) -> str:
        middle, low, high = values
        return f"{middle:.2f} [{low:.2f}, {high:.2f}]"

    rows = [
        (
            row["set"],
            row["linkage"],
            interval(row["average_precision"]),
            interval(row["iou_best"]),
            f"{row['evaluations']:.0f}",
        )
        for row in content["rows"]
    ]
    made = table(["set", "linkage", "AUPRC", "best IoU", "evaluations"], rows)
    source = f"commit {content['commit']}, {content['date']}"
    return f"{made}\n\nAt most {content['budget']} evaluations; {source}.\n"


def _judged(
    found: list[tuple[Subject, Example, NDArray[np.bool_]]], build: Callable[[Any, int], Any]
) -> dict[str, Any]:
    precisions, overlaps, costs = [], [], []
    for subject, example, truth in found:
        explainer = Explainer(
            subject.model,
            baseline=Fixed(subject.baseline),
            partition=lambda image, size=subject.size: build(image, size),
            search=DepthFirst(0.0, max_evaluations=BUDGET),
        )
        one = explainer.explain(example.image, target=probability)
        heat = one.attribution()
        precisions.append(float(metrics.average_precision(heat, truth)))
        overlaps.append(float(metrics.best_score(heat, truth, metrics.iou)))
        costs.append(one.evaluations)
    return {
        "images": len(found),
        "average_precision": interval(precisions),
        "iou_best": interval(overlaps),
        "evaluations": float(np.mean(costs)),
    }


def _examples(name: str) -> Iterator[tuple[Subject, Example, NDArray[np.bool_]]]:
    task: Any = TASKS[name]()
    if isinstance(task, Synthetic):
        task = replace(task, each=EACH // 2)
        drawn = task.positives("choice", quick=False)
    else:
        splits = (task.positives(split, quick=False) for split in ("validation", "training"))
        drawn = islice(chain.from_iterable(splits), EACH)
    subject = task.subject()
    for example in drawn:
        yield fitted(subject, example), example, example.truths[task.concept]


def _tree(size: int, position: float) -> Superpixels:
    return Superpixels(max(1, size**2 // 4), max_area=4 * size**2, position=position)


def _with_texture(image: Image) -> NDArray[Any]:
    """Add to each channel how much it varies around each pixel."""
    from scipy.ndimage import uniform_filter

    mean = np.stack([uniform_filter(channel, 5) for channel in image])
    square = np.stack([uniform_filter(channel**2, 5) for channel in image])
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    return np.concatenate([image, WEIGHT * spread])


if __name__ == "__main__":
    run()
