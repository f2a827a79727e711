"""OME-Zarr: a folder with an array for each resolution, stored in chunks."""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hshap.errors import FormatError, require
from hshap.formats.large.protocol import checked_box, planes, refuse_large_piece

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hshap._util.types import Array, Grid, Json, Shape, Untyped

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

UNITS = {"micrometer": 1.0, "millimeter": 1000.0, "nanometer": 0.001}


class Levels(NamedTuple):
    """The arrays of an image in OME-Zarr, the largest first, their axes, and their metadata."""

    arrays: tuple[Untyped, ...]
    axes: str
    scales: Mapping[str, Untyped]


def is_zarr(folder: Path) -> bool:
    """Tell whether a folder is one of Zarr, by the files in it."""
    return any((folder / name).is_file() for name in GROUP)


def open_levels(path: Path) -> Levels:
    """Open the arrays of an image; refuse damaged metadata and codecs that run code."""
    zarr: Untyped = require("zarr", extra="large", needed_by="reading OME-Zarr")
    scales = _scales(path)
    axes = _axes(scales)
    folders = [path / str(each["path"]) for each in scales["datasets"]]
    for folder in folders:
        if not folder.resolve().is_relative_to(path.resolve()):
            raise refusal(path, f"level {folder.name!r} lies outside of the folder")
        _check_codecs(path, folder)
    try:
        arrays: list[Untyped] = [zarr.open_array(str(each), mode="r") for each in folders]
    # Any: zarr raises a dozen classes for a damaged folder.
    except Exception as error:
        raise refusal(path, _brief(error)) from error
    first = arrays[0]
    axes = axes or "TCZYX"[-first.ndim :]
    if len(axes) != first.ndim:
        raise refusal(path, f"it names the axes {axes} of an array with {first.ndim}")
    if np.dtype(first.dtype).kind not in "uifb":
        raise refusal(path, f"it holds {first.dtype} numbers")
    for each in arrays:
        size = prod(each.chunks) * np.dtype(first.dtype).itemsize
        refuse_large_piece(str(path), "one chunk", size)
    return Levels(tuple(arrays), axes, scales)


class ZarrImage:
    """An image in the OME-Zarr format, version 0.1 to 0.5, as a large image."""

    def __init__(self, path: Path) -> None:
        self._path, self.name = path, path.name
        opened = open_levels(path)
        self._arrays, axes = opened.arrays, opened.axes
        first = self._arrays[0]
        self._axes, self._letter = axes, planes(str(path), axes, first.shape, "C")
        self.dtype = np.dtype(first.dtype)
        self.levels: tuple[Grid, ...] = tuple(
            tuple(each.shape[axes.index(axis)] for axis in "YX") for each in self._arrays
        )
        count = first.shape[axes.index(self._letter)] if self._letter else 1
        self.shape: Shape = (count, *self.levels[0])
        self.pixel_size = _pixel_size(opened.scales, axes)

    def read(self, start: Sequence[int], stop: Sequence[int], level: int = 0) -> Array:
        """Return the pixels of a region `(channels, rows, columns)`."""
        top, left, bottom, right = checked_box(self, start, stop, level)
        sides = {"Y": slice(top, bottom), "X": slice(left, right), self._letter: slice(None)}
        try:
            region = self._arrays[level][tuple(sides.get(axis, 0) for axis in self._axes)]
        # Any: each codec raises errors of its own.
        except Exception as error:
            message = f"{self._path} is damaged ({_brief(error)}); copy it again"
            raise FormatError(message) from error
        kept = [axis for axis in self._axes if axis in sides]
        order = [kept.index(axis) for axis in (self._letter, "Y", "X") if axis]
        pixels = np.asarray(region).transpose(order)
        return pixels.reshape(self.shape[0], bottom - top, right - left)

    def close(self) -> None:
        """Do nothing: chunks are opened one by one."""


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
        raise refusal(path, f"level {folder.name!r} is missing")
    for name in _codecs(_json(path, files[0])):
        if name.rpartition(".")[2] not in CODECS:
            raise refusal(path, f"it is compressed by {name!r}, which is not supported")


def _json(path: Path, file: Path) -> Json:
    try:
        if not file.is_file() or file.stat().st_size > LONGEST:  # a pipe would be waited for
            raise refusal(path, f"{file.name} is no file, or too long")
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        if isinstance(error, FormatError):
            raise
        raise refusal(path, f"{file.name} is no JSON") from error


def refusal(path: Path, reason: str) -> FormatError:
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


def _pixel_size(scales: Mapping[str, Untyped], axes: str) -> tuple[float, ...] | None:
    """Return the height and width of a pixel in micrometres, if the metadata tells them."""
    named = scales.get("axes", [])
    moves = scales["datasets"][0].get("coordinateTransformations", [])
    factors = next((each.get("scale") for each in moves if each.get("type") == "scale"), None)
    if not factors or len(factors) != len(axes):
        return None
    sizes: list[float] = []
    for axis in "YX":
        entry = named[axes.index(axis)] if axes.index(axis) < len(named) else None
        unit = UNITS.get(entry.get("unit", "")) if isinstance(entry, dict) else None
        if unit is None:
            return None
        sizes.append(unit * float(factors[axes.index(axis)]))
    return tuple(sizes)


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
