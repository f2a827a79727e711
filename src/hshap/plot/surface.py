"""Figures and axes: the caller's, or new ones without pyplot, whose figures live on in a list."""

from __future__ import annotations

from typing import Any

from hshap._util import checks
from hshap.errors import ArgumentError, require


def new_figure(size: tuple[float, float], what: str) -> Any:
    """Return an empty figure that can be saved, in inches."""
    require("matplotlib", extra="plot", needed_by=what)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415, an optional dependency

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def on_axes(ax: Any, size: tuple[float, float], what: str) -> tuple[Any, Any]:
    """Return the caller's axes, or new ones, and the figure that they are in."""
    if ax is None:
        figure = new_figure(size, what)
        return figure, figure.add_subplot()
    require("matplotlib", extra="plot", needed_by=what)
    from matplotlib.axes import Axes  # noqa: PLC0415, an optional dependency

    if not isinstance(ax, Axes):
        message = f"ax is {checks.shown(ax)}; pass matplotlib axes, such as figure.add_subplot()"
        raise ArgumentError(message)
    return root(ax.figure), ax


def on_figure(figure: Any, size: tuple[float, float], what: str) -> Any:
    """Return the caller's figure, or part of one, or a new one."""
    if figure is None:
        return new_figure(size, what)
    require("matplotlib", extra="plot", needed_by=what)
    from matplotlib.figure import FigureBase  # noqa: PLC0415, an optional dependency

    if not isinstance(figure, FigureBase):
        message = f"figure is {checks.shown(figure)}; pass a matplotlib figure or subfigure"
        raise ArgumentError(message)
    return figure


def root(figure: Any) -> Any:
    """Return the whole figure that part of one belongs to: only the whole can be saved."""
    while figure.figure is not figure:
        figure = figure.figure
    return figure
