"""An image with all pixels removed that a method calls relevant (paper, figure 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.tasks import SEED, Synthetic, fitted
from benchmarks.reporting.figures import data, demos, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.core.protocol import Example

NAME = "ablation_examples"
THRESHOLD = 1e-6  # the paper's


def compute() -> None:
    """Explain one image by every method, and keep which pixels lie above the threshold.

    The kept maps of the runs will not do: as bytes, they have lost small values.
    """
    from benchmarks.core.measures import margins
    from benchmarks.core.runner import explain
    from benchmarks.methods import METHODS

    task, example = Synthetic(each=1), _example()
    subject = fitted(task.subject(), example)
    masks, logits = {}, {"": float(margins(subject.model, example.image[None])[0])}
    for method in METHODS:
        row = explain(method, subject, example, task.concept)
        if "cannot" in row or "failed" in row:
            continue
        relevant = row["_heat"] > THRESHOLD
        removed = np.where(relevant, subject.baseline, example.image)
        masks[method.name] = np.packbits(relevant)
        logits[method.name] = round(float(margins(subject.model, removed[None])[0]), 4)
    told = {"image": example.name, "logits": logits, "threshold": THRESHOLD}
    data.write_arrays(data.figure_file(f"{NAME}.npz"), masks, SEED, **told)


def draw() -> Figure:
    """Write the logit of the changed image above it, for the best setting of each kind."""
    path = data.figure_file(f"{NAME}.npz")
    masks, about = data.read_arrays(path, f"figures {NAME} --compute")
    example, baseline = _example(), Synthetic(each=1).subject().baseline
    masks = demos.best(masks, data.group_entries("synthetic", example.group))
    methods = list(masks)
    rows = -(-(len(methods) + 1) // demos.COLUMNS)
    figure = style.canvas(style.WIDTH, rows * demos.height(example.image.shape) + 0.3)
    panels = [axes for row in style.panels(figure, rows, demos.COLUMNS) for axes in row]
    style.picture(panels[0], example.image)
    panels[0].set_title(f"image\n{_logit(about, '')}", fontsize=style.SMALL, pad=3)
    for axes, method in zip(panels[1:], methods, strict=False):
        shape = example.image.shape[1:]
        relevant = np.unpackbits(masks[method], count=shape[0] * shape[1]).reshape(shape)
        removed = np.where(relevant, baseline, example.image)
        style.picture(axes, removed)
        demos.title(axes, method, _logit(about, method))
    for axes in panels[len(methods) + 1 :]:
        axes.set_axis_off()
    figure.suptitle("All pixels with a value above 1e-6 replaced by the mean image", fontsize=10)
    return figure


def _logit(about: dict[str, Any], method: str) -> str:
    return f"logit {about['logits'][method]:.1f}"


def _example() -> Example:
    """Return the first of the test images with six crosses."""
    return list(Synthetic(each=1).positives("test", quick=False))[-1]
