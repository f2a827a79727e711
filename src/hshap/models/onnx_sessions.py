"""Sessions of onnxruntime that take plain images, by the metadata of their file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError
from hshap.evaluators.runners import OnnxRunner
from hshap.models.facts import Facts, Intake, class_names
from hshap.models.functions import Function, Layout, check_layout
from hshap.models.onnx_metadata import (
    MetadataError,
    is_bgr,
    names_in,
    preparation_in,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Array, Heat, Model
    from hshap.models.preparation import Preparation


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
