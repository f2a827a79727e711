"""The methods at a glance: the best setting of each kind on each set, under three measures.

The paper's own method is always among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.reporting.figures import choice, data, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.reporting.figures.data import Panel

COLUMNS = 2
ROW = 0.19  # inches
BAR = choice.MEASURE
DOTS = {"f1": ("F1 at 1e-6", "o", "#222222"), "average_precision": ("AUPRC", "D", "white")}


def draw() -> Figure:
    """Sort each panel by the validated F1: the order is then the finding."""
    given = data.panels()
    columns = min(COLUMNS, len(given))
    rows = -(-len(given) // columns)
    tallest = max(len(choice.best_settings(panel.entries)) for panel in given)
    figure = style.canvas(style.WIDTH, (ROW * tallest + 0.5) * rows + 0.5)
    every = [axes for row in style.panels(figure, rows, columns, sharex=True) for axes in row]
    for axes, panel in zip(every, given, strict=False):
        _panel(axes, panel)
    for axes in every[len(given) :]:
        axes.set_axis_off()
    figure.legend(handles=_handles(), loc="outside lower center", ncols=3, columnspacing=1.5)
    return figure


def _panel(axes: Any, panel: Panel) -> None:
    names = choice.best_settings(panel.entries)[::-1]
    for row, name in enumerate(names):
        entry, ours = panel.entries[name], choice.is_ours(name)
        value, low, high = entry[BAR]
        fill = style.COLOURS[style.OURS] if ours else "0.8"
        axes.barh(row, value, 0.74, color=fill, alpha=0.75 if ours else 1.0)
        axes.plot([low, high], [row, row], color="#222222", linewidth=0.8, solid_capstyle="butt")
        for measure, (_, marker, inner) in DOTS.items():
            edge = {"markerfacecolor": inner, "markeredgecolor": "#222222", "markeredgewidth": 0.8}
            axes.plot(entry[measure][0], row, marker, markersize=4.5, clip_on=False, **edge)
    axes.set_yticks(range(len(names)), [style.label(name) for name in names])
    style.mark_ours(axes.get_yticklabels(), names)
    axes.set(xlim=(0, 1), ylim=(-0.6, len(names) - 0.4))
    axes.set_title(panel.title, loc="right")
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=True)
    axes.grid(visible=False, axis="y")


def _handles() -> list[Any]:
    edge = {"color": "#222222", "linestyle": "", "markersize": 4.5}
    dots = [
        Line2D([], [], marker=marker, markerfacecolor=inner, label=name, **edge)
        for name, marker, inner in DOTS.values()
    ]
    ours = Patch(
        color=style.COLOURS[style.OURS], alpha=0.75, label="h-Shap, best of each partition, and τ=0"
    )
    others = Patch(color="0.8", label="others, best of each family")
    line = Line2D([], [], color="#222222", linewidth=0.8, label="95 % interval of the bar")
    bar = Patch(alpha=0, label="bar: F1 at validated threshold")
    return [bar, line, ours, others, *dots]
