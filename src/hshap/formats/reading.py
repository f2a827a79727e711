"""Reading an image: the kind of the file tells the reader.

`read_image` gives a `Scan`. `open_image` gives a `LargeImage`, which is read region by region.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError, FormatError
from hshap.formats.arrays import open_array, read_numpy
from hshap.formats.dicom.headers import is_dicom
from hshap.formats.dicom.series import read_dicom
from hshap.formats.large_images import ArrayImage, LargeImage
from hshap.formats.listing import PICTURES
from hshap.formats.nifti import read_nifti
from hshap.formats.ome_zarr import is_zarr, open_zarr, read_zarr
from hshap.formats.pictures import PictureOptions, read_picture
from hshap.formats.refusals import quietly, refuse_large
from hshap.formats.slides import SUFFIXES, SlideImage, read_slide
from hshap.formats.tiff import open_tiff, read_tiff

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from hshap.formats.scan import Scan


def _read_picture(path: Path, frame: int | None = None) -> Scan:
    refuse_large(str(path), (path.stat().st_size,), 1)
    scan = read_picture(path.read_bytes(), str(path), PictureOptions(frame))
    return replace(scan, files=(path,))


TIFF = (".tif", ".tiff", ".btf", ".tf8")
LARGE_KINDS = (*TIFF, ".zarr", ".npy", *SUFFIXES)
"""Endings of files that are read region by region."""

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


def is_large_kind(path: Path) -> bool:
    """Tell whether a path has the ending of a file that is read region by region.

    >>> is_large_kind(Path("slide.ome.tiff")), is_large_kind(Path("photo.png"))
    (True, False)
    """
    return path.suffix.lower() in LARGE_KINDS


def open_image(image: object) -> LargeImage:
    """Open a picture that is read region by region, so that it need not fit in memory.

    `image` is the path of a tiled TIFF file, of the folder of an image in OME-Zarr, of a whole
    slide that OpenSlide reads, or of a .npy file. An array `(channels, height, width)`, such as
    a memory map, and any `LargeImage` are taken as they are. A file that is damaged, or cannot be
    read piece by piece, is a `FormatError` that says why. Close the image after use.

    >>> open_image(np.zeros((500, 800), np.uint8)).shape
    (1, 500, 800)
    """
    if isinstance(image, np.ndarray):
        return ArrayImage(image)
    if isinstance(image, LargeImage):
        return image
    if not isinstance(image, (str, os.PathLike)):
        message = (
            f"image is {checks.shown(image)}; pass the path of a file ({', '.join(LARGE_KINDS)}), "
            "an array (channels, height, width), or a LargeImage"
        )
        raise ArgumentError(message)
    path = Path(os.fspath(image))
    suffix = path.suffix.lower()
    if not path.exists():
        raise FileNotFoundError(2, "no such file or folder", str(path))
    if path.is_dir():
        return open_zarr(path)
    if suffix in SUFFIXES:
        return SlideImage(path)
    if suffix == ".npy":
        return open_array(path)
    if suffix in TIFF:
        return open_tiff(path)
    message = (
        f"{path} cannot be read region by region; save it as a tiled TIFF file, or pass one of "
        f"{', '.join(LARGE_KINDS)}"
    )
    raise FormatError(message)


@contextmanager
def opened(image: object) -> Generator[LargeImage]:
    """Open a large image for a while; one that the caller opened stays open."""
    found = open_image(image)
    try:
        yield found
    finally:
        if found is not image:
            found.close()
