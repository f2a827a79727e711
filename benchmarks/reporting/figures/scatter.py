"""Quality against cost: a point for each method, the best with their names."""

from __future__ import annotations

from dataclasses import replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from benchmarks.reporting.figures import choice, labels, style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from benchmarks.reporting.figures.data import Entries, Panel

HEIGHT = 2.15  # inches of a panel
OURS, OTHERS = 1, 3  # kinds that are named in a panel, beside the paper's own method
WRAP = 23  # letters of a line of a name
KEY = (
    "Orange: h-Shap; named are the best partition and the paper's own quadtree τ=0. Blue: the "
    "best setting of the three best\nother families. Grey: all other settings. Dashed: the best "
    "map that never evaluates the model. A cross needs gradients.\nBars: 95 % intervals of "
    "scores, quartiles of costs."
)


def grid(given: Sequence[Panel], measures: dict[str, str], cost: tuple[str, str]) -> Figure:
    """Return a row of panels for each group and a column for each measure.

    `cost` is the key of the summary and the name of the axis. Methods whose cost was not measured
    are left out, and so are groups without any.
    """
    given = [panel for panel in (_with_cost(each, cost[0]) for each in given) if panel.entries]
    figure = style.canvas(style.WIDTH, HEIGHT * len(given) + 0.9)
    rows = style.panels(figure, len(given), len(measures), sharex="row", sharey=True)
    figure.supxlabel(KEY, fontsize=style.SMALL, x=0.01, ha="left", color=style.TEXT)
    for row, panel in zip(rows, given, strict=True):
        for axes, (measure, name) in zip(row, measures.items(), strict=True):
            for method in style.ordered(panel.entries):
                if not choice.is_blind(panel.entries[method]):
                    _faint(axes, method, panel.entries[method], cost[0], measure)
            axes.set(xscale="log", ylim=(-0.03, 1.08), ylabel=name)
            axes.set_title(panel.title, loc="left")
            plain_ticks(axes.xaxis)
            axes.tick_params(labelbottom=True, labelleft=True)
    for axes in rows[-1]:
        axes.set_xlabel(cost[1])
    labels.settle(figure)
    for row, panel in zip(rows, given, strict=True):
        for axes, measure in zip(row, measures, strict=True):
            _name(axes, panel.entries, cost[0], measure)
    return figure


def _with_cost(panel: Panel, cost: str) -> Panel:
    known = {method: entry for method, entry in panel.entries.items() if entry[cost] is not None}
    return replace(panel, entries=known)


def plain_ticks(axis: Any) -> None:
    """Write the ticks of a logarithmic axis as 0.1, 1, 10: powers are small and hard to read."""
    axis.set_major_locator(LogLocator(10, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def chosen(entries: Entries, measure: str) -> list[str]:
    """Return the methods that a panel names, the best first."""
    scores = {method: entry[measure][0] for method, entry in entries.items()}
    asking = {method for method, entry in entries.items() if not choice.is_blind(entry)}
    return choice.named(scores, OURS, OTHERS, keep=asking.__contains__)


def point(axes: Any, method: str, entry: dict[str, Any], cost: str, measure: str) -> None:
    """Draw a named method with its intervals."""
    middle, low, high = entry[cost]
    value, bottom, top = entry[measure]
    axes.errorbar(
        middle,
        value,
        xerr=[[max(middle - low, 0)], [max(high - middle, 0)]],
        yerr=[[max(value - bottom, 0)], [max(top - value, 0)]],
        fmt=style.marker(method),
        color=style.role(method),
        markersize=7,
        markeredgecolor="white",
        markeredgewidth=0.5,
        elinewidth=0.8,
        zorder=4,
    )


def _faint(axes: Any, method: str, entry: dict[str, Any], cost: str, measure: str) -> None:
    ours = choice.is_ours(method)
    look = {"color": style.role(method) if ours else style.GREY, "alpha": 0.45 if ours else 1.0}
    axes.plot(entry[cost][0], entry[measure][0], style.marker(method), markersize=4, **look)


def _name(axes: Any, entries: Entries, cost: str, measure: str) -> None:
    shown = chosen(entries, measure)
    places = {m: (entries[m][cost][0], entries[m][measure][0]) for m in entries}
    for method in shown:
        point(axes, method, entries[method], cost, measure)
    avoid = [
        (np.array([places[m] for m in shown]), labels.POINT),
        (np.array([p for m, p in places.items() if not choice.is_blind(entries[m])]), labels.FAINT),
    ]
    wanted = [
        labels.Label(
            fill(style.label(m), WRAP),
            np.array([places[m]]),
            style.role(m),
            bold=choice.is_ours(m),
        )
        for m in shown
    ]
    blind = [m for m in entries if choice.is_blind(entries[m])]
    if blind:
        best = max(blind, key=lambda m: entries[m][measure][0])
        level = entries[best][measure][0]
        axes.axhline(level, color="0.45", linestyle="--", linewidth=0.9, zorder=1)
        ends = np.geomspace(*axes.get_xlim(), 60)
        avoid.append((np.column_stack([ends, np.full(60, level)]), labels.FAINT))
        spots = np.column_stack([ends[3:-3:3], np.full(18, level)])
        wanted.append(labels.Label(style.label(best), spots, "0.35"))
    labels.place(axes, wanted, avoid)
