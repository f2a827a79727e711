"""OME-Zarr as a scan: the full resolution of a picture or volume, with its scale and its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import FormatError
from hshap.formats.large.ome_zarr import open_levels, refusal
from hshap.formats.limits import refuse_large
from hshap.formats.scan import SPATIAL, STAGE, Scan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hshap._util.types import Array, Heat, Untyped

MILLIMETRES = {
    "angstrom": 1e-7,
    "nanometer": 1e-6,
    "micrometer": 1e-3,
    "millimeter": 1.0,
    "centimeter": 10.0,
    "meter": 1000.0,
}


def read_zarr(path: Path) -> Scan:
    """Read the full resolution of an image of OME-Zarr; time and depth are kept as axes."""
    levels = open_levels(path)
    first, axes = levels.arrays[0], levels.axes
    if set(axes) - set("TCZYX") or len(set(axes)) < len(axes) or not {"Y", "X"} <= set(axes):
        message = f"{path} has the axes {axes}; save an image with axes of t, c, z, y and x"
        raise FormatError(message)
    refuse_large(str(path), first.shape, np.dtype(first.dtype).itemsize)
    try:
        array = np.asarray(first[...])
    # Any: each codec raises errors of its own.
    except Exception as error:
        raise refusal(path, f"it is damaged, {type(error).__name__}") from error
    array, kept = channels_first(array, axes)
    scale, shift = _transforms(path, levels.scales, axes)
    places = [axes.index(axis) for axis in SPATIAL if axis in axes]
    units = _units(levels.scales, axes)
    spacing, affine = None, None
    if scale is not None and units is not None and all(scale[n] > 0 for n in places):
        sizes = {axes[n]: scale[n] * units[axes[n]] for n in places}
        starts = {axes[n]: shift[n] * units[axes[n]] for n in places}
        spacing = tuple(sizes[axis] for axis in kept if axis in SPATIAL)
        affine = stage_affine(sizes, starts)
    return Scan(
        array,
        axes=kept,
        name=path.name,
        format="ome-zarr",
        spacing=spacing,
        affine=affine,
        world=STAGE if affine is not None else "",
        files=(path,),
    )


def channels_first(array: Array, axes: str) -> tuple[Array, str]:
    """Return an array with its channels first, without axes of length 1 but Y and X.

    >>> channels_first(np.zeros((1, 5, 3, 8, 8)), "TZCYX")[1]
    'CZYX'
    """
    lengths = dict(zip(axes, array.shape, strict=True))
    kept = [axis for axis in "CTZYX" if axis in "YX" or lengths.get(axis, 1) > 1]
    order = [axes.index(axis) for axis in kept]
    index = tuple(slice(None) if axis in kept else 0 for axis in axes)
    rest = [axis for axis in axes if axis in kept]
    out = array[index].transpose([rest.index(axes[n]) for n in order])
    return (out, "".join(kept)) if "C" in kept else (out[None], "".join(("C", *kept)))


def stage_affine(sizes: Mapping[str, float], starts: Mapping[str, float]) -> Heat:
    """Return the affine from `(z, y, x, 1)` to x, y and z of a microscope's stage."""
    affine = np.zeros((4, 4))
    for column, axis in enumerate(SPATIAL):
        affine["XYZ".index(axis), column] = sizes.get(axis, 1.0)
        affine["XYZ".index(axis), 3] = starts.get(axis, 0.0)
    affine[3, 3] = 1.0
    return affine


def _transforms(
    path: Path, scales: Mapping[str, Untyped], axes: str
) -> tuple[list[float] | None, list[float]]:
    """Return scale and shift of the first level; those of all levels are applied after its own."""
    scale, shift, told = [1.0] * len(axes), [0.0] * len(axes), False
    own = scales["datasets"][0].get("coordinateTransformations") or ()
    for each in (*own, *(scales.get("coordinateTransformations") or ())):
        kind = each.get("type")
        numbers = _numbers(path, each.get(kind), axes) if kind in {"scale", "translation"} else []
        if kind == "scale":
            told = True
            scale = [a * b for a, b in zip(scale, numbers, strict=True)]
            shift = [a * b for a, b in zip(shift, numbers, strict=True)]
        elif kind == "translation":
            shift = [a + b for a, b in zip(shift, numbers, strict=True)]
        elif kind != "identity":
            raise refusal(path, "it has a coordinate transformation that is no scale")
    return (scale if told else None), shift


def _numbers(path: Path, value: object, axes: str) -> Sequence[float]:
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (len(axes),) or not np.isfinite(found).all():
        raise refusal(path, "a coordinate transformation has not one number for each axis")
    return found.tolist()


def _units(scales: Mapping[str, Untyped], axes: str) -> dict[str, float] | None:
    """Return the millimetres of each spatial axis' unit; None if one is not told."""
    named = scales.get("axes", [])
    out: dict[str, float] = {}
    for axis, entry in zip(axes, named, strict=False):
        if axis in SPATIAL:
            unit = MILLIMETRES.get(str(entry.get("unit"))) if isinstance(entry, dict) else None
            if unit is None:
                return None
            out[axis] = unit
    return out or None
