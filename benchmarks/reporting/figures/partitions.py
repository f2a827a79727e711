"""Grids, trees and averages over both on photographs, with the same number of evaluations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.tasks import SEED, TASKS, fitted
from benchmarks.reporting.figures import data, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.core.protocol import Example

NAME = "partitions"
SHOWN = ("malaria", "boards")
BUDGET = 200
TITLES = {
    "grid": "Bisection",
    "tree": "Superpixels",
    "spun": "cycle_spin over both",
    "spread": "their differences",
}


def compute() -> None:
    """Explain the first positive image of each set in every way."""
    made: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for name, example in _examples().items():
        found = _explained(name, example)
        made |= {f"{name}|{way}": data.as_bytes(heat) for way, (heat, _) in found.items()}
        told[name] = {way: evaluations for way, (_, evaluations) in found.items()}
    data.write_arrays(data.figure_file(f"{NAME}.npz"), made, SEED, evaluations=told)


def draw() -> Figure:
    """Show each image with its objects outlined, and the map of each partition."""
    stored, about = data.read_arrays(data.figure_file(f"{NAME}.npz"), f"figures {NAME} --compute")
    examples = _examples()
    figure = style.canvas(style.WIDTH, 1.85 * len(examples))
    rows = style.panels(figure, len(examples), 1 + len(TITLES))
    for row, (name, example) in zip(rows, examples.items(), strict=True):
        boxes = example.objects[TASKS[name]().concept]
        style.picture(row[0], example.image)
        row[0].set_title(name, fontsize=style.SMALL)
        for axes, (way, title) in zip(row[1:], TITLES.items(), strict=True):
            style.heat(axes, stored[f"{name}|{way}"])
            spent = about["evaluations"][name][way]
            axes.set_title(f"{title}\n{spent} evaluations", fontsize=style.SMALL)
        for axes in row:
            style.outline(axes, boxes, style.TRUTH, 0.7)
    return figure


def _explained(name: str, example: Example) -> dict[str, tuple[Any, int]]:
    import hshap
    from benchmarks.methods.common import probability
    from benchmarks.methods.ours import tree_of

    subject = fitted(TASKS[name]().subject(), example)
    baseline = hshap.Fixed(subject.baseline)
    search = hshap.DepthFirst(0.0, max_evaluations=BUDGET)
    ways = {"grid": hshap.Bisection(subject.size), "tree": tree_of(subject)}
    found: dict[str, tuple[Any, int]] = {}
    for way, partition in ways.items():
        explainer = hshap.Explainer(subject.model, baseline, partition, search)
        one = explainer.explain(example.image, target=probability)
        found[way] = np.asarray(one.attribution()), one.evaluations
    half = replace(search, max_evaluations=BUDGET // len(ways))
    explainer = hshap.Explainer(subject.model, baseline, ways["grid"], half)
    both = list(ways.values())
    spin = hshap.cycle_spin(explainer, example.image, target=probability, partitions=both)
    found["spun"] = spin.attribution(), spin.evaluations
    found["spread"] = spin.stability(), spin.evaluations
    return found


def _examples() -> dict[str, Example]:
    found = {}
    for name in SHOWN:
        example = next(iter(TASKS[name]().positives("test", quick=True)), None)
        if example is None:
            message = f"the network of {name} calls no test image positive"
            raise data.NoResultsError(message)
        found[name] = example
    return found
