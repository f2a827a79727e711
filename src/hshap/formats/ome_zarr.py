"""OME-Zarr: a folder with an array for each resolution, region by region, or as a scan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap.errors import FormatError, require
from hshap.formats.large_images import ChunkedImage, Levels, brief
from hshap.formats.lengths import MILLIMETRES
from hshap.formats.refusals import refuse_large
from hshap.formats.scan import SPATIAL, STAGE, Scan, channels_first, stage_affine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hshap._util.types import Json, Untyped

CODECS = frozenset(
    [
        "adler32",
        "bitround",
        "blosc",
        "bytes",
        "bz2",
        "crc32",
        "crc32c",
        "delta",
        "fletcher32",
        "fixedscaleoffset",
        "gzip",
        "lz4",
        "lzma",
        "packbits",
        "quantize",
        "sharding_indexed",
        "shuffle",
        "transpose",
        "zlib",
        "zstd",
    ]
)
"""Codecs that only turn bytes into bytes. Others are refused: one of them runs pickle."""

METADATA = (".zarray", "zarr.json")
GROUP = (".zattrs", "zarr.json", ".zgroup")
"""Files of which the folder of an image has one."""


LONGEST = 2**24
"""Bytes of a file of metadata."""


def is_zarr(folder: Path) -> bool:
    """Tell whether a folder is one of Zarr, by the files in it."""
    return any((folder / name).is_file() for name in GROUP)


def _open_levels(path: Path) -> tuple[Levels, Mapping[str, Untyped]]:
    """Open the arrays of an image; refuse damaged metadata and codecs that run code."""
    zarr: Untyped = require("zarr", extra="large", needed_by="reading OME-Zarr")
    scales = _scales(path)
    axes = _axes(scales)
    folders = [path / str(each["path"]) for each in scales["datasets"]]
    for folder in folders:
        if not folder.resolve().is_relative_to(path.resolve()):
            raise _refusal(path, f"level {folder.name!r} lies outside of the folder")
        _check_codecs(path, folder)
    try:
        arrays: list[Untyped] = [zarr.open_array(str(each), mode="r") for each in folders]
    # Any: zarr raises a dozen classes for a damaged folder.
    except Exception as error:
        raise _refusal(path, brief(error)) from error
    first = arrays[0]
    axes = axes or "TCZYX"[-first.ndim :]
    if len(axes) != first.ndim:
        raise _refusal(path, f"it names the axes {axes} of an array with {first.ndim}")
    if np.dtype(first.dtype).kind not in "uifb":
        raise _refusal(path, f"it holds {first.dtype} numbers")
    return Levels(tuple(arrays), axes), scales


def open_zarr(path: Path) -> ChunkedImage:
    """Open an image in the OME-Zarr format, version 0.1 to 0.5, region by region."""
    levels, scales = _open_levels(path)
    sizes, _ = _sizes_and_starts(path, scales, levels.axes)
    known = tuple(1000 * sizes[axis] for axis in "YX" if axis in sizes)
    return ChunkedImage(path, levels, known if len(known) == 2 else None)


def read_zarr(path: Path) -> Scan:
    """Read the full resolution of an image of OME-Zarr; time and depth are kept as axes."""
    levels, scales = _open_levels(path)
    first, axes = levels.arrays[0], levels.axes
    if set(axes) - set("TCZYX") or len(set(axes)) < len(axes) or not {"Y", "X"} <= set(axes):
        message = f"{path} has the axes {axes}; save an image with axes of t, c, z, y and x"
        raise FormatError(message)
    refuse_large(str(path), first.shape, np.dtype(first.dtype).itemsize)
    try:
        array = np.asarray(first[...])
    # Any: each codec raises errors of its own.
    except Exception as error:
        raise _refusal(path, f"it is damaged, {type(error).__name__}") from error
    array, kept = channels_first(array, axes)
    sizes, starts = _sizes_and_starts(path, scales, axes)
    known = bool(sizes) and all(axis in sizes for axis in axes if axis in SPATIAL)
    return Scan(
        array,
        axes=kept,
        name=path.name,
        format="ome-zarr",
        spacing=tuple(sizes[axis] for axis in kept if axis in SPATIAL) if known else None,
        affine=stage_affine(sizes, starts) if known else None,
        world=STAGE if known else "",
        files=(path,),
    )


def _scales(path: Path) -> Mapping[str, Untyped]:
    """Return the entry of the metadata that lists the resolutions."""
    for name, inner in ((".zattrs", ()), ("zarr.json", ("attributes", "ome"))):
        file = path / name
        if not file.is_file():
            continue
        found: Untyped = _json(path, file)
        for key in inner:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        listed = cast("Untyped", found).get("multiscales") if isinstance(found, dict) else None
        if listed and listed[0].get("datasets"):
            return listed[0]
    message = (
        f"{path} is no image of OME-Zarr: its metadata lists no multiscales; pass the folder "
        "of one image, such as slide.zarr/0"
    )
    raise FormatError(message)


def _check_codecs(path: Path, folder: Path) -> None:
    """Refuse codecs that may do more than turn bytes into bytes."""
    files = [folder / name for name in METADATA if (folder / name).is_file()]
    if not files:
        raise _refusal(path, f"level {folder.name!r} is missing")
    for name in _codecs(_json(path, files[0])):
        if name.rpartition(".")[2] not in CODECS:
            raise _refusal(path, f"it is compressed by {name!r}, which is not supported")


def _json(path: Path, file: Path) -> Json:
    try:
        if not file.is_file() or file.stat().st_size > LONGEST:  # a pipe would be waited for
            raise _refusal(path, f"{file.name} is no file, or too long")
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise _refusal(path, f"{file.name} is no JSON") from error


def _refusal(path: Path, reason: str) -> FormatError:
    """Return the error of a folder that cannot be read."""
    return FormatError(f"{path} cannot be read as OME-Zarr: {reason}; save it again")


def _axes(scales: Mapping[str, Untyped]) -> str:
    """Return the letters of the axes; none before version 0.3."""
    names = [each["name"] if isinstance(each, dict) else each for each in scales.get("axes", [])]
    return "".join(str(name).upper() for name in names)


def _codecs(found: Json) -> Iterator[str]:
    """Yield the names of all codecs in the metadata of an array."""
    if isinstance(found, dict):
        entries = found
        for key in ("compressor", "filters", "codecs", "index_codecs"):
            yield from _named(entries.get(key))
        yield from _codecs(entries.get("configuration"))


def _named(found: Json) -> Iterator[str]:
    several = found if isinstance(found, list) else [found]
    for each in several:
        if isinstance(each, dict):
            entry = each
            yield str(entry.get("id") or entry.get("name"))
            yield from _codecs(entry)


def _sizes_and_starts(
    path: Path, scales: Mapping[str, Untyped], axes: str
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the distance of pixels and the place of the first one, in millimetres by axis.

    Axes without a scale or a unit of length have none.
    """
    scale, shift = _transforms(path, scales, axes)
    sizes: dict[str, float] = {}
    starts: dict[str, float] = {}
    for place, (axis, entry) in enumerate(zip(axes, scales.get("axes", []), strict=False)):
        unit = MILLIMETRES.get(str(entry.get("unit"))) if isinstance(entry, dict) else None
        if axis in SPATIAL and unit is not None and scale is not None and scale[place] > 0:
            sizes[axis], starts[axis] = scale[place] * unit, shift[place] * unit
    return sizes, starts


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
            raise _refusal(path, "it has a coordinate transformation that is no scale")
    return (scale if told else None), shift


def _numbers(path: Path, value: object, axes: str) -> Sequence[float]:
    try:
        found = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.zeros(0)
    if found.shape != (len(axes),) or not np.isfinite(found).all():
        raise _refusal(path, "a coordinate transformation has not one number for each axis")
    return found.tolist()
