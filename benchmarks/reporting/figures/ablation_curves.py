"""The logit as pixels are removed in the order of each map (paper, appendix F)."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.reporting.figures import choice, data, labels, scatter, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from benchmarks.reporting.figures.data import Entries, Panel

COLUMNS = 2
OURS, OTHERS = 1, 3  # kinds in colour, beside the paper's own method
CONTROL = "random"  # named too: no order of removal should do worse
CONTROL_COLOUR = "0.4"
SPOTS = 12  # points of a line that its label may stand beside
LOWEST, HIGHEST = -2.0, 1.4
WRAP = 20
KEY = (
    "In colour: the h-Shap and the three other families whose logit falls fastest (lowest mean "
    "of the curve);\ndashed, with its quartiles: the paper's own quadtree τ=0. Grey: all other "
    "settings."
)


def draw() -> Figure:
    """Divide by the whole image's logit: tasks then share an axis."""
    given = data.panels()
    columns = min(COLUMNS, len(given))
    figure = style.canvas(style.WIDTH, 2.9 * -(-len(given) // columns) + 0.5)
    rows = style.panels(figure, -(-len(given) // columns), columns)
    every = [axes for row in rows for axes in row]
    figure.supxlabel(KEY, fontsize=style.SMALL, x=0.01, ha="left", color=style.TEXT)
    for axes, panel in zip(every, given, strict=False):
        _lines(axes, panel)
    for axes in every[len(given) :]:
        axes.set_axis_off()
    for row in rows:
        row[0].set_ylabel("logit / logit of the whole image")
    for axes in rows[-1]:
        axes.set_xlabel("pixels removed, highest values of the map first")
    labels.settle(figure)
    for axes, panel in zip(every, given, strict=False):
        _names(axes, panel.curves)
    return figure


def chosen(curves: Entries) -> list[str]:
    """Return the methods whose lines a panel names."""
    falls = {method: -float(_line(curve)[:, 1].mean()) for method, curve in curves.items()}
    asking = {m for m in curves if style.FAMILIES.get(m) != "control"}
    return choice.named(falls, OURS, OTHERS, keep=asking.__contains__)


def _line(curve: dict[str, Any], key: str = "mean") -> NDArray[Any]:
    """Return the points of a curve; the first, where nothing is removed, has no logarithm."""
    return np.column_stack([curve["counts"][1:], np.array(curve[key][1:]) / curve["mean"][0]])


def _lines(axes: Any, panel: Panel) -> None:
    shown = chosen(panel.curves)
    axes.axhline(0, color="0.6", linewidth=0.6)
    for method, curve in panel.curves.items():
        if method not in shown:
            colour = CONTROL_COLOUR if method == CONTROL else "0.85"
            axes.plot(*_line(curve).T, color=colour, linewidth=0.8, zorder=1.5)
    for method in reversed(shown):  # ours above the others
        curve, colour = panel.curves[method], style.colour(method)
        paper = method == choice.PAPER
        look = {"linestyle": "--" if paper else "-", "gid": "named", "zorder": 3}
        axes.plot(*_line(curve).T, color=colour, linewidth=1.8, **look)
        if paper and "low" in curve:
            low, high = (_line(curve, end)[:, 1] for end in ("low", "high"))
            axes.fill_between(curve["counts"][1:], low, high, color=colour, alpha=0.1, linewidth=0)
    bottom, top = axes.get_ylim()
    axes.set(xscale="log", ylim=(max(bottom, LOWEST), min(top, HIGHEST)))
    axes.set_title(panel.title, loc="left")
    scatter.plain_ticks(axes.xaxis)


def _names(axes: Any, curves: Entries) -> None:
    shown = [*chosen(curves), *([CONTROL] if CONTROL in curves else [])]
    lines = {method: labels.along(_line(curves[method]), axes) for method in shown}
    wanted = [_label(axes, method, lines) for method in shown]
    labels.place(axes, wanted, [(line, labels.LINE) for line in lines.values()])


def _label(axes: Any, method: str, lines: dict[str, NDArray[Any]]) -> labels.Label:
    """Let a label stand where its line is inside the panel and far from the others."""
    bottom, top = axes.get_ylim()
    own = lines[method]
    height = (own[:, 1] - bottom) / (top - bottom)
    own = own[(height > 0.05) & (height < 0.9)] if ((height > 0.05) & (height < 0.9)).any() else own
    pixels = axes.transData.transform(own)
    others = [axes.transData.transform(line) for m, line in lines.items() if m != method]
    gaps = np.linalg.norm(pixels[:, None] - np.vstack(others)[None], axis=2).min(axis=1)
    clear = own[gaps >= np.median(gaps)]
    spots = clear[:: max(1, len(clear) // SPOTS)]
    colour = CONTROL_COLOUR if method == CONTROL else style.colour(method)
    return labels.Label(fill(style.label(method), WRAP), spots, colour, bold=choice.is_ours(method))
