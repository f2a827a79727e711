"""Slow and short oracles. They paint, count and average without the code that they check."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hshap._util.types import Array, Grid, Heat, Image, Mask
    from hshap.partitions.protocol import Region

SHAPES = ((1, 8, 8), (3, 9, 14))
"""Shapes of the images that are used if none are given."""


def images(shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[Image]:
    """Return random images with values from 0 to 1."""
    rng = np.random.default_rng(0)
    return [rng.random(shape) for shape in shapes]


def locked(image: Image) -> Image:
    """Return a copy that cannot be written to."""
    out = np.array(image)
    out.flags.writeable = False
    return out


def inside(regions: Sequence[Region], grid: Grid) -> Mask:
    """Return a mask of the pixels of some regions, by assignment through their index."""
    out = np.zeros(grid, dtype=bool)
    for region in regions:
        out[region.index] = True
    return out


def painted(image: Array, stand_in: Array, kept: Sequence[Region]) -> Array:
    """Return the image on the kept regions, and the stand-in elsewhere."""
    return np.where(inside(kept, image.shape[1:]), image, stand_in)


def shapley_by_permutations(values: Sequence[float]) -> Heat:
    """Return each player's marginal contribution, averaged over every order of arrival."""
    players = len(values).bit_length() - 1
    totals = [0.0] * players
    orders = list(permutations(range(players)))
    for order in orders:
        coalition = 0
        for player in order:
            totals[player] += values[coalition | 1 << player] - values[coalition]
            coalition |= 1 << player
    return np.array([total / len(orders) for total in totals])


def any_marked(batch: Array) -> Heat:
    """Score 1 if any pixel of the first channel is above 2: the OR rule of the paper."""
    return np.array([float((image[0] > 2.0).any()) for image in batch])


def weighted_mean(batch: Array) -> Heat:
    """Score images by a mean with a weight for each pixel, so that every pixel counts."""
    weights = np.cos(np.arange(batch[0].size)).reshape(batch.shape[1:])
    return np.array([(image * weights).mean() for image in batch], dtype=np.float64)


def nodes(root: Region, most: int = 4000) -> Iterator[Region]:
    """Yield the regions of a tree, parents before children, and no more than `most`."""
    waiting = [root]
    while waiting and most:
        region = waiting.pop()
        yield region
        waiting.extend(region.split())
        most -= 1
