"""Pictures of a map over its image. Takes arrays and boxes, and returns a matplotlib figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.arrays import to_numpy
from hshap.display import flat
from hshap.errors import ArgumentError, require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hshap.regions import Bounds

OPACITY = 0.65


def draw(
    image: Any,
    heat: NDArray[Any],
    *,
    trees: tuple[Sequence[Bounds], Sequence[Bounds]] = ((), ()),
    title: str = "",
) -> Any:
    """Return a figure of a map over its image, with the boxes that were visited and found.

    A signal is drawn as lines, a picture as itself, a volume through its strongest plane.
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
        _draw_signal(axes, shown, heat, trees[1])
    else:
        figure.colorbar(
            _draw_picture(axes, shown, heat, trees), ax=axes, shrink=0.8, label=_label(heat)
        )
    axes.set_title(title, fontsize="small", wrap=True)
    return figure


def _draw_signal(axes: Any, image: Any, heat: NDArray[Any], found: Sequence[Bounds]) -> None:
    for channel in () if image is None else image:
        axes.plot(channel, color="0.4", linewidth=0.8)
    for start, stop in found:
        axes.axvspan(start[0], stop[0], color="tab:red", alpha=0.15, linewidth=0)
    right = axes.twinx() if image is not None else axes
    right.step(np.arange(len(heat)), heat, where="post", color="tab:red", linewidth=1.2)
    right.set_ylabel(_label(heat), color="tab:red")
    axes.set_xlim(0, len(heat))


def _draw_picture(axes: Any, image: Any, heat: NDArray[Any], trees: Any) -> Any:
    plane, picture = _plane(image, heat)
    if picture is not None:
        axes.imshow(picture, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    # Where the map is 0, the image is seen as it is.
    opacity = np.where(plane == 0, 0.0 if picture is not None else 1.0, OPACITY)
    limit = float(np.abs(heat).max()) or 1.0
    mapped = axes.imshow(
        plane, cmap="coolwarm", vmin=-limit, vmax=limit, alpha=opacity, interpolation="nearest"
    )
    if heat.ndim == 2:
        _outline(axes, trees[0], color="0.55", linewidth=0.4)
        _outline(axes, trees[1], color="tab:red", linewidth=1.0)
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


def _outline(axes: Any, boxes: Sequence[Bounds], **style: Any) -> None:
    from matplotlib.patches import Rectangle  # noqa: PLC0415, an optional dependency

    for (top, left), (bottom, right) in dict.fromkeys(boxes):
        corner = (left - 0.5, top - 0.5)
        axes.add_patch(Rectangle(corner, right - left, bottom - top, fill=False, **style))


def _figure_size(shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) == 1:
        return (8.0, 3.0)
    height, width = shape[-2:]
    ratio = min(max(height / width, 0.3), 3.0)
    return (7.0, 0.6 + 5.7 * ratio) if ratio <= 1 else (1.6 + 6.4 / ratio, 7.0)
