"""Drawings: the findings of each image as polygons and boxes, which all annotation tools share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hshap.errors import ArgumentError
from hshap.export.findings import found_in
from hshap.export.inputs import as_name, by_category, picture_size
from hshap.export.places import bounds, outlines, pieces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap.explanation.explanation import Explanation
    from hshap.explanation.placement import Placement
    from hshap.explanation.tiled import TiledExplanation
    from hshap.export.places import Line
    from hshap.partitions.protocol import Region


class Drawn(NamedTuple):
    """A finding on an image: polygons without holes, and the box around them, in pixels."""

    label: str
    score: float
    share: float
    polygons: list[Line]
    box: tuple[float, float, float, float]
    """Left, top, right and bottom."""


class Drawing(NamedTuple):
    """The findings on one image."""

    file: str
    height: int
    width: int
    findings: list[Drawn]


def drawings(
    function: str,
    explanations: Mapping[str, Explanation | TiledExplanation | Mapping[str, object]],
    category: str,
) -> tuple[list[Drawing], list[str]]:
    """Return a drawing for each image, and the names of all categories."""
    name = as_name("category", category)
    given = by_category(explanations, name)
    names = dict.fromkeys(label for classes in given.values() for label in classes) or {name: None}
    out: list[Drawing] = []
    for file, classes in given.items():
        sizes = {picture_size(function, each) for each in classes.values()}
        if len(sizes) > 1:
            message = f"explanations[{file!r}] are of images of {sorted(sizes)} pixels"
            raise ArgumentError(f"{message}; pass explanations of one image")
        ((height, width),) = sizes
        found = [
            drawn
            for label, each in classes.items()
            for one in found_in(each)
            if (drawn := _drawn(label, one.region, one.placement, one.score, one.share)) is not None
        ]
        out.append(Drawing(file, int(height), int(width), found))
    return out, list(names)


def keyhole(rings: list[Line]) -> Line:
    """Return one ring for a polygon with holes: a cut of no width leads to each hole and back.

    Tools that know no holes fill it right, since each hole runs the other way round.

    >>> keyhole([[(0, 0), (9, 0), (9, 9), (0, 9)], [(3, 3), (3, 6), (6, 6), (6, 3)]])
    [(0, 0), (3, 3), (3, 6), (6, 6), (6, 3), (3, 3), (0, 0), (9, 0), (9, 9), (0, 9)]
    """
    out = [*rings[0]]
    for hole in rings[1:]:
        _, at, start = min(
            ((x - a) ** 2 + (y - b) ** 2, i, j)
            for i, (x, y) in enumerate(out)
            for j, (a, b) in enumerate(hole)
        )
        turned = [*hole[start:], *hole[:start], hole[start]]
        out = [*out[: at + 1], *turned, *out[at:]]
    return out


def _drawn(
    label: str, region: Region, placement: Placement, score: float, share: float
) -> Drawn | None:
    shown = pieces(region, placement)
    if not shown:  # in padding, there is nothing of the original image
        return None
    corners = [bounds(piece, placement) for piece in shown]
    (tops, lefts), (bottoms, rights) = (
        tuple(zip(*ends, strict=True)) for ends in zip(*corners, strict=True)
    )
    rings = [keyhole(each) for each in outlines(region, placement)]
    box = (min(lefts), min(tops), max(rights), max(bottoms))
    return Drawn(label, float(score), float(share), rings, box)
