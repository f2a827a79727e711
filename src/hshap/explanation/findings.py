"""Findings: boxes around leaves, or around strong regions, at their place in the original image."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hshap._util import checks
from hshap.explanation.heatmaps import blurred_regions, shares_of
from hshap.explanation.maps import strong_regions
from hshap.explanation.placement import whole
from hshap.games.tree import coefficients
from hshap.partitions.joining import touching
from hshap.partitions.regions import blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Grid
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.maps import Context
    from hshap.explanation.placement import Placement
    from hshap.partitions.protocol import Region
    from hshap.partitions.regions import Corners


class Finding(NamedTuple):
    """A box of relevant pixels: first pixel, the one past the last, and its largest coefficient.

    In games in several contexts, the score is the share of the box instead.

    >>> Finding(start=(2, 5), stop=(3, 6), score=1.0).start
    (2, 5)
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    score: float


def boxes(
    explanation: Explanation,
    *,
    context: Context | None = None,
    merge: bool = True,
    original: bool = True,
) -> list[Finding]:
    """Return the findings of an explanation; see `Explanation.boxes`."""
    grid = explanation.grid
    placement = explanation.placement if checks.flag("original", original) else whole(grid)
    leaves = explanation.leaves
    if context is not None:
        shares = shares_of(explanation, context)
        leaves = strong_regions(shares, blurred_regions(explanation), grid)
    elif explanation.settings.drops_nothing:
        shares = explanation.shares  # the leaves are the regions where the map is strong
    else:
        known = coefficients(explanation.games) if leaves else {}
        every = boxes_around(leaves, known, grid, merge=merge, placement=placement)
        return [box for box, _ in every]
    every = boxes_around(leaves, shares, grid, merge=merge, placement=placement)
    found = [
        box._replace(score=sum(shares[leaves[number]] for number in set(inside)))
        for box, inside in every
    ]
    return sorted(found, key=_strongest_first)


def finding_score(explanation: Explanation, leaves: Sequence[Region]) -> float:
    """Return the score of a finding of some leaves, by the rule of `boxes`."""
    parts = [explanation.parts[leaf] for leaf in leaves]
    if explanation.settings.drops_nothing:
        return float(sum(part.share for part in parts))
    return max(part.coefficient for part in parts)


def boxes_around(
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
