"""Several pictures on one figure: maps side by side, levels of a tree, slices, a contact sheet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn, Protocol, cast, runtime_checkable

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.raster import largest_in_blocks
from hshap.errors import ArgumentError
from hshap.plot.figures import LABEL, SMALL, on_figure, root, write_heading, write_title
from hshap.plot.overlay import (
    OPACITY,
    Look,
    Unit,
    as_shown,
    draw_bar,
    draw_image,
    draw_picture,
    draw_signal,
    height_over_width,
    outline,
    strongest,
    which_slice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

    from hshap._util.types import Array, Grid, Heat, Mask

LARGEST_SIDE = 1024
"""Longest side of a panel in pixels; larger maps are shrunk and keep their strongest pixels."""

IMAGE = "image"
"""Name of the panel of the image alone."""

BAR = 0.8
"""Inches that a colour bar takes beside the panels."""

SHAPE = 0.4
"""Preferred height over width of a figure with several panels."""


@runtime_checkable
class Pictured(Protocol):
    """What has a map and a title of its own, as every explanation."""

    @property
    def title(self) -> str:
        """A title for people."""
        ...

    def attribution(self) -> Heat:
        """Return the map."""
        ...


def levels(
    image: object, maps: Mapping[str, Array], *, title: str = "", figure: object = None
) -> Figure:
    """Return a figure of maps of coefficients, side by side with one colour bar, by name.

    >>> levels(None, {"level 1": np.eye(4), "level 2": np.eye(4) / 2}).axes[1].get_title()
    'level 2'
    """
    heats = _checked(maps)
    look = Look.of(heats.values())
    whole, rows = _panels("plot.levels", image, heats, look, figure)
    if rows[0].images:
        draw_bar(rows, rows[-1].images[-1], Unit("coefficient"))
    write_heading(whole, title)
    return root(whole)


def compare(  # noqa: PLR0913, the maps, the layers around them, their look, and the surface
    maps: Mapping[str, object] | Sequence[Pictured],
    image: object = None,
    *,
    truth: object = None,
    cmap: object = None,
    alpha: object = OPACITY,
    title: str = "",
    figure: object = None,
) -> Figure:
    """Return a figure of maps of one image side by side, under one scale.

    `maps` has explanations, or maps of any method by name. Explanations alone share the scale of
    their scores. Maps of other methods have units of their own, so each is then shown as a share
    of its largest value. The image, if it is given, comes first, and is in grey below the maps.
    `truth` is a mask; its outline is drawn on all panels. `cmap` and `alpha` are as in
    `explanation.plot`.

    >>> from hshap.demo import example
    >>> figure = compare({"h-Shap": example(), "other": np.ones((8, 8))}, np.zeros((1, 8, 8)))
    >>> [axes.get_title() for axes in figure.axes[:3]]
    ['image', 'h-Shap', 'other']
    """
    named = _by_name(maps)
    heats = _checked({name: _heat(one) for name, one in named.items()})
    if all(isinstance(one, Pictured) for one in named.values()):
        unit = Unit.of_shares(*heats.values())
    else:
        heats = {name: heat / _largest(heat) for name, heat in heats.items()}
        unit = Unit("share of the largest value of each map")
    grid = next(iter(heats.values())).shape
    there = None if truth is None else _mask(truth, grid)
    look = Look.of(heats.values(), cmap, alpha)
    if image is not None:
        heats = {IMAGE: np.zeros(grid), **heats}
    whole, rows = _panels("plot.compare", image, heats, look, figure, truth=there)
    if rows[-1].images:
        draw_bar(rows, rows[-1].images[-1], unit)
    write_heading(whole, title)
    return root(whole)


def sheet(  # noqa: PLR0913, the explanations, the layers around them, their look, and the surface
    explanations: Sequence[Pictured],
    images: Sequence[object] | None = None,
    *,
    columns: int | None = None,
    cmap: object = None,
    alpha: object = OPACITY,
    title: str = "",
    figure: object = None,
) -> Figure:
    """Return a contact sheet: a small picture for each explanation, with its title.

    `images` are those that were explained, in the same order; they may have different sizes. Each
    map has its own scale, so only places can be compared. A volume shows its strongest slice.

    >>> from hshap.demo import example
    >>> [axes.get_title() for axes in sheet([example()] * 3).axes]
    ['class 0, 100 %: 1 finding', 'class 0, 100 %: 1 finding', 'class 0, 100 %: 1 finding']
    """
    made = cast("Sequence[object]", explanations)
    if not made or not all(isinstance(one, Pictured) for one in made):
        message = f"explanations is {checks.shown(explanations)}; pass a list of explanations"
        raise ArgumentError(message)
    heats = [one.attribution() for one in explanations]
    given = [None] * len(heats) if images is None else list(images)
    if len(given) != len(heats):
        message = (
            f"images has {len(given)} entries for {len(heats)} explanations; pass one for each"
        )
        raise ArgumentError(message)
    wide = max([heat.shape for heat in heats], key=height_over_width)
    if columns is None:
        count, per_row = _layout(len(heats), wide)
    else:
        per_row = checks.integer("columns", columns, minimum=1)
        count = -(-len(heats) // per_row)
    whole = on_figure(figure, _figure_size(count, per_row, wide), "plot.sheet")
    axes: list[Axes] = whole.subplots(count, per_row, squeeze=False).ravel().tolist()
    for place, one, heat, image in zip(axes, explanations, heats, given, strict=False):
        pixels = as_shown(image, heat.shape)
        if heat.ndim == 1:
            draw_signal(place, pixels, heat, None)
        else:
            at = strongest(heat)
            plane = None if pixels is None else pixels[(slice(None), *at)]
            _small_picture(place, plane, heat[at], None, Look.of([heat], cmap, alpha))
        write_title(place, one.title, SMALL)
    for spare in axes[len(heats) :]:
        spare.remove()
    write_heading(whole, title)
    return root(whole)


def slices(  # noqa: PLR0913, the facts of an exam and the surface
    image: object,
    heat: Array,
    *,
    axis: int,
    coefficients: Heat,
    numbers: Sequence[int],
    aspect: float = 1.0,
    cmap: object = None,
    alpha: object = OPACITY,
    title: str = "",
    figure: object = None,
) -> Figure:
    """Return a figure of an exam: a bar for each slice, and the map over some slices.

    `heat` is the map of the whole exam, `numbers` are the slices to show. `aspect` is the height of
    a pixel over its width. `cmap` and `alpha` are as in `explanation.plot`.

    >>> heat = np.zeros((3, 4, 4))
    >>> made = slices(None, heat, axis=0, coefficients=np.array([0, 1.0, 0]), numbers=[1])
    >>> [axes.get_title() for axes in made.axes]
    ['', 'slice 1']
    """
    pixels = as_shown(image, heat.shape)
    count = max(len(numbers), 1)
    whole = on_figure(figure, (max(6.0, 2.6 * count), 4.6), "explanation.plot.slices")
    grid = whole.add_gridspec(2, count, height_ratios=[1, 2.4])
    bars = whole.add_subplot(grid[0, :])
    bars.bar(np.arange(len(coefficients)), coefficients, width=1.0, color="tab:red")
    bars.axhline(0.0, color="0.4", linewidth=0.6)
    bars.set_xlim(-0.5, len(coefficients) - 0.5)
    bars.set_xlabel("slice", fontsize="small")
    bars.set_ylabel("coefficient", fontsize="small")
    look = Look.of([heat], cmap, alpha)
    for place, number in enumerate(numbers):
        axes = whole.add_subplot(grid[1, place])
        shown = None if pixels is None else np.moveaxis(pixels, axis + 1, 0)[number]
        draw_picture(axes, shown, np.moveaxis(heat, axis, 0)[number], look)
        axes.set_aspect(aspect)
        axes.set_title(f"slice {number}", fontsize="small")
    write_heading(whole, title)
    return root(whole)


def _panels(  # noqa: PLR0913, both kinds of figures need all of these
    needed_by: str,
    image: object,
    heats: Mapping[str, Array],
    look: Look,
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
    for one, name, heat in zip(axes, heats, planes, strict=False):
        if name == IMAGE and heat.ndim > 1 and pixels is not None:
            _small_image(one, pixels, truth)
        elif heat.ndim == 1:
            draw_signal(one, pixels, heat, truth)
        else:
            _small_picture(one, pixels, heat, truth, look)
        write_title(one, name, LABEL)
    axes[0].set_xlabel(which_slice(np.asarray(total), is_one=True), fontsize="small")
    for spare in axes[len(planes) :]:
        spare.remove()
    return whole, axes[: len(planes)]


def _small_image(axes: Axes, pixels: Array, truth: Mask | None) -> None:
    step = -(-max(pixels.shape[1:]) // LARGEST_SIDE)
    draw_image(axes, pixels[:, ::step, ::step])
    _draw_truth(axes, truth, step)


def _small_picture(
    axes: Axes, pixels: Array | None, heat: Array, truth: Mask | None, look: Look
) -> None:
    step = -(-max(heat.shape) // LARGEST_SIDE)
    small = None if pixels is None else pixels[:, ::step, ::step]
    draw_picture(axes, small, largest_in_blocks(np.nan_to_num(heat), step), look)
    _draw_truth(axes, truth, step)


def _draw_truth(axes: Axes, truth: Mask | None, step: int) -> None:
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
    panel = (wide - BAR) / columns * height_over_width(shape)
    return (wide, min(0.5 + rows * (0.35 + panel), 14.0))


def _largest(heat: Array) -> float:
    return float(np.nan_to_num(np.abs(heat)).max()) or 1.0


def _by_name(maps: object) -> dict[str, object]:
    """Return explanations by their titles; equal ones are counted."""
    if isinstance(maps, Mapping):
        return {str(name): one for name, one in cast("Mapping[object, object]", maps).items()}
    if not isinstance(maps, (list, tuple)):
        _refuse(maps)
    named: dict[str, object] = {}
    for one in cast("Sequence[object]", maps):
        name = one.title if isinstance(one, Pictured) else "map"
        named[name if name not in named else f"{name} ({len(named) + 1})"] = one
    return named


def _heat(one: object) -> Array:
    return one.attribution() if isinstance(one, Pictured) else cast("Array", one)


def _refuse(maps: object) -> NoReturn:
    message = f"maps is {checks.shown(maps)}; pass explanations, or a dictionary of names and maps"
    raise ArgumentError(message)


def _checked(maps: Mapping[str, object]) -> dict[str, Array]:
    if not maps:
        _refuse(maps)
    heats = {name: to_numpy(f"maps[{name!r}]", heat) for name, heat in maps.items()}
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
