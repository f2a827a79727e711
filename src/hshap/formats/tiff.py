"""TIFF as a scan: pages, depth and channels by the axes that the file names, with its spacing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import FormatError, require
from hshap.formats.large.tiff import calibrated
from hshap.formats.limits import refuse_large
from hshap.formats.ome_zarr import channels_first, stage_affine
from hshap.formats.quiet import quietly
from hshap.formats.scan import STAGE, Scan

if TYPE_CHECKING:
    from pathlib import Path

    from hshap._util.types import Untyped


def read_tiff(path: Path) -> Scan:
    """Read the first image of a TIFF file; pages without a name are slices of a volume."""
    tifffile: Untyped = require("tifffile", extra="large", needed_by="reading TIFF files")
    require("imagecodecs", extra="large", needed_by="reading TIFF files")
    # An OME-TIFF may name other files; only this one is read.
    with (
        quietly(path, "reading it as TIFF", strict=True),
        tifffile.TiffFile(path, _multifile=False) as file,
    ):
        series = file.series[0]
        shape = tuple(map(int, series.shape))
        refuse_large(str(path), shape, np.dtype(series.dtype).itemsize)
        _refuse_short(path, series, file.filehandle.size)
        array = np.asarray(series.asarray())
        axes = _letters(path, str(series.axes), shape)
        sizes = calibrated(file)
    if array.dtype.kind not in "uifb":
        raise FormatError(f"{path} holds {array.dtype} numbers; save integers or floats")
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
    for page in series.pages:
        if page is None:
            continue
        pairs = zip(page.dataoffsets, page.databytecounts, strict=False)
        if any(offset + count > end for offset, count in pairs):
            message = f"{path} is truncated: it has {end:,} bytes, and its pixels end later"
            raise FormatError(f"{message}; copy it again")
