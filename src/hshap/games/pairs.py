"""Pairs of image and target, as the caller of `explain_many` gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from hshap.games.engine import OnError
    from hshap.games.targets import Target

T = TypeVar("T")

Pair: TypeAlias = "tuple[ArrayLike, Target | Sequence[Target]]"
"""An image, and its target or several."""


def read(pairs: Iterator[Pair], on_error: OnError | None) -> Iterator[Pair]:
    """Yield pairs up to the first that cannot be read: an iterator that failed has no more."""
    position = 0
    try:
        for pair in pairs:
            yield pair
            position += 1
    except Exception as error:
        if on_error is None:
            raise
        on_error(position, error)


def unpacked(pair: Pair, position: int, *, copy: bool) -> Pair:
    """Return image and target, or say that a pair is none."""
    try:
        image, target = pair
    except (TypeError, ValueError):
        message = f"pairs: entry {position} is {checks.shown(pair)}; pass (image, target) tuples"
        raise ArgumentError(message) from None
    return (to_numpy("image", image).copy() if copy else image), target


def iterated(name: str, value: Iterable[T] | None) -> Iterator[T]:
    """Return an iterator over an argument, or say that it has none."""
    try:
        return iter(value)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except TypeError:
        message = f"{name} is {checks.shown(value)}; pass a list, or anything to iterate over"
        raise ArgumentError(message) from None
