"""Flat anchors: activations of an image of one colour, from those of a smaller one. Needs torch.

Far from the borders, all activations of such an image agree. So a small image has all of them, and
those of the full size repeat its middle: they take little time and memory.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import product
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import torch

from hshap.evaluators.incremental.patches import Zone
from hshap.evaluators.incremental.windows import KnownPiece, Tiled, pieces_of, tiles_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap.evaluators.incremental.steps import Step, Zones
    from hshap.evaluators.incremental.windows import Known, Sides

    Plan: TypeAlias = Mapping[str, Zones]

LARGEST_SHARE = 0.5
"""Of the grid: a small image that is larger is not worth it."""

SIZES = 64
"""About so many sizes there are on each axis."""

MOST_UNITS = 16
"""Of these sizes, so many are tried as the number that all strides divide."""


def is_flat(image: torch.Tensor) -> bool:
    """Tell whether all places of an image `(1, channels, *grid)` are equal."""
    corner = image[(slice(None), slice(None), *(slice(0, 1) for _ in image.shape[2:]))]
    edge = image[:, :, :1]  # where most images of several colours differ already
    if not bool((edge == corner).all()):
        return False
    if not image.is_contiguous():
        return bool((image == corner).all())
    places = tuple(range(2, image.ndim))  # twelve times as fast, where places are neighbours
    return torch.equal(image.amin(places), image.amax(places))


def plan(steps: Sequence[Step], start: str, grid: Sides) -> Plan | None:
    """Return where the activations of a small image agree, by step; None if it cannot be small.

    `start` is the name of the input. The small grid is `high` of its zones.
    """
    smallest = [_smallest(steps, start, grid, axis) for axis in range(len(grid))]
    found = _zones(steps, start, smallest)
    small = prod(zone.high for zone in smallest)
    return found if small <= LARGEST_SHARE * prod(grid) else None


def _smallest(steps: Sequence[Step], start: str, grid: Sides, axis: int) -> Zone:
    """Return the smallest side on one axis, while all other sides stay as they are."""
    length = grid[axis]
    by = 2 ** max(3, (length // SIZES).bit_length() - 1)
    zones = [Zone(0, side, 0) for side in grid]

    def fits(more: int) -> bool:
        zones[axis] = Zone(0, length - more, more)
        return _zones(steps, start, zones) is not None

    # Strides must divide the places that are left out. The first number that they do is small;
    # of its multiples, all up to the largest one fit.
    units = range(by, min(length, MOST_UNITS * by + 1), by)
    unit = next((more for more in units if fits(more)), length)
    times = range(1, -(-length // unit))
    more = unit * bisect_left(times, True, key=lambda n: not fits(n * unit))  # noqa: FBT003
    return Zone(0, length - more, more)


def _zones(steps: Sequence[Step], start: str, zones: Zones) -> Plan | None:
    """Return the zones of all steps that run on patches, or None if one of them has none."""
    found: dict[str, Zones] = {start: zones}
    for step in steps:
        if step.rule is None or step.rule.drops_space or not step.patch_args:
            continue
        if step.rule.zones is None or not all(name in found for name in step.patch_args):
            return None
        made = step.rule.zones([found[name] for name in step.patch_args])
        if made is None or any(zone.more and zone.low >= zone.high for zone in made):
            return None
        found[step.name] = made
    return found


def stretch(small: torch.Tensor, zones: Zones) -> Known:
    """Return an activation of the full size, given that of the small image.

    It shares its memory with the small one.
    """
    grid = tuple(n + zone.more for n, zone in zip(small.shape[2:], zones, strict=True))
    shape = (*small.shape[:2], *grid)
    if small.device.type == "meta":
        return torch.empty(shape, dtype=small.dtype, device="meta")
    axes = [_parts(n, zone) for n, zone in zip(small.shape[2:], zones, strict=True)]
    tiles: list[KnownPiece] = []
    for parts in product(*axes):
        data = small[(slice(0, 1), slice(None), *(slice(a, b) for a, b, _, _ in parts))]
        tile = data.expand(-1, -1, *(length for *_, length in parts))
        tiles += pieces_of(tile, [tuple(first for _, _, first, _ in parts)])
    starts = tuple(tuple(first for _, _, first, _ in parts) for parts in axes)
    (whole,) = tiles_of(small)
    return Tiled(shape, starts, tuple(tiles), whole, tuple(map(_repeat, zones)))


def _repeat(zone: Zone) -> tuple[int, int]:
    """Return the place of a zone that is repeated, and how often."""
    # The middle of the zone: rounding there is that of places far from any border.
    return (zone.low + zone.high) // 2 if zone.more else 0, zone.more


def _parts(length: int, zone: Zone) -> list[tuple[int, int, int, int]]:
    """Return the parts of one axis: start and stop in the small tensor, start and length in all."""
    if not zone.more:
        return [(0, length, 0, length)]
    cut, _ = _repeat(zone)
    parts = [
        (0, cut, 0, cut),
        (cut, cut + 1, cut, zone.more + 1),
        (cut + 1, length, cut + 1 + zone.more, length - cut - 1),
    ]
    return [part for part in parts if part[3]]
