"""Readings: pairs of image and target as the caller gives them, and images as the model takes them.

A third entry of a pair is the image's own baseline, such as its template.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar, cast

from hshap._util import checks
from hshap._util.arrays import read_image, to_numpy
from hshap._util.axes import by_name, check_layout, checked_spacing, grid_spacing
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import ArrayLike

    from hshap._util.axes import Spacing
    from hshap._util.types import Image, Untyped
    from hshap.baselines.protocol import Baseline
    from hshap.games.engine import OnError
    from hshap.games.targets import Target
    from hshap.models.model_description import Intake

T = TypeVar("T")

Targets: TypeAlias = "Target | Sequence[Target]"
"""A target, or several."""

Pair: TypeAlias = "tuple[ArrayLike, Targets] | tuple[ArrayLike, Targets, Baseline]"
"""An image, and its target or several; and the baseline of this image, if it has its own."""


class Order(NamedTuple):
    """An image, its target or several, and the baseline of this image; None without its own."""

    image: ArrayLike
    target: Targets
    baseline: Baseline | None = None


@dataclass(frozen=True, eq=False)
class Reading:
    """An image `(channels, *grid)`, the layout it had, and the sides of a pixel on its grid.

    `choice` says how the axes were read, where the caller did not say it.
    """

    pixels: Image
    layout: str | None = None
    spacing: Spacing | None = None
    choice: str = ""

    @property
    def facts(self) -> dict[str, object]:
        """The facts about the axes that are known, for the description of a run."""
        known = {"layout": self.layout, "spacing": self.spacing}
        return {name: value for name, value in known.items() if value is not None}


class ImageReader:
    """Reads the images of a run.

    >>> import numpy as np
    >>> ImageReader(None, layout="HWC").read(np.zeros((4, 6, 3))).pixels.shape
    (3, 4, 6)
    """

    def __init__(
        self, intake: Intake | None, layout: str | None, spacing: Sequence[float] | None = None
    ) -> None:
        check_layout(layout)
        self._intake, self._layout = intake, layout
        self._spacing = checked_spacing(spacing)

    def read(self, image: object) -> Reading:
        """Return the pixels of an image as the model takes them, and the facts about its axes."""
        named, choice = by_name("image", image, self._layout), ""
        if self._intake is not None:
            array, layout, choice = self._intake.read(named.array, named.layout)
            named = replace(named, array=array, layout=layout)
        check_layout(named.layout)
        pixels = read_image("image", named, self._layout).view()
        pixels.flags.writeable = False  # partitions, baselines and samplers of users look at it
        spacing = grid_spacing(self._spacing, named, pixels.ndim - 1)
        return Reading(pixels, named.layout, spacing, choice)


def read_pairs(pairs: Iterator[Pair], on_error: OnError | None) -> Iterator[Pair]:
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


def unpack(pair: Pair, position: int, *, copy: bool) -> Order:
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


def iterate(name: str, value: Iterable[T] | None) -> Iterator[T]:
    """Return an iterator over an argument, or say that it has none."""
    try:
        return iter(value)  # pyright: ignore[reportArgumentType, reportCallIssue]
    except TypeError:
        message = f"{name} is {checks.shown(value)}; pass a list, or anything to iterate over"
        raise ArgumentError(message) from None
