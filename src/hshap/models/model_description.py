"""Descriptions of models: the names of their classes, and the images that they take.

A model that carries `facts` takes an image as the user has it, and its classes can be called by
their names. Models without facts take arrays `(channels, *grid)` in their own units, as ever.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from hshap._util import checks
from hshap._util.arrays import read_image, to_numpy
from hshap.errors import ArgumentError, ModelError
from hshap.evaluators.protocol import Evaluator

if TYPE_CHECKING:
    from hshap._util.types import Array, Image, ScoreFunction

MARGIN = 0.05
"""How far numbers may leave the range from 0 to 1, as interpolation makes them."""

FEW = 8
"""Names that a message lists."""


class Taken(NamedTuple):
    """An image as floats, the order of its axes, and the choices that were made, in words."""

    array: Array
    layout: str
    told: str


@dataclass(frozen=True)
class Intake:
    """How a model takes images: the number of channels, the order of axes, and the units.

    `channels` is None if any number will do. `layout` is the order of axes that the model's own
    library uses, "HWC" or "CHW". It decides where a shape leaves both open; without it, such an
    image is refused. With `unit`, a plain image has numbers from 0 to 1 and bytes are divided by
    255. Without, numbers stay as they are.

    >>> Intake(channels=3).read(np.full((8, 9, 3), 255, np.uint8), None).layout
    'HWC'
    """

    channels: int | None = None
    layout: str | None = None
    unit: bool = True

    def read(self, image: object, layout: str | None) -> Taken:
        """Return an image as floats with the order of its axes, or refuse it."""
        array = to_numpy("image", image)
        if array.size == 0:
            message = f"image has type {array.dtype} and shape {array.shape}; pass numbers"
            raise ArgumentError(message)
        found, told = (layout, "") if layout is not None else self._found(array)
        return Taken(self._floats(array), found, told)

    def _found(self, array: Array) -> tuple[str, str]:
        """Return the order of axes of a picture, and the choice in words."""
        if array.ndim == 2:
            self._check_count(1, array)
            return "HW", "the image was read as one grey channel"
        if array.ndim != 3:
            message = (
                f"image has shape {array.shape}, but the model takes one picture; pass image[0] "
                "of a batch, or say the order of the axes, such as layout='HWC'"
            )
            raise ArgumentError(message)
        fits = {"CHW": self._may_be(array.shape[0]), "HWC": self._may_be(array.shape[-1])}
        if fits["CHW"] == fits["HWC"]:
            if not fits["CHW"]:
                self._check_count(min(array.shape[0], array.shape[-1]), array)
            if self.layout is None:
                message = (
                    f"image has shape {array.shape}, in which channels may come first or last; "
                    "say the order of the axes: layout='HWC' or 'CHW'"
                )
                raise ArgumentError(message)
            return self.layout, ""
        layout = "HWC" if fits["HWC"] else "CHW"
        if layout == self.layout:
            return layout, ""
        words = "height x width x channels" if layout == "HWC" else "channels x height x width"
        return layout, f"the image was read as {words}"

    def _may_be(self, side: int) -> bool:
        return side == self.channels if self.channels is not None else side <= 4

    def _check_count(self, count: int, array: Array) -> None:
        if self.channels in (None, count):
            return
        fix = "pass image[..., :3] of one with transparency, or numpy.stack([grey] * 3) of a grey"
        if self.channels == 1:
            fix = "pass one channel, for example image.mean(axis=-1)"
        message = (
            f"image has shape {array.shape}, but the model takes {self.channels} channels; {fix}"
        )
        raise ArgumentError(message)

    def _floats(self, array: Array) -> Array:
        if array.dtype.kind == "f":
            return self._in_range(array)
        if not self.unit:
            return array.astype(np.float32)
        if array.dtype.kind == "u" and array.dtype.itemsize <= 2:
            return array.astype(np.float32) / np.float32(np.iinfo(array.dtype).max)
        message = (
            f"image holds {array.dtype} numbers; pass 8-bit or 16-bit ones without a sign, or "
            "floats from 0 to 1"
        )
        raise ArgumentError(message)

    def _in_range(self, array: Array) -> Array:
        low, high = float(array.min()), float(array.max())
        if self.unit and (low < -MARGIN or high > 1 + MARGIN):
            fix = "divide it by 255" if low >= 0 else "pass the image before it is normalised"
            message = (
                f"image has values from {low:.4g} to {high:.4g}, but this model takes a plain "
                f"image of 0 to 1, which it normalises by itself; {fix}"
            )
            raise ArgumentError(message)
        return array


@dataclass(frozen=True)
class Facts:
    """The names of a model's outputs, the images that it takes, and its preparation in words.

    >>> Facts(("cat", "dog")).index("dog")
    1
    """

    classes: tuple[str, ...] = ()
    intake: Intake | None = None
    preparation: str = ""

    def index(self, name: str) -> int:
        """Return the output of a class by its name."""
        if name in self.classes:
            if self.classes.count(name) > 1:
                places = [n for n, one in enumerate(self.classes) if one == name]
                message = f"target={name!r} is the name of outputs {places}; pass one of these"
                raise ArgumentError(message)
            return self.classes.index(name)
        if not self.classes:
            message = (
                f"target={name!r} is a name, but the model tells none for its classes; pass a "
                "whole number from 0, or see hshap.models for models with names"
            )
            raise ArgumentError(message)
        near = difflib.get_close_matches(name, self.classes, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        few = ", ".join(self.classes[:FEW]) + (", ..." if len(self.classes) > FEW else "")
        message = f"target={name!r} is no class of the model; {hint}pass a number, or one of {few}"
        raise ArgumentError(message)

    def check_count(self, outputs: int) -> None:
        """Refuse names that are more or fewer than the outputs of the model: they would be wrong.

        >>> Facts(("cat", "dog")).check_count(2)
        """
        if self.classes and len(self.classes) != outputs:
            message = (
                f"the number of class names is {len(self.classes)}, that of the model's outputs "
                f"{outputs}; give each output a name, by names= or id2label of a config"
            )
            raise ModelError(message)

    def name(self, index: int | None) -> str:
        """Return the name of an output; empty if it has none."""
        return "" if index is None or index >= len(self.classes) else self.classes[index]


@runtime_checkable
class HasFacts(Protocol):
    """A model that knows the names of its classes, or the images that it takes."""

    @property
    def facts(self) -> Facts:
        """The facts about the model."""
        ...


def facts_of(model: object) -> Facts:
    """Return the facts about a model or an evaluator's model; those of no model are empty.

    The names in the config of a transformers model count, too.

    >>> facts_of(len)
    Facts(classes=(), intake=None, preparation='')
    """
    held = getattr(model, "model", None) if isinstance(model, Evaluator) else model
    if isinstance(held, HasFacts) and isinstance(cast("object", held.facts), Facts):
        return held.facts
    return Facts(names_in_config(getattr(held, "config", None)))


def plain_image(model: object, image: object, layout: str | None) -> Image:
    """Return an image `(channels, *grid)` as a model takes it."""
    intake = facts_of(model).intake
    if intake is None:
        return read_image("image", image, layout)
    taken = intake.read(image, layout)
    return read_image("image", taken.array, taken.layout)


def names_in_config(config: object) -> tuple[str, ...]:
    """Return the classes that a config of transformers names; empty for its placeholders."""
    labels = getattr(config, "id2label", None)
    if not isinstance(labels, Mapping):
        return ()
    named = class_names("id2label", cast("Mapping[object, object]", labels))
    return () if all(name.startswith("LABEL_") for name in named) else named


def class_names(name: str, given: object) -> tuple[str, ...]:
    """Return names of classes from a list, or a mapping from numbers to names.

    >>> class_names("id2label", {"1": "dog", "0": "cat"})
    ('cat', 'dog')
    """
    if given is None:
        return ()
    if isinstance(given, Mapping):
        held = cast("Mapping[str, object]", given)
        try:
            by_number = {int(key): str(value) for key, value in held.items()}
        except (TypeError, ValueError):
            by_number = {}
        if sorted(by_number) != list(range(len(held))):
            missing = next((n for n in range(len(held)) if n not in by_number), 0)
            message = (
                f"{name} has no name for output {missing}, it is {checks.shown(given)}; "
                "give each output from 0 a name"
            )
            raise ArgumentError(message)
        return tuple(by_number[number] for number in range(len(held)))
    if isinstance(given, str) or not isinstance(given, (Sequence, np.ndarray)):
        message = f"{name} is {checks.shown(given)}; pass a list of names, one for each output"
        raise ArgumentError(message)
    return tuple(str(one) for one in cast("Sequence[object]", given))


Layout = Literal["HWC", "CHW"]


@dataclass(frozen=True, eq=False)
class Function:
    """A callable on batches `(n, channels, *grid)` with the facts about its model."""

    call: ScoreFunction
    facts: Facts

    def __call__(self, batch: Array) -> object:
        """Return the scores of a batch."""
        scores = self.call(batch)
        shape = np.shape(scores)  # pyright: ignore[reportArgumentType]
        self.facts.check_count(shape[1] if len(shape) > 1 else 1)
        return scores


def check_layout(layout: object) -> None:
    """Refuse an order of axes that is neither channels last nor channels first."""
    if layout not in ("HWC", "CHW"):
        message = f"layout must be 'HWC' or 'CHW', got {checks.shown(layout)}; pass one of the two"
        raise ArgumentError(message)
