"""Reading an image: the kind of the file tells the reader, and the result is a `Scan`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap.errors import ArgumentError, FormatError
from hshap.formats.dicom.headers import is_dicom
from hshap.formats.dicom.series import read_dicom
from hshap.formats.large.ome_zarr import is_zarr
from hshap.formats.large.slides import SUFFIXES
from hshap.formats.limits import refuse_large
from hshap.formats.listing import PICTURES
from hshap.formats.nifti import read_nifti
from hshap.formats.numpy_files import read_numpy
from hshap.formats.ome_zarr import read_zarr
from hshap.formats.pictures import PictureOptions, read_picture
from hshap.formats.quiet import quietly
from hshap.formats.slides import read_slide
from hshap.formats.tiff import read_tiff

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap.formats.scan import Scan


def _read_picture(path: Path, frame: int | None = None) -> Scan:
    refuse_large(str(path), (path.stat().st_size,), 1)
    scan = read_picture(path.read_bytes(), str(path), PictureOptions(frame))
    return replace(scan, files=(path,))


READERS: dict[str, Callable[[Path], Scan]] = {
    ".dcm": read_dicom,
    ".dicom": read_dicom,
    ".nii": read_nifti,
    ".nii.gz": read_nifti,
    ".tif": read_tiff,
    ".tiff": read_tiff,
    ".btf": read_tiff,
    ".npy": read_numpy,
    ".npz": read_numpy,
    **{ending: _read_picture for ending in PICTURES if ending not in {".tif", ".tiff"}},
    **dict.fromkeys(SUFFIXES, read_slide),
}
"""The reader of each ending. A folder is OME-Zarr or a series of DICOM."""


def read_image(path: object, *, frame: int | None = None) -> Scan:
    """Read an image or volume with its axes, its spacing and its place in the world.

    `path` is a DICOM file, with one frame or several; a folder with the files of one DICOM series,
    which are sorted by their position; a NIfTI file; a TIFF file, whose pages may be slices; the
    folder of an image in OME-Zarr; a whole slide; an array in .npy or .npz; or a picture such as
    PNG or JPEG, upright and without transparency, of which `frame` takes one of several. DICOM
    files need no ending. Values are those of the modality: slope and intercept are applied. A file
    that is damaged, truncated, too large, without the geometry that it needs, or no image is a
    `FormatError` that says why; no message repeats a text of its header.

    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/cell.npy", np.zeros((3, 40, 60), np.uint8))
    ...     read_image(f"{folder}/cell.npy")
    Scan('cell.npy': CYX 3 x 40 x 60, uint8)
    """
    if not isinstance(path, (str, os.PathLike)):
        message = f"path is {checks.shown(path)}; pass the path of an image file"
        raise ArgumentError(message)
    place = Path(os.fspath(path))
    if not place.exists():
        raise FileNotFoundError(2, "no such file or folder", str(place))
    if not place.is_dir() and not place.is_file():
        message = f"{place} is no regular file but a pipe or a device; pass the path of a file"
        raise FormatError(message)
    reader = reader_of(place)
    if reader is None:
        message = (
            f"{place} is of no kind that can be read; pass DICOM, NIfTI, OME-Zarr, or one of "
            f"{', '.join(READERS)}"
        )
        raise FormatError(message)
    if frame is not None and reader is not _read_picture:
        message = f"frame={frame} is for animated pictures, but {place} is none; leave it out"
        raise ArgumentError(message)
    with quietly(place, "reading it"):
        return _read_picture(place, frame) if reader is _read_picture else reader(place)


def reader_of(path: Path) -> Callable[[Path], Scan] | None:
    """Return the reader of a file or folder; None if it is of another kind."""
    if path.is_dir():
        return read_zarr if is_zarr(path) else read_dicom
    ending = "".join(path.suffixes[-2:]).lower()
    known = READERS.get(ending) or READERS.get(path.suffix.lower())
    if known is None and path.is_file() and is_dicom(path):
        return read_dicom
    return known
