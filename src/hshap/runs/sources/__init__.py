"""Sources: where the images of a run come from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.formats.listing import PICTURES, SCANS
from hshap.runs.sources.arrays import Indexed, Named, Streamed
from hshap.runs.sources.files import Disk, FileSource, decode_array, from_folder, from_list
from hshap.runs.sources.protocol import Source
from hshap.runs.sources.tars import from_tar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Untyped
    from hshap.runs.sources.protocol import Decode

ARRAYS = (".npy",)
LISTS = (".csv", ".parquet")


def as_source(
    dataset: Untyped,
    *,
    decode: Decode | None = None,
    suffixes: Sequence[str] | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Source:
    """Return the images of a run.

    `dataset` is the path of a folder, of a CSV or Parquet file with a column `image`, or of a tar
    file; or a torch data set, a sequence or mapping of images, or anything to iterate over. Entries
    are images `(channels, *grid)`, pairs of image and class, or paths of files.

    `decode` takes the bytes of a file and its name, and returns the image; .npy files need none.
    Of a folder or tar file, files with the given suffixes are images: by default .npy, and those of
    pictures and scans too if there is `decode`.
    `root` is the folder that paths of a list start from and may not leave; the list's own folder
    by default.

    >>> as_source([[[[0.0]]], [[[1.0]]]]).count
    2
    """
    if isinstance(dataset, Source):
        return dataset
    read = decode or decode_array
    if suffixes is None:
        suffixes = ARRAYS if decode is None else (*ARRAYS, *PICTURES, *SCANS)
    if isinstance(dataset, (str, os.PathLike)):
        return _from_path(os.fspath(dataset), read, suffixes, root)
    if isinstance(dataset, Mapping):
        return Named(dataset)
    if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__"):
        first = dataset[0] if len(dataset) else None
        if isinstance(first, (str, os.PathLike)):
            # A list in the caller's own program may name any file; one from a file may not.
            names = tuple(
                str(Path(name).absolute()) if root is None else os.fspath(name) for name in dataset
            )
            return FileSource(Disk.at("/" if root is None else os.fspath(root)), names, read)
        return Indexed(dataset)
    if isinstance(dataset, Iterable):
        return Streamed(dataset)
    message = (
        f"dataset is {checks.shown(dataset)}; pass a folder, a list, a tar file, a data set, or "
        "anything to iterate over"
    )
    raise ArgumentError(message)


def _from_path(
    location: str, decode: Decode, suffixes: Sequence[str], root: str | os.PathLike[str] | None
) -> Source:
    disk = Disk.at(location)
    if disk.is_folder():
        return from_folder(disk, decode, suffixes)
    folder, name = disk.parent(), location.rstrip("/").rpartition("/")[2]
    if name.lower().endswith(LISTS):
        return from_list(folder, name, decode, None if root is None else Disk.at(os.fspath(root)))
    if name.lower().endswith(".tar"):
        return from_tar(folder, name, decode, suffixes)
    if name.lower().endswith(tuple(suffixes)):
        return FileSource(folder, (name,), decode)
    message = (
        f"dataset={location!r} is neither a folder nor a .csv, .parquet or .tar file; pass one"
    )
    raise ArgumentError(message)
