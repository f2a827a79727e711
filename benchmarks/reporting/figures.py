"""The figures of the pages, drawn from the committed results: `benchmarks/run figures [NAME...]`.

Photographs are never committed as data: panels that show them read them from their data set.
"""

from __future__ import annotations

from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from benchmarks.core import results
from benchmarks.core.comparison import by_method, evaluations, of_common_images
from benchmarks.core.folders import RESULTS, MissingDataError
from benchmarks.core.protocol import UnknownNameError
from benchmarks.datasets.photographs import PHOTOGRAPHS
from benchmarks.methods import METHODS
from benchmarks.reporting import style
from hshap import demo

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Example, Image
    from benchmarks.datasets.photographs import Photograph

FOLDER = RESULTS / "figures"
JUDGED = {
    "coco-judging": "COCO",
    "pets": "cats and dogs",
    "malaria": "malaria smears",
    "platelets": "blood platelets",
    "boards": "circuit boards",
}
FUNCTION = "h-shap, function"
PEERS = ("RISE", "PartitionExplainer", "shap-bpt", "Grad-CAM")
FOUND = "|found"  # ends the keys of findings among the maps of the gallery
EACH = 4  # photographs of a figure
COLUMNS = 5  # the photograph, and two panels for each of two classes
# The surest answers that name the thing in view.
SUREST = ("coffee", "camera")
CROSSES = (1, 2)  # images of the demo
FAINT, FEW = 0.35, 24  # strength and levels of a photograph under a map: small files
MAP = mpl.colormaps["Reds"].resampled(25)
BUDGET = 200


def default() -> Figure:
    """AUPRC against evaluations: the default call with other budgets, and peers."""
    rows = results.read_summary("default")["rows"]
    figure = style.canvas(4.6)
    panels = [axes for row in style.panels(figure, 2, 3) for axes in row]
    for axes, (name, shown) in zip(panels, JUDGED.items(), strict=False):
        by = of_common_images(by_method(rows[name]))
        ours = sorted(_point(by[one]) for one in by if one.startswith(FUNCTION))
        axes.plot(*zip(*ours, strict=True), "o-", color=style.COLOURS["hshap"], markersize=4)
        for peer in PEERS:
            points = sorted(_point(by[one]) for one in by if _is_of(one, peer))
            if points:
                axes.plot(*zip(*points, strict=True), "s--", color=style.COLOURS[peer], ms=4)
        axes.set(
            xscale="log", xlim=(0.7, 1500), ylim=(0, 1), title=f"{shown}, {_images(by)} images"
        )
        axes.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
        axes.minorticks_off()
    panels[0].set_ylabel("AUPRC")
    panels[3].set(xlabel="evaluations", ylabel="AUPRC")
    names = {"hshap": "h-shap, given a function", **{peer: peer for peer in PEERS}}
    for family, shown in names.items():
        panels[-1].plot([], [], "o-" if family == "hshap" else "s--", color=_colour(family), ms=4)
        panels[-1].lines[-1].set_label(shown)
    panels[-1].set_axis_off()
    panels[-1].legend(loc="center")
    return figure


def _point(rows: dict[str, Any]) -> tuple[float, float]:
    return evaluations(rows), fmean(row["average_precision"] for row in rows.values())


def _is_of(name: str, peer: str) -> bool:
    return name == peer or name.removeprefix(f"{peer} ").isdigit()


def _images(by: dict[str, Any]) -> int:
    return max(map(len, by.values()))


def _colour(family: str) -> str:
    return style.COLOURS[family]


def paper() -> Figure:
    """F1 against evaluations on the paper's sets, at the validated threshold and at 1e-6."""
    groups = [
        (f"{task}, {name}" if name != "all" else task, entries)
        for task in ("synthetic", "malaria")
        for name, entries in results.read_summary(task)["groups"].items()
    ]
    figure = style.canvas(5.0)
    grid = style.panels(figure, 2, len(groups), sharey="row")
    families: dict[str, Any] = {}
    measures = {"f1_validated": "F1 validated", "f1": "F1 at 1e-6"}
    for row, (measure, shown) in zip(grid, measures.items(), strict=True):
        for axes, (name, entries) in zip(row, groups, strict=True):
            for method in METHODS:
                if method.name in entries:
                    entry, colour = entries[method.name], style.COLOURS[method.family]
                    place = max(entry["evaluations"][0], 0.5), entry[measure][0]
                    families[method.family] = axes.plot(*place, "o", color=colour, ms=5)[0]
            images = max(entry["images"] for entry in entries.values())
            axes.set(xscale="log", ylim=(0, 1.03), title=f"{name}, {images} images")
        row[0].set_ylabel(shown)
    for axes in grid[-1]:
        axes.set_xlabel("evaluations")
    figure.legend(families.values(), families, loc="outside lower center", ncols=5)
    return figure


def gallery(part: int = 0) -> Figure:
    """Show photographs, and for each class its map and its findings."""
    rows, heats, founds = _stored()
    chosen = PHOTOGRAPHS[part * EACH : (part + 1) * EACH]
    figure = style.canvas((style.WIDTH / COLUMNS * 0.97 + 0.42) * len(chosen))
    for panels, photograph in zip(style.panels(figure, len(chosen), COLUMNS), chosen, strict=True):
        image = photograph.image()
        _photograph(panels[0], photograph, image)
        for place, question in enumerate(photograph.questions):
            key = f"{photograph.name}|{question.name}"
            first, second = panels[1 + 2 * place : 3 + 2 * place]
            _map(first, image, heats[key])
            style.title(first, question.name, f"probability {rows[key]['probability']:.2f}")
            shown = np.where(founds[key][..., None], np.moveaxis(image, 0, -1), 1.0)
            style.picture(second, np.moveaxis(shown, -1, 0))
            style.title(second, rows[key]["verdict"], f"doubt {rows[key]['doubt']:.2f}")
        for axes in panels[1 + 2 * len(photograph.questions) :]:
            axes.set_axis_off()
    return figure


def first() -> Figure:
    """Show crosses of the demo and photographs, each beside its map by the default call."""
    stored = _stored()
    samples = demo.bundled()
    photographs = {photograph.name: photograph for photograph in PHOTOGRAPHS}
    figure = style.canvas((style.WIDTH / 4 + 0.2) * len(SUREST))
    columns = zip(style.panels(figure, len(SUREST), 4), CROSSES, SUREST, strict=True)
    for panels, number, name in columns:
        image = samples["images"][number].astype(np.float32) / 255
        count = int(samples["crosses"][number])
        told = f"{count} cross{'es' * (count != 1)} among shapes"
        _beside(panels[:2], image, told, f"crosses {number}|cross", stored)
        asked = photographs[name].questions[0].name
        told = f"“{asked}”, probability {stored[0][f'{name}|{asked}']['probability']:.2f}"
        _beside(panels[2:], photographs[name].image(), told, f"{name}|{asked}", stored)
    return figure


def _beside(panels: Any, image: Image, told: str, key: str, stored: Any) -> None:
    rows, heats, _ = stored
    style.picture(panels[0], image)
    style.title(panels[0], told)
    _map(panels[1], image, heats[key])
    style.title(panels[1], f"found with {rows[key]['evaluations']} evaluations")


def _stored() -> tuple[dict[str, dict[str, Any]], dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Return the rows, the maps and the masks of findings, each by image and class."""
    listed = results.read_summary("gallery")["rows"]
    with np.load(results.folder("gallery") / "maps.npz") as stored:
        arrays = dict(stored)
    heats = {key: array for key, array in arrays.items() if f"{key}{FOUND}" in arrays}
    founds = {
        key: np.unpackbits(arrays[key + FOUND], count=heat.size).reshape(heat.shape).astype(bool)
        for key, heat in heats.items()
    }
    return {f"{row['image']}|{row['class']}": row for row in listed}, heats, founds


def _photograph(axes: Any, photograph: Photograph, image: Image) -> None:
    style.picture(axes, image)
    style.title(axes, photograph.name)
    boxed = [question for question in photograph.questions if not question.truth().all()]
    for question, line in zip(boxed, ("-", ":"), strict=False):
        axes.contour(question.truth(), [0.5], colors=style.TRUTH, linewidths=1.0, linestyles=line)


def _map(axes: Any, image: Image, heat: NDArray[Any]) -> None:
    """Show a map in red over its image in pale grey; a pixel of 0 stays grey."""
    strength = heat[..., None] / 255
    colours = MAP(0.25 + 0.75 * strength[..., 0])[..., :3]
    opacity = np.where(strength > 0, 0.3 + 0.6 * strength, 0)
    grey = np.rint(image.mean(axis=0) * FEW) / FEW
    pale = (1 - FAINT + FAINT * grey)[..., None].repeat(3, axis=-1)
    axes.imshow(opacity * colours + (1 - opacity) * pale, interpolation="nearest")
    style.bare(axes)


def partitions() -> Figure:
    """Grids, trees and averages over both on two photographs, with the same evaluations."""
    from benchmarks.core.tasks import TASKS

    tasks = {name: TASKS[name]() for name in ("malaria", "boards")}
    figure = style.canvas(1.85 * len(tasks))
    for row, (name, task) in zip(style.panels(figure, len(tasks), 5), tasks.items(), strict=True):
        example = next(iter(task.positives("test", quick=True)))
        style.picture(row[0], example.image)
        style.title(row[0], name)
        ways = _explained(task, example)
        for axes, (way, (heat, spent)) in zip(row[1:], ways.items(), strict=True):
            style.heat(axes, heat)
            style.title(axes, way, f"{spent} evaluations")
        for axes in row:
            style.outline(axes, example.objects[task.concept])
    return figure


def _explained(task: Any, example: Example) -> dict[str, tuple[Any, int]]:
    import hshap
    from benchmarks.core.tasks import fitted
    from benchmarks.methods.common import probability

    subject = fitted(task.subject(), example)
    area = subject.size**2
    grid = hshap.Bisection(subject.size)
    tree = hshap.Superpixels(max(1, area // 4), max_area=4 * area)

    def explainer(partition: Any, budget: int) -> hshap.Explainer:
        search = hshap.DepthFirst(0.0, max_evaluations=budget)
        return hshap.Explainer(subject.model, hshap.Fixed(subject.baseline), partition, search)

    found = {
        way: explainer(partition, BUDGET).explain(example.image, target=probability)
        for way, partition in (("Bisection", grid), ("Superpixels", tree))
    }
    both = explainer(grid, BUDGET // 2)
    spin = hshap.cycle_spin(both, example.image, target=probability, partitions=[grid, tree])
    return {
        **{way: (np.asarray(one.attribution()), one.evaluations) for way, one in found.items()},
        "cycle_spin over both": (spin.attribution(), spin.evaluations),
        "their differences": (spin.stability(), spin.evaluations),
    }


FIGURES: dict[str, Callable[[], Figure]] = {
    "default": default,
    "paper": paper,
    "gallery": gallery,
    "gallery_more": partial(gallery, 1),
    "first": first,
    "partitions": partitions,
}


def draw(names: list[str]) -> None:
    """Draw the named figures, or all; one whose photographs are missing is skipped."""
    for name in names or FIGURES:
        if name not in FIGURES:
            message = f"no figure is called {name!r}; there are {', '.join(FIGURES)}"
            raise UnknownNameError(message)
        try:
            with mpl.rc_context(style.SETTINGS):
                style.save(FIGURES[name](), FOLDER / f"{name}.png")
        except MissingDataError as reason:
            print(f"{name} is skipped: {reason}")
