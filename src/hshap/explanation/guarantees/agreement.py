"""Agreement: how far explanations of one image are the same, as one number with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hshap._util.types import Heat
    from hshap.explanation.explanation import Explanation

ROUNDING = 1e-12
FEWEST = 3
"""Explanations for which an interval can be given."""


@dataclass(frozen=True, eq=False, repr=False)
class Agreement:
    """The mean overlap of two explanations of one image, with a confidence interval.

    The overlap is the share of the attributed score that two maps give to the same pixels: 1 for
    equal maps, 0 for maps without a common pixel. `value` estimates the overlap of two more
    explanations that vary as these do. `low` and `high` come from leaving out one at a time, with
    Student's distribution. `doubt` is that of the first explanation: how well its findings carry
    the score, about which agreement says nothing.

    >>> import hshap
    >>> agreement([hshap.demo.example()] * 3)
    <Agreement 1.00 (1.00 to 1.00) of 3 explanations; doubt 0.02>
    """

    value: float
    low: float
    high: float
    members: tuple[Explanation, ...]

    @property
    def doubt(self) -> float:
        """The doubt of the first explanation; see `Audit.doubt`."""
        return self.members[0].audit.doubt

    def __repr__(self) -> str:
        interval = f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"
        return f"<Agreement {interval} of {len(self.members)} explanations; doubt {self.doubt:.2f}>"


def agreement(explanations: Iterable[Explanation], *, level: float = 0.95) -> Agreement:
    """Return the agreement of explanations of one image and one target.

    They may come from other seeds, baselines or shifts: `Explainer.repeat` makes them. Maps are
    compared as `attribution(smooth="auto")`, so that arbitrary cuts count little. Two explanations
    without findings agree; one with and one without do not.

    >>> import hshap
    >>> agreement([hshap.demo.example()] * 4).value
    1.0
    """
    members = tuple(explanations)
    wanted = checks.number("level", level, minimum=0.5, maximum=0.999)
    if len(members) < FEWEST:
        message = (
            f"explanations has {len(members)} entries; pass at least {FEWEST} of one image, such "
            "as explainer.repeat(image, target, seeds=range(5))"
        )
        raise ArgumentError(message)
    for number, member in enumerate(members):
        if (member.grid, member.target) != (members[0].grid, members[0].target):
            message = (
                f"explanations[{number}] is of target {member.target} on {member.grid}, and the "
                f"first one of {members[0].target} on {members[0].grid}; pass those of one image"
            )
            raise ArgumentError(message)
    value, error = mean_of_pairs(overlaps([_shares(member) for member in members]))
    reach = student(wanted, len(members) - 1) * error
    return Agreement(value, max(value - reach, 0.0), min(value + reach, 1.0), members)


def overlaps(maps: list[Heat]) -> Heat:
    """Return the overlap of each pair of maps, each with a total of 1 or 0, as a matrix."""
    out = np.ones((len(maps), len(maps)))
    for one, other in combinations(range(len(maps)), 2):
        empty = not maps[one].any() and not maps[other].any()
        shared = 1.0 if empty else min(float(np.minimum(maps[one], maps[other]).sum()), 1.0)
        out[one, other] = out[other, one] = shared
    return out


def mean_of_pairs(matrix: Heat) -> tuple[float, float]:
    """Return the mean over pairs, and its standard error by the jackknife over members.

    >>> mean_of_pairs(np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]]))
    (0.5, 0.0)
    """
    count = len(matrix)
    sums = matrix.sum(axis=1) - np.diag(matrix)
    total = float(sums.sum())
    without = (total - 2 * sums) / ((count - 1) * (count - 2))
    error = np.sqrt((count - 1) / count * np.square(without - without.mean()).sum())
    return min(total / (count * (count - 1)), 1.0), float(error) if error > ROUNDING else 0.0


def student(level: float, freedom: int) -> float:
    """Return the two-sided quantile of Student's distribution, by the expansion in its freedom.

    >>> round(student(0.95, 10), 2)
    2.23
    """
    z = NormalDist().inv_cdf((1 + level) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


def _shares(explanation: Explanation) -> Heat:
    heat = np.maximum(explanation.attribution(smooth="auto"), 0.0)
    total = float(heat.sum())
    return heat / total if total else heat
