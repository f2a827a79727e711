"""Sessions of onnxruntime that take plain images, by the metadata of their file.

Entries of metadata are text that the author of a file wrote; here they are read as data alone.
"""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap.errors import ArgumentError
from hshap.evaluators.runners import OnnxRunner
from hshap.models.model_description import (
    Facts,
    Function,
    Intake,
    Layout,
    check_layout,
    class_names,
)
from hshap.models.preparation import Preparation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Array, Heat, Model

    Entries = Mapping[str, str]

NAMES = ("id2label", "names", "classes", "class_names", "labels")
"""Entries that name the classes; the first one that is there counts."""

MEANS = ("mean", "image_mean")
STDS = ("std", "image_std")
FACTOR = "rescale_factor"
PIXEL_RANGE = "Image.NominalPixelRange"
PIXEL_FORMAT = "Image.BitmapPixelFormat"
KEYS = (*NAMES, *MEANS, *STDS, FACTOR, PIXEL_RANGE, PIXEL_FORMAT)
"""All entries that count."""

RANGES = {
    "NominalRange_0_255": (255.0, 0.0, 1.0),
    "Normalized_0_1": (1.0, 0.0, 1.0),
    "Normalized_1_1": (1.0, 0.5, 0.5),
}
"""Scale, mean and std of the pixel ranges that the ONNX standard names."""

MAX_NUMBERS = 64
BYTES = 255.0


class MetadataError(ValueError):
    """Metadata that cannot be used; the message continues the name of the file."""


def names_in(entries: Entries) -> tuple[str, ...]:
    """Return the names of classes; empty without an entry of them.

    >>> names_in({"names": "{0: 'cat', 1: 'dog'}"}), names_in({"labels": "red, green"})
    (('cat', 'dog'), ('red', 'green'))
    """
    key = next((name for name in NAMES if name in entries), None)
    if key is None:
        return ()
    try:
        found = class_names(key, _value(entries[key]))
    except ArgumentError as error:
        raise _unreadable(key, entries[key]) from error
    if not found or not all(found):
        raise _unreadable(key, entries[key])
    return found


def preparation_in(entries: Entries, channels: int) -> Preparation | None:
    """Return how pixels of 0 to 1 are scaled; None if no entry says it.

    >>> preparation_in({"mean": "[127.5]", "std": "[127.5]"}, 1).scale
    255.0
    """
    mean, std = (_numbers(entries, keys) for keys in (MEANS, STDS))
    factor = _numbers(entries, (FACTOR,))
    if (mean is None) != (std is None):
        raise MetadataError(f"has metadata without {'std' if std is None else 'mean'}")
    if factor is not None and len(factor) != 1:
        raise _unreadable(FACTOR, entries[FACTOR])
    scale = None if factor is None else BYTES * factor[0]
    if mean is None or std is None:
        named = RANGES.get(entries.get(PIXEL_RANGE, ""))
        if named is None and scale is None:
            return None
        scale, middle, spread = named or (scale, 0.0, 1.0)
        mean, std = [middle], [spread]
    elif scale is None:
        scale = BYTES if np.abs([*mean, *std]).max() > 1 else 1.0
    try:
        return Preparation(scale=cast("float", scale), mean=mean, std=std, channels=channels)
    except ArgumentError as error:
        raise MetadataError(f"has metadata that does not fit: {error}") from error


def is_bgr(entries: Entries) -> bool:
    """Tell whether the model takes blue first."""
    return entries.get(PIXEL_FORMAT) == "Bgr8"


def _numbers(entries: Entries, keys: Sequence[str]) -> list[float] | None:
    key = next((name for name in keys if name in entries), None)
    if key is None:
        return None
    found = _value(entries[key])
    items = cast("list[object]", list(found) if isinstance(found, (list, tuple)) else [found])
    try:
        made = [float(cast("float", item)) for item in items]
    except (TypeError, ValueError, OverflowError):
        made = []
    if not 0 < len(made) <= MAX_NUMBERS or not all(map(math.isfinite, made)):
        raise _unreadable(key, entries[key])
    return made


def _value(text: str) -> object:
    """Return the value of an entry: JSON, a literal of Python, or words between commas.

    None if it cannot be read.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    listed = text.strip().startswith(("[", "{", "("))  # cut short, or of very many levels
    return None if listed else [part.strip() for part in text.split(",")]


def _unreadable(key: str, text: str) -> MetadataError:
    return MetadataError(f"has the metadata {key}={text[:80]!a}, which cannot be read")


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
    check_layout(found)
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
