"""Games: the parts of a region are the players, and scores of the model are their worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hshap._util.types import Heat
    from hshap.partitions.protocol import Region


@dataclass(frozen=True, eq=False, slots=True)
class Game:
    """The game of one region; its parts are the players.

    `values[c]` is the mean score with the parts in `c` shown (part `i` if bit `i` is set) and the
    baseline elsewhere; `coefficients` are the parts' Shapley values, `errors` their standard errors
    over the draws of a random baseline, 0 for a fixed one.

    >>> import hshap
    >>> left, right = hshap.Box((0,), (2,)), hshap.Box((2,), (4,))
    >>> values = np.array([0.0, 1.0, 1.0, 1.0])  # none, left, right, both
    >>> whole = hshap.Box((0,), (4,))
    >>> game = Game(whole, (left, right), values, hshap.shapley(values), np.zeros(2))
    >>> game.total, game.alone
    (1.0, array([1., 1.]))
    """

    region: Region
    children: tuple[Region, ...]
    values: Heat
    coefficients: Heat
    errors: Heat

    @property
    def total(self) -> float:
        """Score that the whole region adds to the bare baseline."""
        return float(self.values[-1] - self.values[0])

    @property
    def alone(self) -> Heat:
        """Score that each part adds to the bare baseline by itself."""
        return self.values[1 << np.arange(len(self.children))] - self.values[0]
