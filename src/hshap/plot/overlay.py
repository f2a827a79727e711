"""A map over its image: lines for a signal, a picture, or one plane of a volume."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log10
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.raster import as_plane
from hshap.errors import ArgumentError, require
from hshap.plot.figures import LABEL, drawable, on_axes, root, write_title

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from hshap._util.types import Array, Grid, Heat, Ints, Mask, Untyped

ABOVE, BOTH = "inferno", "coolwarm"
"""Colour maps of even steps, also in grey and for colour-blind readers: of maps without negative
values, and of maps with some."""

OPACITY = 0.85

FAINT = 0.05
"""Values below this share of the largest one are not drawn over an image: they would only dim it.

The page has the same rule."""

COLOURS = 511
"""Colours of a map over an image: an odd number, so that 0 has one, without opacity."""

AXES = {1: "sample", 2: "pixel"}
CLOSE = 10
"""A score per so many pixels is told for one: 0.1 is as easy to read as 1."""

LUMINANCE = (0.299, 0.587, 0.114)
"""The brightness of red, green and blue to the eye."""


@dataclass(frozen=True)
class Look:
    """How a map is drawn: the values at the ends of its colours, the colours, and the opacity.

    Over an image, opacity grows with the distance from 0, from none to `alpha`; faint values are
    not drawn.

    >>> Look.of([np.eye(2)]).ends, Look.of([-np.eye(2)]).ends
    ((0.0, 1.0), (-1.0, 1.0))
    """

    ends: tuple[float, float]
    colours: Colormap
    alpha: float

    @classmethod
    def of(cls, heats: Iterable[Array], cmap: object = None, alpha: object = OPACITY) -> Look:
        """Return one look for some maps: with two sides only where there are negative values."""
        limit, has_negative = 0.0, False
        for heat in heats:
            limit = max(limit, float(np.nan_to_num(np.abs(heat)).max()))
            has_negative |= bool((heat < 0).any())
        limit = limit or 1.0
        usual = BOTH if has_negative else ABOVE
        colours = colour_map(usual if cmap is None else cmap)
        opacity = checks.number("alpha", alpha, minimum=0, maximum=1)
        return cls((-limit if has_negative else 0.0, limit), colours, opacity)

    @property
    def over_image(self) -> Colormap:
        """The colours with their opacity, to draw over an image."""
        from matplotlib.colors import ListedColormap  # noqa: PLC0415, an optional dependency

        place = np.linspace(*self.ends, COLOURS)
        table = self.colours(np.linspace(0, 1, COLOURS))
        strength = np.maximum(np.abs(place) / self.ends[1] - FAINT, 0.0) / (1.0 - FAINT)
        table[:, 3] = self.alpha * np.sqrt(strength)
        return ListedColormap(table, name=f"{self.colours.name} over an image")


class Unit(NamedTuple):
    """The unit of a colour bar, and the number of pixels that its values are for.

    >>> print(Unit.of_shares(np.full((2, 2), 0.0025)).text)
    score per 1,000 pixels
    0.01 in total
    """

    text: str
    pixels: int = 1

    @classmethod
    def of_shares(cls, *heats: Array) -> Unit:
        """Return the unit of attributions: round numbers of pixels that have some of the score."""
        largest = max(float(np.abs(heat).max()) for heat in heats)
        pixels = 10 ** max(ceil(-log10(largest)), 0) if largest else 1
        pixels = 1 if pixels <= CLOSE else pixels
        name = AXES.get(heats[0].ndim, "voxel")
        text = f"score per {name}" if pixels == 1 else f"score per {pixels:,} {name}s"
        total = f"\n{heats[0].sum():.3g} in total" if largest and len(heats) == 1 else ""
        return cls(text + total, pixels)


def colour_map(cmap: object) -> Colormap:
    """Return a colour map of matplotlib, by its name or as it is."""
    require("matplotlib", extra="plot", needed_by="plots")
    from matplotlib import colormaps  # noqa: PLC0415, an optional dependency
    from matplotlib.colors import Colormap  # noqa: PLC0415

    if isinstance(cmap, Colormap):
        return cmap
    if isinstance(cmap, str) and cmap in colormaps:
        return colormaps[cmap]
    message = (
        f"cmap is {checks.shown(cmap)}; pass the name of a colour map of matplotlib, such as "
        '"viridis", or one itself'
    )
    raise ArgumentError(message)


def draw(  # noqa: PLR0913, image and map, the layers over them, the look, and the axes
    image: object,
    heat: Array,
    *,
    visited: Ints | None = None,
    found: Ints | None = None,
    cmap: object = None,
    alpha: object = OPACITY,
    unit: Unit | str = "value",
    title: str = "",
    note: str = "",
    ax: object = None,
) -> Figure:
    """Return a figure of a map over its image in grey, with a colour bar that says the `unit`.

    The map's opacity grows with its values, up to `alpha`. `cmap` is a colour map of matplotlib; by
    default one from dark to light, and one of two sides where the map has negative values. The
    lines of visited and of found regions are drawn if they are given: both hold the number of a
    region at each pixel, 0 for none. A signal is drawn as lines, a volume by its strongest slice
    and without lines; the label below says which slice, and then the `note`. `ax` are axes to draw
    on.

    >>> draw(None, np.eye(4), title="a diagonal").axes[0].get_title()
    'a diagonal'
    """
    shown = as_shown(image, heat.shape)
    figure, axes = on_axes(ax, _figure_size(heat.shape), "explanation.plot")
    look = Look.of([heat], cmap, alpha)
    if heat.ndim == 1:
        draw_signal(axes, shown, heat, found, unit=_label(heat, _unit(unit).text))
    else:
        mapped = draw_picture(axes, *_plane(shown, heat), look)
        text, pixels = _unit(unit)
        draw_bar(axes, mapped, Unit(_label(heat, text), pixels))
    if heat.ndim == 2:
        outline(axes, visited, color="0.55", linewidth=0.4)
        outline(axes, found, color="tab:red", linewidth=1.0)
    below, fonts = drawable("\n".join(filter(None, (which_slice(heat, shown is not None), note))))
    axes.set_xlabel(below, fontsize="small", fontfamily=fonts, wrap=True)
    write_title(axes, title)
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


def draw_signal(
    axes: Axes, image: Array | None, heat: Array, found: Array | None, unit: str = ""
) -> None:
    """Draw a signal's channels as lines, its map as steps, and the found regions as bands."""
    for channel in () if image is None else image:
        axes.plot(channel, color="0.4", linewidth=0.8)
    if found is not None:
        for _, start, stop in _runs(found[None] > 0):
            axes.axvspan(start, stop, color="tab:red", alpha=0.15, linewidth=0)
    right = axes.twinx() if image is not None else axes
    right.step(np.arange(len(heat)), heat, where="post", color="tab:red", linewidth=1.2)
    right.set_ylabel(unit, color="tab:red")
    axes.set_xlim(0, len(heat))


def draw_picture(axes: Axes, image: Array | None, plane: Array, look: Look) -> AxesImage:
    """Draw a map over its image in grey; return the drawn map."""
    colours = look.colours
    if image is not None:
        axes.imshow(as_grey(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        colours = look.over_image
    low, high = look.ends
    mapped = axes.imshow(plane, cmap=colours, vmin=low, vmax=high, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    return mapped


def draw_image(axes: Axes, image: Array) -> None:
    """Draw an image in its own colours, or in grey if it has no three channels."""
    if len(image) in {3, 4}:
        axes.imshow(np.moveaxis(_unit_range(image[:3]), 0, -1), interpolation="nearest")
    else:
        axes.imshow(as_grey(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])


def draw_bar(axes: Axes | list[Axes], mapped: AxesImage, unit: Unit) -> None:
    """Draw the colour bar of a map, over grey as the map is."""
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415, an optional dependency

    first = axes[0] if isinstance(axes, list) else axes

    def shown(value: float, place: object) -> str:
        del place
        return f"{value * unit.pixels:.4g}"

    form = FuncFormatter(shown)
    bar = root(first.figure).colorbar(mapped, ax=axes, shrink=0.8, format=form)
    bar.set_label(unit.text, fontsize=LABEL)
    bar.ax.set_facecolor("0.5")


def _unit(unit: Unit | str) -> Unit:
    return Unit(unit) if isinstance(unit, str) else unit


def _label(heat: Array, unit: str) -> str:
    return unit if heat.any() else f"{unit}: nothing relevant"


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


def as_grey(image: Array) -> Heat:
    """Return the brightness of an image `(channels, *grid)`, in numbers from 0 to 1.

    Three or four channels are colours; of any other number, it is the mean.

    >>> as_grey(np.array([[[1.0]], [[0.0]], [[0.0]]]))
    array([[0.299]])
    """
    picture = _unit_range(image[:3] if len(image) == 4 else image)
    return np.tensordot(LUMINANCE, picture, 1) if len(picture) == 3 else picture.mean(axis=0)


def _unit_range(image: Array) -> Heat:
    """Return an image as numbers from 0 to 1; other ranges are stretched."""
    picture = np.asarray(image, dtype=np.float64)
    if image.dtype == np.uint8:
        picture = picture / 255
    low, high = float(picture.min()), float(picture.max())
    return (picture - low) / (high - low or 1.0) if low < 0 or high > 1 else picture


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
    height, width = (1, *shape)[-2:]
    return min(max(height / width, 0.3), 3.0)


def _figure_size(shape: Grid) -> tuple[float, float]:
    if len(shape) == 1:
        return (8.0, 3.0)
    ratio = height_over_width(shape)
    return (7.0, 0.6 + 5.7 * ratio) if ratio <= 1 else (1.6 + 6.4 / ratio, 7.0)
