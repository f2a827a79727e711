"""Pictures of a map over its image. Takes arrays, and returns a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.arrays import to_numpy
from hshap.display import flat
from hshap.errors import ArgumentError, require

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Labels = NDArray[np.intp]

OPACITY = 0.65


def draw(
    image: Any,
    heat: NDArray[Any],
    *,
    visited: Labels | None = None,
    found: Labels | None = None,
    title: str = "",
) -> Any:
    """Return a figure of a map over its image, with the outlines of what was visited and found.

    Both number the regions of the grid; 0 is none. A signal is drawn as lines, a picture as itself,
    a volume through its strongest plane, without outlines.
    """
    require("matplotlib", extra="plot", what="explanation.plot")
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415, an optional dependency

    shown = None if image is None else to_numpy("image", image)
    if shown is not None and shown.shape[1:] != heat.shape:
        message = (
            f"image has shape {shown.shape}, but the map has {heat.shape}; "
            "pass the image that was explained, (channels, *grid)"
        )
        raise ArgumentError(message)
    # Not pyplot: its figures live in a global list until they are closed.
    figure = Figure(figsize=_figure_size(heat.shape), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if heat.ndim == 1:
        _draw_signal(axes, shown, heat, found)
    else:
        mapped = _draw_picture(axes, shown, heat)
        figure.colorbar(mapped, ax=axes, shrink=0.8, label=_label(heat))
    if heat.ndim == 2:
        _outline(axes, visited, color="0.55", linewidth=0.4)
        _outline(axes, found, color="tab:red", linewidth=1.0)
    axes.set_title(title, fontsize="small", wrap=True)
    return figure


def _draw_signal(axes: Any, image: Any, heat: NDArray[Any], found: Labels | None) -> None:
    for channel in () if image is None else image:
        axes.plot(channel, color="0.4", linewidth=0.8)
    if found is not None:
        for _, start, stop in _runs(found[None] > 0):
            axes.axvspan(start, stop, color="tab:red", alpha=0.15, linewidth=0)
    right = axes.twinx() if image is not None else axes
    right.step(np.arange(len(heat)), heat, where="post", color="tab:red", linewidth=1.2)
    right.set_ylabel(_label(heat), color="tab:red")
    axes.set_xlim(0, len(heat))


def _draw_picture(axes: Any, image: Any, heat: NDArray[Any]) -> Any:
    plane, picture = _plane(image, heat)
    if picture is not None:
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    # Where the map is 0, the image is seen as it is.
    nothing = (plane == 0) | np.isnan(plane)
    opacity = np.where(nothing, 0.0 if picture is not None else 1.0, OPACITY)
    limit = float(np.nan_to_num(np.abs(heat)).max()) or 1.0
    mapped = axes.imshow(
        plane, cmap="coolwarm", vmin=-limit, vmax=limit, alpha=opacity, interpolation="nearest"
    )
    axes.set_xticks([])
    axes.set_yticks([])
    return mapped


def _label(heat: NDArray[Any]) -> str:
    return "coefficient" if heat.any() else "coefficient: nothing relevant"


def _plane(image: Any, heat: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the plane of the map to show, and the image there, ready for display."""
    if image is None:
        return flat(heat), None
    while heat.ndim > 2:
        others = tuple(range(1, heat.ndim))
        strongest = int(np.abs(heat).max(axis=others).argmax())
        heat, image = heat[strongest], image[:, strongest]
    channels = {3: 3, 4: 3}.get(len(image))
    picture = np.moveaxis(image[:channels], 0, -1) if channels else image.mean(axis=0)
    low, high = float(picture.min()), float(picture.max())
    if low < 0 or high > 1:
        picture = (picture - low) / (high - low or 1.0)
    return heat, picture.astype(np.float64)


def _outline(axes: Any, labels: Labels | None, **style: Any) -> None:
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


def _figure_size(shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) == 1:
        return (8.0, 3.0)
    height, width = shape[-2:]
    ratio = min(max(height / width, 0.3), 3.0)
    return (7.0, 0.6 + 5.7 * ratio) if ratio <= 1 else (1.6 + 6.4 / ratio, 7.0)
