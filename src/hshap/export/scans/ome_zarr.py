"""OME-Zarr: the image of a scan, with findings as labels beside it."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError, require
from hshap.export.inputs import as_name
from hshap.export.scans.places import as_labels, as_scan, new_file, storable
from hshap.formats.scan import STAGE

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike

    from hshap._util.types import Array, Json, Untyped
    from hshap.formats.scan import Scan

VERSION = "0.4"
SMALLEST = 256
"""Planes with a longer side get another level, of half the size."""
CHUNK = 256


def write_ome_zarr(
    path: str | PathLike[str], labels: ArrayLike, scan: Scan, *, name: str = "finding"
) -> Path:
    """Write the image of a scan and labels on it as a new folder of OME-Zarr; return the path.

    The labels are in `labels/<name>` of the folder, where viewers look for them, with the axes,
    the scale and the translation of the image. Version 0.4 of the format, which has no directions:
    a volume from DICOM or NIfTI keeps its spacing alone. The scan's own folder is not touched, and
    a path that exists is refused.

    >>> import tempfile
    >>> import hshap
    >>> scan = hshap.images.Scan(np.zeros((1, 4, 8, 8)), "CZYX", spacing=(3.0, 1.0, 1.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write_ome_zarr(f"{folder}/a.zarr", np.zeros((4, 8, 8), np.uint8), scan)
    ...     hshap.images.read_image(made / "labels" / "finding")
    Scan('finding': CZYX 1 x 4 x 8 x 8, uint8, spacing 3 x 1 x 1 mm)
    """
    found = as_scan(scan)
    whole, label = as_labels(labels, found), as_name("name", name)
    if set(label) & set("/\\") or label.startswith("."):
        raise ArgumentError(f"name={label!r} is no name of a folder; pass one without / and .")
    target = Path(os.path.realpath(new_file(path, found)))
    if target.exists():
        raise ArgumentError(f"{os.fspath(path)} exists; pass the path of a new folder")
    zarr: Untyped = require("zarr", extra="large", needed_by="write_ome_zarr")
    staged = target.with_name(f".hshap-{secrets.token_hex(8)}")
    try:
        group: Untyped = zarr.open_group(str(staged), mode="w", zarr_format=2)
        _pyramid(group, found.array, found.axes, found, labelled=False)
        inner: Untyped = group.create_group("labels")
        inner.attrs["labels"] = [label]
        own: Untyped = inner.create_group(label)
        kept = storable(whole)
        _pyramid(own, kept, found.axes[1:], found, labelled=True)
        own.attrs["image-label"] = _label(kept)
        staged.rename(target)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    return Path(path)


def _pyramid(group: Untyped, array: Array, axes: str, scan: Scan, *, labelled: bool) -> None:
    """Write an array at full size and halved in y and x until it is small, with its metadata.

    A level has every second pixel of the one before, at its place: labels never mix.
    """
    datasets: list[Json] = []
    step = 1
    while True:
        level = array[..., ::step, ::step]
        chunks = (
            *(1,) * (level.ndim - 2),
            min(CHUNK, level.shape[-2]),
            min(CHUNK, level.shape[-1]),
        )
        group.create_array(
            str(len(datasets)), data=level, chunks=chunks, chunk_key_encoding=_slashes()
        )
        datasets.append(
            {
                "path": str(len(datasets)),
                "coordinateTransformations": _transforms(axes, scan, step),
            }
        )
        if max(level.shape[-2:]) <= SMALLEST:
            break
        step *= 2
    kinds = {"C": "channel", "T": "time"}
    unit = {"unit": "millimeter"} if scan.spacing is not None else {}
    named: list[Json] = [
        {"name": axis.lower(), "type": kinds[axis]}
        if axis in kinds
        else {"name": axis.lower(), "type": "space", **unit}
        for axis in axes
    ]
    group.attrs["multiscales"] = [
        {"version": VERSION, "name": "findings" if labelled else "image", "axes": named}
        | {"datasets": datasets}
    ]


def _slashes() -> dict[str, str]:
    return {"name": "v2", "separator": "/"}


def _transforms(axes: str, scan: Scan, step: int) -> Json:
    sizes = dict(zip(scan.spatial, scan.spacing or (), strict=False))
    starts = dict(zip("ZYX", _start(scan), strict=True))
    scale = [sizes.get(axis, 1.0) * (step if axis in "YX" else 1) for axis in axes]
    moved = [starts.get(axis, 0.0) if axis in "ZYX" else 0.0 for axis in axes]
    return [{"type": "scale", "scale": scale}, {"type": "translation", "translation": moved}]


def _start(scan: Scan) -> tuple[float, float, float]:
    """Return the place of the first pixel in z, y and x; the format has none for turned axes."""
    if scan.affine is None or scan.spacing is None or scan.world != STAGE:
        return 0.0, 0.0, 0.0
    x, y, z = (float(each) for each in scan.affine[:3, 3])
    return z, y, x


def _label(array: Array) -> dict[str, Json]:
    values = [int(each) for each in np.unique(array) if each]
    colours: list[Json] = [
        {"label-value": value, "rgba": [213, 94, 0, 255]} for value in values[:1000]
    ]
    return {"version": VERSION, "colors": colours, "source": {"image": "../../"}}
