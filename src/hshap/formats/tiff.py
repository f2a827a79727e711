"""TIFF files: region by region, through the store of zarr in tifffile, or as a scan.

The axes and the size of pixels are those that the file names. Resolution tags alone are those of a
print, whatever they say, and tell nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import FormatError, HshapError, require
from hshap.formats.large_images import ChunkedImage, Levels, brief
from hshap.formats.lengths import described_sizes
from hshap.formats.refusals import quietly, refuse_large
from hshap.formats.scan import STAGE, Scan, channels_first, stage_affine

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from hshap._util.types import Untyped


def open_tiff(path: Path) -> ChunkedImage:
    """Open a TIFF file with tiles, or with strips that are small."""
    zarr: Untyped = require("zarr", extra="large", needed_by="reading large TIFF files")
    with _refusing(path):
        file = _open(path)
    try:
        with _refusing(path):
            return _open_levels(path, file, zarr)
    except BaseException:
        file.close()
        raise


def _open_levels(path: Path, file: Untyped, zarr: Untyped) -> ChunkedImage:
    if not file.series:
        raise FormatError(f"{path} holds no image; pass a TIFF file with one")
    series, sizes = file.series[0], _pixel_sizes(file)
    _check_numbers(path, np.dtype(series.dtype))
    for level in series.levels:
        _refuse_short(path, level, file.filehandle.size)
    stores = [series.aszarr(level=number) for number in range(len(series.levels))]
    arrays = [zarr.open_array(store, mode="r") for store in stores]
    side = tuple(1000 * sizes[axis] for axis in "YX") if {"Y", "X"} <= set(sizes) else None
    image = ChunkedImage(path, Levels(tuple(arrays), series.axes), side, file.close)
    image.read((0, 0), (1, 1))  # a compression that cannot be read is told now
    return image


def read_tiff(path: Path) -> Scan:
    """Read the first image of a TIFF file; pages without a name are slices of a volume."""
    with quietly(path, "reading it as TIFF", strict=True), _open(path) as file:
        series = file.series[0]
        shape = tuple(map(int, series.shape))
        refuse_large(str(path), shape, np.dtype(series.dtype).itemsize)
        _refuse_short(path, series, file.filehandle.size)
        array = np.asarray(series.asarray())
        axes = _letters(path, str(series.axes), shape)
        sizes = _pixel_sizes(file)
    _check_numbers(path, array.dtype)
    whole, kept = channels_first(array.astype(array.dtype.newbyteorder("="), copy=False), axes)
    known = all(axis in sizes for axis in kept if axis in "ZYX")
    return Scan(
        whole,
        axes=kept,
        name=path.name,
        format="tiff",
        spacing=tuple(sizes[axis] for axis in kept if axis in "ZYX") if known else None,
        affine=stage_affine(sizes, {}) if known else None,
        world=STAGE if known else "",
        files=(path,),
    )


def _open(path: Path) -> Untyped:
    tifffile: Untyped = require("tifffile", extra="large", needed_by="reading TIFF files")
    require("imagecodecs", extra="large", needed_by="reading TIFF files")
    # An OME-TIFF may name other files; only this one is read.
    return tifffile.TiffFile(path, _multifile=False)


@contextmanager
def _refusing(path: Path) -> Generator[None]:
    """Turn every error of the library that reads a damaged file into one line."""
    try:
        yield
    except (HshapError, OSError):
        raise
    # Any: the library raises a dozen classes, struct.error and KeyError among them.
    except Exception as error:
        message = f"{path} is no TIFF file that can be read ({brief(error)}); save it again"
        raise FormatError(message) from error


def _check_numbers(path: Path, dtype: np.dtype) -> None:
    if dtype.kind not in "uifb":
        raise FormatError(f"{path} holds {dtype} numbers; save it as integers or floats")


def _pixel_sizes(file: Untyped) -> dict[str, float]:
    """Return the millimetres between pixels by axis, where the file tells them."""
    tags = file.series[0].keyframe.tags
    densities = {axis: tags.valueof(f"{axis}Resolution") for axis in "XY"}
    return described_sizes(str(file.pages.first.description), densities)


def _letters(path: Path, axes: str, shape: tuple[int, ...]) -> str:
    """Return axes of T, C, Z, Y and X: samples are channels, and pages without a name slices."""
    lengths = dict(zip(axes, shape, strict=True))
    out = axes
    for other in "SIQR":
        wanted = "C" if other == "S" else "Z"
        if other in out and (wanted not in out or lengths[wanted] == 1):
            out = out.replace(wanted, "_").replace(other, wanted)
    odd = [a for a, n in zip(out, shape, strict=True) if a not in "TCZYX" and n > 1]
    if odd or len(set(out)) < len(out) or not {"Y", "X"} <= set(out):
        message = f"{path} has the axes {axes} of lengths {shape}; save one image with T, C, Z, Y, "
        raise FormatError(f"{message}X at most")
    return out


def _refuse_short(path: Path, series: Untyped, end: int) -> None:
    """Refuse a file that ends before its pixels."""
    for page in series.pages:
        if page is None:
            continue
        pairs = zip(page.dataoffsets, page.databytecounts, strict=False)
        if any(offset + count > end for offset, count in pairs):
            message = f"{path} is truncated: it has {end:,} bytes, and its pixels end later"
            raise FormatError(f"{message}; copy it again")
