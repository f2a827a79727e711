"""Segmenters: the score of a class inside a region of the image."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import is_tensor, to_numpy
from hshap._util.smoothing import enlarged
from hshap.errors import ArgumentError, ModelError
from hshap.evaluators.outputs import scores_in
from hshap.models.detectors import outputs_of
from hshap.models.facts import Facts, facts_of, plain_image
from hshap.models.frames import Frame
from hshap.models.functions import Function

if TYPE_CHECKING:
    from hshap._util.types import Array, Grid, Heat, Ints, Mask, Model, ScoreFunction, Tensor

Scores = Literal["softmax", "sigmoid", "raw"]
SCORES: tuple[Scores, ...] = ("softmax", "sigmoid", "raw")
OUTSIDE = -1


def logits_in(raw: object) -> Tensor:
    """Return the logits `(n, classes, rows, columns)` in the outputs of a segmenter."""
    held = cast("Mapping[str, object]", raw).get("out") if isinstance(raw, Mapping) else None
    found: object = scores_in(raw) if held is None else held
    logits = found if is_tensor(found) else np.asarray(found)
    if logits.ndim != 4:
        message = (
            f"the segmenter returned shape {tuple(logits.shape)}; it must return logits (n, "
            "classes, rows, columns)"
        )
        raise ModelError(message)
    return logits


def check_region(region: Grid, grid: Grid) -> None:
    """Refuse a region of another size than the image."""
    if region != grid:
        message = f"region has shape {region}, but the image {grid}; pass one of the image's grid"
        raise ModelError(message)


@dataclass(frozen=True, eq=False)
class _Means:
    """A segmenter in NumPy as a function from a batch to the mean score of each class."""

    model: ScoreFunction
    region: Mask
    scores: Scores

    def __call__(self, batch: Array) -> Heat:
        grid = batch.shape[2:]
        check_region(self.region.shape, grid)
        logits = to_numpy("the segmenter's output", logits_in(self.model(batch)))
        maps = np.stack([[enlarged(one, grid) for one in row] for row in logits])
        if self.scores == "softmax":
            maps = np.exp(maps - maps.max(1, keepdims=True))
            maps /= maps.sum(1, keepdims=True)
        elif self.scores == "sigmoid":
            maps = np.exp(-np.logaddexp(0, -maps))
        return maps[:, :, self.region].mean(-1)


def segmenter(model: Model, region: object, *, scores: Scores = "softmax") -> Model:
    """Return a segmenter as a model with one output for each class: its mean score in a region.

    `model` returns logits `(n, classes, rows, columns)`, as they are or as the entry `logits` or
    `out`, as in transformers and torchvision; they are enlarged to the size of its input. `region`
    is a mask of the image's grid, for example `segments(model, image) == 3`. `scores` are the
    probabilities of classes that exclude each other, "sigmoid" for those that do not, or "raw".

    >>> import hshap
    >>> def found(batch):  # background, and bright pixels
    ...     return np.stack([0 * batch[:, 0], 20 * batch[:, 0] - 10], axis=1)
    >>> image = np.zeros((1, 16, 16))
    >>> image[0, 4:8, 8:12] = 1.0
    >>> model = segmenter(found, segments(found, image) == 1)
    >>> explainer = hshap.Explainer(
    ...     model, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=4)
    ... )
    >>> explainer.explain(image, target=1).leaves
    (Box(start=(4, 8), stop=(8, 12)),)
    """
    mask = to_numpy("region", region)
    if mask.ndim != 2 or mask.dtype != np.bool_:
        message = f"region is {mask.dtype} of shape {mask.shape}; pass booleans of the image's grid"
        raise ArgumentError(message)
    if not mask.any():
        message = "region has no pixel; pass one, for example segments(model, image) == 3"
        raise ArgumentError(message)
    if scores not in SCORES:
        message = f"scores must be one of {', '.join(SCORES)}, got {checks.shown(scores)}"
        raise ArgumentError(f"{message}; pass one of these")
    own = facts_of(model)
    facts = Facts(own.classes, own.intake, own.preparation)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        from hshap.models.torch_outputs import RegionScores  # noqa: PLC0415

        return RegionScores(model, mask, scores, facts)
    if not callable(model):
        message = f"model is {checks.shown(model)}, which cannot be called; pass a segmenter"
        raise ArgumentError(message)
    return Function(_Means(model, mask, scores), facts)


def segments(model: Model, image: object, *, layout: str | None = None) -> Ints:
    """Return the class with the highest score at each pixel of an image; -1 where it was cropped.

    `model` and `image` are as in `segmenter`.

    >>> segments(lambda batch: np.stack([batch[:, 0], 1 - batch[:, 0]], 1), np.eye(2)[None])
    array([[0, 1],
           [1, 0]])
    """
    pixels = plain_image(model, image, layout)
    grid = pixels.shape[1:]
    frame = Frame.of(model, grid)
    (logits,) = to_numpy("the segmenter's output", logits_in(outputs_of(model, pixels)))
    maps = np.stack([enlarged(one, frame.size) for one in logits.astype(np.float64)])
    labels = (maps[0] > 0).astype(np.intp) if len(maps) == 1 else maps.argmax(0)
    places = [
        np.floor((np.arange(side) + 0.5) / ratio - start).astype(np.intp)
        for side, ratio, start in zip(grid, frame.ratio, frame.start, strict=True)
    ]
    inside = [(p >= 0) & (p < side) for p, side in zip(places, frame.size, strict=True)]
    held = [np.clip(p, 0, side - 1) for p, side in zip(places, frame.size, strict=True)]
    return np.where(np.logical_and.outer(*inside), labels[np.ix_(*held)], OUTSIDE)
