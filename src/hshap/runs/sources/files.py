"""Images from files: a folder, or a list of paths in a CSV or Parquet file."""

from __future__ import annotations

import csv
import hashlib
import io
import os
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap.errors import ArgumentError, require
from hshap.formats.listing import elsewhere, listed
from hshap.runs.sources.protocol import DecodesFiles, Item, Read, content_digest
from hshap.runs.storing.schema import EXTRA, arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from hshap._util.types import Array, Untyped
    from hshap.formats.listing import Listing
    from hshap.runs.sources.protocol import Decode, Decoded

COLUMNS = ("image", "path", "file", "filename")
"""Names of the column with the paths in a list, the first one preferred."""

LABELS = ("target", "class", "label")
WANTED = frozenset((*COLUMNS, *LABELS))
MOST_BYTES = 2**32
"""A larger file is not read into memory."""

MOST_LIST = 2**30
"""Bytes that a list may have, and unpack to."""

MOST_ROWS = 20_000_000
MOST_AT_ONCE = 10_000
"""Rows of a list in Parquet that are unpacked at once."""

LONGEST_NUMBER = 20
"""Letters of a class that is a number; more are a name."""

MOST_PATH = 10_000
"""Bytes of a path or class in a list; no system has longer paths."""


def decode_array(data: bytes, name: str) -> Array:
    """Return the image in an .npy file; no pickle is read, and other files are refused."""
    if not name.lower().endswith(".npy"):
        message = (
            f"{name} is no .npy file; pass decode=, a function of the file's bytes and name that "
            "returns the image (channels, height, width), or use the command hshap run"
        )
        raise ArgumentError(message)
    file = io.BytesIO(data)
    is_first = np.lib.format.read_magic(file) == (1, 0)
    header = (
        np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
    )
    shape, is_fortran, dtype = header(file)
    if dtype.hasobject:
        raise ArgumentError(f"{name} holds objects of Python, not numbers; save an array of floats")
    count = prod(shape)
    # numpy.load takes memory for all numbers that a file announces, before it looks for them.
    if min(shape, default=0) < 0 or count * dtype.itemsize > len(data) - file.tell():
        raise ArgumentError(f"{name} does not hold the {shape} numbers that it announces")
    flat = np.frombuffer(data, dtype, count, file.tell())
    return flat.reshape(shape, order="F" if is_fortran else "C")


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

    def file(self, name: str) -> Path:
        """Return the path of a regular file of this machine."""
        path = Path(self.root, name)
        if not path.is_file():
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise FileNotFoundError(f"{name} {problem}")
        return path

    def read(
        self, name: str, start: int = 0, stop: int | None = None, *, most: int = MOST_BYTES
    ) -> bytes:
        """Return the bytes of a file, or of a part of it; more than `most` are refused."""
        size = None if stop is None else stop - start
        path = Path(self.root, name)
        if self.system is None:
            path = self.file(name)
            left = max(path.stat().st_size - start, 0)
            size = left if size is None else min(size, left)
        if size is not None and size > most:
            advice = "split a list, and pass a large image to hshap tiles"
            raise ArgumentError(f"{name} has {size} bytes, more than {most}; {advice}")
        if self.system is not None:
            return self.system.cat_file(f"{self.root}/{name}", start=start, end=stop)
        with path.open("rb") as file:
            file.seek(start)
            return file.read(size)


@dataclass(frozen=True)
class FileSource:
    """Files on one disk by their relative paths, with or without a class for each.

    A path that leads out of the disk's folder is an error of that image, and nothing is read.
    `refused` are large images of a folder, and `left_out` counts files that are not images.
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
        inside = inner_path(self.names[item.number], self.disk)
        if isinstance(self.decode, DecodesFiles) and self.disk.system is None:
            path = self.disk.file(inside)
            with path.open("rb") as file:
                own = hashlib.file_digest(file, "sha256").hexdigest()
            make: Callable[[], ArrayLike | Decoded] = partial(self.decode.file, path, item.name)
        else:
            data = self.disk.read(inside)
            own = hashlib.sha256(data).hexdigest()
            make = partial(cast("Decode", self.decode), data, item.name)
        sha256 = content_digest(own, self.decode, item.name)
        return Read(sha256, make, item.where, self.disk.whole(inside))


def inner_path(name: str, disk: Disk) -> str:
    """Return the path of a file relative to the disk's folder, or refuse one that leads out."""
    given = name
    if disk.system is None and Path(name).is_absolute():
        given = os.path.relpath(os.path.realpath(name), os.path.realpath(disk.root))
    elif disk.system is not None and "://" in name:
        given = disk.system._strip_protocol(name).removeprefix(disk.root).lstrip("/")  # noqa: SLF001
    if not name.strip():
        raise ArgumentError("the list has no path in this row; fill it in, or remove the row")
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
    data = disk.read(name, most=MOST_LIST)
    columns = _parquet(data, name) if name.lower().endswith(".parquet") else _csv(data, name)
    column = next((one for one in COLUMNS if one in columns), None)
    if column is None:
        message = (
            f"dataset={name!r} has the columns {', '.join(map(str, columns)) or 'none'}; name the "
            "one with the paths 'image'"
        )
        raise ArgumentError(message)
    label = next((one for one in LABELS if one in columns), None)
    labels = tuple(_plain(value) for value in columns[label]) if label else ()
    return FileSource(root or disk, tuple(map(_path, columns[column])), decode, labels)


def _csv(data: bytes, name: str) -> dict[str, list[object]]:
    # A path may have any bytes, as the names of files do.
    lines = csv.reader(io.StringIO(data.decode("utf-8-sig", "surrogateescape"), newline=""))
    try:
        names = next(lines, [])
        found: dict[str, list[object]] = {one: [] for one in names}
        kept = [(names.index(one), values) for one, values in found.items() if one in WANTED]
        for number, row in enumerate(filter(None, lines), 1):
            _check_rows(number, name)
            for place, values in kept:
                values.append(row[place] if place < len(row) else None)
    except csv.Error as error:
        raise ArgumentError(f"dataset={name!r} is not a CSV file ({error}); mend it") from error
    return found


def _parquet(data: bytes, name: str) -> dict[str, list[object]]:
    """Return the columns of a list in Parquet, read piece by piece within limits.

    A path that repeats takes few bytes in the file, and as many as it has in memory each time.
    """
    pa: Untyped = arrow("a list in Parquet")
    parquet: Untyped = require("pyarrow.parquet", extra=EXTRA, needed_by="a list in Parquet")
    given: Untyped = {"source": pa.BufferReader(data), "pre_buffer": False}
    try:
        file = parquet.ParquetFile(**given)
        _check_list(file.metadata, name)
        found: dict[str, list[object]] = {one: [] for one in file.schema_arrow.names}
        kept = [one for one in found if one in WANTED]
        texts = [one for one in kept if _is_text(file.schema_arrow.field(one).type)]
        file = parquet.ParquetFile(**given, read_dictionary=texts)
        for batch in file.iter_batches(MOST_AT_ONCE, columns=kept, use_threads=False):
            for one in kept:
                found[one] += _values(batch[one], name, one)
    except (pa.ArrowException, OSError) as error:
        message = f"dataset={name!r} is not a Parquet file that can be read ({error}); pass another"
        raise ArgumentError(message) from error
    return found


def _check_list(metadata: Untyped, name: str) -> None:
    """Refuse a list that announces too many rows, or columns of too many bytes."""
    _check_rows(metadata.num_rows, name)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    size = sum(group.total_byte_size for group in groups)
    if size > MOST_LIST:
        message = f"dataset={name!r} unpacks to {size} bytes, more than {MOST_LIST}; split it"
        raise ArgumentError(message)


def _check_rows(count: int, name: str) -> None:
    if count > MOST_ROWS:
        message = f"dataset={name!r} has more than {MOST_ROWS} rows; split it"
        raise ArgumentError(message)


def _is_text(kind: Untyped) -> bool:
    types: Untyped = arrow().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    tests = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return any(test(kind) for test in tests)


def _values(column: Untyped, name: str, label: str) -> list[object]:
    """Return the values of a piece of a column; texts in any encoding, as the names of files."""
    pa: Untyped = arrow()
    if not pa.types.is_dictionary(column.type):
        if pa.types.is_nested(column.type):
            raise ArgumentError(f"dataset={name!r} has lists in {label!r}; pass one value a row")
        return column.to_pylist()
    buffers = [value.as_buffer() for value in column.dictionary]
    longest = max((buffer.size for buffer in buffers), default=0)
    if longest > MOST_PATH:
        message = f"dataset={name!r} has a text of {longest} bytes in {label!r}; shorten it"
        raise ArgumentError(message)
    texts = [os.fsdecode(buffer.to_pybytes()) for buffer in buffers]
    return [None if one is None else texts[one] for one in column.indices.to_pylist()]


def _path(value: object) -> str:
    return "" if value is None else str(value)


def _plain(value: object) -> object:
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < LONGEST_NUMBER:
        return int(value)
    return value


def _protocols(system: Untyped) -> tuple[str, ...]:
    return (system.protocol,) if isinstance(system.protocol, str) else tuple(system.protocol)
