"""A map over its image, as lines, a picture or a plane of a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util.arrays import to_numpy
from hshap._util.raster import as_plane
from hshap.errors import ArgumentError
from hshap.plot.surface import on_axes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Labels = NDArray[np.intp]

OPACITY = 0.65


def draw(  # noqa: PLR0913, all but two are what is drawn
    image: Any,
    heat: NDArray[Any],
    *,
    visited: Labels | None = None,
    found: Labels | None = None,
    title: str = "",
    ax: Any = None,
) -> Any:
    """Return a figure of a map over its image, with the outlines of what was visited and found.

    Both number the regions of the grid; 0 is none. A signal is drawn as lines, a picture as itself,
    a volume through its strongest plane, without outlines. `ax` are the axes to draw on.

    >>> draw(None, np.eye(4), title="a diagonal").axes[0].get_title()
    'a diagonal'
    """
    shown = as_shown(image, heat.shape)
    figure, axes = on_axes(ax, _figure_size(heat.shape), "explanation.plot")
    if heat.ndim == 1:
        draw_signal(axes, shown, heat, found)
    else:
        limit = float(np.nan_to_num(np.abs(heat)).max()) or 1.0
        mapped = draw_picture(axes, *_plane(shown, heat), limit=limit)
        figure.colorbar(mapped, ax=axes, shrink=0.8, label=_label(heat))
    if heat.ndim == 2:
        outline(axes, visited, color="0.55", linewidth=0.4)
        outline(axes, found, color="tab:red", linewidth=1.0)
    axes.set_title(title, fontsize="small", wrap=True)
    return figure


def as_shown(image: Any, grid: tuple[int, ...]) -> NDArray[Any] | None:
    """Return the image of a map, if there is one."""
    shown = None if image is None else to_numpy("image", image)
    if shown is not None and shown.shape[1:] != grid:
        message = (
            f"image has shape {shown.shape}, but the map has {grid}; "
            "pass the image that was explained, (channels, *grid)"
        )
        raise ArgumentError(message)
    return shown


def draw_signal(axes: Any, image: Any, heat: NDArray[Any], found: NDArray[Any] | None) -> None:
    """Draw a signal's channels as lines, its map as steps, and what was found as bands."""
    for channel in () if image is None else image:
        axes.plot(channel, color="0.4", linewidth=0.8)
    if found is not None:
        for _, start, stop in _runs(found[None] > 0):
            axes.axvspan(start, stop, color="tab:red", alpha=0.15, linewidth=0)
    right = axes.twinx() if image is not None else axes
    right.step(np.arange(len(heat)), heat, where="post", color="tab:red", linewidth=1.2)
    right.set_ylabel(_label(heat), color="tab:red")
    axes.set_xlim(0, len(heat))


def draw_picture(axes: Any, image: Any, plane: NDArray[Any], *, limit: float) -> Any:
    """Draw a plane of a map over its image, from blue at `-limit` to red; return the former."""
    if image is not None:
        picture = _displayed(image)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    # Where the map is 0, the image is seen as it is.
    nothing = (plane == 0) | np.isnan(plane)
    opacity = np.where(nothing, 0.0 if image is not None else 1.0, OPACITY)
    mapped = axes.imshow(
        plane, cmap="coolwarm", vmin=-limit, vmax=limit, alpha=opacity, interpolation="nearest"
    )
    axes.set_xticks([])
    axes.set_yticks([])
    return mapped


def _label(heat: NDArray[Any]) -> str:
    return "coefficient" if heat.any() else "coefficient: nothing relevant"


def strongest(heat: NDArray[Any]) -> tuple[int, ...]:
    """Return where a volume is to be cut: the strongest plane of each axis but the last two."""
    place: tuple[int, ...] = ()
    while heat.ndim > 2:
        others = tuple(range(1, heat.ndim))
        place += (int(np.abs(heat).max(axis=others).argmax()),)
        heat = heat[place[-1]]
    return place


def _plane(image: Any, heat: NDArray[Any]) -> tuple[NDArray[Any] | None, NDArray[Any]]:
    """Return the image where the map is to be shown, and the map there."""
    if image is None:
        return None, as_plane(heat)
    place = strongest(heat)
    return image[(slice(None), *place)], heat[place]


def _displayed(image: NDArray[Any]) -> NDArray[np.float64]:
    """Return a picture as matplotlib takes it: colours last, numbers from 0 to 1."""
    channels = {3: 3, 4: 3}.get(len(image))
    picture = np.moveaxis(image[:channels], 0, -1) if channels else image.mean(axis=0)
    low, high = float(picture.min()), float(picture.max())
    if low < 0 or high > 1:
        picture = (picture - low) / (high - low or 1.0)
    return picture.astype(np.float64)


def outline(axes: Any, labels: NDArray[Any] | None, **style: Any) -> None:
    """Draw the lines between pixels of different regions, as one object however many there are."""
    if labels is None:
        return
    from matplotlib.collections import LineCollection  # noqa: PLC0415, an optional dependency

    framed = np.pad(labels, 1)
    across = _runs(framed[:-1, 1:-1] != framed[1:, 1:-1])
    down = _runs((framed[1:-1, :-1] != framed[1:-1, 1:]).T)
    lines = [[(a, row), (b, row)] for row, a, b in across]
    lines += [[(column, a), (column, b)] for column, a, b in down]
    # Pixels have their centres at whole numbers, and so their borders halfway between.
    segments: Any = np.reshape(lines, (-1, 2, 2)) - 0.5
    axes.add_collection(LineCollection(segments, **style))


def _runs(lines: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return (line, first, one past the last) of every run of True."""
    edges = np.diff(np.pad(lines, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    starts, stops = np.argwhere(edges > 0), np.argwhere(edges < 0)
    return np.column_stack([starts, stops[:, 1]])


def height_over_width(shape: tuple[int, ...]) -> float:
    """Return the shape of a picture, but for extremes, which would leave no room for the rest."""
    height, width = shape[-2:]
    return min(max(height / width, 0.3), 3.0)


def _figure_size(shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) == 1:
        return (8.0, 3.0)
    ratio = height_over_width(shape)
    return (7.0, 0.6 + 5.7 * ratio) if ratio <= 1 else (1.6 + 6.4 / ratio, 7.0)
