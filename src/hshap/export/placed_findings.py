"""Findings and regions at their place in the original image, and the checks that all exports share.

Findings are numbered from 1, the highest score first; maps and labels have the size of the original
image. Outlines, boxes and runs are in its pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.explanation.explanation import Explanation
from hshap.explanation.findings import finding_score
from hshap.explanation.tiled import Leaf, TiledExplanation
from hshap.partitions.joining import touching
from hshap.partitions.outlines import polygons
from hshap.partitions.regions import Box, Pixels, Rolled, blocks, mask, runs

if TYPE_CHECKING:
    from hshap._util.types import Array, Grid, Heat
    from hshap.explanation.placement import Placement, Position
    from hshap.partitions.outlines import Ring
    from hshap.partitions.protocol import Region


class Found(NamedTuple):
    """A finding: its pixels in the grid, the place of the grid, and its figures."""

    region: Region
    placement: Placement
    score: float
    share: float


def found_in(explanation: object) -> tuple[Found, ...]:
    """Return the findings of a result, the highest score first; inside tiles, each leaf is one."""
    result = as_result(explanation)
    if isinstance(result, TiledExplanation):
        every = [
            Found(
                leaf.region,
                leaf.explanation.placement,
                finding_score(leaf.explanation, [leaf.region]),
                leaf.share,
            )
            for leaf in leaves_of(result)
        ]
        return tuple(sorted(every, key=lambda each: -each.score))
    every = [_joined(result, group) for group in _groups(result)]
    first = {id(each.region): blocks(each.region, result.grid)[0][0] for each in every}
    return tuple(sorted(every, key=lambda each: (-each.score, first[id(each.region)])))


def labels(explanation: Explanation) -> Array:
    """Return the number of the finding at each pixel of the original image; 0 for none.

    Leaves that touch are one finding. Findings are numbered from 1, the highest score first.

    >>> from hshap.demo import example
    >>> labels(example())[2].tolist()
    [0, 0, 0, 0, 0, 1, 0, 0]
    """
    result = as_explanation(explanation)
    found = found_in(result)
    out = np.zeros(result.grid, _integers(len(found)))
    for number, each in enumerate(found, start=1):
        out[mask((each.region,), result.grid)] = number
    return result.placement.nearest(out)


def _groups(explanation: Explanation) -> list[list[Region]]:
    """Return the leaves in groups that touch."""
    leaves = explanation.leaves
    pieces = [
        (corners, number)
        for number, leaf in enumerate(leaves)
        for corners in blocks(leaf, explanation.grid)
    ]
    joined = touching([corners for corners, _ in pieces], leaves, explanation.grid)
    parent = list(range(len(leaves)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    # A leaf that continues at the opposite border joins the groups of its pieces.
    for group in joined:
        for piece in group[1:]:
            parent[root(pieces[piece][1])] = root(pieces[group[0]][1])
    out: dict[int, list[Region]] = {}
    for number, leaf in enumerate(leaves):
        out.setdefault(root(number), []).append(leaf)
    return list(out.values())


def _joined(explanation: Explanation, group: list[Region]) -> Found:
    region = group[0]
    if len(group) > 1:
        flat = np.flatnonzero(mask(tuple(group), explanation.grid))
        region = Pixels(flat, explanation.grid)
    share = float(sum(explanation.parts[leaf].share for leaf in group))
    return Found(region, explanation.placement, finding_score(explanation, group), share)


def _integers(count: int) -> type[np.unsignedinteger]:
    return np.uint8 if count < 2**8 else np.uint16 if count < 2**16 else np.uint32


def as_explanation(explanation: object) -> Explanation:
    """Return an explanation, and refuse anything else."""
    if not isinstance(explanation, Explanation):
        message = (
            f"explanation is {checks.shown(explanation)}; pass the result of Explainer.explain"
        )
        raise ArgumentError(message)
    return explanation


def as_result(explanation: object) -> Explanation | TiledExplanation:
    """Return an explanation of an image, or of a large image by tiles; refuse anything else."""
    if isinstance(explanation, TiledExplanation):
        return explanation
    return as_explanation(explanation)


def leaves_of(explanation: Explanation | TiledExplanation) -> tuple[Leaf, ...]:
    """Return the leaves of a result, each with the explanation that found it, and its share."""
    if isinstance(explanation, TiledExplanation):
        return explanation.leaves
    parts = explanation.parts
    return tuple(Leaf(explanation, leaf, parts[leaf].share) for leaf in explanation.leaves)


def picture_size(function: str, explanation: object) -> Grid:
    """Return height and width of the original image; refuse signals and volumes."""
    result = as_result(explanation)
    if isinstance(result, TiledExplanation):
        return result.shape
    picture_grid(function, result)
    return result.placement.shape


def image_size(
    function: str, file: str, classes: Mapping[str, Explanation | TiledExplanation]
) -> Grid:
    """Return the size of an image; all its explanations must agree in it."""
    sizes = {picture_size(function, each) for each in classes.values()}
    if len(sizes) > 1:
        message = (
            f"explanations[{file!r}] are of images of {' and '.join(map(str, sorted(sizes)))} "
            "pixels; pass explanations of one image"
        )
        raise ArgumentError(message)
    return sizes.pop()


def by_category(
    explanations: object, category: str
) -> dict[str, dict[str, Explanation | TiledExplanation]]:
    """Return explanations by the names of their image files and of their categories."""
    if not isinstance(explanations, Mapping):
        message = (
            f"explanations is {checks.shown(explanations)}; "
            "pass a dictionary of file names and explanations"
        )
        raise ArgumentError(message)
    out: dict[str, dict[str, Explanation | TiledExplanation]] = {}
    for file, given in cast("Mapping[object, object]", explanations).items():
        several = cast("Mapping[object, object]", given) if isinstance(given, Mapping) else None
        classes = {category: given} if several is None else several
        if not classes:
            message = f"explanations[{file!r}] is empty; pass at least one explanation"
            raise ArgumentError(message)
        out[str(file)] = {
            as_name("category", label): as_result(each) for label, each in classes.items()
        }
    return out


def picture_grid(function: str, explanation: object) -> tuple[int, int]:
    """Return height and width of the explained image; for other grids, name other exports."""
    grid = as_explanation(explanation).grid
    if len(grid) != 2:
        message = (
            f"{function} holds pictures, but the explanation has the grid {grid}; use table() or "
            "dataarray(), which take any number of axes, or explain one plane"
        )
        raise ArgumentError(message)
    return grid[0], grid[1]


def as_plane(function: str, values: object, *, most: int = 2) -> Heat:
    """Return a map of two axes, or up to `most`; NaN is allowed, infinity is not."""
    plane = to_numpy("values", values)
    if not 2 <= plane.ndim <= most or not plane.size:
        message = (
            f"{function} holds a map with two axes, but values is {checks.shown(plane)} of type "
            f"{plane.dtype}; pass one plane of numbers, values[None] for a signal or values[i] for "
            "a volume"
        )
        raise ArgumentError(message)
    if np.isinf(plane).any():
        message = f"values has {np.isinf(plane).sum()} infinite entries; replace them first"
        raise ArgumentError(message)
    return plane.astype(np.float64)


def as_name(name: str, value: object) -> str:
    """Return text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        message = f"{name} must be a name, got {checks.shown(value)}; pass text that is not empty"
        raise ArgumentError(message)
    return value


MOST_PIXELS = 2**32
"""The box of a leaf that is listed by runs of pixels, at one byte for each pixel."""

Line = list[tuple[float, float]]
"""Corners `(x, y)` of a ring in the original image."""


def pieces(region: Region, placement: Placement) -> list[Region]:
    """Return a region as far as it lies in the original image; a rolled block as separate boxes."""
    parts: list[Region] = [region]
    if isinstance(region, Rolled):
        parts = [Box(start, stop) for start, stop in blocks(region, placement.grid)]
    if placement.is_inside:
        return parts
    shown = [_clipped(part, placement) for part in parts]
    return [part for part in shown if part is not None]


def outlines(region: Region, placement: Placement) -> list[list[Line]]:
    """Return the polygons of a region, each as its outer ring and its holes."""
    grid = (placement.grid[0], placement.grid[1])
    return [
        [_placed(ring, placement) for ring in (piece.shell, *piece.holes)]
        for part in pieces(region, placement)
        for piece in polygons(part, grid)
    ]


def bounds(region: Region, placement: Placement) -> tuple[Position, Position]:
    """Return the box around a piece of a region."""
    ((start, stop),) = blocks(region, placement.grid)
    return placement.box(start, stop)


def column_runs(region: Region, placement: Placement) -> list[int]:
    """Return the original pixels of a piece as COCO counts them: column by column.

    Runs outside and inside the region take turns, the first outside. A pixel belongs to the region
    that its centre lies in.
    """
    height, width = placement.shape
    ((start, stop),) = blocks(region, placement.grid)
    touched = placement.pixels(start, stop)
    if touched is None:
        return [height * width]
    (top, left), (bottom, right) = touched
    if (bottom - top) * (right - left) > MOST_PIXELS:
        message = (
            f"a leaf with holes covers {bottom - top} x {right - left} pixels, too many for runs "
            "of pixels; use geojson, which keeps holes as polygons"
        )
        raise ArgumentError(message)
    inside = mask((region,), placement.grid)
    rows, columns = (
        np.clip(places[first:last], 0, side - 1)
        for places, first, last, side in zip(
            placement.seen_at(), (top, left), (bottom, right), placement.grid, strict=True
        )
    )
    x, y = np.nonzero(inside[np.ix_(rows, columns)].T)
    if not len(x):
        return [height * width]
    ends = runs((x + left) * height + (y + top))
    counts = np.diff([0, *ends.tolist(), height * width]).tolist()
    return counts if counts[-1] else counts[:-1]


def _clipped(region: Region, placement: Placement) -> Region | None:
    """Return the pixels of a region that show some of the original image; None if none does."""
    inside = np.zeros(placement.grid, dtype=bool)
    shown = tuple(map(slice, *placement.visible))
    inside[shown] = mask((region,), placement.grid)[shown]
    flat = np.flatnonzero(inside)
    return Pixels(flat, placement.grid) if len(flat) else None


def _placed(ring: Ring, placement: Placement) -> Line:
    placed: Line = []
    if placement.is_identity:
        return [*ring]
    for x, y in ring:
        (down, across), _ = placement.box((y, x), (y, x))
        placed.append((across, down))
    # A mirrored ring runs the other way round.
    flips = sum(b < a for a, b in zip(placement.start, placement.stop, strict=True))
    return placed[::-1] if flips % 2 else placed
