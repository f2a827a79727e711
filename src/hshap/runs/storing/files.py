"""Files of a run folder: the few operations that its guarantees rest on, local or remote.

A name is a path inside the run folder, with slashes. A file appears whole or not at all.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from hshap._util import checks
from hshap._util.atomic import give_name, sync_folder
from hshap._util.processes import Owner, this_process
from hshap.errors import ArgumentError, require
from hshap.runs.storing.schema import EXTRA

if TYPE_CHECKING:
    from hshap._util.types import Untyped

TEMPORARY = ".tmp-"
"""Begins the name of a file that is being written; it is never read."""

ALIVE = "alive+"
"""Begins the name of a file that shows that a driver lives; see `claims.py`."""


@runtime_checkable
class Files(Protocol):
    """The files of a run folder. Objects must pickle, because workers get a copy."""

    @property
    def location(self) -> str:
        """The folder, to name in messages."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the sorted names of the files in a folder; none if it does not exist."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of a file, or raise `FileNotFoundError`."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write a new file, and wait until it is on the disk."""
        ...

    def rename(self, name: str, to: str) -> None:
        """Rename a file in one step; one of the new name is replaced."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        ...

    def create(self, name: str, data: bytes) -> bool:
        """Write a small file unless there is one of this name; False if there is."""
        ...

    def place(self) -> tuple[str, Untyped] | None:
        """Return the path and the file system (None: local) for pyarrow; None if it has none."""
        ...


def publish(files: Files, name: str, data: bytes) -> None:
    """Write a file so that it appears whole or not at all: write, fsync, rename."""
    temporary = temporary_of(name)
    try:
        files.write(temporary, data)
        files.rename(temporary, name)
    except Exception:
        with suppress(Exception):
            files.remove(temporary)
        raise


@dataclass(frozen=True)
class LocalFiles:
    """A run folder on this machine, or on a disk that it has mounted.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = LocalFiles(Path(folder))
    ...     publish(files, "shards/a", b"hello")
    ...     files.names("shards"), files.create("shards/a", b"again")
    (['a'], False)
    """

    root: Path

    @property
    def location(self) -> str:
        return str(self.root)

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(self.root / folder) as found:
                # A pipe or a device in a folder of others would be read for ever.
                return sorted(entry.name for entry in found if entry.is_file() or entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        path = self.root / name
        if not stat.S_ISREG(path.stat().st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return path.read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, name: str, to: str) -> None:
        target = self.root / to
        (self.root / name).replace(target)
        sync_folder(target.parent)

    def remove(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def create(self, name: str, data: bytes) -> bool:
        path = self.root / name
        if path.exists():
            return False
        temporary = temporary_of(name)
        try:
            self.write(temporary, data)
            return give_name(self.root / temporary, path)
        finally:
            self.remove(temporary)

    def place(self) -> tuple[str, Untyped]:
        return str(self.root), None


@dataclass(frozen=True)
class RemoteFiles:
    """A run folder on a file system of fsspec, such as an object store.

    Object stores have no locks, so two processes may both believe that they created a file. The
    guarantees of a run do not rest on it.
    """

    system: Untyped
    root: str

    @property
    def location(self) -> str:
        return self.system.unstrip_protocol(self.root)

    def names(self, folder: str) -> list[str]:
        # The listing of an earlier call would hide the shards of others.
        self.system.invalidate_cache()
        try:
            found = self.system.ls(f"{self.root}/{folder}", detail=False)
        except FileNotFoundError:
            return []
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in found)

    def read(self, name: str) -> bytes:
        return self.system.cat_file(f"{self.root}/{name}")

    def write(self, name: str, data: bytes) -> None:
        self.system.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
        self.system.pipe_file(f"{self.root}/{name}", data)

    def rename(self, name: str, to: str) -> None:
        self.system.mv(f"{self.root}/{name}", f"{self.root}/{to}")

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self.system.rm_file(f"{self.root}/{name}")

    def create(self, name: str, data: bytes) -> bool:
        if self.system.exists(f"{self.root}/{name}"):
            return False
        self.write(name, data)
        return True

    def place(self) -> tuple[str, Untyped]:
        return self.root, self.system


def files_at(out: Untyped) -> Files:
    """Return the files of a folder; a text with a protocol, such as s3://, is a remote one.

    >>> files_at("some/folder").location
    'some/folder'
    """
    if isinstance(out, Files):
        return out
    if not isinstance(out, (str, os.PathLike)):
        message = f"out is {checks.shown(out)}; pass the path of a folder"
        raise ArgumentError(message)
    text = os.fspath(out)
    if "://" not in text or text.startswith("file://"):
        return LocalFiles(Path(text.removeprefix("file://")))
    fsspec: Untyped = require("fsspec", extra=EXTRA, needed_by=f"the folder {text}")
    try:
        system, root = fsspec.core.url_to_fs(text)
    except ValueError as error:
        message = (
            f"out is {text!r}, of a protocol that fsspec does not know ({error}); pass another"
        )
        raise ArgumentError(message) from error
    return RemoteFiles(system, str(root).rstrip("/"))


def temporary_of(name: str) -> str:
    """Return a new name next to another one; it tells which process writes the file."""
    folder, slash, _ = name.rpartition("/")
    return f"{folder}{slash}{TEMPORARY}{secrets.token_hex(8)}+{this_process()}"


def left_over(files: Files, folder: str) -> list[str]:
    """Return the temporary files and signs of life whose processes have ended for certain."""
    found = [name for name in files.names(folder) if name.startswith((TEMPORARY, ALIVE))]
    owners = {name: Owner.read(name.partition("+")[2]) for name in found}
    gone = [name for name, owner in owners.items() if owner is not None and owner.is_gone()]
    return [f"{folder}/{name}" if folder else name for name in gone]
