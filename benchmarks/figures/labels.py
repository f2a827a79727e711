"""Names written beside points and lines, where they cover neither each other nor what is named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Box = tuple[float, float, float, float]  # left, bottom, right, top, in pixels

GID = "label"  # by which tests find the labels
SIZE = 8.0  # points
DISTANCES = (6, 10, 15, 22, 32, 44, 58, 74, 92, 112, 134)  # points between a label and its point
LEADER = 11.0  # points; a label further away is joined to its point by a line, a leader
DIRECTIONS = 16
HALO = [withStroke(linewidth=2, foreground="white")]
CLEAR = 3.0  # pixels around a label
CROSSED = 40.0  # the price of a leader that crosses a label or a named line, in points
NAMED = 4.0  # the least price of covering a point of a named line


@dataclass(frozen=True, eq=False)
class Label:
    """Hold a name, the points (n, 2) it may stand beside, in data coordinates, and its colour."""

    text: str
    spots: NDArray[Any]
    colour: Any
    bold: bool = False


@dataclass(eq=False)
class _Taken:
    """Hold the pixels that labels should not cover, each with its price, and the placed labels."""

    points: NDArray[Any]
    prices: NDArray[Any]
    boxes: list[Box] = field(default_factory=list)

    def add(self, points: NDArray[Any], price: float) -> None:
        self.points = np.vstack([self.points, points])
        self.prices = np.append(self.prices, np.full(len(points), price))


def settle(figure: Figure) -> None:
    """Lay the figure out: labels are placed in pixels, so panels must not move afterwards."""
    figure.draw_without_rendering()


def place(
    axes: Any, wanted: Sequence[Label], avoid: Sequence[tuple[NDArray[Any], float]] = ()
) -> None:
    """Write the labels into a panel of a settled figure.

    Labels never overlap each other and never leave the panel, if there is any such place. `avoid`
    holds points in data coordinates with the price of covering one, in points of distance.
    """
    taken = _Taken(np.empty((0, 2)), np.empty(0))
    for points, price in avoid:
        taken.add(axes.transData.transform(points), price)
    for label in wanted:
        _write(axes, label, taken)


def at_end(axes: Any, text: str, at: tuple[float, float], colour: Any, **more: Any) -> None:
    """Write a name to the right of a line's end; the layout leaves room for it."""
    axes.annotate(
        text,
        at,
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=dark(colour),
        fontsize=SIZE,
        gid=GID,
        annotation_clip=False,
        **more,
    )


def along(points: NDArray[Any], axes: Any) -> NDArray[Any]:
    """Return points of a line, in data coordinates, that are close on the screen."""
    pixels = axes.transData.transform(points)
    steps = np.linspace(0, len(pixels) - 1, 12 * len(pixels))
    dense = [np.interp(steps, range(len(pixels)), pixels[:, side]) for side in (0, 1)]
    return axes.transData.inverted().transform(np.column_stack(dense))


def dark(colour: Any) -> tuple[float, float, float]:
    """Return a colour dark enough for small text on white."""
    from matplotlib.colors import to_rgb

    shares = np.array(to_rgb(colour))
    light = float(shares @ [0.299, 0.587, 0.114])
    return tuple(shares * min(1.0, 0.42 / max(light, 1e-9)))


def extent(text: Text) -> Any:
    """Return the pixels of a drawn text without its leader."""
    return Text.get_window_extent(text)


def _write(axes: Any, label: Label, taken: _Taken) -> None:
    note = axes.annotate(
        label.text,
        label.spots[0],
        xytext=(0, 0),
        textcoords="offset points",
        ha="center",
        va="center",
        color=dark(label.colour),
        fontsize=SIZE,
        weight="bold" if label.bold else "normal",
        linespacing=1.0,
        path_effects=HALO,
        gid=GID,
        zorder=6,
        arrowprops={
            "arrowstyle": "-",
            "color": "0.5",
            "linewidth": 0.7,
            "relpos": (0.5, 0.5),
            "shrinkA": 0,
            "shrinkB": 3,
        },
    )
    note.set_in_layout(False)
    size = extent(note)
    half = np.array([size.width, size.height]) / 2
    spot, offset, far = _best(axes, label, half, taken)
    note.xy = tuple(spot)
    note.set_position(tuple(offset))
    if not far:
        note.arrow_patch.set_visible(False)
    pixel = axes.transData.transform(spot)
    middle = pixel + offset * axes.figure.dpi / 72
    taken.boxes.append((*(middle - half), *(middle + half)))
    if far:
        taken.add(np.linspace(pixel, middle, 24), CROSSED)


def _best(
    axes: Any, label: Label, half: NDArray[Any], taken: _Taken
) -> tuple[NDArray[Any], NDArray[Any], bool]:
    """Return the cheapest spot, offset in points, and whether it is far enough for a leader."""
    scale = axes.figure.dpi / 72
    window = axes.get_window_extent()
    panel = (window.x0, window.y0, window.x1, window.y1)
    best: tuple[float, Any, Any, bool] = (np.inf, label.spots[0], np.zeros(2), False)
    for spot, pixel in zip(label.spots, axes.transData.transform(label.spots), strict=True):
        for distance in DISTANCES:
            if distance > best[0]:
                break
            for middle in _middles(half, distance * scale):
                price = distance + _price(pixel + middle, half, panel, taken)
                if price < best[0] and distance > LEADER:
                    price += _crossings(pixel, pixel + middle, taken)
                if price < best[0]:
                    best = (price, spot, middle / scale, distance > LEADER)
    return best[1:]


def _middles(half: NDArray[Any], distance: float) -> NDArray[Any]:
    """Return where the middle of a box may lie whose edge is that far from the origin."""
    turns = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    rays = np.column_stack([np.cos(turns), np.sin(turns)])
    with np.errstate(divide="ignore"):
        inside = np.min(half / np.abs(rays), axis=1, keepdims=True)
    return rays * (inside + distance)


def _price(middle: NDArray[Any], half: NDArray[Any], panel: Box, taken: _Taken) -> float:
    low, high = middle - half - CLEAR, middle + half + CLEAR
    # Far above every other price, but finite: a crowded panel still gets all its labels.
    price = 1e6 * (low[0] < panel[0] or low[1] < panel[1])
    price += 1e6 * (high[0] > panel[2] or high[1] > panel[3])
    price += sum(1e6 * _overlap(low, high, box) for box in taken.boxes)
    covered = ((taken.points > low) & (taken.points < high)).all(axis=1)
    return price + float(taken.prices[covered].sum())


def _overlap(low: NDArray[Any], high: NDArray[Any], box: Box) -> bool:
    return bool(low[0] < box[2] and high[0] > box[0] and low[1] < box[3] and high[1] > box[1])


def _crossings(pixel: NDArray[Any], middle: NDArray[Any], taken: _Taken) -> float:
    """Return the price of the labels and named lines that a leader passes over."""
    leader = np.linspace(pixel, middle, 24)
    crossed = sum(
        bool(((leader > box[:2]) & (leader < box[2:])).all(axis=1).any()) for box in taken.boxes
    )
    lines = taken.points[taken.prices >= NAMED]
    lines = lines[np.abs(lines - pixel).max(axis=1) > 4 * CLEAR]  # its own point is no obstacle
    near = np.abs(leader[:, None] - lines[None]).max(axis=2) < CLEAR
    return CROSSED * (crossed + bool(near.any()))
