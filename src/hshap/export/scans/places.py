"""Places of files: a map has the grid and the geometry of its scan, and no file is its source."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.formats.ome_zarr import is_zarr
from hshap.formats.scan import Scan

if TYPE_CHECKING:
    from os import PathLike

    from hshap._util.types import Array, Heat


def as_scan(scan: object) -> Scan:
    """Return a scan, and refuse anything else."""
    if not isinstance(scan, Scan):
        message = f"scan is {checks.shown(scan)}; pass the result of hshap.images.read_image"
        raise ArgumentError(message)
    return scan


def fitting(name: str, values: object, scan: object) -> Array:
    """Return a map with the grid of a scan, or tell the sizes of both."""
    found, array = as_scan(scan), to_numpy(name, values)
    if array.shape != found.grid:
        message = (
            f"{name} has shape {array.shape} and type {array.dtype}, but the scan has the grid "
            f"{found.grid}; pass numbers at the size of the original image"
        )
        raise ArgumentError(message)
    return array


def storable(array: Array) -> Array:
    """Return numbers of a type that all formats have: floats and integers of up to 32 bits."""
    if array.dtype == bool:
        return array.astype(np.uint8)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype.itemsize < 8:
        return array
    kept = array.astype(np.int32)
    if not np.array_equal(kept, array):
        message = (
            f"values reach from {array.min()} to {array.max()}, and files hold whole numbers of 32 "
            "bits; number the labels from 1"
        )
        raise ArgumentError(message)
    return kept


def as_labels(values: object, scan: object) -> Array:
    """Return labels with the grid of a scan: whole numbers, 0 for the background."""
    array = fitting("labels", values, scan)
    if array.dtype.kind not in "uib" or int(array.min()) < 0:
        message = f"labels are of type {array.dtype}; pass whole numbers of 0 or more, as labels()"
        raise ArgumentError(message)
    return array


def placed(scan: Scan, wanted_by: str) -> Heat:
    """Return the affine of a scan, or say that its file does not tell the geometry."""
    if scan.affine is None:
        message = (
            f"{wanted_by} needs the place of the image, but {scan!r} has no geometry; pass a scan "
            "of a file with one, or Scan(..., affine=...)"
        )
        raise ArgumentError(message)
    return scan.affine


def image_around(path: Path) -> Path | None:
    """Return the outermost folder of OME-Zarr that a path lies in, if there is one."""
    around = [folder for folder in path.parents if is_zarr(folder)]
    return around[-1] if around else None


def new_file(path: str | PathLike[str], scan: Scan) -> Path:
    """Return a path to write to; refuse a source of the scan, and the folder of its series."""
    target = Path(os.path.realpath(path))
    sources = {Path(os.path.realpath(file)) for file in scan.files}
    if target in sources or (scan.format == "dicom" and target.parent in sources):
        message = f"{os.fspath(path)} is a file of the scan itself; pass another path"
        raise ArgumentError(message)
    around = image_around(target)
    if around is not None:
        message = f"{os.fspath(path)} lies inside the image {around.name}; pass another path"
        raise ArgumentError(message)
    if len(sources) > 1 and target.parent in {file.parent for file in sources}:
        message = f"{os.fspath(path)} lies among the files of the series; pass another folder"
        raise ArgumentError(message)
    return Path(path)
