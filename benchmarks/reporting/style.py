"""How all figures look: one width, readable text, and colours that everybody can tell apart."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners

# Okabe and Ito's, which the colour-blind tell apart, and three between them; ours stands out.
COLOURS = {
    "hshap": "#D55E00",
    "h-shap 0.1.6": "#E69F00",
    "GradientExplainer": "#0072B2",
    "DeepExplainer": "#56B4E9",
    "Grad-CAM": "#000000",
    "PartitionExplainer": "#009E73",
    "LIME": "#CC79A7",
    "RISE": "#0072B2",
    "shap-bpt": "#8C6D1F",
    "captum": "#6A4C93",
    "control": "#999999",
}
TRUTH = "#009E73"  # outlines of the objects to be found
HEAT = mpl.colormaps["RdBu_r"].resampled(41)  # white at 0, as in the paper; few levels
DPI = 130
LARGEST = 300_000  # bytes of a picture
WIDTH = 8.0  # inches; pages show figures about 7 inches wide
SMALL = 8.0  # points of the smallest text
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


def canvas(height: float) -> Figure:
    """Return an empty figure; without pyplot, whose figures live on in a global list."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained", dpi=DPI)
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


def heat(axes: Any, values: NDArray[Any]) -> None:
    """Show a map, its colours scaled to itself: white is 0, red above, blue below."""
    limit = float(np.abs(values).max()) or 1.0
    axes.imshow(values, cmap=HEAT, vmin=-limit, vmax=limit, interpolation="nearest")
    bare(axes)


def outline(axes: Any, boxes: Sequence[Corners]) -> None:
    """Draw boxes a little larger than their objects, so as not to cover them."""
    from matplotlib.patches import Rectangle

    for (top, left), (bottom, right) in boxes:
        corner, size = (left - 1.5, top - 1.5), (right - left + 2, bottom - top + 2)
        axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=TRUTH, linewidth=0.7))


def title(axes: Any, *lines: str) -> None:
    """Write a title of small lines."""
    axes.set_title("\n".join(lines), fontsize=SMALL, pad=3, linespacing=1.05)


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
