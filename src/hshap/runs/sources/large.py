"""Large images as a source: files and folders on this machine that are read tile by tile.

They are never read as a whole, except for their digest, which takes one pass over the file.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.formats.listing import COMPANION, listed
from hshap.formats.ome_zarr import is_zarr
from hshap.formats.reading import LARGE_KINDS
from hshap.runs.sources.files import Disk, FileSource, decode_array, from_list, inner_path
from hshap.runs.sources.protocol import Read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap._util.types import Untyped
    from hshap.runs.sources.protocol import Item

LISTS = (".csv", ".parquet")
PIECE = 2**20
"""Bytes that are read at a time for a digest."""


@dataclass(frozen=True)
class LargeSource:
    """Large images by their relative paths; each is read as its path."""

    files: FileSource

    @property
    def count(self) -> int:
        return self.files.count

    @property
    def refused(self) -> tuple[str, ...]:
        return ()

    @property
    def left_out(self) -> str:
        return self.files.left_out

    def items(self) -> Iterator[Item]:
        return self.files.items()

    def read(self, item: Item) -> Read:
        files = self.files
        path = Path(files.disk.root, inner_path(files.names[item.number], files.disk))
        return Read(content_digest(path), lambda: str(path), item.where, str(path.absolute()))


def as_large_source(dataset: Untyped, root: str | os.PathLike[str] | None = None) -> LargeSource:
    """Return the large images of a run: those of a folder, of a list, or at several paths."""
    if isinstance(dataset, LargeSource):
        return dataset
    around = None if root is None else _local(os.fspath(root))
    if isinstance(dataset, (str, os.PathLike)):
        return LargeSource(_at_path(os.fspath(dataset), around))
    if not isinstance(dataset, (list, tuple)):
        message = f"dataset is {checks.shown(dataset)}; for tiles, pass a folder, a list or paths"
        raise ArgumentError(message)
    for one in cast("list[object]", dataset):
        if not isinstance(one, (str, os.PathLike)):
            message = f"dataset holds {checks.shown(one)}; for tiles, pass paths of images"
            raise ArgumentError(message)
    paths = [Path(one) for one in cast("list[str]", dataset)]
    names = tuple(str(path.absolute()) if around is None else str(path) for path in paths)
    return LargeSource(FileSource(around or Disk("/"), names))


def _at_path(location: str, root: Disk | None) -> FileSource:
    """Return the images of a list or a folder; a file, or a folder of OME-Zarr, is one image."""
    location = location.rstrip("/") or "/"
    disk = _local(location)
    folder, name = disk.parent(), location.rpartition("/")[2]
    if name.lower().endswith(LISTS):
        return from_list(folder, name, decode_array, root)
    if not disk.is_folder() or is_zarr(Path(disk.root)):
        return FileSource(folder, (name,))
    found = listed(disk.files(), LARGE_KINDS)
    names = tuple(sorted([*found.images, *found.large]))
    if not names:
        message = (
            f"dataset={location!r} holds no large images ({', '.join(LARGE_KINDS)}); pass another"
        )
        raise ArgumentError(message)
    return FileSource(disk, names, left_out=found.told(disk.root))


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a file; of a folder, that of the names and contents of its files.

    A slide with a folder of its own is both.
    """
    made = hashlib.sha256()
    if not path.exists():
        raise FileNotFoundError(f"{path.name} does not exist")
    if path.is_file():
        _add(made, path)
    folder = path.with_suffix("") if path.suffix.lower() == COMPANION else path
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            name = file.relative_to(folder).as_posix()
            made.update(f"\0{name}\0{file.stat().st_size}\0".encode("utf-8", "surrogatepass"))
            _add(made, file)
    return made.hexdigest()


def _add(made: Untyped, path: Path) -> None:
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            made.update(piece)


def _local(location: str) -> Disk:
    disk = Disk.at(location)
    if disk.system is not None:
        message = f"dataset={location!r} is on another machine; large images are read from a disk"
        raise ArgumentError(f"{message} of this one: copy them, or mount it")
    return disk
