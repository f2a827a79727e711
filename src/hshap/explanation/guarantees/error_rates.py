"""Error rates over many regions: adjusted values, each the smallest level at which it survives.

The proofs are in docs/theory.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Heat


def family_wise(
    p_values: Sequence[float] | Heat, shares: Sequence[float] | Heat, parents: Sequence[int]
) -> Heat:
    """Return adjusted values of a tree of regions, parents before children.

    `shares` are the shares of all leaves that each region holds, `parents` the number of the next
    larger region that was tested, -1 for none. The probability that any true null has an adjusted
    value of at most `alpha` is at most `alpha`, however the p-values depend on each other.

    >>> family_wise([0.001, 0.01, 0.2], [1.0, 0.5, 0.5], [-1, 0, 0]).tolist()
    [0.001, 0.02, 0.4]
    >>> family_wise([0.3, 0.001], [1.0, 1.0], [-1, 0]).tolist()  # not before its parent
    [0.3, 0.3]
    """
    own = np.minimum(np.asarray(p_values, dtype=np.float64) / np.asarray(shares), 1.0)
    for number, parent in enumerate(parents):
        if parent >= 0:
            own[number] = max(own[number], own[parent])
    return own


def discoveries(p_values: Sequence[float] | Heat) -> Heat:
    """Return the adjusted values of Benjamini and Hochberg, for independent p-values.

    >>> discoveries([0.01, 0.02, 0.9]).tolist()
    [0.03, 0.03, 0.9]
    """
    given = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(given, kind="stable")
    scaled = given[order] * len(given) / np.arange(1, len(given) + 1)
    out = np.empty(len(given))
    out[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return out


def discoveries_by_e(e_values: Sequence[float] | Heat) -> Heat:
    """Return the adjusted values of Wang and Ramdas (e-BH), for e-values of any dependence.

    >>> discoveries_by_e([100.0, 50.0, 1.0]).tolist()
    [0.03, 0.03, 1.0]
    """
    with np.errstate(divide="ignore"):
        return discoveries(1.0 / np.asarray(e_values, dtype=np.float64))
