"""Charts without an image: the tree of regions, and curves of scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.plot.figures import on_axes, write_title

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from matplotlib.figure import Figure

    from hshap._util.types import Heat
    from hshap.games.tree import Part
    from hshap.partitions.protocol import Region

MANY = 150
"""A tree with this many unsplit regions has no lines between them: they would hide the colours."""


def tree(
    seen: Sequence[Part], leaves: Collection[Region], *, title: str = "", ax: object = None
) -> Figure:
    """Return a figure of a tree: each region stands over its parts, coloured by its coefficient.

    All unsplit regions have the same width, whatever their size, so that small ones are visible.
    Leaves have a black frame. Signals, pictures and volumes are drawn alike.

    >>> from hshap.demo import example
    >>> from hshap.games.tree import parts
    >>> found = example()
    >>> tree(list(parts(found.games).values()), found.leaves).axes[0].get_ylabel()
    'level'
    """
    deepest = max(part.depth for part in seen)
    figure, axes = on_axes(ax, (8.0, min(1.5 + 0.6 * (deepest + 1), 8.0)), "plot.tree")
    from matplotlib.collections import PolyCollection  # noqa: PLC0415, an optional dependency

    left, width = _places(seen)
    top = np.array([part.depth for part in seen], dtype=np.float64)
    x = np.stack([left, left + width, left + width, left], axis=1)
    y = np.stack([top, top, top + 1, top + 1], axis=1)
    corners = np.stack([x, y], axis=2)
    values = np.array([part.coefficient for part in seen])
    limit = float(np.abs(values).max()) or 1.0
    line = 0.5 if width[0] < MANY else 0.0
    boxes = PolyCollection(
        list(corners), array=values, cmap="coolwarm", edgecolors="0.6", linewidths=line
    )
    boxes.set_clim(-limit, limit)
    axes.add_collection(boxes)
    kept = corners[[part.region in leaves for part in seen]]
    frames = PolyCollection(list(kept), facecolors="none", edgecolors="black")
    frames.set_linewidth(1.5 if line else 0.6)
    axes.add_collection(frames)
    axes.set(xlim=(0, width[0]), ylim=(deepest + 1, 0), xticks=[], ylabel="level")
    shown = np.unique(np.linspace(0, deepest, 12).astype(int))
    axes.set_yticks(shown + 0.5, shown)
    figure.colorbar(boxes, ax=axes, shrink=0.8, label="coefficient")
    write_title(axes, title)
    return figure


def curves(found: Mapping[str, object], *, title: str = "", ax: object = None) -> Figure:
    """Return a figure of scores against the number of changed pixels, one line for each name.

    Pass the curves that `metrics.ablation_curve`, `deletion` or `insertion` returned.

    >>> from hshap.metrics import Curve
    >>> steep = Curve(np.array([0, 1, 2]), np.array([1.0, 0.2, 0.0]))
    >>> curves({"h-Shap": steep}).axes[0].get_xlabel()
    'pixels changed'
    """
    points = _by_name(found)
    figure, axes = on_axes(ax, (6.4, 4.2), "plot.curves")
    for name, (counts, scores) in points.items():
        axes.plot(counts, scores, marker="." if len(counts) <= 60 else None, label=name)
    if any(_is_uneven(counts) for counts, _ in points.values()):
        # Steps that are even on a log scale crowd at the left of a linear one; symlog shows 0.
        axes.set_xscale("symlog", linthresh=1)
        axes.set_xlim(left=0)
    axes.set(xlabel="pixels changed", ylabel="score")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    write_title(axes, title)
    return figure


def _places(seen: Sequence[Part]) -> tuple[Heat, Heat]:
    """Return left ends and widths: 1 for an unsplit region, the sum of its parts for any other."""
    place = {part.number: i for i, part in enumerate(seen)}
    width = np.zeros(len(seen))
    for i in reversed(range(len(seen))):
        width[i] = width[i] or 1.0
        if seen[i].parent >= 0:
            width[place[seen[i].parent]] += width[i]
    left = np.zeros(len(seen))
    used = np.zeros(len(seen))
    for i, part in enumerate(seen):
        if part.parent >= 0:
            above = place[part.parent]
            left[i] = left[above] + used[above]
            used[above] += width[i]
    return left, width


def _by_name(found: object) -> dict[str, tuple[Heat, Heat]]:
    if not isinstance(found, Mapping) or not found:
        message = f"found is {checks.shown(found)}; pass a dictionary of names and curves"
        raise ArgumentError(message)
    named = cast("Mapping[object, object]", found)
    return {str(name): _points(name, curve) for name, curve in named.items()}


def _points(name: object, curve: object) -> tuple[Heat, Heat]:
    try:
        axes = cast("Sequence[object]", curve)
        counts, scores = (np.asarray(axis, dtype=np.float64) for axis in axes)
    except (TypeError, ValueError):
        counts = scores = np.zeros(0)
    if counts.ndim != 1 or counts.shape != scores.shape or not counts.size:
        message = (
            f"found[{name!r}] is {checks.shown(curve)}, which is no curve; "
            "pass the result of metrics.ablation_curve"
        )
        raise ArgumentError(message)
    return counts, scores


def _is_uneven(counts: Heat) -> bool:
    steps = np.diff(counts)
    return len(steps) > 1 and bool(steps.max() > 5 * steps.min())
