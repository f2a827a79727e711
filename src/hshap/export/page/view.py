"""One image of a page, with its explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.axes import ratios
from hshap._util.recipes import settle
from hshap.errors import ArgumentError
from hshap.explanation.explanation import Explanation
from hshap.export.page.large_picture import LargePicture
from hshap.export.page.picture import check_picture

if TYPE_CHECKING:
    from hshap._util.types import Array, Grid, Mask


@dataclass(frozen=True, eq=False)
class View:
    """One image of a page, with an explanation for each class, and the truth if it is known.

    `image` is `(channels, *grid)` or `grid`, bytes or numbers, of a picture or a volume. Three or
    four channels of a picture are shown in colour, any other number by their mean. Bytes and
    numbers from 0 to 1 are shown unchanged, others from their minimum (black) to their maximum
    (white); the page can show another window of grey values. The image may also be the original
    one, at its full size, if the model saw it resized, cropped or padded: see
    `Explanation.placement`. A `LargePicture` is an image that is read tile by tile; `large_views`
    makes it. `truth` is True on the objects that should be found, on the grid.
    `pixel_size` is the side of a pixel of the original image in the given unit, or one number for
    each axis, for the scale bar. `window` has the grey values that are black and white at first.
    `original` says whether the image is the original one, where its size alone does not: a flipped
    image has the same size. `directions` says where each axis of a scan leads: "SPL" if slices rise
    to the head (superior), rows to the back (posterior) and columns to the patient's left;
    `Scan.directions` has it. `values` is the unit of the values, such as "HU".

    Explanations may be of different classes, methods or models: they stand side by side. If they
    differ in size, `image` must be the original one.

    >>> import hshap
    >>> image = np.zeros((1, 8, 8))
    >>> image[0, 2, 5] = 1.0
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> view = View("dot.png", image, {"bright": explainer.explain(image, target=0)})
    >>> view.name, list(view.explanations)
    ('dot.png', ['bright'])
    """

    name: str
    image: Array | LargePicture
    explanations: Mapping[str, Explanation]
    truth: Mask | None = None
    pixel_size: float | Sequence[float] | None = None
    unit: str = "mm"
    window: tuple[float, float] | None = None
    original: bool | None = None
    directions: str = ""
    values: str = ""

    def __post_init__(self) -> None:
        check_text("name", self.name, "the image's file name")
        _check_explanations(self.explanations)
        _check_one_image(self.explanations)
        if not isinstance(self.image, LargePicture):
            image = to_numpy("image", self.image)
            settle(self, image=image)
            for name, explanation in self.explanations.items():
                check_picture(image, explanation.placement, name)
        if self.truth is not None and self.has_several_grids:
            message = "truth is given, but explanations differ in size; pass those of one size"
            raise ArgumentError(message)
        if self.truth is not None:
            truth = to_numpy("truth", self.truth)
            if truth.shape != self.grid or truth.dtype != np.bool_:
                message = (
                    f"truth is {truth.dtype} of shape {truth.shape}; "
                    f"pass booleans of shape {self.grid}, for example mask > 0"
                )
                raise ArgumentError(message)
            settle(self, truth=truth)
        check_text("unit", self.unit, 'the unit of pixel_size, such as "mm",')
        _ = self.spacing
        settle(self, window=_window(self.window))
        self._check_original()
        check_text("values", self.values, 'the unit of the values, such as "HU",')
        self._check_directions()

    @property
    def grid(self) -> Grid:
        """The spatial axes of the image."""
        return next(iter(self.explanations.values())).grid

    @property
    def has_several_grids(self) -> bool:
        """Whether explanations differ in size, as those of two models: the original is shown."""
        return len({one.grid for one in self.explanations.values()}) > 1

    @property
    def size(self) -> Grid:
        """The size of the image that is shown: that of the grid, or of the original image."""
        return self.image.shape[-len(self.grid) :]

    @property
    def is_original(self) -> bool:
        """Whether the original image is shown, and not the image that the model saw."""
        if self.has_several_grids:
            return True
        if self.original is not None:
            return self.original
        return self.size != self.grid

    def _check_original(self) -> None:
        if self.original is None:
            return
        whole = next(iter(self.explanations.values())).placement.shape
        expected = whole if checks.flag("original", self.original) else self.grid
        if self.size != expected:
            message = (
                f"original is {self.original}, but the image has {self.size} pixels, and not "
                f"{expected}; leave original out"
            )
            raise ArgumentError(message)

    def _check_directions(self) -> None:
        given = self.directions
        check_text("directions", given, 'a letter for each axis, such as "SPL",')
        pairs = [pair for letter in given for pair in ("LR", "AP", "SI") if letter in pair]
        if given and not len(set(pairs)) == len(given) == len(self.grid):
            message = (
                f"directions is {given!r}; pass one of L or R, A or P, S or I for each axis, such "
                'as "SPL"'
            )
            raise ArgumentError(message)

    @property
    def spacing(self) -> tuple[float, ...] | None:
        """The side of a pixel of the original image on each axis; None if it is not known."""
        given = self.pixel_size
        if given is None:
            return None
        axes = len(self.grid)
        sides = tuple(given) if isinstance(given, Sequence) else (given,) * axes
        if len(sides) != axes or not all(_is_length(side) for side in sides):
            message = (
                f"pixel_size is {checks.shown(given)}; pass the side of a pixel, such as 0.5, or "
                f"{axes} of them"
            )
            raise ArgumentError(message)
        return tuple(map(float, sides))

    @property
    def sides(self) -> tuple[float, ...]:
        """The sides of a pixel of the image that is shown, as multiples of the shortest.

        They come from `pixel_size`, else from the spacing of the explanations, else they are those
        of the placement: an image that was resized by another factor on each axis is shown as the
        original one was.
        """
        first = next(iter(self.explanations.values()))
        place, axes = first.placement, len(self.grid)
        scale = [
            abs(b - a) / n for a, b, n in zip(place.start, place.stop, place.grid, strict=True)
        ]
        known = first.settings.spacing
        own = self.spacing
        if own is None and known is not None and len(known) == axes:
            own = tuple(side / factor for side, factor in zip(known, scale, strict=True))
        shown = [1.0] * axes if self.is_original else scale
        lengths = tuple(
            side * factor for side, factor in zip(own or (1.0,) * axes, shown, strict=True)
        )
        return ratios(lengths, axes)

    @property
    def letters(self) -> str:
        """The letters of the axes, such as "ZYX"; empty if the explanations had no layout."""
        found = next(iter(self.explanations.values())).settings.axes
        return found if len(found) == len(self.grid) else ""


def _check_one_image(explanations: Mapping[str, Explanation]) -> None:
    (first, one), *others = explanations.items()
    for name, other in others:
        if replace(other.placement, grid=one.grid) != one.placement:
            message = (
                f"explanations[{name!r}] has another place in the original image than "
                f"explanations[{first!r}]; pass explanations of one image, resized alike"
            )
            raise ArgumentError(message)


def _window(given: object) -> tuple[float, float] | None:
    if given is None:
        return None
    pair = cast("Sequence[object]", given) if isinstance(given, Sequence) else ()
    ends = [float(one) for one in pair if isinstance(one, (int, float)) and -inf < one < inf]
    if len(pair) != 2 or len(ends) != 2 or ends[0] >= ends[1]:
        message = (
            f"window is {checks.shown(given)}; pass the values of black and of white, such as "
            "(0, 4095)"
        )
        raise ArgumentError(message)
    return ends[0], ends[1]


def _is_length(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 < value < inf


def check_text(name: str, value: object, meaning: str) -> None:
    """Refuse a value that is not a text."""
    if not isinstance(value, str):
        message = f"{name} is {checks.shown(value)}; pass {meaning} as text"
        raise ArgumentError(message)


def _check_explanations(explanations: object) -> None:
    if not isinstance(explanations, Mapping) or not explanations:
        message = (
            f"explanations is {checks.shown(explanations)}; pass a dictionary from class names to "
            'explanations, such as {"cross": explanation}'
        )
        raise ArgumentError(message)
    for name, explanation in cast("Mapping[object, object]", explanations).items():
        check_text("explanations has a class name that", name, "it")
        if not isinstance(explanation, Explanation):
            message = (
                f"explanations[{name!r}] is {checks.shown(explanation)}; pass an Explanation, "
                "the result of explainer.explain"
            )
            raise ArgumentError(message)
