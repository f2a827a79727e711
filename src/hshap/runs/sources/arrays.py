"""Images from memory: torch data sets, sequences, mappings, and anything to iterate over."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.runs.sources.protocol import Item, Read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from hshap._util.types import Untyped


@dataclass(frozen=True)
class Indexed:
    """A torch data set, a list or an array: entries are images, or pairs of image and class.

    >>> [item.name for item in Indexed(np.zeros((2, 1, 4, 4))).items()]
    ['00000000', '00000001']
    """

    dataset: Untyped

    @property
    def count(self) -> int:
        return len(self.dataset)

    def items(self) -> Iterator[Item]:
        for number in range(len(self.dataset)):
            yield Item(number, named(number), number)

    def read(self, item: Item) -> Read:
        return read_value(self.dataset[item.where])


@dataclass(frozen=True)
class Named:
    """Images, or pairs of image and class, by their names."""

    dataset: Mapping[str, Untyped]

    @property
    def count(self) -> int:
        return len(self.dataset)

    def items(self) -> Iterator[Item]:
        for number, name in enumerate(self.dataset):
            yield Item(number, str(name), name)

    def read(self, item: Item) -> Read:
        return read_value(self.dataset[item.where])  # pyright: ignore[reportArgumentType]


class Streamed:
    """Anything to iterate over. The images travel with the tasks, since they come only once."""

    def __init__(self, dataset: Iterable[Untyped]) -> None:
        self._dataset: Iterable[Untyped] | None = dataset

    @property
    def count(self) -> int | None:
        return None

    def items(self) -> Iterator[Item]:
        for number, value in enumerate(self._dataset or ()):
            yield Item(number, named(number), _kept(value))

    def read(self, item: Item) -> Read:
        if isinstance(item.where, Exception):
            raise item.where
        return read_value(item.where)

    def __getstate__(self) -> dict[str, None]:
        # Workers read the items that they are sent; a generator could not travel.
        return {"_dataset": None}

    def __setstate__(self, state: dict[str, None]) -> None:
        self._dataset = state["_dataset"]


def named(number: int) -> str:
    """Return the name of an image without one; names sort as numbers do."""
    return f"{number:08d}"


def read_value(value: object) -> Read:
    """Return an entry of a data set: an image, or a pair of image and class."""
    image, label = cast("tuple[object, object]", value) if is_pair(value) else (value, None)
    array = to_numpy("image", image)
    kind = f"{array.dtype.str} {array.shape} ".encode()
    digest = hashlib.sha256(kind)
    digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return Read(digest.hexdigest(), lambda: array, label)


def is_pair(value: object) -> bool:
    """Tell whether an entry is an image with its class: a tuple or list whose first is an array."""
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and np.ndim(value[0]) > 1
        and np.ndim(value[1]) < 2
    )


def _kept(value: object) -> object:
    """Return a copy, because a generator may fill one array with one image after another.

    The error of an entry that is not an image comes back: it is told when the image is read.
    """
    try:
        if is_pair(value):
            image, label = cast("tuple[object, object]", value)
            return to_numpy("image", image).copy(), label
        return to_numpy("image", value).copy()
    except (ArgumentError, ValueError) as error:  # ValueError: np.ndim of a ragged list
        return error
