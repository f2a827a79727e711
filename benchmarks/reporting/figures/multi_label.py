"""One network, two concepts: each image explained for both (paper, figure 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.tasks import SEED, TASKS, fitted
from benchmarks.reporting.figures import data, style

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Example

NAME = "multi_label"
CONCEPTS = {"trophozoite": "malaria", "ring": "malaria-ring"}  # and the tasks that detect them
COLOURS = {"trophozoite": style.TRUTH, "ring": "#CC79A7"}


def compute() -> None:
    """Explain two images for both concepts, in one call each, which shares evaluations."""
    import hshap

    task: Any = TASKS["malaria"]()
    network, subject = task.load(), task.subject()
    columns = [task.data.concepts.index(concept) for concept in CONCEPTS]
    heats, told = {}, {}
    for concept, example in _examples().items():
        baseline = hshap.Fixed(fitted(subject, example).baseline)
        explainer = hshap.Explainer(network, baseline, hshap.Dyadic(task.size))
        found = explainer.explain(example.image, target=[_chance(c) for c in columns])
        for other, explained in zip(CONCEPTS, found, strict=True):
            heats[f"{concept}|{other}"] = data.as_bytes(explained.coefficients())
        told[concept] = {"image": example.name, "evaluations": [e.evaluations for e in found]}
    data.write_arrays(data.figure_file(f"{NAME}.npz"), heats, SEED, explained=told)


def draw() -> Figure:
    """Draw the images that were explained; missing results are told before missing images."""
    _heats()
    return drawn(_examples())


def drawn(examples: Mapping[str, Example]) -> Figure:
    """Outline the objects of a concept in its colour: the map should mark them."""
    heats = _heats()
    figure = style.canvas(style.WIDTH, 4.5)
    rows = style.panels(figure, len(examples), 1 + len(CONCEPTS))
    for row, (concept, example) in zip(rows, examples.items(), strict=True):
        style.picture(row[0], example.image)
        row[0].set_title(", ".join(_count(c, len(example.objects[c])) for c in CONCEPTS))
        for other in CONCEPTS:
            style.outline(row[0], example.objects[other], COLOURS[other])
        for axes, other in zip(row[1:], CONCEPTS, strict=True):
            style.heat(axes, heats[f"{concept}|{other}"])
            style.outline(axes, example.objects[other], COLOURS[other])
            axes.set_title(f"map for {other}")
    return figure


def _heats() -> dict[str, NDArray[Any]]:
    path = data.figure_file(f"{NAME}.npz")
    return data.read_arrays(path, f"figures {NAME} --compute")[0]


def _count(concept: str, number: int) -> str:
    return f"{number} {concept}{'s' * (number != 1)}"


def _examples() -> dict[str, Example]:
    """Return the first test image of each concept that the network is right about."""
    found = {}
    for concept, task in CONCEPTS.items():
        every = TASKS[task]().positives("test", quick=True)
        known = {example.name for example in found.values()}
        example = next((e for e in every if e.name not in known), None)
        if example is None:
            message = f"the network finds no {concept}, run `benchmarks/run train malaria`"
            raise data.NoResultsError(message)
        found[concept] = example
    return found


def _chance(column: int) -> Any:
    def chance(outputs: NDArray[Any]) -> NDArray[np.float64]:
        return 1 / (1 + np.exp(-np.asarray(outputs, np.float64)[:, column]))

    return chance
