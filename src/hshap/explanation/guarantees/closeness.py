"""Closeness: the order in which the pixels of an image enter an area around the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util.smoothing import smoothed

if TYPE_CHECKING:
    from hshap._util.types import Heat, Mask
    from hshap.explanation.explanation import Explanation

WIDTH = 0.25
"""Standard deviation of the smoothing, in mean sides of the findings."""


def closeness(explanation: Explanation) -> Heat:
    """Return a number up to 1 for each pixel: how near it is to the centre of a finding.

    Where the map of attributions, smoothed over all parts, is above 0, it is that map as a share of
    its maximum. Elsewhere it is minus the distance to that area, in steps along the axes, as a
    share of the longest one. So every limit gives an area, a lower limit gives a larger one, and -1
    gives the whole image. Without findings, it is minus infinity everywhere: no limit gives an area
    around nothing.

    >>> import hshap
    >>> closeness(hshap.demo.example()).max().item()
    1.0
    """
    # An object reaches beyond what the model needs of it, so the area may enter ignored parts.
    heat = np.maximum(smoothed(explanation.attribution(), _width(explanation)), 0.0)
    most = float(heat.max())
    if most <= 0 or not explanation.leaves:
        return np.full(explanation.grid, -np.inf)
    longest = max(sum(explanation.grid) - len(explanation.grid), 1)
    return np.where(heat > 0, heat / most, -steps_to(heat > 0) / longest)


def _width(explanation: Explanation) -> float:
    """Return a quarter of the mean side of the findings, at least a pixel; 0 without any."""
    sides = [leaf.area ** (1 / len(explanation.grid)) for leaf in explanation.leaves]
    return max(WIDTH * float(np.mean(sides)), 1.0) if sides else 0.0


def steps_to(there: Mask) -> Heat:
    """Return the number of steps along the axes from each pixel to the nearest True one.

    >>> steps_to(np.array([[False, False, False], [False, False, True]])).tolist()
    [[3.0, 2.0, 1.0], [2.0, 1.0, 0.0]]
    """
    out = np.where(there, 0.0, np.inf)
    for axis, side in enumerate(out.shape):
        places = np.arange(side).reshape(-1, *(1,) * (out.ndim - axis - 1))
        before = np.minimum.accumulate(out - places, axis=axis) + places
        after = np.flip(np.minimum.accumulate(np.flip(out + places, axis), axis=axis), axis)
        out = np.minimum(before, after - places)
    return out
