"""PartitionExplainer at four budgets beside h-Shap (paper, appendix C)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import NullLocator

from benchmarks.reporting.figures import data, labels, scatter, style
from benchmarks.reporting.figures.f1_runtime import MEASURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from benchmarks.reporting.figures.data import Entries, Panel

THEIRS = tuple(f"PartitionExplainer {budget}" for budget in (500, 64, 32, 16))
TICKS = (16, 32, 64, 128, 256, 512)
OURS = ("h-shap quadtree tau=0", "h-shap quadtree tau=70%", "h-shap bisection")


def draw() -> Figure:
    """Join the budgets: the line shows the gain from more evaluations."""
    given = data.panels(("synthetic",))
    figure = style.canvas(style.WIDTH, 5.4)
    rows = style.panels(figure, 2, len(given), sharex=True, sharey=True)
    for (measure, name), row in zip(MEASURES.items(), rows, strict=True):
        row[0].set_ylabel(name)
        for axes, panel in zip(row, given, strict=True):
            _panel(axes, panel, measure)
    for top, bottom, panel in zip(rows[0], rows[-1], given, strict=True):
        top.set_title(panel.title, loc="left")
        bottom.set_xlabel("evaluations, median and quartiles")
    labels.settle(figure)
    for measure, row in zip(MEASURES, rows, strict=True):
        for axes, panel in zip(row, given, strict=True):
            _name(axes, panel.entries, measure)
    return figure


def _panel(axes: Any, panel: Panel, measure: str) -> None:
    entries = panel.entries
    places = _places(entries, measure, THEIRS)
    if places:
        joined = zip(*places.values(), strict=True)
        axes.plot(*joined, color=style.PEER, linewidth=1, alpha=0.5)
    for method in (*THEIRS, *OURS):
        if method in entries:
            scatter.point(axes, method, entries[method], "evaluations", measure)
    axes.set(xscale="log", xlim=(TICKS[0] * 0.7, TICKS[-1] * 2.2))
    axes.margins(y=0.2)
    axes.set_xticks(TICKS, [str(tick) for tick in TICKS])
    axes.xaxis.set_minor_locator(NullLocator())


def _name(axes: Any, entries: Entries, measure: str) -> None:
    """Name ours, and PartitionExplainer at its largest budget; the others by their budgets."""
    places = _places(entries, measure, (*OURS, *THEIRS))
    wanted = [
        labels.Label(_text(method), np.array([place]), style.role(method), bold=method in OURS)
        for method, place in places.items()
    ]
    avoid = [(np.array(list(places.values())).reshape(-1, 2), labels.POINT)]
    theirs = [places[method] for method in THEIRS if method in places]
    if theirs:
        avoid.append((labels.along(np.array(theirs), axes), labels.LINE))
    labels.place(axes, wanted, avoid)


def _text(method: str) -> str:
    return method.rsplit(maxsplit=1)[-1] if method in THEIRS[1:] else style.label(method)


def _places(entries: Entries, measure: str, methods: Sequence[str]) -> dict[str, Any]:
    there = [method for method in methods if method in entries]
    return {m: (entries[m]["evaluations"][0], entries[m][measure][0]) for m in there}
