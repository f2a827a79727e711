"""Quality against cost: a point for each method, with its intervals; used by several figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.ticker import NullFormatter

from benchmarks.reporting.figures import style

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.figure import Figure

    from benchmarks.reporting.figures.data import Entries, Panel

HEIGHT = 2.7
JOINED = ("h-shap 0.1.6", "PartitionExplainer", "shap-bpt")


def grid(
    given: Sequence[Panel],
    measures: dict[str, str],
    cost: tuple[str, str],
    *,
    joined: bool = False,
    title: str = "",
) -> Figure:
    """Return a column of panels for each group and a row for each measure.

    `cost` is the key of the summary and the name of the axis; `joined` connects the settings of
    one method by lines; `title` stands above the legend.
    """
    figure = style.canvas(2.75 * max(len(given), 3), HEIGHT * len(measures) + 1.6)
    rows = style.panels(figure, len(measures), len(given), sharex="col", sharey="row")
    for (measure, name), row in zip(measures.items(), rows, strict=True):
        row[0].set_ylabel(name)
        for axes, panel in zip(row, given, strict=True):
            if joined:
                _join(axes, panel.entries, cost[0], measure)
            for method in style.ordered(panel.entries):
                point(axes, method, panel.entries[method], cost[0], measure)
            axes.set(xscale="log", ylim=(-0.03, 1.03))
            axes.xaxis.set_minor_formatter(NullFormatter())
    for top, bottom, panel in zip(rows[0], rows[-1], given, strict=True):
        top.set_title(panel.title)
        bottom.set_xlabel(cost[1])
    style.legend(figure, {method for panel in given for method in panel.entries}, title=title)
    return figure


def point(axes: Any, method: str, entry: dict[str, Any], cost: str, measure: str) -> None:
    """Draw a method; a control, whose cost says nothing, as a level."""
    look = style.look(method)
    middle, low, high = entry[cost]
    value, bottom, top = entry[measure]
    if middle <= 0 or style.FAMILIES.get(method) == "control":
        axes.axhline(value, color=look.colour, linestyle=look.line, linewidth=0.8, zorder=1)
        # Where the level is; its line alone would have no marker to look up in the legend.
        across = axes.get_yaxis_transform()
        axes.plot(0.02, value, look.marker, color=look.colour, markersize=5, transform=across)
        return
    axes.errorbar(
        middle,
        value,
        xerr=[[max(middle - low, 0)], [max(high - middle, 0)]],
        yerr=[[max(value - bottom, 0)], [max(top - value, 0)]],
        fmt=look.marker,
        color=look.colour,
        markersize=look.size,
        markeredgecolor="white",
        markeredgewidth=0.5,
        elinewidth=0.7,
        zorder=4 if look.ours else 3,
    )


def _join(axes: Any, entries: Entries, cost: str, measure: str) -> None:
    for members in _settings(entries).values():
        places = sorted((entries[m][cost][0], entries[m][measure][0]) for m in members)
        colour = style.look(members[0]).colour
        axes.plot(*zip(*places, strict=True), color=colour, linewidth=1, alpha=0.5)


def _settings(entries: Iterable[str]) -> dict[str, list[str]]:
    """Return the methods that differ in a setting alone: their tree is the same."""
    found: dict[str, list[str]] = {}
    for method in style.ordered(entries):
        family = style.FAMILIES.get(method)
        if family == style.OURS:
            found.setdefault("quadtree" if "quadtree" in method else "bisection", []).append(method)
        elif family in JOINED:
            found.setdefault(family, []).append(method)
    return found
