"""Images from a tar file in the style of WebDataset: members of one name belong together.

The file is listed once, and each image is read from its own place in it. Nothing is extracted.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from hshap.errors import ArgumentError
from hshap.formats.listing import Listing, listed
from hshap.runs.sources.files import check_images
from hshap.runs.sources.protocol import Item, Read, content_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap.runs.sources.files import Disk
    from hshap.runs.sources.protocol import Decode

LABEL = ".cls"
MOST_LABEL = 100
"""Bytes of a member with a class."""


MOST_MEMBERS = 5_000_000
MOST_HEADER = 2**20
"""Bytes that are read at once to list a tar file; the headers of members are far smaller."""

SPARSE = -1
"""The first byte of a sparse member, whose bytes do not lie in one place."""


class Member(NamedTuple):
    """A member of a tar: its first byte, the one past its last, and the class of its image."""

    start: int
    stop: int
    label: int | None


@dataclass(frozen=True)
class TarSource:
    """The images of a tar file, and their classes from members with the suffix .cls."""

    disk: Disk
    file: str
    members: tuple[tuple[str, Member], ...]
    decode: Decode
    refused: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def count(self) -> int:
        return len(self.members)

    def items(self) -> Iterator[Item]:
        for number, (name, member) in enumerate(self.members):
            yield Item(number, name, member)

    def read(self, item: Item) -> Read:
        member = Member(*item.where)  # pyright: ignore[reportGeneralTypeIssues]
        if member.start == SPARSE:
            message = f"{item.name} is a sparse member of {self.file}; pack it without --sparse"
            raise ArgumentError(message)
        data = self.disk.read(self.file, member.start, member.stop)
        digest = content_digest(hashlib.sha256(data).hexdigest(), self.decode, item.name)
        path = f"{self.disk.whole(self.file)}#{item.name}"
        return Read(digest, partial(self.decode, data, item.name), member.label, path)


def from_tar(disk: Disk, file: str, decode: Decode, suffixes: Sequence[str]) -> TarSource:
    """Return the images of a tar file, in its order; a file that attacks its reader is refused."""
    images: list[tuple[str, Member]] = []
    rest: list[str] = []
    labels: dict[str, int] = {}
    # Other errors than those of tarfile come from numbers that no tar file has.
    faults = (tarfile.TarError, ValueError, OverflowError, RecursionError)
    try:
        with _opened(disk, file) as raw, tarfile.TarFile(fileobj=_Headers(raw)) as archive:
            for member in _members(archive):
                if member.name.lower().endswith(LABEL) and member.size <= MOST_LABEL:
                    held = archive.extractfile(member)
                    text = held.read().strip() if held else b""
                    if text.isdigit():
                        labels[_stem(member.name)] = int(text)
                elif member.name.lower().endswith(tuple(suffixes)):
                    start = SPARSE if member.issparse() else member.offset_data
                    images.append((member.name, Member(start, start + member.size, None)))
                else:
                    rest.append(member.name)
    except faults as error:
        message = f"dataset={file!r} is no tar file that can be read in place ({error}); unpack it"
        raise ArgumentError(message) from error
    found = _listing([name for name, _ in images], rest)
    check_images(found, file, suffixes)
    members = tuple((name, one._replace(label=labels.get(_stem(name)))) for name, one in images)
    return TarSource(disk, file, members, decode, found.large, found.told(file))


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the regular files of a tar, without keeping them; each must lie behind the last."""
    end = count = 0
    while (member := archive.next()) is not None:
        archive.members = []  # pyright: ignore[reportAttributeAccessIssue]
        count += 1
        if count > MOST_MEMBERS:
            raise tarfile.ReadError(f"it has more than {MOST_MEMBERS} members")
        if member.size < 0 or archive.offset <= end:
            raise tarfile.ReadError("its members do not follow each other")
        end = archive.offset
        if member.isreg():
            yield member


class _Headers(io.BufferedIOBase):
    """A file that gives a tar's headers, and refuses one that announces an enormous length."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int | None = -1, /) -> bytes:
        """Return up to `size` bytes."""
        if size is None or not 0 <= size <= MOST_HEADER:
            raise tarfile.ReadError(f"it has a header of {size} bytes")
        return self._file.read(size)


def _listing(images: Sequence[str], rest: Sequence[str]) -> Listing:
    """Return the members by their use; those of a sample, such as its .json, count as its own."""
    own = {_stem(name.removeprefix("./")) for name in images}
    found = listed([name.removeprefix("./") for name in rest], ())
    others = tuple(name for name in found.others if _stem(name) not in own)
    return Listing(tuple(images), found.large, others)


def _opened(disk: Disk, file: str) -> IO[bytes]:
    # Without compression alone: the places of its members are then those in the file.
    if disk.system is None:
        path = Path(disk.root, file)
        if not path.is_file():  # a pipe would be waited for
            problem = "is not a regular file" if path.exists() else "does not exist"
            raise ArgumentError(f"dataset={file!r} {problem}; pass a tar file")
        return path.open("rb")
    return disk.system.open(f"{disk.root}/{file}", "rb")


def _stem(name: str) -> str:
    """Return the part of a name that the members of one sample share."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"
