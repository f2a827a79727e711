"""Findings: boxes around leaves at their place in the original image, and results by size."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap._util import checks
from hshap.explanation.maps import shares_left, strong_regions
from hshap.games.tree import coefficients
from hshap.partitions.joining import touching
from hshap.partitions.regions import blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Grid
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.guarantees.significance import TestedRegion
    from hshap.explanation.placement import Placement
    from hshap.partitions.protocol import Region
    from hshap.partitions.regions import Corners


MOST_SIZES = 64


class Finding(NamedTuple):
    """A box of relevant pixels: first pixel, the one past the last, and its largest coefficient.

    In games in several contexts, the score is the share of the box instead.

    >>> Finding(start=(2, 5), stop=(3, 6), score=1.0).start
    (2, 5)
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    score: float


class SignificantFinding(NamedTuple):
    """A finding that survives tests: `adjusted` is the smallest level at which all of it does.

    >>> SignificantFinding(start=(2, 5), stop=(3, 6), score=1.0, adjusted=0.01).adjusted
    0.01
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    score: float
    adjusted: float


class Reading(NamedTuple):
    """The result at one size: regions of up to `min_area` pixels are leaves.

    `found` is the share of the image that its leaves cover, `mass` the sum of `attribution()`.

    >>> Reading(min_area=4, found=0.25, mass=1.0).found
    0.25
    """

    min_area: int
    found: float
    mass: float


def readings(explanation: Explanation) -> tuple[Reading, ...]:
    """Return the results at the sizes of a run's regions, the finest first."""
    games = explanation.games
    every = [part.area for game in games for part in (game.region, *game.children)]
    own = max(min(every), explanation.settings.min_area or 1)
    coarser = np.unique([game.region.area for game in games if game.region.area > own])
    few = np.unique(np.linspace(0, len(coarser) - 1, MOST_SIZES).astype(int))
    chosen = [own, *coarser[few].tolist()] if len(coarser) else [own]
    return tuple(_reading(area, explanation.at(min_area=area)) for area in chosen)


def _reading(area: int, read: Explanation) -> Reading:
    found = sum(leaf.area for leaf in read.leaves) / prod(read.grid)
    return Reading(area, found, read.games[0].total - read.residual)


def found_boxes(explanation: Explanation, *, merge: bool, placement: Placement) -> list[Finding]:
    """Return the boxes around the leaves at their place, the highest score first.

    The score is the coefficient of the leaf, or of games in several contexts the share of the box.
    """
    if explanation.settings.drops_nothing:
        every = shares_left(explanation.games), explanation.unknown, explanation.grid
        return context_boxes(*every, merge=merge, placement=placement)
    known = coefficients(explanation.games) if explanation.leaves else {}
    run = (explanation.leaves, known, explanation.grid)
    return [box for box, _ in _boxes(*run, merge=merge, placement=placement)]


def finding_score(explanation: Explanation, leaves: Sequence[Region]) -> float:
    """Return the score of a finding of some leaves, by the rule of `found_boxes`."""
    parts = [explanation.parts[leaf] for leaf in leaves]
    if explanation.settings.drops_nothing:
        return float(sum(part.share for part in parts))
    return max(part.coefficient for part in parts)


def context_boxes(
    shares: Mapping[Region, float],
    unfinished: Sequence[Region],
    grid: Grid,
    *,
    merge: bool,
    placement: Placement,
) -> list[Finding]:
    """Return the boxes around the regions where the map of these shares is strong.

    A box has the sum of the shares of its regions.
    """
    strong = strong_regions(shares, unfinished, grid)
    every = _boxes(strong, shares, grid, merge=merge, placement=placement)
    found = [
        box._replace(score=sum(shares[strong[number]] for number in set(inside)))
        for box, inside in every
    ]
    return sorted(found, key=_strongest_first)


def significant_boxes(
    explanation: Explanation,
    rows: Sequence[TestedRegion],
    alpha: float,
    *,
    merge: bool,
    placement: Placement,
) -> list[SignificantFinding]:
    """Return the boxes around the leaves that survive; of adjusted values, the largest counts."""
    level = checks.number("alpha", alpha, minimum=0.0, maximum=1.0)
    adjusted = {row.region: row.adjusted for row in rows if row.adjusted <= level}
    leaves = tuple(leaf for leaf in explanation.leaves if leaf in adjusted)
    known = coefficients(explanation.games) if leaves else {}
    every = _boxes(leaves, known, explanation.grid, merge=merge, placement=placement)
    return [
        SignificantFinding(*box, max(adjusted[leaves[number]] for number in inside))
        for box, inside in every
    ]


def _boxes(
    leaves: tuple[Region, ...],
    scores: Mapping[Region, float],
    grid: Grid,
    *,
    merge: bool,
    placement: Placement,
) -> list[tuple[Finding, list[int]]]:
    """Return boxes around leaves, each with its largest score and the numbers of its leaves."""
    pieces = [
        (corners, scores[leaf], number)
        for number, leaf in enumerate(leaves)
        for corners in blocks(leaf, grid)
    ]
    groups = [[i] for i in range(len(pieces))]
    if merge:
        groups = touching([corners for corners, *_ in pieces], leaves, grid)
    found: list[tuple[Finding, list[int]]] = []
    for group in groups:
        box = _around([pieces[i][:2] for i in group])
        place = placement.pixels(box.start, box.stop)
        if place is not None:
            found.append((Finding(*place, box.score), [pieces[i][2] for i in group]))
    return sorted(found, key=lambda item: _strongest_first(item[0]))


def _strongest_first(box: Finding) -> tuple[float, tuple[int, ...]]:
    return -box.score, box.start


def _around(pieces: list[tuple[Corners, float]]) -> Finding:
    starts, stops = zip(*(corners for corners, _ in pieces), strict=True)
    return Finding(
        tuple(map(min, zip(*starts, strict=True))),
        tuple(map(max, zip(*stops, strict=True))),
        max(score for _, score in pieces),
    )
