"""The order of methods in a short run, compared with that of the full one."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr

if TYPE_CHECKING:
    from collections.abc import Mapping

MEASURE = "average_precision"  # needs no threshold, so that a few validation images do not decide
CLOSE = 0.05  # methods that differ by less on many images may swap places on a few


def levels(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return each method's quality, averaged over the groups."""
    groups = summary["groups"].values()
    methods = next(iter(groups))
    return {m: float(np.mean([group[m][MEASURE][0] for group in groups])) for m in methods}


def swapped(short: Mapping[str, float], full: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the pairs that the full run tells apart and the short one puts the other way round."""
    common = [method for method in full if method in short]
    return [
        (one, other)
        for one, other in combinations(common, 2)
        if abs(full[one] - full[other]) > CLOSE
        and (full[one] > full[other]) != (short[one] > short[other])
    ]


def told(short: Mapping[str, float], full: Mapping[str, float]) -> str:
    """Say in a sentence how the two orders agree."""
    common = [method for method in full if method in short]
    agreement = spearmanr([short[m] for m in common], [full[m] for m in common]).statistic
    pairs = swapped(short, full)
    others = "; ".join(f"{one} and {other}" for one, other in pairs) or "none"
    return (
        f"Order by AUPRC against the full run: rank correlation {agreement:.3f}; of the pairs that "
        f"it tells apart by more than {CLOSE}, the other way round: {others}."
    )
