"""Files of unknown origin: regular ones alone, opened without waiting and read with limits."""

from __future__ import annotations

import io
import os
import stat
from typing import IO, TYPE_CHECKING

from hshap._util.atomic import KINDS
from hshap.cli.faults import Code, Refusal

if TYPE_CHECKING:
    from pathlib import Path

TEXT_BYTES = 16 * 2**20
"""The largest text that is read: class names, settings."""

# A pipe or a terminal that takes the file's place after the first check must not make open wait.
# Not every system has all flags.
FLAGS = os.O_RDONLY | sum(
    getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)


def open_regular(path: Path, *, most: float, fix: str, larger: str = "") -> IO[bytes]:
    """Open a regular file; a refusal ends with `fix`, of one beyond `most` bytes with `larger`.

    Pipes, sockets, devices and folders are refused, also behind a link.
    """
    try:
        _check_kind(path, path.stat().st_mode, fix)  # to open a device can already change it
        file = io.BufferedReader(io.FileIO(os.open(path, FLAGS)))
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or str(error)
        raise Refusal(Code.INPUT, f"{path} cannot be opened ({reason}); {fix}") from error
    try:
        # Once more, since another file may have taken its place in between.
        _check_kind(path, os.fstat(file.fileno()).st_mode, fix)
        _check_size(path, size_of(file), most, larger or fix)
    except BaseException:
        file.close()
        raise
    return file


def size_of(file: IO[bytes]) -> int:
    """Return the bytes of an open file."""
    return os.fstat(file.fileno()).st_size


def read_regular(path: Path, *, most: float, fix: str, larger: str = "") -> bytes:
    """Return the content of a regular file, as `open_regular` opens it."""
    with open_regular(path, most=most, fix=fix, larger=larger) as file:
        return file.read(size_of(file))  # files of /proc say 0, and some of them never end


def text_of(path: Path, *, fix: str, most: int = TEXT_BYTES) -> str:
    """Return the content of a small text file in UTF-8; a refusal ends with `fix`."""
    try:
        # As in text mode: a file from Windows has other ends of lines.
        return read_regular(path, most=most, fix=fix).decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise Refusal(Code.INPUT, f"{path} is not text in UTF-8 ({error}); {fix}") from error


def _check_kind(path: Path, mode: int, fix: str) -> None:
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise Refusal(Code.INPUT, f"{path} is {kind}; {fix}")


def _check_size(path: Path, size: int, most: float, fix: str) -> None:
    if size > most:
        raise Refusal(Code.INPUT, f"{path} has {size} bytes, more than {most:.0f}; {fix}")
