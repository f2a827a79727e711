"""All methods at a glance: who leads where, under three measures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from benchmarks.reporting.figures import data, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.reporting.figures.data import Panel

COLUMNS = 2
BAR = "f1_validated"
DOTS = {"f1": ("F1 at 1e-6", "o", "#444444"), "average_precision": ("AUPRC", "D", "white")}


def draw() -> Figure:
    """Sort each panel by the validated F1: the order is then the finding."""
    given = data.panels()
    columns = min(COLUMNS, len(given))
    rows = -(-len(given) // columns)
    tallest = max(len(panel.entries) for panel in given)
    figure = style.canvas(10, (0.185 * tallest + 0.55) * rows + 0.5)
    every = [axes for row in style.panels(figure, rows, columns, sharex=True) for axes in row]
    for axes, panel in zip(every, given, strict=False):
        _panel(axes, panel)
    for axes in every[len(given) :]:
        axes.set_axis_off()
    figure.legend(handles=_handles(), loc="outside lower center", ncols=4)
    return figure


def _panel(axes: Any, panel: Panel) -> None:
    names = sorted(panel.entries, key=lambda name: panel.entries[name][BAR][0])
    for row, name in enumerate(names):
        entry, look = panel.entries[name], style.look(name)
        axes.barh(row, entry[BAR][0], 0.72, color=look.colour, alpha=1.0 if look.ours else 0.4)
        for measure, (_, marker, fill) in DOTS.items():
            edge = {"markerfacecolor": fill, "markeredgecolor": "#222222", "markeredgewidth": 0.8}
            axes.plot(entry[measure][0], row, marker, markersize=4, clip_on=False, **edge)
    axes.set_yticks(range(len(names)), [style.label(name) for name in names])
    for tick, name in zip(axes.get_yticklabels(), names, strict=True):
        ours = style.look(name).ours
        tick.set(
            color=style.COLOURS[style.OURS] if ours else "0.2", weight="bold" if ours else "normal"
        )
    axes.set(xlim=(0, 1), ylim=(-0.6, len(names) - 0.4), title=panel.title)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelbottom=True)
    axes.grid(visible=False, axis="y")


def _handles() -> list[Any]:
    dots = [
        Line2D(
            [],
            [],
            color="#222222",
            linestyle="",
            marker=m,
            markersize=4,
            markerfacecolor=fill,
            label=name,
        )
        for name, m, fill in DOTS.values()
    ]
    ours = Patch(
        color=style.COLOURS[style.OURS], label="bar: F1 at validated threshold, h-Shap (ours)"
    )
    others = Patch(color="0.4", alpha=0.4, label="others, by family")
    return [ours, others, *dots]
