"""Maps and labels as files: PNG, TIFF, and NIfTI, OME-TIFF and OME-Zarr at a scan's place."""

from __future__ import annotations

import gzip
import io
import os
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.atomic import replace
from hshap._util.raster import png
from hshap.errors import ArgumentError, require
from hshap.export.placed_findings import as_name, as_plane
from hshap.formats.ome_zarr import is_zarr
from hshap.formats.scan import LPS, STAGE, Scan

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import ArrayLike

    from hshap._util.types import Array, Heat, Json, Untyped


def write_png(path: str | PathLike[str], values: ArrayLike) -> Path:
    """Write a map as a grey PNG of 8 bits, its largest value as 255; return the path.

    The file holds the value of one grey level under `hshap:step`. Negative values and NaN become 0;
    `write_tiff` keeps them.

    >>> from hshap.demo import example
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_png(f"{folder}/cell.png", example().saliency()).read_bytes()[1:4]
    b'PNG'
    """
    plane = np.maximum(np.nan_to_num(as_plane("write_png", values), nan=0.0), 0.0)
    step = float(plane.max()) / 255
    grey = np.rint(plane / (step or 1.0)).astype(np.uint8)
    text = {"Description": f"hshap map: value = grey * {step!r}", "hshap:step": repr(step)}
    return replace(path, lambda file: file.write(png(grey, text)))


def write_tiff(path: str | PathLike[str], values: ArrayLike) -> Path:
    """Write a map as a TIFF of 32-bit floats, with all its values; return the path.

    A volume or a video becomes a TIFF of several pages, one for each plane of its first axis.

    >>> from hshap.demo import example
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tiff(f"{folder}/cell.tiff", example().saliency()).stat().st_size > 256
    True
    """
    tifffile = require("tifffile", extra="export", needed_by="export.write_tiff")
    plane = as_plane("write_tiff", values, most=3).astype(np.float32)
    file = io.BytesIO()
    # Uncompressed, which every program can read.
    tifffile.imwrite(file, plane, photometric="minisblack", metadata=None)
    return replace(path, lambda whole: whole.write(file.getbuffer()))


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


TO_RAS = np.diag([-1.0, -1.0, 1.0, 1.0])


def write_nifti(path: str | PathLike[str], values: ArrayLike, scan: Scan) -> Path:
    """Write labels or a map as NIfTI at the place of a scan; return the path.

    `values` has the grid of the scan. Whole numbers stay whole numbers, others become 32-bit
    floats. A name that ends in .gz is compressed. The header is new: it has the affine and the
    unit, and no text of the scan's own header. The step of a series in time is 0, which stands for
    unknown: a scan does not hold it.

    >>> import tempfile
    >>> from hshap.images import Scan, read_image
    >>> scan = Scan(np.zeros((1, 4, 8, 8)), "CZYX", spacing=(3, 1, 1), affine=np.eye(4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = write_nifti(f"{folder}/found.nii", np.zeros((4, 8, 8), np.uint8), scan)
    ...     read_image(file)
    Scan('found.nii': CZYX 1 x 4 x 8 x 8, uint8, spacing 1 x 1 x 1 mm)
    """
    found = as_scan(scan)
    array = fitting("values", values, found)
    if found.affine is None and found.spacing is None:
        message = f"write_nifti needs the geometry of {found!r}, which its file does not tell"
        raise ArgumentError(f"{message}; pass Scan(..., spacing=...)")
    target = new_file(path, found)
    nibabel: Untyped = require("nibabel", extra="medical", needed_by="write_nifti")
    image: Untyped = nibabel.Nifti1Image(_xyz(array, found), None)
    image.header.set_xyzt_units("mm", "sec" if "T" in found.axes else None)
    if found.affine is not None:
        # World coordinates of a microscope have no left and right; they are taken as they are.
        turned = (TO_RAS if found.world in {LPS, ""} else np.eye(4)) @ found.affine
        affine = turned[:, [2, 1, 0, 3]]
        image.header.set_sform(affine, code=1)
        image.header.set_zooms(_zooms(image, tuple(np.linalg.norm(affine[:3, :3], axis=0))))
        square = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
        if np.allclose(square.T @ square, np.eye(3), atol=1e-5):
            image.header.set_qform(affine, code=1)
    elif found.spacing is not None:
        image.header.set_zooms(_zooms(image, found.spacing[::-1]))
    data = image.to_bytes()
    packed = gzip.compress(data, mtime=0) if str(target).endswith(".gz") else data
    return replace(target, lambda file: file.write(packed))


def _xyz(array: Array, scan: Scan) -> Array:
    """Return the values as NIfTI orders them: x, y, z and time."""
    out = storable(array).T
    return out if "Z" in scan.axes else out[:, :, None]


def _zooms(image: Untyped, spatial: tuple[float, ...]) -> tuple[float, ...]:
    own = tuple(float(each) for each in image.header.get_zooms())
    # A scan does not know its step in time: 0 says so.
    return (*spatial, *own[len(spatial) : 3], *(0.0 for _ in own[3:]))


TILE = 256


def write_ome_tiff(path: str | PathLike[str], values: ArrayLike, scan: Scan) -> Path:
    """Write labels or a map as a tiled OME-TIFF with a pyramid; return the path.

    `values` has the grid of the scan. Each level has every second pixel of the one before, so
    labels never mix. The spacing of the scan is stored in micrometres.

    >>> import tempfile
    >>> import numpy as np
    >>> import hshap
    >>> scan = hshap.images.Scan(np.zeros((3, 600, 800)), "CYX", spacing=(0.25e-3, 0.25e-3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = write_ome_tiff(f"{folder}/a.ome.tif", np.zeros((600, 800), np.uint8), scan)
    ...     hshap.images.read_image(made)
    Scan('a.ome.tif': CYX 1 x 600 x 800, uint8, spacing 0.00025 x 0.00025 mm)
    """
    found = as_scan(scan)
    array = fitting("values", values, found)
    target = new_file(path, found)
    tifffile: Untyped = require("tifffile", extra="large", needed_by="write_ome_tiff")
    kept = storable(array)
    facts: dict[str, object] = {"axes": found.axes[1:]}
    for axis, size in zip(found.spatial, found.spacing or (), strict=False):
        facts |= {f"PhysicalSize{axis}": size * 1000, f"PhysicalSize{axis}Unit": "µm"}
    levels = max(0, int(max(kept.shape[-2:]) - 1).bit_length() - 8)
    options = {"tile": (TILE, TILE), "photometric": "minisblack", "compression": "zlib"}
    memory = io.BytesIO()
    # Classic TIFF addresses 4 GiB.
    with tifffile.TiffWriter(memory, ome=True, bigtiff=kept.nbytes > 2**31) as writer:
        writer.write(kept, subifds=levels, metadata=facts, **options)
        for level in range(1, levels + 1):
            step = 2**level
            writer.write(kept[..., ::step, ::step], subfiletype=1, **options)
    return replace(target, lambda file: file.write(memory.getbuffer()))


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
