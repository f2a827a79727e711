"""Filling: how much of a region differs from the baseline, and the part of it that does.

A pixel that looks as the baseline does cannot carry a score: hiding it changes nothing. A region
with many such pixels is larger than the object in it. Nothing here knows a game or a model;
`benchmarks/notes/decision-0013.md` has the trials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.partitions.regions import Pixels

if TYPE_CHECKING:
    from hshap._util.types import Heat

LOOSE = 0.7
"""A region that is filled less than this is split once more, below the segment."""

DIFFERS = 0.4
"""A pixel differs if its difference is above this share of the largest one in its region."""


def filling(apart: Heat) -> float:
    """Return the share of pixels that differ from the baseline, from 0 to 1, by their differences.

    It is the squared sum of the differences, divided by the sum of their squares and by their
    number: 1 if all are alike, and the share of those above 0 if these are alike.

    >>> filling(np.array([2.0, 2.0, 0.0, 0.0]))
    0.5
    """
    largest = float(apart.max(initial=0.0))
    if largest == 0:
        return 0.0
    shares = apart / largest  # squares of huge differences stay finite
    return float(shares.sum()) ** 2 / (float(np.square(shares).sum()) * shares.size)


def below(region: Pixels, apart: Heat) -> tuple[Pixels, ...]:
    """Return the pixels of a loose region that differ, and the others; nothing if it is filled.

    `apart` has the difference of each pixel of the flattened grid.

    >>> line = np.array([0.0, 5.0, 5.0, 0.0, 0.0, 0.0])
    >>> [part.flat.tolist() for part in below(Pixels(np.arange(6), grid=(6,)), line)]
    [[1, 2], [0, 3, 4, 5]]
    """
    own = apart[region.flat]
    if filling(own) >= LOOSE:
        return ()
    differs = own > DIFFERS * own.max()
    parts = [region.flat[chosen] for chosen in (differs, ~differs)]
    if not all(map(len, parts)):
        return ()
    return tuple(Pixels(flat, region.grid, adaptive=region.adaptive) for flat in parts)
