"""Calibration: an area around the findings that keeps a promise on new images."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import numpy as np

from hshap._util import atomic, checks
from hshap._util.smoothing import smoothed
from hshap.errors import ArgumentError, FormatError
from hshap.metrics.inputs import as_truth, same_length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from os import PathLike

    from hshap._util.types import Heat, Json, Mask
    from hshap.explanation.explanation import Explanation

Steps: TypeAlias = tuple["Heat", "Heat"]
"""Limits, ascending, and the loss above each."""

Loss: TypeAlias = Literal["missed area", "missed objects", "false area"]
PROMISES = {
    "missed area": "{kept} of object area expected inside on images with objects",
    "missed objects": (
        "{kept} of objects expected to be found on images with objects, each with half of its area "
        "inside"
    ),
    "false area": (
        "at most {level} of the background expected inside on images with objects and findings"
    ),
}
NEEDED = {
    "missed area": "objects",
    "missed objects": "objects",
    "false area": "objects, background and findings",
}
"""Each loss is defined on images with these."""

FOUND = 0.5
"""Share of an object's area inside that counts as found."""

WIDTH = 0.25
"""Standard deviation of the smoothing of closeness, in mean sides of the findings."""

ROUNDING = 1e-9

FORMAT = "hshap calibration"
VERSION = 2
LARGEST = 2**20
"""Bytes of a file with a calibration, at most."""


@dataclass(frozen=True)
class Calibration:
    """A limit of closeness to the findings, and the promise that it keeps on new images.

    `area(explanation)` is the marked area. On average over new images with objects, its `loss` is
    at most `level`: the share of object area, or of objects, that it misses, or the share of the
    background that it holds. This holds if the new images, their explanations and their truths are
    drawn as those of the calibration were. It says nothing about a single image, nor about clean
    ones. `images` is the number of images with objects that the limit was chosen on, `left_out`
    that of the others. `made` has the kinds of partition and search of the explanations; others
    are refused. `mean_area` is the mean share of the image that the area had on these images.

    >>> print(Calibration(0.2, "missed area", 0.1, images=40, left_out=9, made=("Dyadic, Hunt",)))
    90 % of object area expected inside on images with objects, calibrated on 40 such images
    """

    limit: float
    loss: Loss
    level: float
    images: int
    left_out: int
    made: tuple[str, ...]
    mean_area: float = math.nan

    def area(self, explanation: Explanation) -> Mask:
        """Return the marked area of an explanation that was made like those of the calibration.

        It is empty if the explanation has no findings, also because the model calls the image
        negative and nothing was searched.
        """
        kind = kind_of(explanation)
        if kind not in self.made and explanation.is_explained:
            known = " or ".join(self.made)
            message = (
                f"the explanation was made with {kind}, but the calibration holds for {known}; "
                "calibrate on explanations that were made alike"
            )
            raise ArgumentError(message)
        return self.marked(closeness(explanation))

    def marked(self, near: Heat) -> Mask:
        """Return the pixels whose closeness is within the limit."""
        return near > self.limit if self.loss == "false area" else near >= self.limit

    def save(self, path: str | PathLike[str]) -> None:
        """Write the calibration as JSON."""
        document: dict[str, Json] = {"format": FORMAT, "version": VERSION, **self.document}
        text = json.dumps(document, indent=2) + "\n"
        atomic.replace(path, lambda file: file.write(text.encode()))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Calibration:
        """Read a calibration that `save` wrote; any other file is a `FormatError`."""
        name = os.fspath(path)
        if Path(path).exists() and not Path(path).is_file():  # a pipe would be waited for
            raise FormatError(f"{name} is not a regular file; pass one that save() wrote")
        try:
            with Path(path).open("rb") as file:
                document = json.loads(file.read(LARGEST))
            found = (document["format"], document["version"]) == (FORMAT, VERSION)
            if found:
                return read_calibration({key: document[key] for key in _names()})
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            message = f"{name} is not an hshap calibration; pass a file that save() wrote"
            raise FormatError(message) from error
        message = (
            f"{name} is not a {FORMAT} of version {VERSION}, but a "
            f"{checks.shown(document['format'])} of version {checks.shown(document['version'])}; "
            "calibrate again"
        )
        raise FormatError(message)

    @property
    def document(self) -> dict[str, Json]:
        """The calibration as JSON, with a mean area that is not known as a word."""
        return {key: _worded(value) for key, value in asdict(self).items()}

    def __str__(self) -> str:
        """Return the promise in words."""
        kept, level = _percent(1 - self.level), _percent(self.level)
        promise = PROMISES[self.loss].format(kept=kept, level=level)
        return f"{promise}, calibrated on {self.images} such images"


def calibrate(
    explanations: Iterable[Explanation],
    truths: Iterable[object],
    *,
    loss: Loss = "missed area",
    level: float = 0.1,
) -> Calibration:
    """Return the smallest area around findings that keeps a promise on new images.

    `truths` has for each explanation a mask of its objects on the grid, or a list of masks or
    `(start, stop)` boxes, one for each object. `loss` is "missed area" (share of the object area
    outside), "missed objects" (share of the objects with less than half of their area inside), or
    "false area" (share of the background inside; the area is then the largest one that keeps the
    promise). The expected loss on a new image with objects is at most `level`, by conformal risk
    control: for any model, any map and this many images, as long as new images are drawn as these
    were.

    Images whose truth marks no pixel are left out: there is nothing to find on them. An image with
    objects and without findings is missed in full, also one that was not explained because the
    model calls it negative. False area is that of images with objects, background and findings.
    With too few such images for the level, or too many that are missed in full, this is an
    `ArgumentError` that says how many are needed, or which level can be promised. The expectation
    counts such a refusal as no loss, so do not draw images again until none comes.

    >>> import hshap
    >>> explanations = [hshap.demo.example()] * 12
    >>> truths = [explanations[0].saliency() > 0] * 12
    >>> made = calibrate(explanations, truths, level=0.2)
    >>> print(made)
    80 % of object area expected inside on images with objects, calibrated on 12 such images
    >>> made.area(explanations[0]).mean().item() < 0.2
    True
    """
    kind = as_loss(loss)
    wanted = checks.number("level", level, minimum=1e-6, maximum=1 - 1e-6)
    found, known = list(explanations), list(truths)
    same_length("explanations", "truths", (len(found), len(known)))
    near = [closeness(explanation) for explanation in found]
    steps = [steps_of(kind, *pair) for pair in zip(near, known, strict=True)]
    counted = [place for place, step in enumerate(steps) if step is not None]
    rising = [step for step in steps if step is not None]
    check_enough(rising, wanted, needs=NEEDED[kind], given=len(found))
    limit = highest_limit(rising, wanted)
    kinds = {kind_of(found[place]) for place in counted if found[place].is_explained}
    made = Calibration(
        limit=-limit if kind == "false area" else limit,
        loss=kind,
        level=wanted,
        images=len(counted),
        left_out=len(found) - len(counted),
        made=tuple(sorted(kinds)),
    )
    shares = [float(made.marked(near[place]).mean()) for place in counted]
    return replace(made, mean_area=float(np.mean(shares)))


def with_calibration(explanation: Explanation, calibration: Calibration) -> Explanation:
    """Return the same explanation with a calibration, whose promise `marked_area` keeps.

    The explanation must be made like those of the calibration; else it is refused with an
    `ArgumentError`.

    >>> import hshap
    >>> explanations = [hshap.demo.example()] * 12
    >>> made = calibrate(explanations, [one.saliency() > 0 for one in explanations], level=0.2)
    >>> with_calibration(explanations[0], made).calibration.images
    12
    """
    given = cast("object", calibration)
    if not isinstance(given, Calibration):
        message = (
            f"calibration is {checks.shown(given)}; pass the result of calibrate, "
            "or Calibration.load(path)"
        )
        raise ArgumentError(message)
    calibration.area(explanation)  # refuses an explanation of another kind
    return replace(explanation, calibration=calibration)


def marked_area(explanation: Explanation) -> Mask:
    """Return the area around the findings that keeps the promise of the calibration.

    >>> import hshap
    >>> explanations = [hshap.demo.example()] * 12
    >>> made = calibrate(explanations, [one.saliency() > 0 for one in explanations], level=0.2)
    >>> int(marked_area(with_calibration(explanations[0], made)).sum())
    1
    """
    if explanation.calibration is None:
        message = (
            "the explanation has no calibration; pass it with one from calibrate to "
            "with_calibration(explanation, calibration)"
        )
        raise ArgumentError(message)
    return explanation.calibration.area(explanation)


def kind_of(explanation: Explanation) -> str:
    """Return the kinds of partition and search of an explanation, in words."""
    settings = explanation.settings
    return f"{settings.partition_name}, {settings.search_name}"


def read_calibration(document: object) -> Calibration:
    """Return the calibration of a JSON document; a `ValueError` if it is none."""
    given = cast("dict[str, Json]", document)
    limit, level, area = (
        float(cast("float", given[key])) for key in ("limit", "level", "mean_area")
    )
    images, left_out = (cast("int", given[key]) for key in ("images", "left_out"))
    counts = all(type(one) is int for one in (images, left_out)) and images > 0 and left_out >= 0
    if not math.isfinite(limit) or not 0 < level < 1 or not counts:
        message = "a number of the calibration is out of range"
        raise ValueError(message)
    made = tuple(map(str, cast("list[str]", given["made"])))
    return Calibration(limit, as_loss(given["loss"]), level, images, left_out, made, area)


def stored_calibration(document: object) -> Calibration | None:
    """Return the calibration in the header of an explanation, if there is one."""
    return None if document is None else read_calibration(document)


def _names() -> list[str]:
    return [field.name for field in fields(Calibration)]


def _worded(value: object) -> Json:
    if isinstance(value, tuple):
        return [str(item) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return cast("Json", value)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def closeness(explanation: Explanation) -> Heat:
    """Return a number up to 1 for each pixel: how near it is to the centre of a finding.

    Where the map of attributions, smoothed over all parts, is above 0, it is that map as a share of
    its maximum. Elsewhere it is minus the distance to that area, in steps along the axes, as a
    share of the longest one. So every limit gives an area, a lower limit gives a larger one, and -1
    gives the whole image. Without findings, it is minus infinity everywhere: no limit gives an area
    around nothing.

    >>> import hshap
    >>> closeness(hshap.demo.example()).max().item()
    1.0
    """
    # An object reaches beyond what the model needs of it, so the area may enter ignored parts.
    heat = np.maximum(smoothed(explanation.attribution(), _width(explanation)), 0.0)
    most = float(heat.max())
    if most <= 0 or not explanation.leaves:
        return np.full(explanation.grid, -np.inf)
    longest = max(sum(explanation.grid) - len(explanation.grid), 1)
    return np.where(heat > 0, heat / most, -steps_to(heat > 0) / longest)


def _width(explanation: Explanation) -> float:
    """Return a quarter of the mean side of the findings, at least a pixel; 0 without any."""
    sides = [leaf.area ** (1 / len(explanation.grid)) for leaf in explanation.leaves]
    return max(WIDTH * float(np.mean(sides)), 1.0) if sides else 0.0


def steps_to(there: Mask) -> Heat:
    """Return the number of steps along the axes from each pixel to the nearest True one.

    >>> steps_to(np.array([[False, False, False], [False, False, True]])).tolist()
    [[3.0, 2.0, 1.0], [2.0, 1.0, 0.0]]
    """
    out = np.where(there, 0.0, np.inf)
    for axis, side in enumerate(out.shape):
        places = np.arange(side).reshape(-1, *(1,) * (out.ndim - axis - 1))
        before = np.minimum.accumulate(out - places, axis=axis) + places
        after = np.flip(np.minimum.accumulate(np.flip(out + places, axis), axis=axis), axis)
        out = np.minimum(before, after - places)
    return out


def steps_of(loss: Loss, closeness: Heat, truth: object) -> Steps | None:
    """Return the limits at which the loss of an image rises, ascending, and the loss above each.

    For the two losses of misses, the area is `closeness >= limit`. For false area, the limit and
    closeness have the other sign, so that a higher limit is a larger area there. None for an image
    on which the loss is not defined: one without objects and, for false area, one without
    background, or without findings around which an area could be marked. An image with objects and
    without findings is missed in full, at every limit.

    >>> near = np.array([0.9, 0.5, 0.1, -0.2])
    >>> steps_of("missed area", near, np.array([True, True, False, False]))
    (array([0.5, 0.9]), array([0.5, 1. ]))
    """
    steps = _STEPS[loss](closeness, truth)
    return steps if len(steps[0]) else None


def as_loss(value: object) -> Loss:
    """Return the name of a loss."""
    if value not in PROMISES:
        message = f"loss is {checks.shown(value)}; pass one of {', '.join(map(repr, PROMISES))}"
        raise ArgumentError(message)
    return cast("Loss", value)


def _missed_area(closeness: Heat, truth: object) -> Steps:
    inside = np.sort(closeness[as_truth(truth, closeness.shape)])
    return _rising(inside)


def _missed_objects(closeness: Heat, truth: object) -> Steps:
    if not isinstance(truth, (list, tuple)):
        message = (
            f"truths holds {checks.shown(truth)}; for missed objects, pass a list of masks or "
            "(start, stop) boxes for each image, one for each object"
        )
        raise ArgumentError(message)
    objects = [as_truth([one], closeness.shape) for one in cast("Sequence[object]", truth)]
    # An object is found as long as the limit leaves half of its pixels inside.
    ends = np.sort([_median_above(closeness[one]) for one in objects if one.any()])
    return _rising(ends)


def _median_above(values: Heat) -> float:
    """Return the highest limit at which half of the values, or more, are not below it."""
    wanted = int(np.ceil(FOUND * len(values)))
    return float(np.sort(values)[len(values) - wanted])


def _false_area(closeness: Heat, truth: object) -> Steps:
    there = as_truth(truth, closeness.shape)
    outside = np.sort(-closeness[~there & np.isfinite(closeness)])
    return _rising(outside if there.any() else outside[:0])


def _rising(limits: Heat) -> Steps:
    """Return ascending limits, each with the share of them up to it."""
    return limits, np.arange(1, len(limits) + 1) / max(len(limits), 1)


_STEPS: dict[Loss, Callable[[Heat, object], Steps]] = {
    "missed area": _missed_area,
    "missed objects": _missed_objects,
    "false area": _false_area,
}


def images_needed(level: float) -> int:
    """Return the fewest images that allow a level: a new one may always have a loss of 1.

    >>> images_needed(0.1), images_needed(0.05), images_needed(0.3)
    (9, 19, 3)
    """
    return max(math.ceil(1 / level - 1 - ROUNDING), 1)


def check_enough(steps: Sequence[Steps], level: float, *, needs: str, given: int) -> None:
    """Refuse too few images with objects among those given, or too many without findings."""
    needed, images = images_needed(level), len(steps)
    lost = sum(math.isinf(rises[-1]) for rises, _ in steps)
    best = _rounded_up((lost + 1) / (images + 1))
    ease = f", or a level of {best:g} or more" if best < 1 else ""
    if images < needed:
        message = (
            f"level={level:g} takes at least {needed} images with {needs}, but there are {images} "
            f"among {given} images; pass {needed - images} more{ease}"
        )
        raise ArgumentError(message)
    if (lost + 1) / (images + 1) > level + ROUNDING:
        message = (
            f"level={level:g} cannot be promised, since {lost} of {images} images with {needs} "
            f"have no findings; pass images on which more is found{ease}"
        )
        raise ArgumentError(message)


def _rounded_up(share: float) -> float:
    """Return a share in two digits that is not smaller, so that it is not refused in turn."""
    scale = 10.0 ** (1 - math.floor(math.log10(share)))
    return math.ceil(share * scale - ROUNDING) / scale


def highest_limit(steps: Sequence[Steps], level: float) -> float:
    """Return the highest limit at which the corrected mean loss is at most the level.

    Each image has the limits above which its loss rises, in ascending order, and its loss above
    each of them. At or below its first limit, an image has no loss; if that is minus infinity, the
    image has its loss at every limit that can be returned. One image must have a finite limit.

    >>> one = (np.array([0.1, 0.5]), np.array([0.5, 1.0]))
    >>> highest_limit([one] * 9, 0.1), highest_limit([one] * 9, 0.6)
    (0.1, 0.5)
    """
    ends = [float(rises[place]) for rises, _ in steps for place in (0, -1)]
    ends = [end for end in ends if math.isfinite(end)]
    # The loss rises only above the limits of the images, so this ends at one of them, exactly.
    fine, beyond = min(ends), max(ends)
    if corrected(steps, beyond) <= level + ROUNDING:
        return beyond
    while fine < (middle := fine + (beyond - fine) / 2) < beyond:
        if corrected(steps, middle) <= level + ROUNDING:
            fine = middle
        else:
            beyond = middle
    return fine


def corrected(steps: Sequence[Steps], limit: float) -> float:
    """Return the mean loss at a limit as if one more image had a loss of 1."""
    return (sum(loss_at(step, limit) for step in steps) + 1.0) / (len(steps) + 1)


def loss_at(step: Steps, limit: float) -> float:
    """Return the loss of an image at a limit."""
    rises, losses = step
    place = int(np.searchsorted(rises, limit, side="left"))
    return float(losses[place - 1]) if place else 0.0
