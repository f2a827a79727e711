"""Detectors and segmenters as models with an output for each box, or each class in a region.

The score of a box is its similarity to the boxes that the detector finds, as in D-RISE (Petsiuk et
al., Black-box explanation of object detectors via saliency maps, CVPR 2021).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast, runtime_checkable

import numpy as np

from hshap._util import checks
from hshap._util.arrays import is_tensor, to_numpy
from hshap._util.smoothing import enlarged
from hshap.errors import ArgumentError, ModelError
from hshap.evaluators.outputs import scores_in
from hshap.evaluators.runners import caller, is_torch_module
from hshap.models.model_description import Facts, Function, facts_of, plain_image

if TYPE_CHECKING:
    from hshap._util.types import Array, Grid, Heat, Ints, Mask, Model, ScoreFunction, Tensor
    from hshap.models.preparation import Preparation


@runtime_checkable
class HasPreparation(Protocol):
    """A model that resizes or crops images by itself."""

    @property
    def preparation(self) -> Preparation:
        """The steps from a plain image to the input of the network."""
        ...


class Frame(NamedTuple):
    """The size of a network's input, the corner of its crop, and pixels of the image for one of it.

    >>> Frame((32, 32), (0.0, 4.0), (2.0, 2.0)).in_image(8, 10)
    (24.0, 20.0)
    """

    size: tuple[int, int]
    start: tuple[float, float]
    ratio: tuple[float, float]

    @classmethod
    def of(cls, model: object, grid: Grid) -> Frame:
        """Return the frame of a model for images of a size."""
        height, width = grid
        if not isinstance(model, HasPreparation):
            return cls((height, width), (0.0, 0.0), (1.0, 1.0))
        steps = model.preparation.steps(grid)
        ratio = height / steps.resized[0], width / steps.resized[1]
        return cls(steps.cropped, steps.start, ratio)

    def in_image(self, right: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        """Return places of the input, columns and rows, as places of the image."""
        return (right + self.start[1]) * self.ratio[1], (down + self.start[0]) * self.ratio[0]


KEYS = ("boxes", "scores", "labels")


@dataclass(frozen=True)
class Detection:
    """A box of a detector: `(left, top, right, bottom)` in pixels of the image, class and score.

    >>> Detection((4, 8, 20, 24), label=3).box
    (4.0, 8.0, 20.0, 24.0)
    """

    box: tuple[float, float, float, float]
    label: int
    score: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        sides = cast("Sequence[object]", self.box)
        box = tuple(checks.number("box", side, minimum=-1e9) for side in sides)
        if len(box) != 4 or box[2] <= box[0] or box[3] <= box[1]:
            message = f"box is {checks.shown(self.box)}; pass (left, top, right, bottom) in pixels"
            raise ArgumentError(message)
        object.__setattr__(self, "box", box)
        object.__setattr__(self, "label", checks.integer("label", self.label, minimum=0))

    @property
    def title(self) -> str:
        """Its class and its box, in a few words."""
        left, top, right, bottom = (round(side) for side in self.box)
        return f"{self.name or f'class {self.label}'} at ({left}, {top}, {right}, {bottom})"


class Candidates(NamedTuple):
    """The boxes `(k, 4)` of one input in pixels of the image, and a score `(k,)` for each class."""

    boxes: Tensor
    scores: Tensor
    labels: Tensor | None  # None if scores are (k, classes)

    def of_class(self, label: int) -> Tensor:
        """Return the score of a class in each box; 0 in boxes of other classes."""
        if self.labels is None:
            if label >= self.scores.shape[1]:
                message = (
                    f"label={label} is no class of the detector, which has {self.scores.shape[1]}; "
                    f"pass 0 to {self.scores.shape[1] - 1}"
                )
                raise ArgumentError(message)
            return self.scores[:, label]
        return self.scores * (self.labels == label)


def similarity(candidates: Candidates, wanted: Detection) -> Tensor:
    """Return the largest product of overlap (IoU) and class score; 0 without any box."""
    boxes = candidates.boxes
    if not len(boxes):
        return boxes.sum()
    left, top, right, bottom = wanted.box
    wide = (boxes[:, 2].clip(max=right) - boxes[:, 0].clip(min=left)).clip(min=0)
    tall = (boxes[:, 3].clip(max=bottom) - boxes[:, 1].clip(min=top)).clip(min=0)
    shared = wide * tall
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    both = areas + (right - left) * (bottom - top) - shared
    return (shared / both.clip(min=1e-9) * candidates.of_class(wanted.label)).max()


def candidates_in(raw: object, model: object, grid: Grid) -> list[Candidates]:
    """Return the boxes of each input in the outputs of a detector, or refuse the outputs."""
    frame = Frame.of(model, grid)
    logits, places = _entry(raw, "logits"), _entry(raw, "pred_boxes")
    if logits is not None and places is not None:
        scores = _probabilities(logits, model)
        height, width = frame.size
        centre, half = places[..., :2], places[..., 2:] / 2
        low, high = centre - half, centre + half
        columns = [low[..., 0] * width, high[..., 0] * width]
        rows = [low[..., 1] * height, high[..., 1] * height]
        boxes = _placed(frame, columns, rows)
        return [Candidates(boxes[n], scores[n], None) for n in range(len(boxes))]
    if not isinstance(raw, Sequence):
        raise ModelError(f"the detector returned a {type(raw).__name__}; {_fix()}")
    return [_of_dict(one, frame) for one in cast("Sequence[object]", raw)]


def _of_dict(one: object, frame: Frame) -> Candidates:
    if not isinstance(one, Mapping) or any(key not in one for key in KEYS):
        message = f"the detector returned {checks.shown(one)} for an input; {_fix()}"
        raise ModelError(message)
    found = cast("Mapping[str, Tensor]", one)
    parts = [found[key] if is_tensor(found[key]) else np.asarray(found[key]) for key in KEYS]
    boxes, scores, labels = parts
    counts = {len(boxes), len(scores), len(labels)}
    if len(counts) > 1 or (len(boxes) and tuple(boxes.shape[1:]) != (4,)):
        sizes = (f"{key} {tuple(part.shape)}" for key, part in zip(KEYS, parts, strict=True))
        raise ModelError(f"the detector returned {', '.join(sizes)} for an input; {_fix()}")
    boxes = boxes.reshape(-1, 4)
    columns, rows = [boxes[:, 0], boxes[:, 2]], [boxes[:, 1], boxes[:, 3]]
    return Candidates(_placed(frame, columns, rows), scores, labels)


def _fix() -> str:
    return (
        "wrap it in a function that returns a list with a dict of boxes (left, top, right, "
        "bottom), scores and labels for each input"
    )


def _placed(frame: Frame, columns: Sequence[Tensor], rows: Sequence[Tensor]) -> Tensor:
    """Return boxes `(..., 4)` at their places in the image."""
    (left, top), (right, bottom) = (
        frame.in_image(x, y) for x, y in zip(columns, rows, strict=True)
    )
    sides = [left, top, right, bottom]
    return sys.modules["torch"].stack(sides, -1) if is_tensor(left) else np.stack(sides, -1)


def _entry(raw: object, name: str) -> Tensor:
    if isinstance(raw, Mapping):
        return cast("Mapping[str, object]", raw).get(name)
    return getattr(raw, name, None)


def _probabilities(logits: Tensor, model: object) -> Tensor:
    """Return the scores of classes from logits; DETR has one more logit, for no object."""
    held = model
    while getattr(held, "config", None) is None and getattr(held, "model", None) is not None:
        held = held.model  # pyright: ignore[reportAttributeAccessIssue]
    known = getattr(getattr(held, "config", None), "num_labels", None)
    if known == logits.shape[-1]:
        return logits.sigmoid()
    if known is not None and known + 1 == logits.shape[-1]:
        return logits.softmax(-1)[..., :-1]
    message = (
        f"the detector returned {logits.shape[-1]} logits for {known} classes of its config; "
        "wrap it in a function that returns a list of dicts with boxes, scores and labels"
    )
    raise ModelError(message)


def detections(
    model: Model, image: object, *, least: float = 0.5, layout: str | None = None
) -> tuple[Detection, ...]:
    """Return the boxes that a detector finds on an image with a score of `least` or more.

    The highest score comes first. `model` and `image` are as in `detector`. Fails if there is none.

    >>> def found(batch):
    ...     one = {"boxes": [[1, 2, 5, 6]], "scores": [0.9], "labels": [1]}
    ...     return [one] * len(batch)
    >>> detections(found, np.zeros((3, 8, 8)))
    (Detection(box=(1.0, 2.0, 5.0, 6.0), label=1, score=0.9, name=''),)
    """
    checks.number("least", least, minimum=0.0, maximum=1.0)
    pixels = plain_image(model, image, layout)
    grid = pixels.shape[1:]
    (candidates,) = candidates_in(caller(model)(pixels[None].copy()), model, grid)
    boxes, scores = to_numpy("boxes", candidates.boxes), to_numpy("scores", candidates.scores)
    if candidates.labels is None:
        labels, best = scores.argmax(-1), scores.max(-1, initial=0.0)
    else:
        labels, best = to_numpy("labels", candidates.labels), scores
    facts = facts_of(model)
    kept = [n for n in np.argsort(-best, kind="stable") if best[n] >= least and _is_box(boxes[n])]
    if not kept:
        highest = f"the highest score is {best.max():.3g}" if len(best) else "it has no box at all"
        message = (
            f"least={least:g}: the detector finds nothing on the image ({highest}); pass a lower "
            "least, or an image with an object"
        )
        raise ArgumentError(message)
    return tuple(
        Detection(
            cast("tuple[float, float, float, float]", tuple(map(float, boxes[n]))),
            int(labels[n]),
            float(best[n]),
            facts.name(int(labels[n])),
        )
        for n in kept
    )


def _is_box(box: Array) -> bool:
    return bool(box[2] > box[0] and box[3] > box[1])


@dataclass(frozen=True, eq=False)
class _Similarities:
    """A detector as a function from a batch to the similarity of each wanted box."""

    model: ScoreFunction
    wanted: tuple[Detection, ...]

    def __call__(self, batch: Array) -> Heat:
        every = candidates_in(self.model(batch), self.model, batch.shape[2:])
        rows = [[float(similarity(one, box)) for box in self.wanted] for one in every]
        return np.array(rows, dtype=np.float64)


def detector(model: Model, wanted: Detection | Sequence[Detection]) -> Model:
    """Return a detector as a model with one output for each wanted box: "explain this box".

    The score of a box is the largest product of overlap (intersection over union) and class score
    among the boxes that the detector finds, as in D-RISE: 1 if it finds the box again and is sure
    of the class, 0 if it finds no box of that class there.

    `model` returns a list with a dict of `boxes` (left, top, right, bottom), `scores` and `labels`
    for each input, as those of torchvision do, or `logits` and `pred_boxes`, as those of the DETR
    family in transformers do: wrap these with `hshap.models.transformers` first. `wanted` are the
    boxes of `detections`, or yours.

    A part of an object rarely gives the whole box: the score is not that of the paper's assumption,
    and `explanation.audit` says how far it is from it.

    >>> import hshap
    >>> def found(batch):  # a detector of one bright box
    ...     every = [np.argwhere(one[0] > 0.5)[:, ::-1] for one in batch]
    ...     boxes = [[[*p.min(0), *p.max(0) + 1]] if p.size else [] for p in every]
    ...     return [
    ...         {"boxes": one, "scores": [1.0] * len(one), "labels": [1] * len(one)}
    ...         for one in boxes
    ...     ]
    >>> image = np.zeros((1, 16, 16))
    >>> image[0, 4:8, 8:12] = 1.0
    >>> model = detector(found, detections(found, image))
    >>> explainer = hshap.Explainer(
    ...     model, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(min_size=4)
    ... )
    >>> explainer.explain(image, target=0).leaves, model.facts.classes
    ((Box(start=(4, 8), stop=(8, 12)),), ('class 1 at (8, 4, 12, 8)',))
    """
    listed = isinstance(cast("object", wanted), (list, tuple))
    boxes = tuple(cast("Sequence[Detection]", wanted if listed else (wanted,)))
    for box in boxes:
        if not isinstance(cast("object", box), Detection):
            message = f"wanted has {checks.shown(box)}; pass hshap.models.Detection(box, label)"
            raise ArgumentError(message)
    if not boxes:
        message = "wanted is empty; pass boxes, for example hshap.models.detections(model, image)"
        raise ArgumentError(message)
    own = facts_of(model)
    named = (replace(box, name=box.name or own.name(box.label)).title for box in boxes)
    facts = Facts(tuple(named), own.intake, own.preparation)
    if is_torch_module(model):
        from hshap.models.torch_modules import Similarities  # noqa: PLC0415

        return Similarities(model, boxes, facts)
    if not callable(model):
        message = f"model is {checks.shown(model)}, which cannot be called; pass a detector"
        raise ArgumentError(message)
    return Function(_Similarities(model, boxes), facts)


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
    if is_torch_module(model):
        from hshap.models.torch_modules import RegionScores  # noqa: PLC0415

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
    (logits,) = to_numpy("the segmenter's output", logits_in(caller(model)(pixels[None].copy())))
    maps = np.stack([enlarged(one, frame.size) for one in logits.astype(np.float64)])
    labels = (maps[0] > 0).astype(np.intp) if len(maps) == 1 else maps.argmax(0)
    places = [
        np.floor((np.arange(side) + 0.5) / ratio - start).astype(np.intp)
        for side, ratio, start in zip(grid, frame.ratio, frame.start, strict=True)
    ]
    inside = [(p >= 0) & (p < side) for p, side in zip(places, frame.size, strict=True)]
    held = [np.clip(p, 0, side - 1) for p, side in zip(places, frame.size, strict=True)]
    return np.where(np.logical_and.outer(*inside), labels[np.ix_(*held)], OUTSIDE)
