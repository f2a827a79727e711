"""Formulas for evaluations: by the theorems of the paper, if findings lie anywhere by chance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from hshap import theory
from hshap.cli.inputs.choices import GAMES, GROUP

LEARNING = 1.05
"""Questions of a group test for each bit that names the findings, without those for each alone."""

EMPTY = 2.4
"""Groups without a finding for each finding, at most: they grow with the area that was searched."""


@dataclass(frozen=True)
class Cost:
    """Evaluations for one image and class.

    `expected` is the mean if the findings lie anywhere with equal chance (theorem 1 of the paper).
    `most` is the number if they lie as far apart as possible, `bound` the bound of the paper.
    """

    levels: int
    leaves: int
    expected: float
    most: int
    bound: int


def predicted(  # noqa: PLR0913, PLR0917, one for each choice of the user
    grid: tuple[int, int],
    partition: str,
    min_size: int,
    findings: int,
    search: str = GAMES,
    percentile: float | None = None,
) -> Cost:
    """Return the cost of an explanation in which `findings` leaves of the partition are relevant.

    >>> predicted((64, 64), "quadtree", 8, 1).most
    44
    >>> predicted((64, 64), "quadtree", 8, 1, "group").most
    17
    """
    if partition == "quadtree":
        gamma, levels = 4, max(_halvings(side, min_size) for side in grid)
    elif partition == "bisection":
        gamma, levels = 2, sum(_halvings(side, min_size) for side in grid)
    else:
        gamma, levels = 2, _halvings(grid[0] * grid[1], min_size**2)
    leaves, new = gamma**levels, 2**gamma - 2
    if not levels:  # the image is a leaf, and its game has one player
        return Cost(0, 1, 2.0, 2, 2)
    few = min(findings, leaves)
    if search == GROUP:
        return _of_groups(levels, leaves, few, gamma)
    if percentile is not None:
        return _of_a_percentile(levels, gamma, percentile, theory.cost_bound(leaves, gamma, few))
    most = 2 + new * sum(min(max(few, 1) if level else 1, gamma**level) for level in range(levels))
    most = most if few else 2 + new
    visited = theory.expected_visited(leaves, gamma, few / leaves)
    # Every visited node plays a game, except the leaves; all relevant leaves are visited.
    expected = 2 + new * (visited - few)
    return Cost(levels, leaves, expected, most, theory.cost_bound(leaves, gamma, few))


def _of_a_percentile(levels: int, gamma: int, percentile: float, bound: int) -> Cost:
    """Return the cost of a breadth-first search, which keeps a share of each level.

    A level keeps its parts from the percentile on, at least one, whatever the findings are. Parts
    of a coefficient of 0 are dropped, so this is the most, and less where few parts matter.

    >>> _of_a_percentile(levels=3, gamma=4, percentile=70, bound=96).most
    44
    """
    games, nodes = 0, 1
    for _ in range(levels):
        games += nodes
        parts = gamma * nodes
        nodes = parts - math.ceil(percentile / 100 * (parts - 1))
    most = 2 + (2**gamma - 2) * games
    return Cost(levels, gamma**levels, float(most), most, bound)


def _of_groups(levels: int, leaves: int, findings: int, gamma: int) -> Cost:
    """Return the cost of group tests, if regions speak for themselves.

    Expected are the bits that name the findings, times the excess over them that simulations had,
    and a question for each finding alone. The most is, for each finding, a question for each level
    below a group of the whole image, one for the group and one for the leaf alone. Groups without a
    finding come to that.
    """
    bound = theory.cost_bound(leaves, gamma, findings)
    if not findings:
        return Cost(levels, leaves, 2.0, 2, bound)
    floor = theory.question_floor(leaves, findings)
    expected = 2 + LEARNING * floor + findings + 2
    without = math.ceil(EMPTY * (findings + 0.5)) + 1
    most = 4 + findings * (2 + math.ceil(math.log2(leaves))) + without
    return Cost(levels, leaves, min(expected, most), most, bound)


def within(cost: Cost, budget: int) -> Cost:
    """Return the cost of explanations that end at a budget.

    >>> within(predicted((64, 64), "quadtree", 1, 100), 1000).most
    1000
    """
    return replace(cost, expected=min(cost.expected, budget), most=min(cost.most, budget))


def _halvings(length: int, least: int) -> int:
    """Count how often a length is halved, rounded up, until it is at most `least`."""
    count = 0
    while length > least:
        length, count = -(-length // 2), count + 1
    return count
