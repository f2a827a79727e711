"""Images from a tar file in the style of WebDataset: members of one name belong together.

The file is listed once, and each image is read from its own place in it. Nothing is extracted.
"""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from hshap.errors import ArgumentError
from hshap.formats.listing import Listing, listed
from hshap.runs.sources.files import check_images
from hshap.runs.sources.protocol import Item, Read

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap.runs.sources.files import Disk
    from hshap.runs.sources.protocol import Decode

LABEL = ".cls"
MOST_LABEL = 100
"""Bytes of a member with a class."""


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
        data = self.disk.read(self.file, member.start, member.stop)
        digest = hashlib.sha256(data).hexdigest()
        path = f"{self.disk.whole(self.file)}#{item.name}"
        return Read(digest, partial(self.decode, data, item.name), member.label, path)


def from_tar(disk: Disk, file: str, decode: Decode, suffixes: Sequence[str]) -> TarSource:
    """Return the images of a tar file, in its order."""
    images: list[tuple[str, tarfile.TarInfo]] = []
    rest: list[str] = []
    labels: dict[str, int] = {}
    try:
        with _opened(disk, file) as archive:
            for member in archive:
                if not member.isreg():
                    continue
                if member.name.lower().endswith(LABEL) and member.size <= MOST_LABEL:
                    held = archive.extractfile(member)
                    text = held.read().strip() if held else b""
                    if text.isdigit():
                        labels[_stem(member.name)] = int(text)
                elif member.name.lower().endswith(tuple(suffixes)):
                    images.append((member.name, member))
                else:
                    rest.append(member.name)
    except tarfile.TarError as error:
        message = f"dataset={file!r} is no tar file that can be read in place ({error}); unpack it"
        raise ArgumentError(message) from error
    found = _listing([name for name, _ in images], rest)
    check_images(found, file, suffixes)
    members = tuple(
        (name, Member(one.offset_data, one.offset_data + one.size, labels.get(_stem(name))))
        for name, one in images
    )
    return TarSource(disk, file, members, decode, found.large, found.told(file))


def _listing(images: Sequence[str], rest: Sequence[str]) -> Listing:
    """Return the members by their use; those of a sample, such as its .json, count as its own."""
    own = {_stem(name.removeprefix("./")) for name in images}
    found = listed([name.removeprefix("./") for name in rest], ())
    others = tuple(name for name in found.others if _stem(name) not in own)
    return Listing(tuple(images), found.large, others)


def _opened(disk: Disk, file: str) -> tarfile.TarFile:
    # Without compression alone: the places of its members are then those in the file.
    if disk.system is None:
        return tarfile.open(Path(disk.root, file), "r:")
    return tarfile.open(fileobj=disk.system.open(f"{disk.root}/{file}", "rb"), mode="r:")


def _stem(name: str) -> str:
    """Return the part of a name that the members of one sample share."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{last.partition('.')[0]}"
