"""Figures to draw on, and text on them: large letters, in any script, and never a formula.

Figures are the caller's, or new ones made without pyplot, which would keep them alive.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap.errors import ArgumentError, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from hshap._util.types import Untyped

TITLE, LABEL, SMALL = "x-large", "medium", "small"
"""Sizes of letters that can be read from the last row of a lecture room."""

STAND_IN = "\N{WHITE SQUARE}"
"""Drawn for a letter that no installed font has; the fonts of matplotlib have this one."""

NO_LETTERS = "Last Resort"
"""A font of matplotlib that has a box for every letter, and names its script."""


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


def write_title(axes: Axes, title: str, size: str = TITLE) -> None:
    """Write the title of axes."""
    text, fonts = drawable(title)
    axes.set_title(text, fontsize=size, fontfamily=fonts, wrap=True)


def write_heading(figure: FigureBase, title: str) -> None:
    """Write the title of a figure of several axes; an empty one takes no room."""
    text, fonts = drawable(title)
    if text:
        figure.suptitle(text, fontsize=TITLE, fontfamily=fonts, wrap=True)


def drawable(text: str) -> tuple[str, list[str]]:
    """Return a text that can be drawn without a missing letter, and the fonts to draw it with.

    >>> drawable("cell.png")[0]
    'cell.png'
    """
    require("matplotlib", extra="plot", needed_by="plots")
    from matplotlib import font_manager, rcParams  # noqa: PLC0415, an optional dependency

    usual = list(rcParams["font.family"])
    known = _letters(font_manager.findfont(font_manager.FontProperties(family=usual)))
    missing = frozenset(sign for sign in text if ord(sign) not in known and not sign.isspace())
    if not missing:
        return text, usual
    font, found = _font_with(missing)
    shown = "".join(STAND_IN if sign in missing - found else sign for sign in text)
    return shown, [*usual, *([font] if font else [])]


def literal(text: str) -> str:
    """Return a text that matplotlib draws as it is: between dollars it would read a formula."""
    return text.replace("$", r"\$")


@cache
def _font_with(missing: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Return the installed font that has most of these letters, and those that it has."""
    from matplotlib import font_manager  # noqa: PLC0415

    best, found = "", frozenset[str]()
    for entry in font_manager.fontManager.ttflist:
        if entry.name.startswith(NO_LETTERS):
            continue
        known = _letters(entry.fname)
        held = frozenset(sign for sign in missing if ord(sign) in known)
        if len(held) > len(found):
            best, found = entry.name, held
        if len(found) == len(missing):
            break
    return best, found


@cache
def _letters(path: str) -> frozenset[int]:
    from matplotlib import font_manager  # noqa: PLC0415

    try:
        font: Untyped = font_manager.get_font(path)
        return frozenset(font.get_charmap())
    except (OSError, RuntimeError, ValueError):  # a damaged font, or a removed one
        return frozenset()
