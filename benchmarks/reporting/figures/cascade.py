"""How alike maps stay as layer after layer is made random, from the output back to the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core import results
from benchmarks.reporting.figures import data, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw() -> Figure:
    """Write the numbers into the cells: colours alone cannot be read off."""
    summary = data.read_json(results.folder("sanity") / "summary.json", "sanity")
    names = style.ordered(summary["similarity"])
    table = np.array([[s[0] for s in summary["similarity"][m]["spearman"]] for m in names])
    figure = style.canvas(style.WIDTH, 0.21 * len(names) + 0.9)
    axes = figure.subplots()
    shown = axes.imshow(table, cmap=style.HEAT, vmin=-1, vmax=1, aspect="auto")
    bar = figure.colorbar(shown, ax=axes, aspect=30)
    bar.set_label("rank correlation with the map of the trained network")
    axes.set_xticks(range(table.shape[1]), _steps(summary["steps"]))
    axes.set_yticks(range(len(names)), [style.label(name) for name in names])
    style.mark_ours(axes.get_yticklabels(), names)
    axes.set_xlabel("layers with random weights, output layer first")
    axes.set_title(f"synthetic, 6 crosses ({summary['images']} images)")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    _write(axes, table)
    return figure


def _steps(steps: list[str]) -> list[str]:
    return [steps[0], *(f"+ {step}" for step in steps[1:])]


def _write(axes: Any, table: Any) -> None:
    for (row, column), value in np.ndenumerate(table):
        colour = "white" if abs(value) > 0.6 else "0.15"
        axes.text(
            column,
            row,
            f"{value:.2f}",
            ha="center",
            va="center",
            color=colour,
            fontsize=style.SMALL,
        )
