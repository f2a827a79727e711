"""Names beside points and lines, placed so that they cover neither each other nor the points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patheffects import withStroke
from matplotlib.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

GID = "label"  # by which tests find the labels
SIZE = 8.0  # points
DISTANCES = (6, 10, 15, 22, 32, 44, 58, 74, 92, 112, 134)  # points between a label and its point
LEADER = 11.0  # points; a label further away is joined to its point by a line, a leader
DIRECTIONS = 16
HALO = [withStroke(linewidth=2, foreground="white")]
CLEAR = 3.0  # pixels around a label
# Prices, in points of distance.
CROSSED = 90.0  # of a leader that crosses a label or a named line
NEVER = 1e6  # of an overlap; finite, so that a crowded panel still gets all its labels
KEPT = 500  # places of a label that are compared
ORDERS = 20  # of placing labels that are tried
POINT, LINE, FAINT = 60.0, 5.0, 3.0  # of covering a named marker, named line or grey point
MARKER = 10.0  # pixels around a named marker


@dataclass(frozen=True, eq=False)
class Label:
    """Hold a name, the points (n, 2) it may stand beside, in data coordinates, and its colour."""

    text: str
    spots: NDArray[Any]
    colour: Any
    bold: bool = False


@dataclass(frozen=True, eq=False)
class _Places:
    """Hold the cheapest places of one label, in pixels, and their prices before other labels."""

    spots: NDArray[Any]  # (n, 2), in data coordinates
    pixels: NDArray[Any]  # (n, 2), of the spots
    middles: NDArray[Any]  # (n, 2), of the text
    half: NDArray[Any]  # (2,), of the text's size
    far: NDArray[Any]  # (n,), whether a leader is drawn
    prices: NDArray[Any]  # (n,)


def settle(figure: Figure) -> None:
    """Lay the figure out: labels are placed in pixels, so panels must not move afterwards."""
    figure.draw_without_rendering()


def place(
    axes: Any, wanted: Sequence[Label], avoid: Sequence[tuple[NDArray[Any], float]] = ()
) -> None:
    """Write the labels into a panel of a settled figure.

    Labels never overlap each other and never leave the panel, if there is any such place. `avoid`
    holds points in data coordinates with the price of covering one: POINT, LINE or FAINT.
    """
    covered = [(axes.transData.transform(points), price) for points, price in avoid]
    notes = [_note(axes, label) for label in wanted]
    places = [_places(axes, *one, covered) for one in zip(wanted, notes, strict=True)]
    for note, own, index in zip(notes, places, _arranged(places), strict=True):
        note.xy = tuple(own.spots[index])
        offset = own.middles[index] - own.pixels[index]
        note.set_position(tuple(offset * 72 / axes.figure.dpi))
        note.arrow_patch.set_visible(bool(own.far[index]))


def at_end(
    axes: Any, text: str, at: tuple[float, float], colour: Any, *, va: str = "center"
) -> None:
    """Write a name to the right of a line's end; the layout leaves room for it."""
    axes.annotate(
        text,
        at,
        xytext=(5, 0),
        textcoords="offset points",
        va=va,
        color=dark(colour),
        fontsize=SIZE,
        gid=GID,
        annotation_clip=False,
    )


def along(points: NDArray[Any], axes: Any) -> NDArray[Any]:
    """Return points of a line, in data coordinates, that are close on the screen."""
    pixels = axes.transData.transform(points)
    steps = np.linspace(0, len(pixels) - 1, 8 * len(pixels))
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


def _note(axes: Any, label: Label) -> Any:
    leader = {"arrowstyle": "-", "color": "0.5", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
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
        arrowprops={**leader, "relpos": (0.5, 0.5)},
    )
    note.set_in_layout(False)
    return note


def _places(
    axes: Any, label: Label, note: Any, covered: Sequence[tuple[NDArray[Any], float]]
) -> _Places:
    """Price all places by their distance, the panel's edges and the points they cover."""
    scale = axes.figure.dpi / 72
    size = extent(note)
    half = np.array([size.width, size.height]) / 2
    rays = np.vstack([_middles(half, distance * scale) for distance in DISTANCES])
    pixels = axes.transData.transform(label.spots)
    middles = (pixels[:, None] + rays[None]).reshape(-1, 2)
    prices = np.tile(np.repeat(np.array(DISTANCES, float), DIRECTIONS), len(pixels))
    spots, pixels = (np.repeat(each, len(rays), axis=0) for each in (label.spots, pixels))
    far = prices > LEADER
    window = axes.get_window_extent().get_points()
    outside = (middles - half - CLEAR < window[0]) | (middles + half + CLEAR > window[1])
    prices = prices + NEVER * outside.any(axis=1)
    for points, price in covered:
        reach = half + (MARKER if price >= POINT else CLEAR)
        hidden = np.abs(middles[:, None] - points[None]) < reach
        prices += price * hidden.all(axis=2).sum(axis=1)
    first = np.argsort(prices, kind="stable")[:KEPT]
    own = _Places(
        *(each[first] for each in (spots, pixels, middles)), half, far[first], prices[first]
    )
    lines = [points for points, price in covered if price >= LINE]
    crossing = _crossing(own, np.vstack(lines)) if lines else np.zeros(len(first), bool)
    return replace(own, prices=own.prices + CROSSED * (own.far & crossing))


def _middles(half: NDArray[Any], distance: float) -> NDArray[Any]:
    """Return where the middle of a box may lie whose edge is that far from the origin."""
    turns = 2 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
    rays = np.column_stack([np.cos(turns), np.sin(turns)])
    with np.errstate(divide="ignore"):
        inside = np.min(half / np.abs(rays), axis=1, keepdims=True)
    return rays * (inside + distance)


def _leaders(own: _Places) -> NDArray[Any]:
    shares = np.linspace(0, 1, 24)[None, :, None]
    return own.pixels[:, None] * (1 - shares) + own.middles[:, None] * shares


def _crossing(own: _Places, points: NDArray[Any]) -> NDArray[Any]:
    """Tell which leaders pass over points; those around their own point do not count."""
    ways = own.middles - own.pixels
    from_spot = points[None] - own.pixels[:, None]
    shares = (from_spot * ways[:, None]).sum(axis=2) / (ways**2).sum(axis=1, keepdims=True)
    gaps = from_spot - np.clip(shares, 0, 1)[..., None] * ways[:, None]
    near = (np.abs(gaps) < CLEAR).all(axis=2) & (np.abs(from_spot) > 2 * CLEAR).any(axis=2)
    return near.any(axis=1)


def _arranged(places: Sequence[_Places]) -> list[int]:
    """Return the index of each label's place: the cheapest of several orders of placing."""
    rng = np.random.default_rng(0)
    orders = [np.arange(len(places)), *(rng.permutation(len(places)) for _ in range(ORDERS))]
    tried = [_in_order(places, order.tolist()) for order in orders]
    return min(tried, key=lambda one: one[0])[1]


def _in_order(places: Sequence[_Places], order: list[int]) -> tuple[float, list[int]]:
    total, chosen = 0.0, [0] * len(places)
    boxes: list[tuple[NDArray[Any], NDArray[Any]]] = []
    leaders: list[NDArray[Any]] = []
    for which in order:
        own = places[which]
        prices = own.prices.copy()
        lines = _leaders(own)
        for middle, half in boxes:
            apart = np.abs(own.middles - middle) >= own.half + half + 2 * CLEAR
            prices += NEVER * ~apart.any(axis=1)
            crossed = (np.abs(lines - middle) < half + CLEAR).all(axis=2).any(axis=1)
            prices += CROSSED * (own.far & crossed)
        for leader in leaders:
            hidden = np.abs(own.middles[:, None] - leader[None]) < own.half + CLEAR
            prices += CROSSED * hidden.all(axis=2).any(axis=1)
        chosen[which] = best = int(prices.argmin())
        total += float(prices[best])
        boxes.append((own.middles[best], own.half))
        if own.far[best]:
            leaders.append(lines[best])
    return total, chosen
