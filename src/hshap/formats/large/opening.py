"""Opening a large image: by the kind of the file, or an array that is in memory."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError, FormatError
from hshap.formats.large.arrays import ArrayImage, open_array
from hshap.formats.large.ome_zarr import ZarrImage
from hshap.formats.large.protocol import LargeImage
from hshap.formats.large.slides import SUFFIXES, SlideImage
from hshap.formats.large.tiff import TiffImage

if TYPE_CHECKING:
    from collections.abc import Generator

TIFF = (".tif", ".tiff", ".btf", ".tf8")
KINDS = (*TIFF, ".zarr", ".npy", *SUFFIXES)
"""Endings of files that are read region by region."""


def is_large_kind(path: Path) -> bool:
    """Tell whether a path has the ending of a file that is read region by region.

    >>> is_large_kind(Path("slide.ome.tiff")), is_large_kind(Path("photo.png"))
    (True, False)
    """
    return path.suffix.lower() in KINDS


def open_image(image: object) -> LargeImage:
    """Open a picture that is read region by region, so that it need not fit in memory.

    `image` is the path of a tiled TIFF file, of the folder of an image in OME-Zarr, of a whole
    slide that OpenSlide reads, or of a .npy file. An array `(channels, height, width)`, such as
    a memory map, and any `LargeImage` are taken as they are. A file that is damaged, or cannot be
    read piece by piece, is a `FormatError` that says why. Close the image after use.

    >>> import numpy as np
    >>> open_image(np.zeros((500, 800), np.uint8)).shape
    (1, 500, 800)
    """
    if isinstance(image, np.ndarray):
        return ArrayImage(image)
    if isinstance(image, LargeImage):
        return image
    if not isinstance(image, (str, os.PathLike)):
        message = (
            f"image is {checks.shown(image)}; pass the path of a file ({', '.join(KINDS)}), an "
            "array (channels, height, width), or a LargeImage"
        )
        raise ArgumentError(message)
    path = Path(os.fspath(image))
    suffix = path.suffix.lower()
    if not path.exists():
        raise FileNotFoundError(2, "no such file or folder", str(path))
    if path.is_dir():
        return ZarrImage(path)
    if suffix in SUFFIXES:
        return SlideImage(path)
    if suffix == ".npy":
        return open_array(path)
    if suffix in TIFF:
        return TiffImage(path)
    message = (
        f"{path} cannot be read region by region; save it as a tiled TIFF file, or pass one of "
        f"{', '.join(KINDS)}"
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
