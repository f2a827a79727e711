"""Findings: boxes around leaves at their place in the original image, and results by size."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hshap.partitions.regions import blocks, touching

if TYPE_CHECKING:
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.placement import Placement
    from hshap.partitions.regions import Corners


class Finding(NamedTuple):
    """A box of relevant pixels: first pixel, the one past the last, and its largest coefficient.

    >>> Finding(start=(2, 5), stop=(3, 6), score=1.0).start
    (2, 5)
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    score: float


class Reading(NamedTuple):
    """The result at one size: regions of up to `min_area` pixels are leaves.

    `found` is the share of the image that its leaves cover, `mass` the sum of `attribution()`.

    >>> Reading(min_area=4, found=0.25, mass=1.0).found
    0.25
    """

    min_area: int
    found: float
    mass: float


def found_boxes(explanation: Explanation, *, merge: bool, placement: Placement) -> list[Finding]:
    """Return the boxes around the leaves at their place, the highest score first."""
    pieces = [
        (corners, explanation.parts[leaf].coefficient)
        for leaf in explanation.leaves
        for corners in blocks(leaf, explanation.grid)
    ]
    groups = [[i] for i in range(len(pieces))]
    if merge:
        corners = [corners for corners, _ in pieces]
        groups = touching(corners, explanation.leaves, explanation.grid)
    around = [_around([pieces[i] for i in group]) for group in groups]
    placed = [(placement.pixels(box.start, box.stop), box.score) for box in around]
    found = [Finding(*place, score) for place, score in placed if place is not None]
    return sorted(found, key=lambda finding: (-finding.score, finding.start))


def _around(pieces: list[tuple[Corners, float]]) -> Finding:
    starts, stops = zip(*(corners for corners, _ in pieces), strict=True)
    return Finding(
        tuple(map(min, zip(*starts, strict=True))),
        tuple(map(max, zip(*stops, strict=True))),
        max(score for _, score in pieces),
    )
