"""How many nodes are visited (paper, theorem 1 and figure 3): the formula and simulated images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.tasks import SEED
from benchmarks.reporting.figures import data, labels, scatter, style
from hshap.games.theory import expected_visited

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "expected_visits"
GAMMA = 4
SIDES = (64, 256)
LEAVES = (1, 4, 16)  # pixels a side
TRIALS = 400
COLOURS = ("#D55E00", "#0072B2", "#009E73")
DOTS: dict[str, Any] = {"fmt": "o", "markersize": 4, "elinewidth": 0.8}


def compute() -> None:
    """Place important features at random, each by the same chance, and count relevant nodes."""
    rng = np.random.default_rng(SEED)
    found = []
    for side in SIDES:
        for leaf in LEAVES:
            for k in _counts(side):
                drawn = [_visited(rng, side**2, leaf**2, k / side**2) for _ in range(TRIALS)]
                low, high = np.quantile(drawn, [0.05, 0.95]).tolist()
                mean = round(float(np.mean(drawn)), 2)
                found.append({"side": side, "leaf": leaf, "k": k, "visited": [mean, low, high]})
    content = {"gamma": GAMMA, "trials": TRIALS, "simulated": found}
    data.write_json(data.figure_file(f"{NAME}.json"), content, SEED)


def draw() -> Figure:
    """Draw the formula as lines and the simulated images as dots."""
    stored = data.read_json(data.figure_file(f"{NAME}.json"), f"figures {NAME} --compute")
    figure = style.canvas(style.WIDTH, 3.6)
    axes = style.panels(figure, 1, len(SIDES), sharey=True)[0]
    for panel, side in zip(axes, SIDES, strict=True):
        rows = [row for row in stored["simulated"] if row["side"] == side]
        _panel(panel, side, rows)
    axes[0].set_ylabel("relevant nodes visited")
    scatter.plain_ticks(axes[0].yaxis)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2)
    return figure


def _panel(axes: Any, side: int, rows: list[dict[str, Any]]) -> None:
    n = side**2
    k = np.geomspace(1, n / 4, 60)
    for leaf, colour in zip(LEAVES, COLOURS, strict=True):
        expected = [_expected(n, leaf**2, c / n) for c in k]
        axes.plot(k, expected, color=colour, linewidth=1.4)
        name = f"s = {leaf}²" if leaf > 1 else "s = 1"
        labels.at_end(axes, name, (k[-1], expected[-1]), colour)
        own = [row for row in rows if row["leaf"] == leaf]
        mean, low, high = np.array([row["visited"] for row in own]).T
        spread = [mean - low, high - mean]
        axes.errorbar([row["k"] for row in own], mean, spread, color=colour, **DOTS)
    bound = 1 + k * np.log(n) / np.log(GAMMA)
    axes.plot(k, bound, ":", color="0.3", linewidth=1)
    labels.at_end(axes, "bound for s = 1:\n1 + k log₄ n", (k[-1], bound[-1]), "0.3")
    axes.plot([], [], color="0.3", linewidth=1.4, label="formula")
    told = f"mean and 5 to 95 % of {TRIALS} simulated images"
    axes.errorbar([], [], [], color="0.3", label=told, **DOTS)
    axes.set(xscale="log", yscale="log", xlabel="expected number of important features, k")
    axes.set_title(f"quadtree over n = {side} x {side} features", loc="left")
    scatter.plain_ticks(axes.xaxis)


def _counts(side: int) -> list[int]:
    return [4**power for power in range(round(np.log(side**2) / np.log(4)))]


def _expected(n: int, leaf: int, rho: float) -> float:
    """Return the formula's value for leaves of several features: each matters if one in it does."""
    return expected_visited(n // leaf, GAMMA, 1 - (1 - rho) ** leaf)


def _visited(rng: np.random.Generator, n: int, leaf: int, rho: float) -> int:
    """Count the ancestors of the important features: far fewer than all nodes of the tree."""
    nodes = rng.choice(n, rng.binomial(n, rho), replace=False) // leaf
    visited, size = 1, n // leaf
    while size > 1:
        nodes = np.unique(nodes)
        visited, nodes, size = visited + len(nodes), nodes // GAMMA, size // GAMMA
    return visited
