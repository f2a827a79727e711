"""Files that are never half written, and that keep their permissions."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""Errors of disks without hard links, such as exFAT and mounted object stores."""

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def replace(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> Path:
    """Let `write` fill a file; one that is there stays whole until the new one is complete.

    A link is followed: the file it leads to is replaced. An existing file keeps its permissions,
    and its owner where the system allows; other hard links to it keep the old content. A new file
    gets the usual permissions. Folders, pipes and devices are refused with an `ArgumentError`, a
    read-only file with a `PermissionError`. Threads may write at the same time, even to one path.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace(Path(folder) / "note.txt", lambda file: file.write(b"hello")).read_text()
    'hello'
    """
    before = _existing(path)
    target = Path(os.path.realpath(path))
    # A short name of its own, so that the target's name may be as long as the system allows.
    temporary = target.with_name(f".hshap-{secrets.token_hex(8)}")
    try:
        with _opened(temporary, path, private=before is not None) as file:
            write(file)
            file.flush()
            # Without this, a crash of the system soon after could leave an empty file.
            os.fsync(file.fileno())
        if before is not None:
            _take_over(before, temporary)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return Path(path)


def give_name(file: Path, target: Path) -> bool:
    """Give a finished file its name; False, and the file stays, if there is one of that name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file, target = Path(folder) / "new", Path(folder) / "note.txt"
    ...     _ = file.write_text("hello"), target.write_text("mine")
    ...     give_name(file, target), target.read_text()
    (False, 'mine')
    """
    try:
        # Unlike a rename, a link never replaces a file, also on network file systems.
        os.link(file, target)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if os.path.lexists(target):
            return False
        file.replace(target)  # two processes may do so at once
    else:
        file.unlink()
    return True


def sync_folder(folder: Path) -> None:
    """Wait until the entries of a folder are on the disk, where the system can do that."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _existing(path: str | os.PathLike[str]) -> os.stat_result | None:
    """Return the state of the file at a path, None if there is none, or refuse to replace it."""
    try:
        found = Path(path).stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "no regular file")
        message = f"{os.fspath(path)} is {kind}; pass the path of a file, new or to be replaced"
        raise ArgumentError(message)
    if not os.access(path, os.W_OK):
        message = "the file is read-only; make it writable, or pass another path"
        raise PermissionError(errno.EACCES, message, os.fspath(path))
    return found


def _opened(temporary: Path, path: str | os.PathLike[str], *, private: bool) -> IO[bytes]:
    """Create the file that will replace another; errors name the path that the caller knows."""

    def opener(name: str, flags: int) -> int:
        # The content of a private file is private while it is written, too.
        return os.open(name, flags, 0o600 if private else 0o666)

    try:
        return open(temporary, "xb", opener=opener)
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def _take_over(before: os.stat_result, temporary: Path) -> None:
    """Give a file the owner and the permissions of the one that it replaces."""
    mode = stat.S_IMODE(before.st_mode) & 0o777
    made = temporary.stat()
    if os.name == "posix" and (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        try:
            os.chown(temporary, before.st_uid, before.st_gid)
        except PermissionError:
            # The rights were those of another group: ours gets none that it did not have.
            mode &= 0o700 | ((mode & 0o007) << 3) | 0o007
    temporary.chmod(mode)


def grant_usual_permissions(folder: Path) -> None:
    """Give a temporary folder, which is private, the permissions of any new one."""
    # A new folder shows them. The mask of the process itself can be read only by changing it, and
    # files that other threads make at that moment would get the wrong permissions.
    example = folder / f".hshap-{secrets.token_hex(8)}"
    example.mkdir()
    try:
        folder.chmod(stat.S_IMODE(example.stat().st_mode))
    finally:
        example.rmdir()
