"""NumPy's own files: `.npy`, and `.npz` with one array. Pickled objects are never read."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import FormatError
from hshap.formats.large_images import ArrayImage
from hshap.formats.refusals import quietly, refuse_large
from hshap.formats.scan import Scan

if TYPE_CHECKING:
    from pathlib import Path

    from hshap._util.types import Array


def read_numpy(path: Path) -> Scan:
    """Read an array `(channels, *grid)`, or a picture `(height, width)`."""
    with quietly(path, "reading it as an array without pickle"):
        array = _packed(path) if path.suffix.lower() == ".npz" else _mapped(path)
    if array.dtype.kind not in "uifb" or not 2 <= array.ndim <= 4 or not array.size:
        message = (
            f"{path} holds {array.dtype} of shape {array.shape}; save numbers (channels, height, "
            "width), (channels, depth, height, width) or (height, width)"
        )
        raise FormatError(message)
    whole = array[None] if array.ndim == 2 else array
    return Scan(
        np.array(whole, dtype=whole.dtype.newbyteorder("=")),
        axes="CYX" if whole.ndim == 3 else "CZYX",
        name=path.name,
        format="numpy",
        files=(path,),
    )


def _mapped(path: Path) -> Array:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    refuse_large(str(path), array.shape, array.dtype.itemsize)
    return array


def _packed(path: Path) -> Array:
    """Read the one array of an archive; its header is checked before its numbers are unpacked."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(names) != 1:
            message = f"{path} holds {len(names)} arrays; save one image in a file"
            raise FormatError(message)
        with archive.open(names[0]) as file:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0
            shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(
                file
            )
            refuse_large(str(path), shape, dtype.itemsize)
    with np.load(path, allow_pickle=False) as arrays:
        return arrays[names[0].removesuffix(".npy")]


def open_array(path: Path) -> ArrayImage:
    """Open a .npy file as a memory map."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        message = f"{path} cannot be read as an array ({reason}); save it by numpy.save"
        raise FormatError(message) from error
    return ArrayImage(array, path.name)
