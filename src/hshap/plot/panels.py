"""Several maps side by side: the levels of a tree, or the maps of different methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.raster import largest_in_blocks
from hshap.errors import ArgumentError
from hshap.plot.fonts import drawable
from hshap.plot.overlay import (
    OPACITY,
    Look,
    as_shown,
    draw_bar,
    draw_picture,
    draw_signal,
    height_over_width,
    outline,
    strongest,
    which_slice,
)
from hshap.plot.surface import on_figure, root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from hshap._util.types import Array, Grid, Mask

LARGEST_SIDE = 1024
"""Longest side of a panel in pixels; larger maps are shrunk and keep their strongest pixels."""

SHAPE = 0.4
"""Preferred height over width of a figure with several panels."""


def levels(
    image: object, maps: Mapping[str, Array], *, title: str = "", figure: object = None
) -> Figure:
    """Return a figure of maps of coefficients, side by side with one colour bar, by name.

    >>> levels(None, {"level 1": np.eye(4), "level 2": np.eye(4) / 2}).axes[1].get_title()
    'level 2'
    """
    heats = _checked(maps)
    looks = [Look.of(heats.values())] * len(heats)
    whole, rows = _panels("plot.levels", image, heats, looks, figure)
    if rows[0].images:
        draw_bar(rows, rows[-1].images[-1], unit="coefficient")
    text, fonts = drawable(title)
    whole.suptitle(text, fontsize="small", fontfamily=fonts, wrap=True)
    return root(whole)


def compare(  # noqa: PLR0913, the maps, the layers around them, their look, and the surface
    maps: Mapping[str, object],
    image: object = None,
    *,
    truth: object = None,
    cmap: object = None,
    alpha: object = OPACITY,
    title: str = "",
    figure: object = None,
) -> Figure:
    """Return a figure of the maps of several methods for one image, by name.

    Each map is scaled by its own largest value, since methods have different units. The image, if
    it is given, comes first, and is in grey below the maps. `truth` is a mask; its outline is drawn
    on all panels. `cmap` and `alpha` are as in `explanation.plot`.

    >>> figure = compare({"h-Shap": np.eye(8), "other": np.ones((8, 8))}, np.zeros((1, 8, 8)))
    >>> [axes.get_title() for axes in figure.axes]
    ['image', 'h-Shap', 'other']
    """
    heats = _checked(maps)
    grid = next(iter(heats.values())).shape
    there = None if truth is None else _mask(truth, grid)
    if image is not None:
        heats = {"image": np.zeros(grid), **heats}
    looks = [Look.of([heat], cmap, alpha) for heat in heats.values()]
    whole, _ = _panels("plot.compare", image, heats, looks, figure, truth=there)
    text, fonts = drawable(title)
    whole.suptitle(text, fontsize="small", fontfamily=fonts, wrap=True)
    return root(whole)


def _panels(  # noqa: PLR0913, both kinds of figures need all of these
    needed_by: str,
    image: object,
    heats: Mapping[str, Array],
    looks: Sequence[Look],
    figure: object,
    *,
    truth: Mask | None = None,
) -> tuple[FigureBase, list[Axes]]:
    first = next(iter(heats.values()))
    pixels = as_shown(image, first.shape)
    planes = list(heats.values())
    total = sum(np.abs(np.nan_to_num(heat)) / _largest(heat) for heat in planes)
    place = strongest(np.asarray(total))
    # All panels show the same plane of a volume: the one where the maps together are strongest.
    planes = [heat[place] for heat in planes]
    truth = None if truth is None else truth[place]
    if pixels is not None:
        pixels = pixels[(slice(None), *place)]
    rows, columns = _layout(len(planes), planes[0].shape)
    whole = on_figure(figure, _figure_size(rows, columns, planes[0].shape), needed_by)
    axes: list[Axes] = whole.subplots(rows, columns, squeeze=False).ravel().tolist()
    for one, name, heat, look in zip(axes, heats, planes, looks, strict=False):
        if heat.ndim == 1:
            draw_signal(one, pixels, heat, truth)
        else:
            _small_picture(one, pixels, heat, truth, look)
        text, fonts = drawable(name)
        one.set_title(text, fontsize="small", fontfamily=fonts)
    axes[0].set_xlabel(which_slice(np.asarray(total), is_one=True), fontsize="small")
    for spare in axes[len(planes) :]:
        spare.remove()
    return whole, axes[: len(planes)]


def _small_picture(
    axes: Axes, pixels: Array | None, heat: Array, truth: Mask | None, look: Look
) -> None:
    step = -(-max(heat.shape) // LARGEST_SIDE)
    small = None if pixels is None else pixels[:, ::step, ::step]
    draw_picture(axes, small, largest_in_blocks(np.nan_to_num(heat), step), look)
    if truth is not None:
        # Black on white is visible on any colour, also to colour-blind readers.
        there = largest_in_blocks(truth.astype(int), step)
        outline(axes, there, color="white", linewidth=2.0)
        outline(axes, there, color="black", linewidth=1.0)


def _layout(count: int, shape: Grid) -> tuple[int, int]:
    """Return rows and columns: near the preferred shape, with few empty places."""
    if len(shape) == 1:
        return count, 1

    def misfit(columns: int) -> float:
        rows = -(-count // columns)
        ratio = rows * height_over_width(shape) / columns
        return abs(np.log(ratio / SHAPE)) + 0.3 * (rows * columns - count)

    columns = min(range(1, count + 1), key=misfit)
    return -(-count // columns), columns


def _figure_size(rows: int, columns: int, shape: Grid) -> tuple[float, float]:
    if len(shape) == 1:
        return (8.0, min(0.6 + 1.6 * rows, 14.0))
    wide = min(10.0, 5.0 * columns)
    return (wide, min(0.6 + rows * (0.4 + wide / columns * height_over_width(shape)), 14.0))


def _largest(heat: Array) -> float:
    return float(np.nan_to_num(np.abs(heat)).max()) or 1.0


def _checked(maps: object) -> dict[str, Array]:
    if not isinstance(maps, Mapping) or not maps:
        message = f"maps is {checks.shown(maps)}; pass a dictionary of names and maps"
        raise ArgumentError(message)
    named = cast("Mapping[object, object]", maps)
    heats = {str(name): to_numpy(f"maps[{name!r}]", heat) for name, heat in named.items()}
    grid = next(iter(heats.values())).shape
    for name, heat in heats.items():
        if heat.shape != grid or not heat.size or not heat.ndim:
            message = (
                f"maps[{name!r}] is {checks.shown(heat)} of type {heat.dtype}; "
                f"pass maps of numbers, all of the shape of the first, {grid}"
            )
            raise ArgumentError(message)
    return heats


def _mask(truth: object, grid: Grid) -> Mask:
    there = to_numpy("truth", truth).astype(bool)
    if there.shape != grid:
        message = f"truth has shape {there.shape}; pass a mask of shape {grid}, as the maps have"
        raise ArgumentError(message)
    return there
