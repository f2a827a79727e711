"""One grid for explanations of one image at different sizes, such as those of two models.

Its lines are those of all grids together, so that every region is a set of its cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Grid, Heat
    from hshap.explanation.placement import Placement


@dataclass(frozen=True)
class SharedGrid:
    """The lines of several grids that cover the same part of an image, from 0 to 1 on each axis.

    `positions` are those of the lines in the original image.
    """

    lines: tuple[tuple[Fraction, ...], ...]
    positions: tuple[tuple[float, ...], ...]

    @property
    def grid(self) -> Grid:
        """The number of cells on each axis."""
        return tuple(len(axis) - 1 for axis in self.lines)

    def pixels(self, grid: Grid) -> tuple[NDArray[np.int64], ...]:
        """Return, for each axis, the pixel of one of the grids that contains each cell."""
        return tuple(
            np.array([int((a + b) * side / 2) for a, b in pairwise(axis)])
            for axis, side in zip(self.lines, grid, strict=True)
        )

    def ends(self) -> list[Heat]:
        """Return the positions of the lines of each axis, such that cells have a mean width of 1.

        Sums of areas in this unit have the same shares as those of pixels.
        """
        return [np.array([float(line * (len(axis) - 1)) for line in axis]) for axis in self.lines]


def shared_grid(places: Sequence[Placement]) -> SharedGrid:
    """Return the grid of the lines of several placements, which differ in their grids alone.

    >>> from hshap.images import Placement
    >>> shared_grid([Placement((2,), (12,)), Placement((3,), (12,))]).positions
    ((0, 4, 6, 8, 12),)
    """
    lines: list[tuple[Fraction, ...]] = []
    positions: list[tuple[float, ...]] = []
    for axis in range(len(places[0].grid)):
        found: dict[Fraction, float] = {}
        for place in places:
            side = place.grid[axis]
            for edge in range(side + 1):
                corner = [0] * len(place.grid)
                corner[axis] = edge
                found.setdefault(Fraction(edge, side), place.point(corner)[axis])
        lines.append(tuple(sorted(found)))
        positions.append(tuple(found[line] for line in lines[-1]))
    return SharedGrid(tuple(lines), tuple(positions))
