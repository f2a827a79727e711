"""The evaluations of a run before it starts: by formulas, or by a sample of its images."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from hshap import theory
from hshap.cli.faults import few
from hshap.cli.inputs.archives import targets_of
from hshap.cli.inputs.choices import GAMES, GROUP
from hshap.cli.output import say
from hshap.cli.progress import Shown
from hshap.evaluators.allocator import keep_memory
from hshap.explainer.predicting import predicted_cost
from hshap.runs.sources.protocol import Decoded, Remembering
from hshap.runs.tasks import Chosen, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap.cli.inputs.archives import ImageFiles
    from hshap.cli.inputs.models import Loaded
    from hshap.cli.options import MethodOptions
    from hshap.explainer.predicting import PredictedCost
    from hshap.explainer.readings import Pair

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


def predict_by_formula(  # noqa: PLR0913, PLR0917, one for each choice of the user
    grid: tuple[int, int],
    partition: str,
    min_size: int,
    findings: int,
    search: str = GAMES,
    percentile: float | None = None,
) -> Cost:
    """Return the cost of an explanation in which `findings` leaves of the partition are relevant.

    >>> predict_by_formula((64, 64), "quadtree", 8, 1).most
    44
    >>> predict_by_formula((64, 64), "quadtree", 8, 1, "group").most
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
        return _group_cost(levels, leaves, few, gamma)
    if percentile is not None:
        return _percentile_cost(levels, gamma, percentile, theory.cost_bound(leaves, gamma, few))
    most = 2 + new * sum(min(max(few, 1) if level else 1, gamma**level) for level in range(levels))
    most = most if few else 2 + new
    visited = theory.expected_visited(leaves, gamma, few / leaves)
    # Every visited node plays a game, except the leaves; all relevant leaves are visited.
    expected = 2 + new * (visited - few)
    return Cost(levels, leaves, expected, most, theory.cost_bound(leaves, gamma, few))


def _percentile_cost(levels: int, gamma: int, percentile: float, bound: int) -> Cost:
    """Return the cost of a breadth-first search, which keeps a share of each level.

    A level keeps its parts from the percentile on, at least one, whatever the findings are. Parts
    of a coefficient of 0 are dropped, so this is the most, and less where few parts matter.

    >>> _percentile_cost(levels=3, gamma=4, percentile=70, bound=96).most
    44
    """
    games, nodes = 0, 1
    for _ in range(levels):
        games += nodes
        parts = gamma * nodes
        nodes = parts - math.ceil(percentile / 100 * (parts - 1))
    most = 2 + (2**gamma - 2) * games
    return Cost(levels, gamma**levels, float(most), most, bound)


def _group_cost(levels: int, leaves: int, findings: int, gamma: int) -> Cost:
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


def limit_to(cost: Cost, budget: int) -> Cost:
    """Return the cost of explanations that end at a budget.

    >>> limit_to(predict_by_formula((64, 64), "quadtree", 1, 100), 1000).most
    1000
    """
    return replace(cost, expected=min(cost.expected, budget), most=min(cost.most, budget))


def _halvings(length: int, least: int) -> int:
    """Count how often a length is halved, rounded up, until it is at most `least`."""
    count = 0
    while length > least:
        length, count = -(-length // 2), count + 1
    return count


SEED = 0
"""The images of a sample are the same each time."""


def predict_by_sample(  # noqa: PLR0913, PLR0917, the parts of a run
    source: ImageFiles,
    loaded: Loaded,
    method: MethodOptions,
    images: int | None,
    most: int,
    skipped: list[str],
) -> tuple[PredictedCost, tuple[int, int]]:
    """Explain up to `most` images of a source, drawn by chance, and return the cost of `images`.

    Without a number, all images of the source count. The size of an explained image is returned
    too. Images that cannot be read are left out, and told in `skipped`.
    """
    order = np.random.default_rng(SEED).permutation(len(source.files))[:most]
    drawn = Remembering(replace(source, files=tuple(source.files[n] for n in order)), most)
    reader = source.decode.reader
    explainer = method.explainer(loaded, reader)
    _, targets = targets_of(method.targets, drawn, explainer, reader.format)
    sizes: list[tuple[int, int]] = []

    def pairs() -> Iterator[Pair]:
        for item in drawn.items():
            try:
                made = drawn.read(item).image()
                one = made if isinstance(made, Decoded) else Decoded(made)
                wanted = [
                    target.choose(explainer, one.image) if isinstance(target, Chosen) else target  # pyright: ignore[reportArgumentType]
                    for target in targets or ()
                ]
            except Exception as error:  # noqa: BLE001, it fails alone in the run, too
                told = reason_of(error)
                skipped.append(told if item.name in told else f"{item.name}: {told}")
                continue
            sizes.append(np.shape(one.image)[1:])  # pyright: ignore[reportArgumentType]
            yield (one.image, wanted) if one.baseline is None else (one.image, wanted, one.baseline)

    with keep_memory(), Shown("explaining a sample"):
        found = predicted_cost(
            explainer,
            pairs(),
            images=images or len(source.files),
            most=most,
            positives=method.positives,
        )
    for line in few([f"left out of the sample: {line}" for line in skipped]):
        say(line)
    return found, sizes[0]
