"""Named axes: the layout of an array, the names of its dimensions, and the size of a pixel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from hshap._util.types import Image, Untyped

SPATIAL = "TZDYHXW"
"""Letters for the axes of a layout besides C, the channels."""

ARROW = "->"
"""Between the axes of the array and those of the model, as in "XYZ->CZYX"."""

NAMES = {
    "C": ("c", "channel", "channels", "band", "bands", "colour", "color", "rgb", "wavelength"),
    "T": ("t", "time", "frame", "frames"),
    "Z": ("z", "slice", "slices", "plane", "planes", "level", "depth"),
    "Y": ("y", "row", "rows", "height", "lat", "latitude"),
    "X": ("x", "column", "columns", "col", "cols", "width", "lon", "longitude"),
    "D": ("d",),
    "H": ("h",),
    "W": ("w",),
}
"""Names of dimensions, in small letters, for each letter of a layout."""

DIGITS = 9
"""Decimals of the ratio of two sides of a pixel: fewer than the rounding of any unit."""

UNEVEN = 1e-3
"""Steps of coordinates that differ by more than this share are not evenly spaced."""

Spacing: TypeAlias = tuple[float, ...]
"""The side of a pixel on each spatial axis, all in one unit."""


@runtime_checkable
class NamedImage(Protocol):
    """An image that names its axes and knows the size of its pixels, such as a `Scan`."""

    @property
    def array(self) -> Image:
        """The values, with one axis for each letter of `axes`."""
        ...

    @property
    def axes(self) -> str:
        """One letter for each axis, as in `layout`."""
        ...

    @property
    def spacing(self) -> Spacing | None:
        """The side of a pixel on each of the axes Z, Y and X; None if it is not known."""
        ...


@dataclass(frozen=True, eq=False)
class Named:
    """An array, and what is known of its axes: letters, and the sides of a pixel."""

    array: object
    layout: str | None = None
    spacing: Spacing | None = None


def by_name(name: str, value: object, layout: str | None = None) -> Named:
    """Return the array in a value whose axes may have names, such as an xarray DataArray.

    A `layout` takes the place of the names.
    """
    if isinstance(value, Named):
        return value
    if type(value) is np.ndarray:  # the usual case: to check a protocol takes far longer
        return Named(value, layout)
    if isinstance(value, NamedImage):
        # Time has no side in millimetres.
        known = value.spacing is not None and len(value.spacing) == value.array.ndim - 1
        return Named(value.array, layout or value.axes, value.spacing if known else None)
    if not _is_data_array(value):
        return Named(value, layout)
    array = cast("Untyped", value)
    dims = tuple(map(str, array.dims))
    # Dimensions without a name of their own are called dim_0, dim_1 and so on.
    found = layout or (
        None if all(dim.startswith("dim_") for dim in dims) else _letters(name, dims)
    )
    spatial = [dim for dim, letter in zip(dims, source(found), strict=False) if letter != "C"]
    return Named(array.values, found, _steps(array, spatial) if found else None)


def source(layout: str | None) -> str:
    """Return the axes of the array, the part of a layout before its arrow."""
    return (layout or "").partition(ARROW)[0]


def grid_letters(layout: str | None) -> str:
    """Return the letters of the spatial axes in the order of the grid; empty without a layout.

    >>> grid_letters("TCHW"), grid_letters("XYZ->CZYX")
    ('THW', 'ZYX')
    """
    before, _, after = (layout or "").partition(ARROW)
    return (after or before).replace("C", "")


def check_layout(layout: object) -> None:
    """Refuse a layout that does not name the axes of one image; None is fine."""
    if layout is None:
        return
    text = layout if isinstance(layout, str) else ""
    letters, arrow, after = text.partition(ARROW)
    is_known = not set(letters) - {"C", *SPATIAL} and len(set(letters)) == len(letters)
    if not is_known or not set(letters) - {"C"}:
        message = (
            f"layout must name each axis of one image once, C for channels and "
            f"{', '.join(SPATIAL)} for others, got {checks.shown(layout)}; pass one such as "
            "'HWC', 'CZYX' or 'TCHW'"
        )
        raise ArgumentError(message)
    if arrow and (after[:1] != "C" or sorted(after) != sorted({*letters, "C"})):
        wanted = "C" + "".join(letter for letter in SPATIAL if letter in letters)
        message = (
            f"layout={text!r} must name the same axes after the arrow, channels first; pass "
            f"'{letters}{ARROW}{wanted}'"
        )
        raise ArgumentError(message)


def arranged(name: str, array: Image, layout: str) -> Image:
    """Return an array with its channels moved to the front, and other axes in their order.

    They keep the order that they have in the array, unless the layout has an arrow.
    """
    before, _, after = layout.partition(ARROW)
    if len(before) != array.ndim:
        message = (
            f"layout={layout!r} has {len(before)} axes, but {name} has shape {array.shape}; "
            "pass one letter for each axis"
        )
        raise ArgumentError(message)
    if "C" not in before:
        array, before = array[None], f"C{before}"
    order = after or "C" + before.replace("C", "")
    return np.ascontiguousarray(array.transpose([before.index(letter) for letter in order]))


def checked_spacing(spacing: object, axes: int | None = None) -> Spacing | None:
    """Return the sides of a pixel, one for each of so many spatial axes; None is fine."""
    if spacing is None:
        return None
    given = tuple(cast("Sequence[object]", spacing)) if _is_several(spacing) else ()
    sides = tuple(float(cast("float", one)) if _is_number(one) else float("nan") for one in given)
    fits = bool(sides) and all(0 < side < float("inf") for side in sides)
    if not fits or (axes is not None and len(sides) != axes):
        several = "each spatial axis" if axes is None else f"each of the {axes} spatial axes"
        message = (
            f"spacing is {checks.shown(spacing)}; pass the side of a pixel on {several}, in one "
            "unit and without the channels, such as (5.0, 1.0, 1.0)"
        )
        raise ArgumentError(message)
    return sides


def grid_spacing(given: object, found: Named, axes: int) -> Spacing | None:
    """Return the sides of a pixel in the order of the grid: those given, else those found.

    Sides are given in the order of the array's own axes, which a layout with an arrow changes.
    """
    own = checked_spacing(found.spacing if given is None else given, axes)
    if own is None or found.layout is None:
        return own
    by_letter = dict(zip(source(found.layout).replace("C", ""), own, strict=True))
    return tuple(by_letter[letter] for letter in grid_letters(found.layout))


@lru_cache(maxsize=64)
def ratios(spacing: Spacing | None, axes: int) -> Spacing:
    """Return each side of a pixel as a multiple of the shortest one; without spacing, all are 1.

    >>> ratios((5.0, 0.5, 0.5), axes=3), ratios(None, axes=2)
    ((10.0, 1.0, 1.0), (1.0, 1.0))
    """
    sides = checked_spacing(spacing, axes)
    if sides is None:
        return (1.0,) * axes
    return tuple(round(side / min(sides), DIGITS) for side in sides)


def _is_several(value: object) -> bool:
    return isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _is_data_array(value: object) -> bool:
    xarray = sys.modules.get("xarray")
    return xarray is not None and isinstance(value, xarray.DataArray)


def _letters(name: str, dims: Sequence[str]) -> str:
    known = {word: letter for letter, words in NAMES.items() for word in words}
    found = [known.get(dim.lower()) for dim in dims]
    unknown = [dim for dim, letter in zip(dims, found, strict=True) if letter is None]
    if unknown or len(set(found)) < len(found):
        told = f"is unknown: {unknown[0]!r}" if unknown else "stands twice"
        message = (
            f"{name} has the dimensions {dims}, of which one {told}; say the order of its axes, "
            "such as layout='CZYX'"
        )
        raise ArgumentError(message)
    return "".join(cast("Sequence[str]", found))


def _steps(array: Untyped, dims: Sequence[str]) -> Spacing | None:
    """Return the steps of evenly spaced coordinates in one unit; None if an axis has none."""
    sides: list[float] = []
    units: set[str] = set()
    for dim in dims:
        places = np.asarray(array.coords[dim].values) if dim in array.coords else np.zeros(0)
        if len(places) < 2 or places.dtype.kind not in "iuf":
            return None
        steps = np.diff(places.astype(np.float64))
        step = float(abs(steps.mean()))
        if not step or np.abs(np.abs(steps) - step).max() > UNEVEN * step:
            return None
        sides.append(step)
        units.add(str(array.coords[dim].attrs.get("units", "")))
    return tuple(sides) if len(units) == 1 else None
