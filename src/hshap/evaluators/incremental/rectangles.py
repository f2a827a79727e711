"""Rectangles around what is shown or hidden, of few sizes, so that many can be run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

ROUNDED = 16  # pixels: rectangles of about one size are made so, and go together


def bounds(inside: NDArray[np.bool_]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the box around what is True, if anything is."""
    places = np.nonzero(inside)
    if not places[0].size:
        return []
    return [(tuple(int(a.min()) for a in places), tuple(int(a.max()) + 1 for a in places))]


def around(
    boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], grid: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return start and size of the rectangle around all, its sides rounded up."""
    if not boxes:
        return (0,) * len(grid), (0,) * len(grid)
    low = [min(axis) for axis in zip(*(start for start, _ in boxes), strict=True)]
    high = [max(axis) for axis in zip(*(stop for _, stop in boxes), strict=True)]
    size = tuple(
        int(min(n, -(-(b - a) // ROUNDED) * ROUNDED))
        for a, b, n in zip(low, high, grid, strict=True)
    )
    start = tuple(int(min(a, n - m)) for a, m, n in zip(low, size, grid, strict=True))
    return start, size
