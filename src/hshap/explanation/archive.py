"""Files of arrays with a header: of unknown origin, read with limits, and never with pickle.

A file is a NumPy .npz archive; its header is JSON. Declared sizes and shapes are checked before
memory is taken for them, and the small text before an array is matched, not evaluated.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util.atomic import replace
from hshap._util.checks import shown
from hshap.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from hshap._util.types import Array, Json

MAX_HEADER = 2**24
"""A header of this many bytes could take twenty times as many as Python objects."""

ENTRY = b"PK\x01\x02"
"""Starts each entry of a zip file's list of members."""

MOST_ENTRIES = 1000
"""A list of millions of members takes far more memory than the file that holds it."""

ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<>|][iuf][1-8])', 'fortran_order': (False|True), "
    rb"'shape': \(((?:\d{1,15},? ?){0,8})\), \} *\n",
    re.DOTALL,
)
"""The text before an array, as NumPy writes it."""

ENCRYPTED = 1
ALLOWED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class DamagedError(ValueError):
    """The content of a file is not that of an explanation; says why."""


class TooLargeError(DamagedError):
    """A file takes more memory than the caller allows; says how much."""


@contextmanager
def only_damage() -> Generator[None]:
    """Turn every exception of a library that reads a damaged file into a `DamagedError`."""
    try:
        yield
    except DamagedError:
        raise
    # Any: zipfile, zlib and json raise a dozen classes, MemoryError and RecursionError included.
    except Exception as error:
        raise DamagedError(f"{type(error).__name__}: {shown(str(error))}") from error


def expect(condition: object, fault: str) -> None:
    """Refuse a file for a fault unless the condition holds."""
    if not condition:
        raise DamagedError(fault)


def limit(needed: int, most: int) -> None:
    """Refuse a file that takes more bytes than are allowed."""
    if needed > most:
        raise TooLargeError(f"it takes {needed:,} bytes of memory, more than max_bytes={most:,}")


def file_bytes(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a regular file; missing ones and folders are errors of the system."""
    # To open a pipe would wait for a writer, and a device may have no end.
    _expect_regular(Path(path).stat())
    # Without waiting, since a pipe may have taken its place in between.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123, Path.open cannot set flags
        state = os.fstat(file.fileno())
        _expect_regular(state)
        size = state.st_size
        limit(size, most)
        return file.read(size)


def _expect_regular(state: os.stat_result) -> None:
    kind = stat.S_IFMT(state.st_mode)
    expect(kind in (stat.S_IFREG, stat.S_IFDIR), "it is a pipe, a socket or a device")


class Archive:
    """The arrays of an .npz archive, by name. Every fault in it is a `DamagedError`."""

    def __init__(self, data: bytes, most: int) -> None:
        expect(data.count(ENTRY) <= MOST_ENTRIES, f"it has more than {MOST_ENTRIES} members")
        with only_damage():
            self._zip = zipfile.ZipFile(BytesIO(data))
        members = self._zip.infolist()
        limit(sum(member.file_size for member in members), most)
        self._members = {member.filename: member for member in members}
        expect(len(self._members) == len(members), "two members have one name")
        for member in members:
            expect(member.compress_type in ALLOWED, "a member is compressed in an unusual way")
            expect(not member.flag_bits & ENCRYPTED, "a member is encrypted")

    @property
    def names(self) -> set[str]:
        """The names of all members, without the ending of those that are arrays."""
        return {name.removesuffix(".npy") for name in self._members}

    def read(self, name: str, dtype: str, axes: int, *, most: int | None = None) -> Array:
        """Return an array of a type and a number of axes."""
        member = self._members.get(f"{name}.npy")
        if member is None:
            raise DamagedError(f"there is no array {name}")
        limit(member.file_size, member.file_size if most is None else most)
        with only_damage(), self._zip.open(member) as file:
            # One more than is declared: the last read then checks the checksum.
            data = file.read(member.file_size + 1)
        expect(len(data) == member.file_size, f"{name} is shorter than it says")
        return _array(name, data, np.dtype(dtype), axes)


def _array(name: str, data: bytes, dtype: np.dtype, axes: int) -> Array:
    found = ARRAY.match(data)
    if found is None:
        raise DamagedError(f"{name} is not an array of numbers")
    kind = np.dtype(found[1].decode())
    expect(kind.newbyteorder("=") == dtype, f"{name} holds {kind} numbers, not {dtype}")
    shape = tuple(int(side) for side in found[3].replace(b",", b" ").split())
    expect(len(shape) == axes, f"{name} has {len(shape)} axes, not {axes}")
    expect(
        len(data) - found.end() == prod(shape) * dtype.itemsize,
        f"{name} does not hold the {prod(shape)} numbers that it announces",
    )
    flat = np.frombuffer(data, kind, offset=found.end())
    return flat.reshape(shape, order="F" if found[2] == b"True" else "C").astype(dtype, copy=False)


@dataclass(frozen=True)
class FileForm:
    """A form of files: its name, its version, and the type and number of axes of each array."""

    name: str
    version: int
    arrays: Mapping[str, tuple[str, int]]

    def write(
        self, path: str | os.PathLike[str], header: Mapping[str, Json], arrays: Mapping[str, Array]
    ) -> None:
        """Write a file; an existing one is replaced only once the new one is complete."""
        data = self.pack(header, arrays)  # before a file is made
        replace(path, lambda file: file.write(data))

    def pack(self, header: Mapping[str, Json], arrays: Mapping[str, Array]) -> bytes:
        """Return the content of a file."""
        whole = {"format": self.name, "version": self.version, **header}
        text = np.frombuffer(json.dumps(whole).encode(), dtype=np.uint8)
        file = BytesIO()
        np.savez_compressed(file, allow_pickle=False, **{**arrays, "header": text})
        return file.getvalue()

    def read(
        self,
        path: str | os.PathLike[str],
        most: int,
        make: Callable[[dict[str, Any], dict[str, Array]], dict[str, Any]],
    ) -> dict[str, Any]:
        """Return the fields that a function makes of a file; see `unpack`."""
        return self._made(lambda: file_bytes(path, most), os.fspath(path), most, make)

    def unpack(
        self,
        data: bytes,
        name: str,
        most: int,
        make: Callable[[dict[str, Any], dict[str, Array]], dict[str, Any]],
    ) -> dict[str, Any]:
        """Return the fields that a function makes of the header and the arrays of a file.

        A file of another form, a damaged one and one that takes more than `most` bytes of memory is
        a `FormatError` with its name.
        """
        return self._made(lambda: data, name, most, make)

    def _made(
        self,
        data: Callable[[], bytes],
        name: str,
        most: int,
        make: Callable[[dict[str, Any], dict[str, Array]], dict[str, Any]],
    ) -> dict[str, Any]:
        with _as_format_error(name):
            archive, header = self._opened(data, name, most)
            expected = {"header", *self.arrays}
            expect(archive.names == expected, "it lacks arrays, or has others besides")
            arrays = {key: archive.read(key, *shape) for key, shape in self.arrays.items()}
            return make(header, arrays)

    def _opened(
        self, data: Callable[[], bytes], name: str, most: int
    ) -> tuple[Archive, dict[str, Any]]:
        try:
            archive = Archive(data(), most)
            text = archive.read("header", "uint8", 1, most=MAX_HEADER).tobytes()
            with only_damage():
                header: dict[str, Any] = json.loads(text)
                found = header["format"], header["version"]
        except TooLargeError:
            raise
        except DamagedError as error:
            message = f"{name} is not an {self.name}; pass a file that save() wrote"
            raise FormatError(message) from error
        if found != (self.name, self.version):
            kind, version = map(shown, found)
            message = (
                f"{name} is a {kind} of version {version}{_writer(header)}, but this hshap reads "
                f"version {self.version} of a {self.name}; read it with the hshap that wrote it"
            )
            raise FormatError(message)
        return archive, header


@contextmanager
def _as_format_error(name: str) -> Generator[None]:
    """Tell the user which file is damaged or too large."""
    try:
        yield
    except TooLargeError as error:
        message = f"{name} is too large: {error}; pass a larger max_bytes if you trust the file"
        raise FormatError(message) from error
    except DamagedError as error:
        message = f"{name} is damaged ({error}); save the explanation again"
        raise FormatError(message) from error


def _writer(header: Mapping[str, Any]) -> str:
    """Return which hshap wrote a file of another version, for messages, if the file tells."""
    settings: object = header.get("settings")
    version: object = settings.get("hshap") if isinstance(settings, dict) else None
    return f", written by hshap {shown(version)}" if isinstance(version, str) else ""
