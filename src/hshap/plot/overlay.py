"""A map over its image: lines for a signal, a picture, or one plane of a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap._util.raster import as_plane
from hshap.errors import ArgumentError
from hshap.plot.fonts import drawable
from hshap.plot.surface import on_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from hshap._util.types import Array, Grid, Heat, Ints, Mask, Untyped

OPACITY = 0.65


def draw(  # noqa: PLR0913, image and map, the layers over them, and the axes
    image: object,
    heat: Array,
    *,
    visited: Ints | None = None,
    found: Ints | None = None,
    title: str = "",
    ax: object = None,
) -> Figure:
    """Return a figure of a map over its image, with outlines of visited and of found regions.

    `visited` and `found` hold the number of a region at each pixel, 0 for none. A signal is drawn
    as lines, a volume by its strongest slice and without outlines; the label below says which
    slice. `ax` are axes to draw on.

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
        axes.set_xlabel(which_slice(heat, shown is not None), fontsize="small")
    if heat.ndim == 2:
        outline(axes, visited, color="0.55", linewidth=0.4)
        outline(axes, found, color="tab:red", linewidth=1.0)
    text, fonts = drawable(title)
    axes.set_title(text, fontsize="small", fontfamily=fonts, wrap=True)
    return figure


def as_shown(image: object, grid: Grid) -> Array | None:
    """Return the image of a map as an array; None without one."""
    shown = None if image is None else to_numpy("image", image)
    if shown is not None and shown.shape[1:] != grid:
        message = (
            f"image has shape {shown.shape}, but the map has {grid}; "
            "pass the image that was explained, (channels, *grid)"
        )
        raise ArgumentError(message)
    return shown


def draw_signal(axes: Axes, image: Array | None, heat: Array, found: Array | None) -> None:
    """Draw a signal's channels as lines, its map as steps, and the found regions as bands."""
    for channel in () if image is None else image:
        axes.plot(channel, color="0.4", linewidth=0.8)
    if found is not None:
        for _, start, stop in _runs(found[None] > 0):
            axes.axvspan(start, stop, color="tab:red", alpha=0.15, linewidth=0)
    right = axes.twinx() if image is not None else axes
    right.step(np.arange(len(heat)), heat, where="post", color="tab:red", linewidth=1.2)
    right.set_ylabel(_label(heat), color="tab:red")
    axes.set_xlim(0, len(heat))


def draw_picture(axes: Axes, image: Array | None, plane: Array, *, limit: float) -> AxesImage:
    """Draw a map over its image, from blue at `-limit` to red at `limit`; return the drawn map."""
    if image is not None:
        picture = _displayed(image)
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    # Transparent where the map is 0.
    nothing = (plane == 0) | np.isnan(plane)
    opacity = np.where(nothing, 0.0 if image is not None else 1.0, OPACITY)
    mapped = axes.imshow(
        plane, cmap="coolwarm", vmin=-limit, vmax=limit, alpha=opacity, interpolation="nearest"
    )
    axes.set_xticks([])
    axes.set_yticks([])
    return mapped


def _label(heat: Array) -> str:
    return "coefficient" if heat.any() else "coefficient: nothing relevant"


def strongest(heat: Array) -> tuple[int, ...]:
    """Return the index of the strongest plane of a volume on each axis but the last two."""
    place: tuple[int, ...] = ()
    while heat.ndim > 2:
        others = tuple(range(1, heat.ndim))
        place += (int(np.abs(heat).max(axis=others).argmax()),)
        heat = heat[place[-1]]
    return place


def which_slice(heat: Array, is_one: bool) -> str:  # noqa: FBT001, the two kinds of pictures
    """Return which slice of a volume is shown: the strongest, or the largest values of all.

    >>> which_slice(np.eye(4)[:, None], is_one=True), which_slice(np.eye(4), is_one=True)
    ('slice 0 of 0 to 3', '')
    """
    if heat.ndim <= 2:
        return ""
    last = " x ".join(str(side - 1) for side in heat.shape[:-2])
    if not is_one:
        return f"largest values of slices 0 to {last}"
    return f"slice {', '.join(map(str, strongest(heat)))} of 0 to {last}"


def _plane(image: Array | None, heat: Array) -> tuple[Array | None, Array]:
    """Return the plane to draw, of the image and of the map."""
    if image is None:
        return None, as_plane(heat)
    place = strongest(heat)
    return image[(slice(None), *place)], heat[place]


def _displayed(image: Array) -> Heat:
    """Return a picture for matplotlib: colours last, numbers from 0 to 1."""
    channels = {3: 3, 4: 3}.get(len(image))
    picture = np.moveaxis(image[:channels], 0, -1) if channels else image.mean(axis=0)
    low, high = float(picture.min()), float(picture.max())
    if low < 0 or high > 1:
        picture = (picture - low) / (high - low or 1.0)
    return picture.astype(np.float64)


def outline(axes: Axes, labels: Array | None, *, color: str, linewidth: float) -> None:
    """Draw the lines between pixels of different regions, all in one matplotlib object."""
    if labels is None:
        return
    from matplotlib.collections import LineCollection  # noqa: PLC0415, an optional dependency

    framed = np.pad(labels, 1)
    across = _runs(framed[:-1, 1:-1] != framed[1:, 1:-1])
    down = _runs((framed[1:-1, :-1] != framed[1:-1, 1:]).T)
    lines = [[(a, row), (b, row)] for row, a, b in across]
    lines += [[(column, a), (column, b)] for column, a, b in down]
    # Pixels have their centres at whole numbers, so their borders lie halfway between.
    segments: Untyped = np.reshape(lines, (-1, 2, 2)) - 0.5
    axes.add_collection(LineCollection(segments, color=color, linewidth=linewidth))


def _runs(lines: Mask) -> Ints:
    """Return (line, first, one past the last) of every run of True."""
    edges = np.diff(np.pad(lines, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    starts, stops = np.argwhere(edges > 0), np.argwhere(edges < 0)
    return np.column_stack([starts, stops[:, 1]])


def height_over_width(shape: Grid) -> float:
    """Return the aspect ratio of a picture, limited so that titles and bars keep their room."""
    height, width = shape[-2:]
    return min(max(height / width, 0.3), 3.0)


def _figure_size(shape: Grid) -> tuple[float, float]:
    if len(shape) == 1:
        return (8.0, 3.0)
    ratio = height_over_width(shape)
    return (7.0, 0.6 + 5.7 * ratio) if ratio <= 1 else (1.6 + 6.4 / ratio, 7.0)
