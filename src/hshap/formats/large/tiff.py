"""TIFF files: only the tiles that a region touches are read and decoded."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.cache import BoundedCache
from hshap.errors import FormatError, HshapError, require
from hshap.formats.large.protocol import CACHED, checked_box, planes, refuse_large_piece

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from pathlib import Path

    from hshap._util.types import Array, Grid, Shape, Untyped

IMAGEJ_UNITS = {
    **dict.fromkeys(("µm", "μm", "um", "micron", "microns", "\\u00B5m"), 1e-3),
    "nm": 1e-6,
    "mm": 1.0,
    "m": 1000.0,
}
"""Millimetres in the units of ImageJ; it makes cm and inch of any print resolution."""

OME_UNITS = {**IMAGEJ_UNITS, "cm": 10.0, "in": 25.4}


@dataclass(frozen=True)
class _Level:
    """One resolution: its pages, one for each channel, or one for all of them."""

    pages: tuple[Untyped, ...]
    size: Grid
    tile: Grid
    separate: bool

    @property
    def across(self) -> int:
        return -(-self.size[1] // self.tile[1])

    @property
    def down(self) -> int:
        return -(-self.size[0] // self.tile[0])


class TiffImage:
    """A tiled TIFF file as a large image; files in strips too, if the strips are small."""

    def __init__(self, path: Path) -> None:
        tifffile: Untyped = require("tifffile", extra="large", needed_by="reading TIFF files")
        require("imagecodecs", extra="large", needed_by="reading TIFF files")
        self._path, self.name = path, path.name
        with self._refusing():
            # An OME-TIFF may name other files; only this one is read.
            self._file: Untyped = tifffile.TiffFile(path, _multifile=False)
        try:
            with self._refusing():
                self._open()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _refusing(self) -> Generator[None]:
        """Turn every error of the library that reads a damaged file into one line."""
        try:
            yield
        except (HshapError, OSError):
            raise
        # Any: the library raises a dozen classes, struct.error and KeyError among them.
        except Exception as error:
            message = (
                f"{self._path} is no TIFF file that can be read ({_brief(error)}); save it again"
            )
            raise FormatError(message) from error

    def _open(self) -> None:
        if not self._file.series:
            message = f"{self._path} holds no image; pass a TIFF file with one"
            raise FormatError(message)
        series = self._file.series[0]
        letter = planes(str(self._path), series.axes, series.shape)
        count = series.shape[series.axes.index(letter)] if letter else 1
        sizes = [
            tuple(each.shape[each.axes.index(axis)] for axis in "YX") for each in series.levels
        ]
        self._levels = tuple(map(self._level, series.levels, sizes))
        self.levels: tuple[Grid, ...] = tuple(sizes)
        self.shape: Shape = (count, *sizes[0])
        self.dtype = np.dtype(series.dtype)
        told = calibrated(self._file)
        known = tuple(1000 * told[axis] for axis in "YX" if axis in told)
        self.pixel_size: tuple[float, ...] | None = known if len(known) == 2 else None
        self._decoded = BoundedCache["Array"](CACHED, weight=lambda piece: piece.nbytes)
        if self.dtype.kind not in "uifb":
            message = f"{self._path} holds {self.dtype} numbers; save it as integers or floats"
            raise FormatError(message)
        for level in self._levels:
            self._check_complete(level)
        self._piece(0, 0, 0)  # a compression that cannot be read is told now

    def _level(self, level: Untyped, size: Grid) -> _Level:
        key = level.keyframe
        tiled = bool(key.is_tiled)
        tile = (key.tilelength, key.tilewidth) if tiled else (key.rowsperstrip, size[1])
        tile = (min(tile[0], size[0]), tile[1]) if not tiled else tile
        separate = key.planarconfig == 2 and key.samplesperpixel > 1
        samples = 1 if separate else key.samplesperpixel
        piece = "one tile" if tiled else f"one strip of {tile[0]} rows"
        refuse_large_piece(
            str(self._path), piece, prod(tile) * samples * np.dtype(key.dtype).itemsize
        )
        return _Level(tuple(level.pages), size, tile, separate)

    def _check_complete(self, level: _Level) -> None:
        """Refuse a file that ends before its last tile."""
        end = self._file.filehandle.size
        for page in level.pages:
            offsets = np.asarray(page.dataoffsets, dtype=np.int64)
            counts = np.asarray(page.databytecounts, dtype=np.int64)
            wanted = (
                level.across * level.down * (page.keyframe.samplesperpixel if level.separate else 1)
            )
            if len(offsets) < wanted or len(counts) < wanted or (offsets + counts > end).any():
                message = (
                    f"{self._path} is truncated: it has {end:,} bytes, and its tiles end later; "
                    "copy it again"
                )
                raise FormatError(message)

    def read(self, start: Sequence[int], stop: Sequence[int], level: int = 0) -> Array:
        """Return the pixels of a region `(channels, rows, columns)`."""
        top, left, bottom, right = checked_box(self, start, stop, level)
        out = np.zeros((self.shape[0], bottom - top, right - left), self.dtype)
        high, wide = self._levels[level].tile
        for page, index, channel, row, column in self._touched(level, (top, left), (bottom, right)):
            piece = self._piece(level, page, index)
            (a, b), (c, d) = (
                (max(first, at), min(last, at + length))
                for first, last, at, length in (
                    (top, bottom, row * high, piece.shape[1]),
                    (left, right, column * wide, piece.shape[2]),
                )
            )
            if a < b and c < d:
                part = piece[
                    :, a - row * high : b - row * high, c - column * wide : d - column * wide
                ]
                out[channel : channel + len(part), a - top : b - top, c - left : d - left] = part
        return out

    def _touched(
        self, level: int, start: Grid, stop: Grid
    ) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield page, number, first channel, row and column of every tile that a region touches."""
        own = self._levels[level]
        per_page = own.pages[0].keyframe.samplesperpixel
        for page in range(len(own.pages)):
            for plane in range(per_page if own.separate else 1):
                channel = page if len(own.pages) > 1 else plane
                for row in range(start[0] // own.tile[0], -(-stop[0] // own.tile[0])):
                    for column in range(start[1] // own.tile[1], -(-stop[1] // own.tile[1])):
                        index = (plane * own.down + row) * own.across + column
                        yield page, index, channel, row, column

    def _piece(self, level: int, page: int, index: int) -> Array:
        """Return a decoded tile `(channels, rows, columns)`."""
        found = self._decoded.get((level, page, index))
        if found is None:
            found = self._decode(self._levels[level].pages[page], index)
            self._decoded.put((level, page, index), found)
        return found

    def _decode(self, page: Untyped, index: int) -> Array:
        key = page.keyframe
        offset, count = page.dataoffsets[index], page.databytecounts[index]
        data = None
        if offset and count:
            self._file.filehandle.seek(offset)
            data = self._file.filehandle.read(count)
        try:
            piece, _, shape = key.decode(data, index, jpegtables=key.jpegtables)
        # Any: each codec raises errors of its own.
        except Exception as error:
            message = (
                f"tile {index} of {self._path}, compressed by {_compression(key)}, cannot be "
                f"decoded ({_brief(error)}); save the file with another compression, such as "
                "deflate"
            )
            raise FormatError(message) from error
        if piece is None:  # a tile that was left out shows nothing
            piece = np.full(shape, key.nodata, self.dtype)
        return np.ascontiguousarray(np.moveaxis(piece[0], -1, 0))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def calibrated(file: Untyped) -> dict[str, float]:
    """Return the millimetres between pixels by axis, where OME-XML or ImageJ's scale tells them.

    The resolution tags alone are those of a print, whatever they say, and tell nothing.
    """
    if file.is_ome and file.ome_metadata:
        # Only the first image's numbers are wanted, so the XML is not parsed as a document.
        pixels = re.search(r"<(?:\w+:)?Pixels\b([^>]*)>", file.ome_metadata)
        facts = dict(re.findall(r'(\w+)\s*=\s*"([^"]*)"', unescape(pixels[1]))) if pixels else {}
        found = {
            axis: _number(facts.get(f"PhysicalSize{axis}"))
            * OME_UNITS.get(facts.get(f"PhysicalSize{axis}Unit", "µm"), 0.0)
            for axis in "ZYX"
        }
        return {axis: size for axis, size in found.items() if size > 0}
    metadata = file.imagej_metadata or {} if file.is_imagej else {}
    unit = IMAGEJ_UNITS.get(str(metadata.get("unit", "")), 0.0)
    if not unit:
        return {}
    tags = file.series[0].keyframe.tags
    found = {"Z": unit * _number(metadata.get("spacing"))}
    for axis in "YX":
        above, below = tags.valueof(f"{axis}Resolution", default=(0, 1))
        found[axis] = unit * below / above if above else 0.0
    return {axis: size for axis, size in found.items() if size > 0}


def _number(value: object) -> float:
    try:
        found = float(str(value))
    except ValueError:
        return 0.0
    return found if np.isfinite(found) else 0.0


def _compression(key: Untyped) -> str:
    """Return the name of a compression, or its number if it has none."""
    return str(getattr(key.compression, "name", key.compression))


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
