"""Carriers of the score: annotated objects, the background, or marks that should not matter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.metrics.inputs import as_truth
from hshap.metrics.intervals import Interval, bootstrap_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Grid, Heat, Mask
    from hshap.explanation.explanation import Explanation

OBJECTS, BACKGROUND, CORNERS, BORDER = "objects", "background", "corners", "border"
CORNER_SIDE = 8
"""A corner is a square whose side is this part of the shorter side of the image."""

BORDER_WIDTH = 20
"""The border is this part of the shorter side of the image."""

SUSPICIOUS = 0.1
"""A mark is suspicious if it surely carries more than this share, and more than its area."""

FEWEST = 5
"""Images with a mark that a suspicion takes: the interval of fewer is too narrow."""

MOST_ROWS = 10

_MUCH = "more than a tenth of the score, and more than its share of the area"


class Carried(NamedTuple):
    """The shares of an image's score by carrier, in order of precedence, and their areas.

    >>> Carried("a.png", {"objects": 0.9, "background": 0.1}, {}, doubt=0.1).shares["objects"]
    0.9
    """

    image: str
    shares: Mapping[str, float]
    areas: Mapping[str, float]
    doubt: float


@dataclass(frozen=True, eq=False, repr=False)
class Carriers:
    """Who carries the score over images with objects, with intervals, the worst images first.

    `images` are those with objects and findings, sorted by the share of the objects, the lowest
    first. `means` has the mean share of each carrier over those of them that have it, with a
    bootstrap interval. `suspicious` are the marks on at least five images whose interval lies above
    both a tenth and the share of the image that the mark covers. `empty` are the images with
    objects and without findings, `clean` those without objects: no score, or no object, could count
    there.

    >>> import hshap
    >>> found = hshap.demo.example()
    >>> report = carriers({"a.png": (found, found.saliency() > 0)})
    >>> report.means["objects"].value, report.suspicious
    (1.0, ())
    """

    images: tuple[Carried, ...]
    empty: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()

    @cached_property
    def means(self) -> dict[str, Interval]:
        """The mean share of each carrier over the images that have it, with its 95 % interval."""
        return {
            name: bootstrap_mean([row.shares[name] for row in rows], draws=2000)
            for name in (self.images[0].shares if self.images else ())
            if (rows := self.having(name))
        }

    def having(self, name: str) -> list[Carried]:
        """Return the images that have a carrier; on the others, it could carry nothing."""
        return [row for row in self.images if row.areas[name] > 0]

    @property
    def suspicious(self) -> tuple[str, ...]:
        """The marks whose interval lies above a tenth of the score and their share of the area."""
        return tuple(
            name
            for name, mean in self.means.items()
            if name not in (OBJECTS, BACKGROUND)
            and len(self.having(name)) >= FEWEST
            and mean.low > max(SUSPICIOUS, self.area(name))
        )

    def area(self, name: str) -> float:
        """Return the mean share of the image that a carrier covers, on the images that have it."""
        return float(np.mean([row.areas[name] for row in self.having(name)]))

    def __repr__(self) -> str:
        lines = [f"<Carriers of the score over {len(self.images)} images with objects"]
        lines += [
            f"  {name}: {mean.value:.0%} ({mean.low:.0%} to {mean.high:.0%}) on "
            f"{self.area(name):.1%} of the area of {len(self.having(name))} images"
            for name, mean in self.means.items()
        ]
        lines.append(f"  {self.verdict}")
        lines += [
            f"  {row.image}: objects {row.shares[OBJECTS]:.0%}" for row in self.images[:MOST_ROWS]
        ]
        return "\n".join(lines) + ">"

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if not self.images:
            return "no image with objects has findings, so nothing can be said"
        if self.suspicious:
            return f"suspicious: {', '.join(self.suspicious)} (surely {_MUCH})"
        return f"no mark is suspicious: none has surely {_MUCH}"


def carriers(
    explanations: Mapping[str, tuple[Explanation, object]],
    *,
    marks: Mapping[str, Mapping[str, object]] | None = None,
    margin: int = 0,
) -> Carriers:
    """Return which share of the score objects, marks and background carry, over a data set.

    The shares are those of images with objects and findings. Images whose truth marks no pixel that
    the model saw are in `clean`, and count for no carrier; those with objects and without findings,
    such as images that the model calls negative, are in `empty`.

    `explanations` has for each image an explanation and its truth: a mask of the objects at the
    size of the original image, or a list of masks or `(start, stop)` boxes. `marks` has further
    truths by name and image, such as text. The corners and the border of each image are marks
    always. A pixel counts once: for the objects, grown by `margin` pixels; else for the first mark
    that holds it; else for the background. Shares are those of `attribution()`. Inside a
    leaf it is a guess, so small leaves make sharper reports.

    >>> import hshap
    >>> found = hshap.demo.example()
    >>> carriers({"a.png": (found, [((0, 0), (4, 4))])}).images[0].shares["objects"]
    0.0
    """
    grown = checks.integer("margin", margin, minimum=0)
    if not explanations:
        message = "explanations is empty; pass at least one image with its explanation and truth"
        raise ArgumentError(message)
    rows: list[Carried] = []
    empty: list[str] = []
    clean: list[str] = []
    for name, (explanation, truth) in explanations.items():
        place = explanation.placement
        objects = as_truth(truth, place.shape)
        heat = np.maximum(place.spread(explanation.attribution()), 0.0)
        if not (objects & place.seen).any():
            clean.append(name)
        elif not heat.any():
            empty.append(name)
        else:
            areas = {OBJECTS: _grown(objects, grown)}
            for mark, found in (marks or {}).items():
                areas[mark] = as_truth(found.get(name, []), heat.shape)
            areas |= usual_marks(heat.shape)
            rows.append(_carried(name, heat, areas, explanation.audit.doubt))
    rows.sort(key=lambda row: (row.shares[OBJECTS], row.image))
    return Carriers(tuple(rows), tuple(empty), tuple(clean))


def usual_marks(shape: Grid) -> dict[str, Mask]:
    """Return the corners and the border of an image.

    >>> {name: int(found.sum()) for name, found in usual_marks((80, 80)).items()}
    {'corners': 400, 'border': 1216}
    """
    shorter = min(shape)
    side, width = max(shorter // CORNER_SIDE, 1), max(shorter // BORDER_WIDTH, 1)
    corners, border = np.ones(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for axis, length in enumerate(shape):
        places = np.minimum(np.arange(length), np.arange(length)[::-1])
        along = places.reshape(-1, *(1,) * (len(shape) - axis - 1))
        corners &= along < side
        border |= along < width
    return {CORNERS: corners, BORDER: border}


def _carried(name: str, heat: Heat, areas: Mapping[str, Mask], doubt: float) -> Carried:
    total, left = float(heat.sum()), np.ones(heat.shape, dtype=bool)
    shares: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for carrier, area in areas.items():
        own = area & left
        shares[carrier], sizes[carrier] = float(heat[own].sum()) / total, float(own.mean())
        left &= ~area
    shares[BACKGROUND], sizes[BACKGROUND] = float(heat[left].sum()) / total, float(left.mean())
    return Carried(name, shares, sizes, doubt)


def _grown(mask: Mask, margin: int) -> Mask:
    """Return a mask grown by so many pixels along every axis, corners included."""
    for axis in range(mask.ndim):
        out = mask.copy()
        for step in range(1, min(margin, mask.shape[axis] - 1) + 1):
            before, after = [slice(None)] * mask.ndim, [slice(None)] * mask.ndim
            before[axis], after[axis] = slice(None, -step), slice(step, None)
            out[tuple(after)] |= mask[tuple(before)]
            out[tuple(before)] |= mask[tuple(after)]
        mask = out
    return mask
