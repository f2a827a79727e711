"""Pairs of image and target, as the caller of `explain_many` gives them.

A third entry is the image's own baseline, such as its template.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from hshap._util.types import Untyped
    from hshap.baselines.protocol import Baseline
    from hshap.games.engine import OnError
    from hshap.games.targets import Target

T = TypeVar("T")

Wanted: TypeAlias = "Target | Sequence[Target]"
"""A target, or several."""

Pair: TypeAlias = "tuple[ArrayLike, Wanted] | tuple[ArrayLike, Wanted, Baseline]"
"""An image, and its target or several; and the baseline of this image, if it has its own."""


class Order(NamedTuple):
    """An image, its target or several, and the baseline of this image; None without its own."""

    image: ArrayLike
    target: Wanted
    baseline: Baseline | None = None


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


def unpacked(pair: Pair, position: int, *, copy: bool) -> Order:
    """Return image, target and baseline of a pair, or say that it is none."""
    try:
        # An array is an image, and would be unpacked into its channels.
        order = None if hasattr(pair, "shape") else Order(*cast("Untyped", pair))
    except TypeError:
        order = None
    if order is None:
        message = (
            f"pairs: entry {position} is {checks.shown(pair)}; "
            "pass (image, target) or (image, target, baseline) tuples"
        )
        raise ArgumentError(message)
    own = order.baseline
    if isinstance(own, type) or not (own is None or callable(own)):
        message = (
            f"pairs: entry {position} has the baseline {checks.shown(own)}; "
            "pass one such as Fixed(template), or leave it out"
        )
        raise ArgumentError(message)
    return order._replace(image=to_numpy("image", order.image).copy()) if copy else order


def iterated(name: str, value: Iterable[T] | None) -> Iterator[T]:
    """Return an iterator over an argument, or say that it has none."""
    try:
        return iter(value)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except TypeError:
        message = f"{name} is {checks.shown(value)}; pass a list, or anything to iterate over"
        raise ArgumentError(message) from None
