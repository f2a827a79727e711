"""Files of unknown origin: regular ones alone, opened without waiting and read with limits."""

from __future__ import annotations

import io
import math
import os
import stat
from typing import TYPE_CHECKING

from hshap._util.atomic import KINDS
from hshap.cli.faults import Code, Refusal

if TYPE_CHECKING:
    from pathlib import Path

TEXT_BYTES = 16 * 2**20
"""The largest text that is read: class names, settings."""

LARGE_READ = 2**20

# A pipe or a terminal that takes the file's place after the first check must not make open wait.
# Not every system has all flags.
FLAGS = os.O_RDONLY | sum(
    getattr(os, flag, 0) for flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY")
)


class TooMuchReadError(Exception):
    """A decoder read a file more often, or more of it, than any usual file needs."""


class LimitedFile(io.BufferedReader):
    """A file that stops a decoder which reads it too often, for example through endless frames.

    Announced lengths beyond the end of the file take no memory: reads end with the file.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.FileIO(descriptor))
        self.size = os.fstat(descriptor).st_size
        self._reads = self._bytes = math.inf

    def allow(self, *, reads: float = math.inf, size: float = math.inf) -> None:
        """From now on, allow this many reads and bytes."""
        self._reads, self._bytes = reads, size

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes, all without a size."""
        if not self.size:  # files of /proc say so, and some of them never end
            return b""
        if size is None or not 0 <= size <= LARGE_READ:
            left = max(self.size - self.tell(), 0)
            size = left if size is None or size < 0 else min(size, left)
        data = super().read(size)
        self._reads -= 1
        self._bytes -= len(data)
        if self._reads < 0 or self._bytes < 0:
            raise TooMuchReadError
        return data


def opened(path: Path, *, most: float, fix: str, larger: str = "") -> LimitedFile:
    """Open a regular file; a refusal ends with `fix`, of one beyond `most` bytes with `larger`.

    Pipes, sockets, devices and folders are refused, also behind a link.
    """
    try:
        _check_kind(path, path.stat().st_mode, fix)  # to open a device can already change it
        file = LimitedFile(os.open(path, FLAGS))
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or str(error)
        raise Refusal(Code.INPUT, f"{path} cannot be opened ({reason}); {fix}") from error
    try:
        # Once more, since another file may have taken its place in between.
        _check_kind(path, os.fstat(file.fileno()).st_mode, fix)
        _check_size(path, file.size, most, larger or fix)
    except BaseException:
        file.close()
        raise
    return file


def text_of(path: Path, *, fix: str, most: int = TEXT_BYTES) -> str:
    """Return the content of a small text file in UTF-8; a refusal ends with `fix`."""
    with opened(path, most=most, fix=fix) as file:
        data = file.read()
    try:
        # As in text mode: a file from Windows has other ends of lines.
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise Refusal(Code.INPUT, f"{path} is not text in UTF-8 ({error}); {fix}") from error


def _check_kind(path: Path, mode: int, fix: str) -> None:
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise Refusal(Code.INPUT, f"{path} is {kind}; {fix}")


def _check_size(path: Path, size: int, most: float, fix: str) -> None:
    if size > most:
        raise Refusal(Code.INPUT, f"{path} has {size} bytes, more than {most:.0f}; {fix}")
