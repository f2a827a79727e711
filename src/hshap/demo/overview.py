"""The demo: the paper's synthetic task, explained with the bundled network.

An image is positive if it contains at least one cross. The network was trained on that label
alone; the demo shows where the crosses are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util.version import __version__
from hshap.baselines.recipes import Fixed
from hshap.demo import bundled, load
from hshap.errors import ArgumentError, require
from hshap.explainer import Explainer
from hshap.games.search import DepthFirst
from hshap.metrics import f1
from hshap.partitions.grids import Bisection, Dyadic
from hshap.partitions.superpixels import Superpixels

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

    from hshap._util.types import Array, Heat
    from hshap.explanation.explanation import Explanation

PARTITIONS = {
    "quadtree": Dyadic(min_size=8),
    "bisection": Bisection(min_size=8),
    "superpixels": Superpixels(),
}
SEARCH = DepthFirst(tolerance=0.05)
OVERVIEW = "demo.png"
IMAGES = 4
WRITTEN_BY = {"Software": f"hshap {__version__}"}
"""Stored in pictures, so that a later demo knows which files it may replace."""


def probability_of_a_cross(outputs: Heat) -> Heat:
    """Return the softmax of the second of two logits, the number that the demo explains."""
    return 1 / (1 + np.exp(outputs[:, 0] - outputs[:, 1]))


def file_names() -> list[str]:
    """Return the names of the files that the demo writes.

    >>> len(file_names())
    25
    """
    stems = [f"{name}-{number}" for name in PARTITIONS for number in range(IMAGES)]
    return [OVERVIEW, *(f"{stem}{suffix}" for stem in stems for suffix in (".npz", ".png"))]


def run_demo(out: Path) -> Path:
    """Explain the bundled images, print a table, write pictures; return the overview's path."""
    console = require("rich.console", extra="cli", needed_by="hshap demo").Console()
    require("matplotlib", extra="plot", needed_by="hshap demo")
    require("higra", extra="trees", needed_by="hshap demo")
    _make_folder(out)
    samples = bundled()
    images = samples["images"].astype(np.float32) / np.float32(255)
    with console.status("explaining ..."):
        found = {name: _explain(name, images, samples["mean"]) for name in PARTITIONS}
    console.print(_table(found, samples["truths"], samples["crosses"]))
    for name, explanations in found.items():
        for number, explanation in enumerate(explanations):
            stem = out / f"{name}-{number}"
            explanation.save(stem.with_suffix(".npz"))
            explanation.plot(images[number]).savefig(
                stem.with_suffix(".png"), dpi=120, bbox_inches="tight", metadata=WRITTEN_BY
            )
    overview = out / OVERVIEW
    # The numbers in words, too: by them a test compares the picture in the documentation.
    _overview(images, samples["truths"], found).savefig(
        overview, dpi=150, metadata={**WRITTEN_BY, "Description": _in_words(found)}
    )
    return overview


def _in_words(found: dict[str, list[Explanation]]) -> str:
    counts = (
        f"{name} {', '.join(str(one.evaluations) for one in made)}" for name, made in found.items()
    )
    return f"evaluations: {'; '.join(counts)}"


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"out={out} cannot be created as a folder ({error.strerror}); pass another"
        raise ArgumentError(message) from error


def _explain(name: str, images: Array, mean: Array) -> list[Explanation]:
    explainer = Explainer(load(), baseline=Fixed(mean), partition=PARTITIONS[name], search=SEARCH)
    # One by one, so that seconds are not shared between images.
    return [explainer.explain(image, target=probability_of_a_cross) for image in images]


def _table(found: dict[str, list[Explanation]], truths: Array, crosses: Array) -> Table:
    table = require("rich.table", extra="cli", needed_by="hshap demo").Table(
        title="Where are the crosses? (the network was only trained to tell whether there are any)"
    )
    for heading in ("image", "crosses", "partition", "evaluations", "seconds", "F1"):
        table.add_column(heading, justify="left" if heading == "partition" else "right")
    for number, truth in enumerate(truths):
        for name, explanations in found.items():
            one = explanations[number]
            table.add_row(
                str(number),
                str(int(crosses[number])),
                name,
                str(one.evaluations),
                f"{one.seconds:.3f}",
                f"{f1(one.saliency(), truth):.2f}",
            )
        table.add_section()
    return table


def _overview(images: Array, truths: Array, found: dict[str, list[Explanation]]) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415, an optional dependency

    figure = Figure(figsize=(13.5, 1.9 * len(images)), layout="constrained")
    titles = ["image", "truth", *(f"h-Shap, {name}" for name in found)]
    rows: list[list[Axes]] = figure.subplots(len(images), len(titles)).tolist()
    for number, row in enumerate(rows):
        picture = np.moveaxis(images[number], 0, -1)
        row[0].imshow(picture)
        row[1].imshow(truths[number], cmap="gray_r")
        for axes, explanations in zip(row[2:], found.values(), strict=True):
            one = explanations[number]
            heat = one.coefficients()
            axes.imshow(picture, alpha=0.35)
            axes.imshow(np.ma.masked_equal(heat, 0), cmap="Reds", vmin=0, vmax=1, alpha=0.8)
            score = f1(one.saliency(), truths[number])
            axes.set_xlabel(f"{one.evaluations} evaluations, F1 {score:.2f}", fontsize=8)
        for axes, title in zip(row, titles, strict=True):
            axes.set_xticks([])
            axes.set_yticks([])
            if number == 0:
                axes.set_title(title, fontsize=10)
    return figure
