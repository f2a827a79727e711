"""Regions at their place in the original image: polygons, boxes and runs of its pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import ArgumentError
from hshap.partitions.outlines import polygons
from hshap.partitions.regions import Box, Pixels, Rolled, blocks, mask, runs

if TYPE_CHECKING:
    from hshap.explanation.placement import Placement, Position
    from hshap.partitions.outlines import Ring
    from hshap.partitions.protocol import Region

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
