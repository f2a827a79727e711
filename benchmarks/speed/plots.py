"""Plots of how cost grows, with the lower bounds for any search and any model."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.speed.speed_goals import REFERENCE

if TYPE_CHECKING:
    from pathlib import Path


def draw(done: dict[str, Any], path: Path) -> None:
    """Draw three panels: evaluations by findings, seconds by side, seconds by method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4), layout="constrained")
    evaluations, sides, methods = figure.subplots(1, 3)
    _evaluations(evaluations, done)
    _sides(sides, done)
    _methods(methods, done)
    figure.savefig(path, dpi=110)


def _evaluations(axes: Any, done: dict[str, Any]) -> None:
    for side, colour in ((64, "C0"), (1024, "C1")):
        rows = done[f"findings, {side}"][0]["rows"]
        for kind, style in (("Bisection", "-"), ("Dyadic", "--")):
            mine = [row for row in rows if row["partition"] == kind]
            label = f"{kind}, {side} x {side}"
            findings = [row["findings"] for row in mine]
            spent = [row["evaluations"] for row in mine]
            axes.plot(findings, spent, style, color=colour, label=label)
        axes.plot(findings, [row["floor"] for row in mine], ":", color=colour)
    axes.set(xscale="log", yscale="log", xlabel="findings", ylabel="evaluations")
    axes.set_title("dotted: the floor log2(C(n, k))")
    axes.legend(fontsize=8)


def _sides(axes: Any, done: dict[str, Any]) -> None:
    rows = [taken[0] for name, taken in done.items() if name.startswith("side, ")]
    axes.plot([r["side"] for r in rows], [r["seconds"] for r in rows], "o-", label="seconds")
    axes.plot([r["side"] for r in rows], [r["peak_gb"] for r in rows], "s--", label="peak GB")
    axes.set(xscale="log", yscale="log", xlabel="side of the image")
    axes.set_title("own cost, ten findings")
    axes.legend(fontsize=8)


def _methods(axes: Any, done: dict[str, Any]) -> None:
    turns = [each["methods"] for each in done["crosses"]]
    bare = median(each["bare"] / each["evaluations"] for each in done["together"])
    seconds = {name: median(turn[name]["seconds"] for turn in turns) for name in turns[0]}
    for number, name in enumerate(sorted(seconds, key=seconds.__getitem__, reverse=True)):
        ours = name.startswith("h-shap") and name != REFERENCE
        marker, spent = "*" if ours else "o", turns[0][name]["evaluations"]
        axes.plot(
            spent, seconds[name], marker, ms=11 if ours else 7, color=f"C{number}", label=name
        )
    most = max(one["evaluations"] for one in turns[0].values())
    axes.plot([10, most], [10 * bare, most * bare], ":", color="black", label="the model alone")
    axes.set(xscale="log", yscale="log", xlabel="evaluations", ylabel="seconds")
    axes.set_title("six crosses, 100 x 120")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
