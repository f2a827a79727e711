"""Seams: findings in neighbouring tiles that show one object become one finding.

Inside a tile, leaves that touch form a finding. Two rules hold between tiles. Where tiles overlap,
a finding of which at least half lies under findings of other tiles is a copy, and is dropped;
findings that the border of their tile does not cut come first, so a whole object stays and its cut
copies go. Findings that are left and touch, or overlap, are joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap.explanation.findings import Finding, finding_score
from hshap.partitions.joining import touching
from hshap.partitions.regions import blocks, mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Grid, Ints, Mask
    from hshap.explanation.explanation import Explanation
    from hshap.partitions.protocol import Region

COPY = 0.5
"""A finding is a copy if this share of it lies under findings of other tiles."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A finding in one tile: touching leaves, with their pixels from `start` on.

    `start` is in pixels of the level that tiles are read at, counted over the whole image.
    """

    explanation: Explanation
    leaves: tuple[Region, ...]
    start: Grid
    pixels: Mask
    score: float
    is_cut: bool

    @property
    def stop(self) -> Grid:
        """One past the last pixel."""
        return tuple(a + n for a, n in zip(self.start, self.pixels.shape, strict=True))

    def placed(self) -> tuple[Grid, Grid] | None:
        """Return the box in pixels of the whole image; None if it lies beyond it."""
        corners = [box for leaf in self.leaves for box in blocks(leaf, self.explanation.grid)]
        start = tuple(map(min, zip(*(box[0] for box in corners), strict=True)))
        stop = tuple(map(max, zip(*(box[1] for box in corners), strict=True)))
        return self.explanation.placement.pixels(start, stop)


def pieces_of(explanation: Explanation, corner: Grid, size: Grid) -> list[Piece]:
    """Return the findings of a tile whose first pixel is at a corner of an image of some size."""
    grid, leaves = explanation.grid, explanation.leaves
    # One block for each leaf: a leaf of several would be found in several groups.
    whole = [_around(leaf, grid) for leaf in leaves]
    single = all(len(blocks(leaf, grid)) == 1 for leaf in leaves)
    groups = touching(whole, leaves, grid) if single else [[n] for n in range(len(leaves))]
    out: list[Piece] = []
    for group in groups:
        some = tuple(leaves[number] for number in group)
        starts, stops = zip(*(whole[number] for number in group), strict=True)
        start = tuple(map(min, zip(*starts, strict=True)))
        stop = tuple(map(max, zip(*stops, strict=True)))
        out.append(
            Piece(
                explanation,
                some,
                tuple(a + b for a, b in zip(start, corner, strict=True)),
                mask(some, grid)[tuple(map(slice, start, stop))],
                finding_score(explanation, some),
                any(
                    (a == 0 and at > 0) or (b == side and at + side < length)
                    for a, b, at, side, length in zip(start, stop, corner, grid, size, strict=True)
                ),
            )
        )
    return out


def _around(leaf: Region, grid: Grid) -> tuple[Grid, Grid]:
    starts, stops = zip(*blocks(leaf, grid), strict=True)
    return tuple(map(min, zip(*starts, strict=True))), tuple(map(max, zip(*stops, strict=True)))


def without_copies(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces that are no copies of others, in the given order."""
    order = sorted(range(len(pieces)), key=lambda n: (pieces[n].is_cut, -pieces[n].score, n))
    boxes = _boxes(pieces)
    kept = np.zeros(len(pieces), dtype=bool)
    for number in order:
        own = pieces[number]
        near = np.flatnonzero(kept & _meeting(boxes, boxes[number], margin=0))
        covered = np.zeros(own.pixels.shape, dtype=bool)
        for other in near.tolist():
            if pieces[other].explanation is not own.explanation:
                covered |= _seen_from(own, pieces[other])
        kept[number] = (covered & own.pixels).sum() < COPY * own.pixels.sum()
    return [piece for piece, keep in zip(pieces, kept, strict=True) if keep]


def joined(pieces: Sequence[Piece]) -> list[Finding]:
    """Return boxes in pixels of the whole image; pieces that touch or overlap share one."""
    parent = list(range(len(pieces)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    boxes = _boxes(pieces)
    for number, own in enumerate(pieces):
        for other in np.flatnonzero(_meeting(boxes[:number], boxes[number], margin=1)).tolist():
            if root(other) != root(number) and _touch(own, pieces[other]):
                parent[root(other)] = root(number)
    groups: dict[int, list[Piece]] = {}
    for number, piece in enumerate(pieces):
        groups.setdefault(root(number), []).append(piece)
    found = [_finding(group) for group in groups.values()]
    return sorted(
        (one for one in found if one is not None), key=lambda one: (-one.score, one.start)
    )


def _finding(group: Sequence[Piece]) -> Finding | None:
    places = [place for place in (piece.placed() for piece in group) if place is not None]
    if not places:
        return None
    starts, stops = zip(*places, strict=True)
    start = tuple(map(min, zip(*starts, strict=True)))
    stop = tuple(map(max, zip(*stops, strict=True)))
    return Finding(start, stop, max(piece.score for piece in group))


def _boxes(pieces: Sequence[Piece]) -> Ints:
    """Return the boxes of pieces, a row of start and stop for each."""
    return np.array([(*piece.start, *piece.stop) for piece in pieces], dtype=np.intp).reshape(-1, 4)


def _meeting(boxes: Ints, box: Ints, margin: int) -> Mask:
    """Tell which boxes overlap another that is widened by a margin."""
    meet = (boxes[:, :2] < box[2:] + margin) & (boxes[:, 2:] > box[:2] - margin)
    return np.asarray(meet.all(axis=1))


def _seen_from(own: Piece, other: Piece, margin: int = 0) -> Mask:
    """Return the pixels of another piece in the box of one, widened by a margin."""
    out = np.zeros([side + 2 * margin for side in own.pixels.shape], dtype=bool)
    first = [a - margin for a in own.start]
    low = [max(a, b) for a, b in zip(first, other.start, strict=True)]
    high = [min(a + n, b) for a, n, b in zip(first, out.shape, other.stop, strict=True)]
    if all(a < b for a, b in zip(low, high, strict=True)):
        to = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, first, strict=True))
        of = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, other.start, strict=True))
        out[to] = other.pixels[of]
    return out


def _touch(own: Piece, other: Piece) -> bool:
    """Tell whether two pieces share a pixel, or the side of one."""
    seen = _seen_from(own, other, margin=1)
    here = np.pad(own.pixels, 1)
    near = here.copy()
    for axis in range(here.ndim):
        near |= np.roll(here, 1, axis) | np.roll(here, -1, axis)
    return bool((near & seen).any())
