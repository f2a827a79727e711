"""The logit as pixels are removed in the order of each map (paper, appendix F)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.reporting.figures import data, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from benchmarks.reporting.figures.data import Panel

COLUMNS = 2
BAND = "h-shap quadtree tau=0"  # whose quartiles are shown


def draw() -> Figure:
    """Divide by the whole image's logit: tasks then share an axis."""
    given = data.panels()
    columns = min(COLUMNS, len(given))
    figure = style.canvas(9.5, 3.2 * -(-len(given) // columns) + 1.8)
    rows = style.panels(figure, -(-len(given) // columns), columns)
    every = [axes for row in rows for axes in row]
    for axes, panel in zip(every, given, strict=False):
        _panel(axes, panel)
    for axes in every[len(given) :]:
        axes.set_axis_off()
    for row in rows:
        row[0].set_ylabel("logit / logit of the whole image")
    for axes in rows[-1]:
        axes.set_xlabel("pixels removed")
    style.legend(figure, {m for panel in given for m in panel.curves}, lines=True)
    return figure


def _panel(axes: Any, panel: Panel) -> None:
    axes.axhline(0, color="0.6", linewidth=0.6)
    for method in reversed(style.ordered(panel.curves)):
        curve, look = panel.curves[method], style.look(method)
        x, whole = curve["counts"][1:], curve["mean"][0]
        mean = [score / whole for score in curve["mean"][1:]]
        width = 1.8 if look.ours else 1.0
        axes.plot(x, mean, color=look.colour, linestyle=look.line, linewidth=width)
        if method == BAND and "low" in curve:
            ends = ([score / whole for score in curve[end][1:]] for end in ("low", "high"))
            axes.fill_between(x, *ends, color=look.colour, alpha=0.15, linewidth=0)
    bottom, top = axes.get_ylim()
    axes.set(xscale="log", ylim=(max(bottom, -2.0), min(top, 1.4)))
    axes.set_title(panel.title)
