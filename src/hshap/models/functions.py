"""Models of Keras 3, and functions in their own order of axes, such as those of JAX."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError, ModelError, require
from hshap.models.model_description import (
    Facts,
    Function,
    Intake,
    Layout,
    check_layout,
    class_names,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Model, ScoreFunction


@dataclass(frozen=True, eq=False)
class _Arranged:
    """A function of batches in its own order of axes; batches have few sizes, as compilers like."""

    function: ScoreFunction
    layout: Layout
    few_sizes: bool

    def __call__(self, batch: Array) -> object:
        count = len(batch)
        if self.few_sizes:
            # A compiled function is compiled anew for each size of a batch.
            room = 1 << (count - 1).bit_length()
            batch = np.concatenate([batch, np.repeat(batch[:1], room - count, axis=0)])
        images = np.moveaxis(batch, 1, -1) if self.layout == "HWC" else batch
        return _drop_filling(self.function(np.ascontiguousarray(images)), count, len(batch))


def _drop_filling(raw: object, count: int, room: int) -> object:
    """Return the scores of the first inputs of a batch that was filled up."""
    scores = np.asarray(raw)
    if scores.ndim == 0 or len(scores) != room:
        message = (
            f"the model returned shape {scores.shape} for {room} inputs; it must return one row "
            "for each, so check the order of axes that it takes: layout='HWC' or 'CHW'"
        )
        raise ModelError(message)
    return scores[:count]


def function(
    call: ScoreFunction,
    *,
    layout: Layout = "HWC",
    names: Sequence[str] | None = None,
    few_sizes: bool = False,
) -> Function:
    """Return a function in its own order of axes, such as one of JAX, as a model.

    `call` takes a batch `(n, height, width, channels)`, or `(n, channels, height, width)` with
    `layout="CHW"`, and returns scores `(n,)` or `(n, classes)`. Images are those that the function
    takes, in its own units and with its own order of axes. `names` are those of the outputs.

    A function that is compiled anew for each size of a batch, as jitted ones of JAX are, needs
    `few_sizes=True`: batches are then filled up to sizes of 1, 2, 4 and so on.

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     function(lambda batch: batch.max(axis=(1, 2)), names=["red", "green", "blue"]),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> image = np.zeros((8, 8, 3))
    >>> image[2, 5, 1] = 1.0
    >>> explainer.explain(image, target="green").leaves
    (Box(start=(2, 5), stop=(3, 6)),)
    """
    check_layout(layout)
    checks.flag("few_sizes", few_sizes)
    if isinstance(call, type) or not callable(call):
        message = f"call is {checks.shown(call)}, which cannot be called; pass a function"
        raise ArgumentError(message)
    facts = Facts(class_names("names", names), Intake(None, layout, unit=False))
    return Function(_Arranged(call, layout, few_sizes=few_sizes), facts)


@dataclass(frozen=True, eq=False)
class _Keras:
    """A Keras model in inference mode, on any backend."""

    model: Model
    sides: Sequence[int | None]

    def __call__(self, batch: Array) -> Array:
        library = require("keras", needed_by="hshap.models.keras")
        # Keras scores other sizes, too, where its layers can: the answers then mean nothing.
        wanted = self.sides[1:] if len(self.sides) == batch.ndim else ()
        if any(side not in {None, has} for side, has in zip(wanted, batch.shape[1:], strict=False)):
            message = (
                f"the model takes inputs of {tuple(wanted)}, but the image is {batch.shape[1:]} in "
                "its order of axes; resize the image first"
            )
            raise ArgumentError(message)
        on_torch = library.config.backend() == "torch"
        mode = sys.modules["torch"].no_grad() if on_torch else nullcontext()
        with mode:
            raw = self.model(library.ops.convert_to_tensor(batch), training=False)
        if isinstance(raw, (list, tuple, dict)):
            message = (
                f"the model has {len(raw)} outputs; pass keras.Model(model.inputs, "
                "model.outputs[0]), or another one of them"
            )
            raise ModelError(message)
        return to_numpy("the model's output", raw)


def keras(
    model: Model, *, layout: Layout | None = None, names: Sequence[str] | None = None
) -> Function:
    """Return a model of Keras 3 as a model of hshap, on the backend that Keras runs on.

    The order of axes is that of `keras.config.image_data_format()`, unless `layout` says "HWC" or
    "CHW". Images are those that the model takes, in its own units: most models of
    `keras.applications` take numbers from 0 to 255, and normalise them internally. On the
    backends JAX and TensorFlow, batches are filled up to sizes of 1, 2, 4 and so on.

    Tested on the backends torch and JAX.

    >>> import os
    >>> _ = os.environ.setdefault("KERAS_BACKEND", "torch")
    >>> import keras as library
    >>> net = library.Sequential([library.Input((8, 8, 3)), library.layers.GlobalMaxPooling2D()])
    >>> keras(net)(np.ones((1, 3, 8, 8), np.float32)).tolist()
    [[1.0, 1.0, 1.0]]
    """
    kind = type(model)
    if not any(base.__module__.split(".")[0] == "keras" for base in kind.__mro__):
        message = f"model is {checks.shown(model)}, which is no model of Keras 3; pass one"
        raise ArgumentError(message)
    config = require("keras", needed_by="hshap.models.keras").config
    found = layout or ("CHW" if config.image_data_format() == "channels_first" else "HWC")
    check_layout(found)
    shape = getattr(model, "input_shape", None)
    sides = cast("Sequence[int | None]", shape) if isinstance(shape, tuple) else ()
    channels = None
    if len(sides) == 4:
        channels = sides[-1] if found == "HWC" else sides[1]
    facts = Facts(class_names("names", names), Intake(channels, found, unit=False))
    few = config.backend() != "torch"
    return Function(_Arranged(_Keras(model, sides), found, few_sizes=few), facts)
