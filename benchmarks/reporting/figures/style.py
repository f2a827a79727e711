"""How all figures look: one width, text that stays readable, and colours that everybody sees."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.methods import EVERY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners

OURS = "hshap"
# Okabe and Ito's, which the colour-blind tell apart, and three between them; ours stands out.
COLOURS = {
    OURS: "#D55E00",
    "h-shap 0.1.6": "#E69F00",
    "GradientExplainer": "#0072B2",
    "DeepExplainer": "#56B4E9",
    "Grad-CAM": "#000000",
    "PartitionExplainer": "#009E73",
    "LIME": "#CC79A7",
    "shap-bpt": "#8C6D1F",
    "captum": "#6A4C93",
    "control": "#999999",
}
PEER = "#0072B2"  # a named method of others
TRUTH = "#009E73"  # outlines of the objects to be found
GREY = "0.72"  # all that is not named
TEXT = "0.25"
# Blue below 0, white at 0, red above, as in the paper; few levels make small files.
HEAT = mpl.colormaps["RdBu_r"].resampled(41)
LARGEST = 300_000  # bytes of a picture
DPI = 130
# Inches. Pages show figures about 7 inches wide, so text of 8 points is read at 7.
WIDTH = 8.0
SMALL = 8.0  # points of the smallest text
GRADIENTS = {method.name for method in EVERY if method.gradients}
FAMILIES = {method.name: method.family for method in EVERY}
ORDER = {method.name: place for place, method in enumerate(EVERY)}
SETTINGS = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


def colour(method: str) -> str:
    """Return the colour of a method's family."""
    return COLOURS.get(FAMILIES.get(method, ""), "#444444")


def role(method: str) -> str:
    """Return the colour of ours, or the one colour of all others."""
    return COLOURS[OURS] if FAMILIES.get(method) == OURS else PEER


def marker(method: str) -> str:
    """Return a cross for methods that need more of the model than its outputs."""
    return "X" if method in GRADIENTS else "o"


def label(name: str) -> str:
    """Return a method's name as figures write it."""
    control = " (control)" if FAMILIES.get(name) == "control" else ""
    return name.replace("tau=", "τ=") + control


def mark_ours(texts: Iterable[Any], names: Iterable[str]) -> None:
    """Write the names of ours in bold and in their colour."""
    for text, name in zip(texts, names, strict=True):
        if FAMILIES.get(name) == OURS:
            text.set(color=COLOURS[OURS], weight="bold")


def ordered(names: Iterable[str]) -> list[str]:
    """Sort methods as the tables do."""
    return sorted(names, key=lambda name: ORDER.get(name, len(ORDER)))


def canvas(width: float, height: float) -> Figure:
    """Return an empty figure; without pyplot, whose figures live on in a global list."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    return figure


def panels(figure: Figure, rows: int, columns: int, **options: Any) -> list[list[Any]]:
    """Return the axes of a grid as a list of rows."""
    return figure.subplots(rows, columns, squeeze=False, **options).tolist()


def picture(axes: Any, pixels: NDArray[Any]) -> None:
    """Show an image (channels, height, width) in [0, 1], without any axis."""
    shown = np.clip(np.moveaxis(pixels, 0, -1), 0, 1)
    axes.imshow(np.repeat(shown, 3 // shown.shape[-1], axis=-1), interpolation="antialiased")
    bare(axes)


def heat(axes: Any, values: NDArray[Any], *, step: int = 1) -> None:
    """Show a map, its colours scaled to itself: white is 0, red above, blue below.

    Of each block of `step` pixels a side the strongest is shown: single pixels would be lost.
    """
    strong = strongest(np.asarray(values, np.float64), step)
    limit = float(np.abs(strong).max()) or 1.0
    height, width = values.shape
    axes.imshow(
        strong,
        cmap=HEAT,
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
    )
    bare(axes)


def strongest(values: NDArray[Any], step: int) -> NDArray[Any]:
    """Shrink a map to the value of greatest magnitude in each block."""
    height, width = values.shape
    padded = np.pad(values, ((0, -height % step), (0, -width % step)))
    tall, wide = (side // step for side in padded.shape)
    blocks = padded.reshape(tall, step, wide, step).swapaxes(1, 2).reshape(tall, wide, -1)
    places = np.abs(blocks).argmax(axis=2)[..., None]
    return np.take_along_axis(blocks, places, axis=2)[..., 0]


def outline(axes: Any, boxes: Sequence[Corners], colour: str, width: float = 1.0) -> None:
    """Draw boxes a little larger than their objects, so as not to cover them."""
    from matplotlib.patches import Rectangle

    for (top, left), (bottom, right) in boxes:
        corner = (left - 1.5, top - 1.5)
        size = (right - left + 2, bottom - top + 2)
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linewidth=width))


def bare(axes: Any) -> None:
    """Leave a thin frame: a map without anything relevant is white."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set(visible=True, linewidth=0.5, edgecolor="0.6")


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, with fewer colours if it would be large."""
    from PIL import Image as Pictures

    path.parent.mkdir(parents=True, exist_ok=True)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    with Pictures.open(drawn) as picture:
        whole = picture.convert("RGB")
    whole.save(path, optimize=True)
    if path.stat().st_size > LARGEST:
        whole.quantize(256, kmeans=1, dither=Pictures.Dither.NONE).save(path, optimize=True)
