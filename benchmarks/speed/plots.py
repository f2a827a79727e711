"""Plots of how cost grows, with the lower bounds for any search and any model."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.speed.speed_goals import REFERENCE

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

OURS, PEER, MEMORY, GREY = "#D55E00", "#0072B2", "#009E73", "0.35"
SIDES = {64: PEER, 1024: OURS}
KINDS = {"Bisection": "-", "Dyadic": "--"}


def draw(done: dict[str, Any], path: Path) -> None:
    """Write three panels: evaluations by findings, seconds by side, seconds by method."""
    import matplotlib as mpl

    from benchmarks.reporting.figures import style

    with mpl.rc_context(style.SETTINGS):
        style.save(figure(done), path)


def figure(done: dict[str, Any]) -> Figure:
    """Return the three panels; names stand beside lines and points."""
    from benchmarks.reporting.figures import labels, scatter, style

    drawn = style.canvas(style.WIDTH, 7.4)
    places = [["evaluations", "sides"], ["methods", "methods"]]
    axes = drawn.subplot_mosaic(places, height_ratios=[1.35, 1])
    _evaluations(axes["evaluations"], done)
    _sides(axes["sides"], done)
    seconds = _methods(axes["methods"], done)
    for panel in axes.values():
        panel.set(xscale="log", yscale="log")
        scatter.plain_ticks(panel.xaxis)
        scatter.plain_ticks(panel.yaxis)
    axes["methods"].set(xlim=(10, 10_000))
    axes["methods"].margins(y=0.25)
    labels.settle(drawn)
    _names(axes["methods"], seconds)
    return drawn


def _evaluations(axes: Any, done: dict[str, Any]) -> None:
    from benchmarks.reporting.figures import labels

    for side, colour in SIDES.items():
        rows = done[f"findings, {side}"][0]["rows"]
        for kind, line in KINDS.items():
            mine = [row for row in rows if row["partition"] == kind]
            findings = [row["findings"] for row in mine]
            spent = [row["evaluations"] for row in mine]
            axes.plot(findings, spent, line, color=colour)
            labels.at_end(axes, f"{kind}, {side}²", (findings[-1], spent[-1]), colour)
        floor = [row["floor"] for row in mine]
        axes.plot(findings, floor, ":", color=colour)
        labels.at_end(axes, f"floor, {side}²", (findings[-1], floor[-1]), colour)
    axes.set(xlabel="findings", ylabel="evaluations")
    axes.set_title("floor: log₂ C(n, k) yes-or-no answers", loc="left")


def _sides(axes: Any, done: dict[str, Any]) -> None:
    from benchmarks.reporting.figures import labels

    rows = [taken[0] for name, taken in done.items() if name.startswith("side, ")]
    sides = [row["side"] for row in rows]
    for key, name, look, colour in (
        ("seconds", "seconds", "o-", OURS),
        ("peak_gb", "peak memory,\nGB", "s--", MEMORY),
    ):
        values = [row[key] for row in rows]
        axes.plot(sides, values, look, color=colour, markersize=4)
        va = "bottom" if key == "seconds" else "top"
        labels.at_end(axes, name, (sides[-1], values[-1]), colour, va=va)
    axes.set(xlabel="side of the image, pixels", ylabel="seconds or GB")
    axes.set_title("own cost, ten findings", loc="left")


def _methods(axes: Any, done: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Draw a point for each method; return evaluations and seconds by name."""
    turns = [each["methods"] for each in done["crosses"]]
    bare = median(each["bare"] / each["evaluations"] for each in done["together"])
    found = {
        name: (turns[0][name]["evaluations"], median(turn[name]["seconds"] for turn in turns))
        for name in turns[0]
    }
    for name, (spent, seconds) in found.items():
        axes.plot(spent, seconds, "o", markersize=7, color=_colour(name))
    most = max(spent for spent, _ in found.values())
    axes.plot([10, most], [10 * bare, most * bare], ":", color=GREY)
    axes.set(xlabel="evaluations", ylabel="seconds for one image")
    axes.set_title("six crosses, 100 x 120 pixels (dotted: the model alone)", loc="left")
    return found


def _names(axes: Any, found: dict[str, tuple[float, float]]) -> None:
    import numpy as np

    from benchmarks.reporting.figures import labels, style

    wanted = [
        labels.Label(style.label(name), np.array([place]), _colour(name), bold=_ours(name))
        for name, place in found.items()
    ]
    labels.place(axes, wanted, [(np.array(list(found.values())), labels.POINT)])


def _ours(name: str) -> bool:
    return name.startswith("h-shap") and name != REFERENCE


def _colour(name: str) -> str:
    return OURS if _ours(name) else PEER
