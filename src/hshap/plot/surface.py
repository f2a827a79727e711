"""Figures and axes: the caller's, or new ones made without pyplot, which would keep them alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util import checks
from hshap.errors import ArgumentError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from hshap._util.types import Untyped


def new_figure(size: tuple[float, float], needed_by: str) -> Figure:
    """Return an empty figure that can be saved; `size` is in inches."""
    require("matplotlib", extra="plot", needed_by=needed_by)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415, an optional dependency

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def on_axes(ax: object, size: tuple[float, float], needed_by: str) -> tuple[Figure, Axes]:
    """Return the caller's axes, or new ones, after the figure that they belong to."""
    if ax is None:
        figure = new_figure(size, needed_by)
        return figure, figure.add_subplot()
    require("matplotlib", extra="plot", needed_by=needed_by)
    from matplotlib.axes import Axes  # noqa: PLC0415, an optional dependency

    if not isinstance(ax, Axes):
        message = f"ax is {checks.shown(ax)}; pass matplotlib axes, such as figure.add_subplot()"
        raise ArgumentError(message)
    return root(ax.figure), ax


def on_figure(figure: object, size: tuple[float, float], needed_by: str) -> FigureBase:
    """Return the caller's figure or subfigure, or a new figure."""
    if figure is None:
        return new_figure(size, needed_by)
    require("matplotlib", extra="plot", needed_by=needed_by)
    from matplotlib.figure import FigureBase  # noqa: PLC0415, an optional dependency

    if not isinstance(figure, FigureBase):
        message = f"figure is {checks.shown(figure)}; pass a matplotlib figure or subfigure"
        raise ArgumentError(message)
    return figure


def root(figure: FigureBase) -> Figure:
    """Return the figure that a subfigure belongs to: only a whole figure can be saved."""
    whole: Untyped = figure
    while whole.figure is not whole:
        whole = whole.figure
    return whole
