"""Models of scikit-learn, Keras, JAX and ONNX as callables, which give no gradients.

None of these libraries is imported for its own sake: a model of theirs is enough.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError, ModelError, require
from hshap.evaluators.models.facts import Facts, Intake, class_names
from hshap.evaluators.models.onnx_metadata import (
    MetadataError,
    is_bgr,
    names_in,
    preparation_in,
)
from hshap.evaluators.runners import OnnxRunner

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Array, Heat, Model, ScoreFunction
    from hshap.evaluators.models.preparation import Preparation

Layout = Literal["HWC", "CHW"]
Method = Literal["predict_proba", "decision_function", "predict"]
METHODS: tuple[Method, ...] = ("predict_proba", "decision_function", "predict")


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


@dataclass(frozen=True, eq=False)
class _Flattened:
    """A scikit-learn estimator on images, each a row of its pixels."""

    estimator: Model
    method: Method
    layout: Layout

    def __call__(self, batch: Array) -> Heat:
        images = np.moveaxis(batch, 1, -1) if self.layout == "HWC" else batch
        rows = np.ascontiguousarray(images).reshape(len(images), -1)
        wanted = getattr(self.estimator, "n_features_in_", rows.shape[1])
        if rows.shape[1] != wanted:
            sizes = " x ".join(map(str, images.shape[1:]))
            message = (
                f"image has {rows.shape[1]} numbers ({sizes}), but the estimator was fitted on "
                f"{wanted}; pass an image of that size, with the channels that it was fitted on"
            )
            raise ArgumentError(message)
        scores = np.asarray(getattr(self.estimator, self.method)(rows))
        return scores.reshape(len(rows), -1).astype(np.float64)


def scikit_learn(
    estimator: Model,
    *,
    method: Method = "predict_proba",
    layout: Layout = "HWC",
    names: Sequence[str] | None = None,
) -> Function:
    """Return a scikit-learn estimator or pipeline, fitted on flattened images, as a model.

    Each image becomes a row of its pixels, in the order of `layout`: "HWC" has the channels of a
    pixel side by side, as `image.reshape(-1)` of a picture has them. Numbers stay as they are, so
    pass images in the units of the fit. `method` is "predict_proba", "decision_function" for
    classifiers without probabilities, or "predict" for regressors. Names are `estimator.classes_`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> import hshap
    >>> images = np.zeros((4, 4, 4))
    >>> images[:2, 1, 2] = 1.0
    >>> model = LogisticRegression().fit(images.reshape(4, -1), ["dot", "dot", "none", "none"])
    >>> explainer = hshap.Explainer(
    ...     scikit_learn(model), baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=1)
    ... )
    >>> explainer.explain(images[0], target="dot").leaves
    (Box(start=(1, 2), stop=(2, 3)),)
    """
    if method not in METHODS:
        message = f"method must be one of {', '.join(METHODS)}, got {checks.shown(method)}"
        raise ArgumentError(f"{message}; pass one of these")
    _check_layout(layout)
    if isinstance(estimator, type):
        message = f"estimator is the class {estimator.__name__}; pass a fitted estimator of it"
        raise ArgumentError(message)
    if not callable(getattr(estimator, method, None)):
        others = [one for one in METHODS if callable(getattr(estimator, one, None))]
        fix = f"pass method={others[0]!r}" if others else "pass a fitted estimator or pipeline"
        message = f"estimator is {checks.shown(estimator)}, which has no {method}; {fix}"
        raise ArgumentError(message)
    given: Sequence[object] | None = names
    if given is None and method != "predict":
        given = getattr(estimator, "classes_", None)
        if method == "decision_function" and given is not None and len(given) == 2:
            given = given[1:]  # one score, that of the second class
    intake = Intake(None, layout, unit=False)
    return Function(
        _Flattened(estimator, method, layout), Facts(class_names("names", given), intake)
    )


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
        return _kept(self.function(np.ascontiguousarray(images)), count, len(batch))


def _kept(raw: object, count: int, room: int) -> object:
    """Return the scores of the first inputs of a batch that was filled up."""
    scores = np.asarray(raw)
    if scores.ndim == 0 or len(scores) != room:
        message = (
            f"the model returned shape {scores.shape} for {room} inputs; it must return one row "
            "for each, so check the order of axes that it takes: layout='HWC' or 'CHW'"
        )
        raise ModelError(message)
    return scores[:count]


def jax(
    function: ScoreFunction, *, layout: Layout = "HWC", names: Sequence[str] | None = None
) -> Function:
    """Return a function of JAX, jitted or not, as a model.

    It takes a batch `(n, height, width, channels)`, or `(n, channels, height, width)` with
    `layout="CHW"`, and returns scores `(n,)` or `(n, classes)`: bind parameters before, for example
    `lambda batch: model.apply(params, batch)`. Images are those that the function takes, in its own
    units and with its own order of axes. Batches are filled up to sizes of 1, 2, 4 and so on, since
    a jitted function is compiled for each size.

    >>> import hshap
    >>> explainer = hshap.Explainer(
    ...     jax(lambda batch: batch.max(axis=(1, 2))),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=1),
    ... )
    >>> image = np.zeros((8, 8, 3))
    >>> image[2, 5, 1] = 1.0
    >>> explainer.explain(image, target=1).leaves
    (Box(start=(2, 5), stop=(3, 6)),)
    """
    _check_layout(layout)
    if isinstance(function, type) or not callable(function):
        message = f"function is {checks.shown(function)}, which cannot be called; pass a function"
        raise ArgumentError(message)
    facts = Facts(class_names("names", names), Intake(None, layout, unit=False))
    return Function(_Arranged(function, layout, few_sizes=True), facts)


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
    `keras.applications` take numbers from 0 to 255, and normalise them by themselves. On the
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
    _check_layout(found)
    shape = getattr(model, "input_shape", None)
    sides = cast("Sequence[int | None]", shape) if isinstance(shape, tuple) else ()
    channels = None
    if len(sides) == 4:
        channels = sides[-1] if found == "HWC" else sides[1]
    facts = Facts(class_names("names", names), Intake(channels, found, unit=False))
    few = config.backend() != "torch"
    return Function(_Arranged(_Keras(model, sides), found, few_sizes=few), facts)


@dataclass(frozen=True, eq=False)
class _Session:
    """An ONNX session that takes plain images."""

    session: Model
    layout: Layout
    preparation: Preparation
    bgr: bool

    def __call__(self, batch: Array) -> Heat:
        run = OnnxRunner(self.session)
        made = self.preparation.normalised(batch[:, ::-1] if self.bgr else batch)
        images = np.moveaxis(made, 1, -1) if self.layout == "HWC" else made
        most = run.largest_batch or len(images)
        parts: list[Heat] = []
        for first in range(0, len(images), most):
            part = images[first : first + most]
            room = run.inputs(len(part), part.shape[1:], part.dtype)
            room[:] = part
            parts.append(run.run(room, len(part)))
        return np.concatenate(parts)


def onnx(
    session: Model,
    *,
    preparation: Preparation | None = None,
    names: Sequence[str] | Mapping[int, str] | None = None,
    layout: Layout | None = None,
) -> Function:
    """Return an ONNX session as a model that takes plain images, by the metadata of its file.

    Names of classes are those of the entry `id2label`, `names`, `classes` or `labels`, a list or a
    mapping in JSON. Mean and std are those of `mean` or `image_mean`, and `std` or `image_std`;
    numbers above 1 are of pixels up to 255. `rescale_factor` and the ONNX standard's own
    `Image.NominalPixelRange` and `Image.BitmapPixelFormat` count, too. Without an entry for the
    scale of pixels, pass a `Preparation`. The size is not changed. Arguments win over the file.

    >>> import onnxruntime
    >>> from onnx import TensorProto, helper
    >>> ends = [
    ...     helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    ...     for name, shape in (("image", ["n", 3, 8, 8]), ("scores", ["n", 3, 1, 1]))
    ... ]
    >>> node = helper.make_node("GlobalMaxPool", ["image"], ["scores"])
    >>> graph = helper.make_graph([node], "colours", ends[:1], ends[1:])
    >>> file = helper.make_model(
    ...     graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ... )
    >>> facts = {"mean": "[0.5, 0.5, 0.5]", "std": "[0.5, 0.5, 0.5]", "names": "red,green,blue"}
    >>> helper.set_model_props(file, facts)
    >>> session = onnxruntime.InferenceSession(file.SerializeToString())
    >>> model = onnx(session)
    >>> model(np.ones((1, 3, 8, 8), np.float32)).tolist(), model.facts.classes
    ([[1.0, 1.0, 1.0]], ('red', 'green', 'blue'))
    """
    OnnxRunner(session)  # refuses sessions that cannot be used
    entries: Mapping[str, str] = session.get_modelmeta().custom_metadata_map
    shape = tuple(session.get_inputs()[0].shape)
    if len(shape) != 4:
        message = f"session takes inputs {shape}; pass one of pictures (n, channels, height, width)"
        raise ArgumentError(message)
    found = layout or ("HWC" if _is_last(shape) else "CHW")
    _check_layout(found)
    channels = shape[-1] if found == "HWC" else shape[1]
    count = channels if isinstance(channels, int) else 3
    made = _preparation(entries, count) if preparation is None else preparation
    if made.moves_pixels:
        message = "preparation resizes images, which is for torch modules; resize images before"
        raise ArgumentError(message)
    classes = _names(entries) if names is None else class_names("names", names)
    facts = Facts(classes, Intake(count, None), made.sentence)
    return Function(_Session(session, found, made, bgr=is_bgr(entries)), facts)


def _preparation(entries: Mapping[str, str], channels: int) -> Preparation:
    try:
        found = preparation_in(entries, channels)
    except MetadataError as error:
        raise ArgumentError(f"session {error}; pass preparation=Preparation(...)") from error
    if found is None:
        message = (
            "session has no metadata that says how pixels are scaled (mean and std, "
            "rescale_factor or Image.NominalPixelRange); pass preparation=Preparation(scale=255) "
            "for pixels up to 255, or Preparation() for pixels up to 1"
        )
        raise ArgumentError(message)
    return found


def _names(entries: Mapping[str, str]) -> tuple[str, ...]:
    try:
        return names_in(entries)
    except MetadataError as error:
        raise ArgumentError(f"session {error}; pass names=") from error


def _is_last(shape: Sequence[object]) -> bool:
    """Tell whether channels come last in the shape of an input."""
    first, last = shape[1], shape[-1]
    return isinstance(last, int) and last <= 4 and not (isinstance(first, int) and first <= 4)


def _check_layout(layout: object) -> None:
    if layout not in ("HWC", "CHW"):
        message = f"layout must be 'HWC' or 'CHW', got {checks.shown(layout)}; pass one of the two"
        raise ArgumentError(message)
