"""Images from files: a folder, or a list of paths in a CSV or Parquet file."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError, require
from hshap.formats.listing import elsewhere, listed
from hshap.runs.sources.protocol import Item, Read
from hshap.runs.storing.schema import EXTRA, read_parquet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap._util.types import Array, Untyped
    from hshap.formats.listing import Listing
    from hshap.runs.sources.protocol import Decode

COLUMNS = ("image", "path", "file", "filename")
"""Names of the column with the paths in a list, the first one preferred."""

LABELS = ("target", "class", "label")
MOST_BYTES = 2**32
"""A larger file is not read into memory."""


def decode_array(data: bytes, name: str) -> Array:
    """Return the image in an .npy file; no pickle is read, and other files are refused."""
    if not name.lower().endswith(".npy"):
        message = (
            f"{name} is no .npy file; pass decode=, a function of the file's bytes and name that "
            "returns the image (channels, height, width), or use the command hshap run"
        )
        raise ArgumentError(message)
    return np.load(io.BytesIO(data), allow_pickle=False)


@dataclass(frozen=True)
class Disk:
    """Where files are read: on this machine, or on a file system of fsspec."""

    root: str
    system: Untyped = None

    @classmethod
    def at(cls, location: str) -> Disk:
        """Return the file system of a path; one with a protocol, such as s3://, is remote."""
        if "://" not in location:
            return cls(location)
        fsspec: Untyped = require("fsspec", extra=EXTRA, needed_by=f"reading {location}")
        try:
            system, root = fsspec.core.url_to_fs(location)
        except ValueError as error:
            message = f"dataset={location!r} is of an unknown protocol ({error}); pass another"
            raise ArgumentError(message) from error
        return cls(str(root), None if "file" in _protocols(system) else system)

    def is_folder(self) -> bool:
        """Tell whether it is a folder."""
        return Path(self.root).is_dir() if self.system is None else self.system.isdir(self.root)

    def parent(self) -> Disk:
        """Return the folder around it."""
        return replace(
            self, root=self.root.rpartition("/")[0] or ("/" if self.root[:1] == "/" else ".")
        )

    def files(self) -> list[str]:
        """Return the paths of all files inside, relative to it; hidden ones too."""
        if self.system is not None:
            whole = [str(path) for path in self.system.find(self.root)]
            return [path.removeprefix(self.root).lstrip("/") for path in whole]
        return [
            (Path(folder) / name).relative_to(self.root).as_posix()
            for folder, _, names in os.walk(self.root)
            for name in names
        ]

    def whole(self, name: str) -> str:
        """Return the full path of a file, for people and for reading it again."""
        if self.system is not None:
            return str(self.system.unstrip_protocol(f"{self.root}/{name}"))
        return str(Path(self.root, name).absolute())

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes:
        """Return the bytes of a file, or of a part of it."""
        if self.system is not None:
            return self.system.cat_file(f"{self.root}/{name}", start=start, end=stop)
        path = Path(self.root, name)
        if not path.is_file():
            problem = "is no regular file" if path.exists() else "does not exist"
            raise FileNotFoundError(f"{name} {problem}")
        if start is None and path.stat().st_size > MOST_BYTES:
            raise ArgumentError(f"{name} has over {MOST_BYTES} bytes; pass it to hshap tiles")
        with path.open("rb") as file:
            file.seek(start or 0)
            return file.read() if stop is None else file.read(stop - (start or 0))


@dataclass(frozen=True)
class FileSource:
    """Files on one disk by their relative paths, with or without a class for each.

    A path that leads out of the disk's folder is an error of that image, and nothing is read.
    `refused` are large images of a folder, and `left_out` tells of files that are no images.
    """

    disk: Disk
    names: tuple[str, ...]
    decode: Decode = decode_array
    labels: tuple[object, ...] = ()
    refused: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def count(self) -> int:
        return len(self.names)

    def items(self) -> Iterator[Item]:
        for number, name in enumerate(self.names):
            yield Item(number, name, self.labels[number] if self.labels else None)

    def read(self, item: Item) -> Read:
        inside = inner_path(item.name, self.disk)
        data = self.disk.read(inside)
        sha256 = hashlib.sha256(data).hexdigest()
        make = partial(self.decode, data, item.name)
        return Read(sha256, make, item.where, self.disk.whole(inside))


def inner_path(name: str, disk: Disk) -> str:
    """Return the path of a file relative to the disk's folder, or refuse one that leads out."""
    given = name
    if disk.system is None and Path(name).is_absolute():
        given = os.path.relpath(os.path.realpath(name), os.path.realpath(disk.root))
    elif disk.system is not None and "://" in name:
        given = disk.system._strip_protocol(name).removeprefix(disk.root).lstrip("/")  # noqa: SLF001
    path = PurePosixPath(Path(given).as_posix())
    out = path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts
    if disk.system is None and not out:
        real, root = os.path.realpath(Path(disk.root, given)), os.path.realpath(disk.root)
        out = not Path(real).is_relative_to(root)
    if out:
        message = f"{name} leads out of {disk.root}; pass root= (--root) with a folder that has it"
        raise ArgumentError(message)
    return path.as_posix()


def from_folder(disk: Disk, decode: Decode, suffixes: Sequence[str]) -> FileSource:
    """Return the files of a folder and of all folders in it, by their suffixes."""
    found = listed(disk.files(), suffixes)
    check_images(found, disk.root, suffixes)
    told = found.told(disk.root)
    return FileSource(disk, found.images, decode, refused=found.large, left_out=told)


def check_images(found: Listing, place: str, suffixes: Sequence[str]) -> None:
    """Refuse a folder or a tar file without images; large ones are named with their command."""
    if found.images:
        return
    for name in found.large:
        others = f", and {len(found.large) - 1} more like it" if len(found.large) > 1 else ""
        message = f"dataset={place!r} holds large images alone: {elsewhere(name)}{others}"
        raise ArgumentError(message)
    message = f"dataset={place!r} holds no images ({', '.join(suffixes)}); pass another"
    raise ArgumentError(message)


def from_list(disk: Disk, name: str, decode: Decode, root: Disk | None) -> FileSource:
    """Return the files that a CSV or Parquet file lists; paths are relative to its own folder."""
    columns = _parquet(disk.read(name)) if name.lower().endswith(".parquet") else _csv(disk, name)
    column = next((one for one in COLUMNS if one in columns), None)
    if column is None:
        message = (
            f"dataset={name!r} has the columns {', '.join(map(str, columns)) or 'none'}; name the "
            "one with the paths 'image'"
        )
        raise ArgumentError(message)
    label = next((one for one in LABELS if one in columns), None)
    labels = tuple(_plain(value) for value in columns[label]) if label else ()
    return FileSource(root or disk, tuple(map(str, columns[column])), decode, labels)


def _csv(disk: Disk, name: str) -> dict[str, list[object]]:
    text = disk.read(name).decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    return {key: [row[key] for row in rows] for key in (rows[0] if rows else {})}


def _parquet(data: bytes) -> dict[str, list[object]]:
    # Plain columns alone: a column of objects of Python would need pickle.
    wanted = (*COLUMNS, *LABELS)
    return read_parquet(data, wanted, needed_by="a list in Parquet").to_pydict()


def _plain(value: object) -> object:
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


def _protocols(system: Untyped) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)
