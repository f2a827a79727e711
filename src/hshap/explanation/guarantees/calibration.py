"""Calibration: an area around the findings that keeps a promise on new images."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.atomic import replace
from hshap.errors import ArgumentError, FormatError
from hshap.explanation.guarantees.closeness import closeness
from hshap.explanation.guarantees.losses import PROMISES, Loss, as_loss, steps_of
from hshap.explanation.guarantees.risk_control import check_enough, highest_limit
from hshap.metrics.inputs import same_length

if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike

    from hshap._util.types import Json, Mask
    from hshap.explanation.explanation import Explanation

FORMAT = "hshap calibration"
VERSION = 1
LARGEST = 2**20
"""Bytes of a file with a calibration, at most."""


@dataclass(frozen=True)
class Calibration:
    """A limit of closeness to the findings, and the promise that it keeps on new images.

    `area(explanation)` is the marked area. On average over new images, its `loss` is at most
    `level`: the share of object area, or of objects, that it misses, or the share of the background
    that it holds. This holds if the new images, their explanations and their truths are drawn as
    those of the calibration were. It says nothing about a single image. `made` tells the kinds of
    partition and search of the explanations; others are refused. `mean_area` is the mean share of
    the image that the area had on the calibration images.

    >>> print(Calibration(0.2, "missed area", 0.1, images=40, made=("Dyadic, DepthFirst",)))
    90 % of object area expected inside, calibrated on 40 images
    """

    limit: float
    loss: Loss
    level: float
    images: int
    made: tuple[str, ...]
    mean_area: float = math.nan

    def area(self, explanation: Explanation) -> Mask:
        """Return the marked area of an explanation that was made like those of the calibration."""
        kind = kind_of(explanation)
        if kind not in self.made:
            known = " or ".join(self.made)
            message = (
                f"the explanation was made with {kind}, but the calibration holds for {known}; "
                "calibrate on explanations that were made alike"
            )
            raise ArgumentError(message)
        near = closeness(explanation)
        return near > self.limit if self.loss == "false area" else near >= self.limit

    def save(self, path: str | PathLike[str]) -> None:
        """Write the calibration as JSON."""
        document: dict[str, Json] = {"format": FORMAT, "version": VERSION, **self.document}
        text = json.dumps(document, indent=2) + "\n"
        replace(path, lambda file: file.write(text.encode()))

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
        message = f"{name} is not a calibration of version {VERSION}; calibrate again"
        raise FormatError(message)

    @property
    def document(self) -> dict[str, Json]:
        """The calibration as JSON, with an infinite limit as a word."""
        return {key: _worded(value) for key, value in asdict(self).items()}

    def __str__(self) -> str:
        """Return the promise in words."""
        kept, level = _percent(1 - self.level), _percent(self.level)
        promise = PROMISES[self.loss].format(kept=kept, level=level)
        return f"{promise}, calibrated on {self.images} images"


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
    promise). The expected loss on a new image is at most `level`, by conformal risk control: for
    any model, any map and this many images, as long as new images are drawn as these were. With too
    few images for the level, this is an `ArgumentError` that says how many are needed.

    >>> import hshap
    >>> explanations = [hshap.demo.example()] * 12
    >>> truths = [explanations[0].saliency() > 0] * 12
    >>> made = calibrate(explanations, truths, level=0.2)
    >>> print(made)
    80 % of object area expected inside, calibrated on 12 images
    >>> made.area(explanations[0]).mean().item() < 0.2
    True
    """
    kind = as_loss(loss)
    wanted = checks.number("level", level, minimum=1e-6, maximum=1 - 1e-6)
    found, known = list(explanations), list(truths)
    same_length("explanations", "truths", (len(found), len(known)))
    check_enough(len(found), wanted)
    near = [closeness(explanation) for explanation in found]
    limit = highest_limit(
        [steps_of(kind, heat, truth) for heat, truth in zip(near, known, strict=True)], wanted
    )
    limit = -limit if kind == "false area" else limit
    shares = [
        float((heat > limit if kind == "false area" else heat >= limit).mean()) for heat in near
    ]
    made = tuple(sorted({kind_of(explanation) for explanation in found}))
    return Calibration(limit, kind, wanted, len(found), made, float(np.mean(shares)))


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
    images, made = cast("int", given["images"]), cast("list[str]", given["made"])
    if math.isnan(limit) or not 0 < level < 1 or type(images) is not int or images < 1:
        message = "a number of the calibration is out of range"
        raise ValueError(message)
    return Calibration(limit, as_loss(given["loss"]), level, images, tuple(map(str, made)), area)


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
