"""P-values of a fixed number of rounds: the randomisation test of paired draws.

If showing a region changes nothing, the two scores of a round may be swapped: every choice of signs
for the differences is as likely as the one that was seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat

FLIPS = 9999
"""Random choices of signs; the smallest p-value is 1 / 10,000."""

ROUNDING = 1e-12

Ties: TypeAlias = Literal["against", "random"]


def p_value(
    differences: Sequence[float] | Heat,
    *,
    flips: int = FLIPS,
    seed: int | Sequence[int] = 0,
    ties: Ties = "against",
) -> float:
    """Return the share of sign choices with a sum at least as large, the one seen included.

    If the region changes nothing, the p-value is at most `u` with a probability of at most `u`.
    Ties count against the region; `ties="random"` breaks them at random, and the p-value is then
    uniform over the multiples of `1 / (flips + 1)`.

    >>> p_value([1.0, 2.0, 0.5, 1.5, 3.0, 1.0, 2.0, 1.0, 0.5, 0.1])
    0.0014
    >>> p_value([0.0, 0.0, 0.0])
    1.0
    """
    seen = np.asarray(differences, dtype=np.float64)
    rng = np.random.default_rng(seed)
    signs = rng.integers(0, 2, (flips, len(seen)), dtype=np.int8) * 2.0 - 1.0
    sums, own = signs @ seen, float(seen.sum())
    near = ROUNDING * float(np.abs(seen).sum())
    larger = int((sums > own + near).sum())
    equal = int((np.abs(sums - own) <= near).sum())
    tied = equal if ties == "against" else int(rng.integers(0, equal + 1))
    return (1 + larger + tied) / (flips + 1)
