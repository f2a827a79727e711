"""Calibration: an area around the findings that keeps a promise on new images."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import atomic, checks
from hshap.errors import ArgumentError, FormatError
from hshap.explanation.guarantees.closeness import closeness
from hshap.explanation.guarantees.losses import NEEDED, PROMISES, as_loss, steps_of
from hshap.explanation.guarantees.risk_control import check_enough, highest_limit
from hshap.metrics.inputs import same_length

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from hshap._util.types import Heat, Json, Mask
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.guarantees.losses import Loss

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
