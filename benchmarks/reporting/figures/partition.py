"""PartitionExplainer at four budgets beside h-Shap (paper, appendix C)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.ticker import NullLocator

from benchmarks.reporting.figures import data, scatter, style
from benchmarks.reporting.figures.f1_runtime import MEASURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.reporting.figures.data import Panel

THEIRS = tuple(f"PartitionExplainer {budget}" for budget in (500, 64, 32, 16))
TICKS = (16, 32, 64, 128, 256, 512)
OURS = ("h-shap quadtree tau=0", "h-shap quadtree tau=70%", "h-shap bisection")


def draw() -> Figure:
    """Join the budgets: the line shows what more evaluations buy."""
    given = data.panels(("synthetic",))
    figure = style.canvas(8.5, 6.6)
    rows = style.panels(figure, 2, len(given), sharex=True, sharey=True)
    for (measure, name), row in zip(MEASURES.items(), rows, strict=True):
        row[0].set_ylabel(name)
        for axes, panel in zip(row, given, strict=True):
            _panel(axes, panel, measure)
    for top, bottom, panel in zip(rows[0], rows[-1], given, strict=True):
        top.set_title(panel.title)
        bottom.set_xlabel("evaluations, median and quartiles")
    shown = {m for panel in given for m in panel.entries if m in (*OURS, *THEIRS)}
    style.legend(figure, shown)
    return figure


def _panel(axes: Any, panel: Panel, measure: str) -> None:
    entries = panel.entries
    theirs = [method for method in THEIRS if method in entries]
    places = [(entries[m]["evaluations"][0], entries[m][measure][0]) for m in theirs]
    if places:
        colour = style.look(theirs[0]).colour
        axes.plot(*zip(*places, strict=True), color=colour, linewidth=1, alpha=0.5)
    for method in (*theirs, *OURS):
        if method in entries:
            scatter.point(axes, method, entries[method], "evaluations", measure)
    axes.set(xscale="log", ylim=(-0.03, 1.03))
    axes.set_xticks(TICKS, [str(tick) for tick in TICKS])
    axes.xaxis.set_minor_locator(NullLocator())
