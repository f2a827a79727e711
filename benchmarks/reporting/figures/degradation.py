"""Maps as leaves get smaller than the concept (paper, figure 7), at full resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.tasks import SEED, TASKS
from benchmarks.reporting.figures import data, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Example

NAME = "degradation"
SIZES = (80, 20, 5)  # the paper's
SIDE = 200  # pixels of the kept window of image and maps
BATCH = 4  # images of this size
MOST = 4_000  # evaluations; regions that are most relevant are split first


def compute() -> None:
    """Explain one smear at full resolution: the network averages it to its own first."""
    from torch import nn

    import hshap
    from benchmarks.methods.common import probability

    task: Any = TASKS["malaria"]()
    subject = task.subject()
    first = next(iter(task.positives("test", quick=True)), None)
    if first is None:
        message = "the network calls no test image positive, run `benchmarks/run train malaria`"
        raise data.NoResultsError(message)
    example = _full(first.name)
    model = nn.Sequential(nn.AvgPool2d(task.data.factor), subject.model).eval()
    colour = subject.baseline[:, :1, :1]
    baseline = hshap.Fixed(np.broadcast_to(colour, example.image.shape).copy())
    batched = hshap.Batched(model, batch_size=BATCH)
    search = hshap.DepthFirst(0.0, max_evaluations=MOST)
    made = {}
    for size in SIZES:
        explainer = hshap.Explainer(batched, baseline, hshap.Dyadic(size), search)
        made[size] = explainer.explain(example.image, target=probability)
        print(f"s = {size}: {made[size]}", flush=True)
    _keep(example, task.concept, made)


def draw() -> Figure:
    """Show the cell, then its maps as leaves get smaller."""
    path = data.figure_file(f"{NAME}.npz")
    stored, about = data.read_arrays(path, f"figures {NAME} --compute")
    figure = style.canvas(style.WIDTH, 2.5)
    axes = style.panels(figure, 1, 1 + len(SIZES))[0]
    style.picture(axes[0], np.moveaxis(stored["image"], -1, 0) / 255)
    axes[0].set_title(f"image,\n{about['concept']} outlined", fontsize=style.SMALL)
    for panel, size in zip(axes[1:], SIZES, strict=True):
        style.heat(panel, stored[f"s={size}"])
        told = about["explained"][str(size)]
        end = "" if told["complete"] else ", budget reached"
        title = f"s = {size} pixels{end}\n{told['evaluations']} evaluations"
        panel.set_title(title, fontsize=style.SMALL)
    for panel in axes:
        style.outline(panel, [tuple(map(tuple, about["box"]))], style.TRUTH)
    return figure


def _full(name: str) -> Example:
    from benchmarks.datasets.malaria import Malaria

    return next(e for e in Malaria(factor=1).examples("test") if e.name == name)


def _keep(example: Example, concept: str, made: dict[int, Any]) -> None:
    """Keep a window around the cell that counts most at the largest size of leaves."""
    heats = {size: found.coefficients() for size, found in made.items()}
    largest = heats[SIZES[0]]
    box = max(example.objects[concept], key=lambda corners: _inside(largest, corners).sum())
    top, left = _window(box, example.image.shape[1:])
    view = slice(top, top + SIDE), slice(left, left + SIDE)
    image = np.rint(255 * np.moveaxis(example.image[:, *view], 0, -1)).astype(np.uint8)
    maps = {f"s={size}": data.as_bytes(heat[view]) for size, heat in heats.items()}
    told = {
        "source": example.name,
        "concept": concept,
        "box": [[r - top, c - left] for r, c in box],
        "explained": {
            size: {"evaluations": found.evaluations, "complete": found.complete}
            for size, found in made.items()
        },
    }
    data.write_arrays(data.figure_file(f"{NAME}.npz"), {"image": image, **maps}, SEED, **told)


def _inside(heat: NDArray[Any], box: Corners) -> NDArray[Any]:
    (top, left), (bottom, right) = box
    return heat[top:bottom, left:right]


def _window(box: Corners, shape: tuple[int, ...]) -> list[int]:
    """Return the corner of the window around the box, moved into the image."""
    middles = [(low + high - SIDE) // 2 for low, high in zip(*box, strict=True)]
    return [min(max(m, 0), side - SIDE) for m, side in zip(middles, shape, strict=True)]
