"""Photographs explained by the default call, and the first picture of README: they and crosses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import colormaps

from benchmarks.core import results
from benchmarks.datasets.photographs import PHOTOGRAPHS
from benchmarks.reporting.figures import style
from benchmarks.reporting.figures.data import read_arrays, read_json
from hshap import demo

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image
    from benchmarks.datasets.photographs import Photograph, Question

NAME = "gallery"  # of the results
MAPS, FOUND = "maps.npz", "|found"
FIGURES = ("gallery", "gallery_more", "first")
EACH = 4  # photographs of a figure
COLUMNS = 5  # the photograph, and two panels for each of two classes
TITLE = 0.42  # inches above a panel, for two lines
# The surest answers that name the thing in view, or the nearest to it in ImageNet.
SUREST = ("coffee", "camera", "motorcycle")
CROSSES = (1, 2, 3)  # images of the demo
FAINT = 0.35  # of the photograph under a map
FEW = 24  # levels of a photograph under a map: small files
MAP = colormaps["Reds"].resampled(25)


def draw(part: int = 0) -> Figure:
    """Show photographs, and for each class its map and its findings."""
    rows, heats, founds = _stored()
    chosen = PHOTOGRAPHS[part * EACH : (part + 1) * EACH]
    tall = style.WIDTH / COLUMNS * 0.97 + TITLE
    figure = style.canvas(style.WIDTH, tall * len(chosen))
    for panels, photograph in zip(style.panels(figure, len(chosen), COLUMNS), chosen, strict=True):
        image = photograph.image()
        _photograph(panels[0], photograph, image)
        for place, question in enumerate(photograph.questions):
            key = f"{photograph.name}|{question.name}"
            first, second = panels[1 + 2 * place : 3 + 2 * place]
            _map(first, image, heats[key])
            _title(first, question.name, f"probability {rows[key]['probability']:.2f}")
            _findings(second, image, founds[key])
            _title(second, rows[key]["verdict"], f"doubt {rows[key]['doubt']:.2f}")
        for axes in panels[1 + 2 * len(photograph.questions) :]:
            axes.set_axis_off()
    return figure


def first() -> Figure:
    """Show crosses of the demo and photographs, each beside its map by the default call."""
    rows, heats, _ = _stored()
    samples = demo.bundled()
    photographs = {photograph.name: photograph for photograph in PHOTOGRAPHS}
    tall = style.WIDTH / 4 + 0.2
    figure = style.canvas(style.WIDTH, tall * len(SUREST))
    columns = zip(style.panels(figure, len(SUREST), 4), CROSSES, SUREST, strict=True)
    for panels, number, name in columns:
        key = f"crosses {number}|cross"
        crosses = samples["images"][number].astype(np.float32) / 255
        style.picture(panels[0], crosses)
        count = int(samples["crosses"][number])
        _title(panels[0], f"{count} cross{'es' * (count != 1)} among shapes")
        _map(panels[1], crosses, heats[key])
        _title(panels[1], f"found with {rows[key]['evaluations']} evaluations")
        image = photographs[name].image()
        asked = photographs[name].questions[0].name
        key = f"{name}|{asked}"
        style.picture(panels[2], image)
        _title(panels[2], f"“{asked}”, probability {rows[key]['probability']:.2f}")
        _map(panels[3], image, heats[key])
        _title(panels[3], f"found with {rows[key]['evaluations']} evaluations")
    return figure


def _stored() -> tuple[dict[str, dict[str, Any]], dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
    """Return the rows, the maps and the masks of findings, each by image and class."""
    folder = results.folder(NAME)
    listed = read_json(folder / "summary.json", NAME)["rows"]
    arrays, _ = read_arrays(folder / MAPS, NAME)
    heats = {key: array for key, array in arrays.items() if not key.endswith(FOUND)}
    founds = {
        key: np.unpackbits(arrays[key + FOUND], count=heat.size).reshape(heat.shape).astype(bool)
        for key, heat in heats.items()
    }
    return {f"{row['image']}|{row['class']}": row for row in listed}, heats, founds


def _photograph(axes: Any, photograph: Photograph, image: Image) -> None:
    style.picture(axes, image)
    _title(axes, photograph.name)
    boxed: list[Question] = [q for q in photograph.questions if not q.truth().all()]
    for question, line in zip(boxed, ("-", ":"), strict=False):
        axes.contour(question.truth(), [0.5], colors=style.TRUTH, linewidths=1.0, linestyles=line)


def _map(axes: Any, image: Image, heat: NDArray[Any]) -> None:
    """Show a map in red over its image in pale grey; a pixel of 0 stays grey."""
    strength = heat[..., None] / 255
    colours = MAP(0.25 + 0.75 * strength[..., 0])[..., :3]
    opacity = np.where(strength > 0, 0.3 + 0.6 * strength, 0)
    mixed = opacity * colours + (1 - opacity) * _pale(image)
    axes.imshow(mixed, interpolation="nearest")
    style.bare(axes)


def _findings(axes: Any, image: Image, found: NDArray[np.bool_]) -> None:
    """Show the pixels of the findings alone."""
    shown = np.where(found[..., None], np.moveaxis(image, 0, -1), 1.0)
    axes.imshow(np.clip(shown, 0, 1), interpolation="nearest")
    style.bare(axes)


def _pale(image: Image) -> NDArray[Any]:
    grey = np.rint(image.mean(axis=0) * FEW) / FEW
    return (1 - FAINT + FAINT * grey)[..., None].repeat(3, axis=-1)


def _title(axes: Any, *lines: str) -> None:
    axes.set_title("\n".join(lines), fontsize=style.SMALL, pad=3, linespacing=1.05)
