"""The contract of a source: it lists the images of a run, and workers read them one by one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from hshap._util.visible import as_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import ArrayLike

    from hshap._util.types import Array, Grid, Json, JsonObject
    from hshap.baselines.protocol import Baseline
    from hshap.explanation.placement import Position

Decode: TypeAlias = "Callable[[bytes, str], ArrayLike | Decoded]"
"""Takes the bytes of a file and its name, and returns the image `(channels, *grid)`."""


@dataclass(frozen=True)
class Decoded:
    """An image from a file, and how the file became the model's input.

    `original` is the size of the image in the file without channels, if the image was resized from
    it: findings are then in pixels of the file. `seen` has the positions there from which to which
    the image reaches, if it was cropped or padded. `baseline` is one for this image alone, such as
    its template, and `shown` its pixels for people, where a store draws pictures.

    >>> Decoded([[[0.0]]], {"resized_from": [20, 30]}).transform["resized_from"]
    [20, 30]
    """

    image: ArrayLike
    transform: JsonObject = field(default_factory=dict[str, "Json"])
    original: Grid | None = None
    seen: tuple[Position, Position] = ((), ())
    baseline: Baseline | None = None
    shown: Array | None = None

    @property
    def place(self) -> tuple[Grid, Position, Position] | None:
        """The size of the image in the file, and the ends of its part; None if it is the same."""
        return None if self.original is None else (self.original, *self.seen)


@dataclass(frozen=True)
class Item:
    r"""One image of a run before it is read: its number, its name, and where the source has it.

    Bytes of a name that are not UTF-8 are spelled out, since tables store text.

    >>> print(Item(0, "caf\udce9.png", None).name)
    caf\xe9.png
    """

    number: int
    name: str
    where: object

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", as_text(self.name))


@dataclass(frozen=True)
class Read:
    """The bytes of an item: their SHA-256, and a function that makes the image of them.

    `label` is the class that the source gives for the image, None, or the error that tells why it
    has none.
    """

    sha256: str
    image: Callable[[], ArrayLike | Decoded]
    label: object = None
    path: str = ""


@runtime_checkable
class Source(Protocol):
    """The images of a run. It must pickle, because workers get a copy and read from it."""

    @property
    def count(self) -> int | None:
        """The number of images; None if it is not known before the end."""
        ...

    def items(self) -> Iterator[Item]:
        """Yield all images, always in the same order."""
        ...

    def read(self, item: Item) -> Read:
        """Read an image. Any exception is an error of this image alone."""
        ...


@runtime_checkable
class Listed(Protocol):
    """A source from a folder or a tar file, which may have files that the run does not read."""

    @property
    def refused(self) -> tuple[str, ...]:
        """Large images by name: they go to the table of errors with the command that reads them."""
        ...

    @property
    def left_out(self) -> str:
        """A line about files that are not images; empty if there are none."""
        ...


@runtime_checkable
class DecodesFiles(Protocol):
    """A decoder that also takes a file on this machine by its path, without its bytes."""

    def file(self, path: Path, name: str) -> Decoded:
        """Return the image of a file; `name` is its name in messages."""
        ...


@runtime_checkable
class HasCompanions(Protocol):
    """A decoder that reads more files for an image than its own, such as its template."""

    def companion(self, name: str) -> str:
        """Return the SHA-256 of the other files of an image; empty if it has none."""
        ...


def content_digest(own: str, decode: object, name: str) -> str:
    """Return the digest of an image's content: of its file, and of other files that belong to it.

    >>> content_digest("ab12", None, "a.png")
    'ab12'
    """
    also = decode.companion(name) if isinstance(decode, HasCompanions) else ""
    return hashlib.sha256(f"{own} {also}".encode()).hexdigest() if also else own


@dataclass
class Remembering:
    """A source that keeps its first images: a run asks the model about them before it explains."""

    source: Source
    most: int = 4
    _kept: dict[int, Read] = field(default_factory=dict[int, "Read"])

    @property
    def count(self) -> int | None:
        return self.source.count

    @property
    def refused(self) -> tuple[str, ...]:
        return self.source.refused if isinstance(self.source, Listed) else ()

    @property
    def left_out(self) -> str:
        return self.source.left_out if isinstance(self.source, Listed) else ""

    @property
    def decode(self) -> object:
        return getattr(self.source, "decode", None)

    def items(self) -> Iterator[Item]:
        return self.source.items()

    def read(self, item: Item) -> Read:
        found = self._kept.get(item.number)
        if found is None:
            found = self.source.read(item)
            if len(self._kept) < self.most:
                found = replace(found, image=cache(found.image))
                self._kept[item.number] = found
        return found
