"""How many objects were found, and with how many false positives.

Findings are matched greedily in the order of their scores. Each takes the object that it hits and
overlaps most, of those not yet found. A finding that hits only objects found before is neither a
success nor a false positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import lt
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.metrics.inputs import Box, as_box, as_values, same_length

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hshap._util.types import Heat

    Findings = Iterable[Iterable[object]]
    Objects = Iterable[Iterable[object]]

Hit = Callable[[Box, Box], bool]


class Froc(NamedTuple):
    """Sensitivity and false positives per image, counting only scores from a threshold on.

    >>> curve = froc([[((0, 0), (4, 4), 0.9)]], [[((1, 1), (3, 3))]])
    >>> curve.at(false_positives=0.5)
    1.0
    """

    thresholds: Heat
    false_positives: Heat
    sensitivity: Heat

    def at(self, false_positives: float) -> float:
        """Return the best sensitivity with at most this many false positives per image."""
        most = checks.number("false_positives", false_positives, minimum=0.0)
        return float(self.sensitivity[self.false_positives <= most].max())


class SizeBin(NamedTuple):
    """Objects of at least `low` and fewer than `high` pixels: how many exist and were found.

    >>> SizeBin(low=0.0, high=10.0, found=3, objects=4).recall
    0.75
    """

    low: float
    high: float
    found: int
    objects: int

    @property
    def recall(self) -> float:
        """The share that was found; NaN if there are no such objects."""
        return self.found / self.objects if self.objects else math.nan


def centre_inside(finding: Box, target: Box) -> bool:
    """Return whether the centre of a finding lies in an object or on its edge.

    >>> centre_inside(((0, 0), (4, 4)), ((1, 1), (3, 9)))
    True
    """
    middles = [(first + last) / 2 for first, last in zip(*finding, strict=True)]
    sides = zip(middles, *target, strict=True)
    return all(first <= middle <= last for middle, first, last in sides)


def overlaps(least: float = 0.5) -> Hit:
    """Return a criterion: the intersection over union of two boxes is at least `least`.

    >>> overlaps(0.5)(((0, 0), (4, 4)), ((0, 0), (4, 8)))
    True
    """
    limit = checks.number("least", least, minimum=0.0, maximum=1.0)
    return lambda finding, target: _overlap(finding, target) >= limit


def froc(
    findings_per_image: Findings, objects_per_image: Objects, hits: Hit = centre_inside
) -> Froc:
    """Return sensitivity against false positives per image over all thresholds of the score.

    For each image, findings are `(start, stop, score)` as from `Explanation.boxes`, and objects
    `(start, stop)`; a clean image has none. Sensitivity is a share of all objects, and false
    positives are per image, clean ones included. The first point of the curve has no finding at
    all.

    >>> findings = [[((0, 0), (4, 4), 0.9), ((8, 8), (9, 9), 0.5)], []]
    >>> froc(findings, [[((1, 1), (3, 3))], [((5, 5), (7, 7))]])
    Froc(thresholds=array([inf, 0.9, 0.5]), false_positives=array([0. , 0. , 0.5]),
         sensitivity=array([0. , 0.5, 0.5]))
    """
    images = _images(findings_per_image, objects_per_image)
    matches = [_match(findings, objects, hits) for findings, objects in images]
    found = np.array([score for scores, _ in matches for score in scores])
    false = np.array([score for _, scores in matches for score in scores])
    if not len(found):
        message = "objects_per_image holds no object, so sensitivity is not defined; pass some"
        raise ArgumentError(message)
    given = [score for findings, _ in images for _, score in findings]
    thresholds = np.array([math.inf, *sorted(set(given), reverse=True)])
    return Froc(
        thresholds,
        np.array([np.count_nonzero(false >= limit) for limit in thresholds]) / len(images),
        np.array([np.count_nonzero(found >= limit) for limit in thresholds]) / len(found),
    )


def recall_by_size(
    findings_per_image: Findings,
    objects_per_image: Objects,
    edges: Sequence[float],
    hits: Hit = centre_inside,
) -> list[SizeBin]:
    """Return how many objects were found in each bin of sizes, at any score.

    Sizes are in pixels of the object's box. `edges` separate the bins, so one edge makes two bins.

    >>> findings = [[((0, 0), (4, 4), 0.9)]]
    >>> recall_by_size(findings, [[((1, 1), (3, 3)), ((5, 5), (9, 9))]], edges=[10])
    [SizeBin(low=0.0, high=10.0, found=1, objects=1),
     SizeBin(low=10.0, high=inf, found=0, objects=1)]
    """
    limits = as_values("edges", edges)
    if not (np.diff(limits, prepend=0.0) > 0).all():
        message = f"edges must be positive and rise, got {checks.shown(edges)}; sort them"
        raise ArgumentError(message)
    sizes: list[float] = []
    found: list[bool] = []
    for findings, objects in _images(findings_per_image, objects_per_image):
        sizes += [_size(item) for item in objects]
        found += [score > -math.inf for score in _match(findings, objects, hits)[0]]
    bins = np.searchsorted(limits, sizes, side="right")
    count = len(limits) + 1
    hit = np.bincount(bins, weights=np.array(found, np.float64), minlength=count)
    bounds = [0.0, *limits.tolist(), math.inf]
    totals = np.bincount(bins, minlength=count).tolist()
    return [SizeBin(bounds[i], bounds[i + 1], int(hit[i]), totals[i]) for i in range(count)]


def _match(
    findings: list[tuple[Box, float]], objects: list[Box], hits: Hit
) -> tuple[list[float], list[float]]:
    """Return the score at which each object is found, and the scores of the false positives."""
    found = [-math.inf] * len(objects)
    false: list[float] = []
    for box, score in sorted(findings, key=lambda finding: -finding[1]):
        hit = [i for i, item in enumerate(objects) if hits(box, item)]
        new = [i for i in hit if found[i] == -math.inf]
        if new:
            found[max(new, key=lambda i: _overlap(box, objects[i]))] = score
        elif not hit:
            false.append(score)
    return found, false


def _images(
    findings_per_image: Findings, objects_per_image: Objects
) -> list[tuple[list[tuple[Box, float]], list[Box]]]:
    findings = [[_as_finding(item) for item in image] for image in findings_per_image]
    objects = [[as_box("objects_per_image", item) for item in image] for image in objects_per_image]
    same_length("findings_per_image", "objects_per_image", (len(findings), len(objects)))
    boxes = [box for image in findings for box, _ in image] + [
        b for image in objects for b in image
    ]
    axes = sorted({len(start) for start, _ in boxes})
    if len(axes) > 1:
        message = (
            f"findings_per_image and objects_per_image have boxes of {axes} axes; "
            "pass the same number of axes throughout"
        )
        raise ArgumentError(message)
    return list(zip(findings, objects, strict=True))


def _as_finding(value: object) -> tuple[Box, float]:
    box = as_box("findings_per_image", value)
    try:
        score = float(cast("Sequence[float]", value)[2])
    except (TypeError, ValueError, IndexError):
        score = math.nan
    if not math.isfinite(score):
        message = (
            f"findings_per_image holds {checks.shown(value)}; pass (start, stop, score) with a "
            "finite score"
        )
        raise ArgumentError(message)
    return box, score


def _overlap(one: Box, other: Box) -> float:
    start = tuple(map(max, one[0], other[0]))
    stop = tuple(map(min, one[1], other[1]))
    shared = _size((start, stop)) if all(map(lt, start, stop)) else 0.0
    return shared / (_size(one) + _size(other) - shared)


def _size(box: Box) -> float:
    return math.prod(last - first for first, last in zip(*box, strict=True))
