"""Slices: an exam explained by a model of its slices: which of them matter, and where in each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, overload

from hshap._util import checks
from hshap.baselines.per_slice import PerSlice
from hshap.evaluators.slice_scores import Slices
from hshap.evaluators.tiles import BEST_TILE
from hshap.explainer import Explainer
from hshap.explainer.choosing_parts import usual_baseline, usual_partition
from hshap.games.search import Share
from hshap.games.search.paper import SHARE
from hshap.partitions.by_slices import BySlices
from hshap.partitions.regions import Box, Pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike

    from hshap.evaluators.bags import Bags
    from hshap.explanation.explanation import Explanation
    from hshap.games.engine import Progress
    from hshap.games.game import Game
    from hshap.games.targets import Positives, Target
    from hshap.partitions.protocol import Region

    OnProgress = Callable[[Progress], None]


@overload
def explain_slices(
    explainer: Explainer,
    exam: ArrayLike,
    target: Target,
    *,
    axis: int = 0,
    bags: Bags = BEST_TILE,
    layout: str | None = None,
    spacing: Sequence[float] | None = None,
    positives: Positives | None = None,
    progress: OnProgress | None = None,
) -> Explanation: ...


@overload
def explain_slices(
    explainer: Explainer,
    exam: ArrayLike,
    target: Sequence[Target],
    *,
    axis: int = 0,
    bags: Bags = BEST_TILE,
    layout: str | None = None,
    spacing: Sequence[float] | None = None,
    positives: Positives | None = None,
    progress: OnProgress | None = None,
) -> list[Explanation]: ...


def explain_slices(  # noqa: PLR0913, the facts of an exam
    explainer: Explainer,
    exam: ArrayLike,
    target: Target | Sequence[Target],
    *,
    axis: int = 0,
    bags: Bags = BEST_TILE,
    layout: str | None = None,
    spacing: Sequence[float] | None = None,
    positives: Positives | None = None,
    progress: OnProgress | None = None,
) -> Explanation | list[Explanation]:
    """Explain an exam by a model of its slices: which slices matter, and where in each of them.

    The model of the explainer takes one slice, and so do its baseline and its partition. `axis` is
    the number of the spatial axis that the slices lie along, 0 for the first. `bags` pools the
    model's outputs over slices: by default the exam scores as its best slice does. `target` is a
    class of the pooled outputs. `layout`, `spacing` and `positives` are as in `Explainer.explain`.

    First whole slices are shown and hidden, then the regions of those that matter. Both are games
    of one pooled model, so the result is an ordinary explanation of the exam, in its voxels: its
    maps, boxes, exports and page are those of a volume. `found_slices` lists the slices.
    `evaluations` counts scores of the exam, `provenance.full` the slices that the model saw: each
    is scored once for each set of its regions that is shown.

    Without a search, slices and regions below a fifth of the strongest finding are dropped.

    >>> import numpy as np
    >>> import hshap
    >>> exam = np.zeros((1, 6, 16, 16))
    >>> exam[0, 4, 9, 2] = 1.0
    >>> explainer = hshap.Explainer(
    ...     lambda slices: slices.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ... )
    >>> found = explain_slices(explainer, exam, target=0, layout="CZYX")
    >>> found.boxes()
    [Finding(start=(4, 9, 2), stop=(5, 10, 3), score=1.0)]
    >>> found.evaluations, found.provenance.full
    (24, 23)
    """
    made = of_slices(explainer, axis, bags)
    found = made.explain(
        exam, target, layout=layout, spacing=spacing, positives=positives, progress=progress
    )
    if isinstance(found, list):
        return [_forgetting(one) for one in found]
    return _forgetting(found)


def of_slices(explainer: Explainer, axis: int = 0, bags: Bags = BEST_TILE) -> Explainer:
    """Return the explainer of exams that an explainer of slices makes; see `explain_slices`."""
    number = checks.integer("axis", axis, minimum=0)
    return Explainer(
        Slices(explainer.evaluator, number, bags),
        baseline=PerSlice(explainer.baseline or usual_baseline(), number),
        partition=BySlices(explainer.partition or usual_partition(2), number),
        search=explainer.search or Share(SHARE, of="finding"),
    )


def _forgetting(found: Explanation) -> Explanation:
    """Return an explanation whose regions cannot be split again: their rules hold the exam."""

    def bare(region: Region) -> Region:
        return replace(region, rule=None) if isinstance(region, (Box, Pixels)) else region

    def game(one: Game) -> Game:
        return replace(one, region=bare(one.region), children=tuple(map(bare, one.children)))

    return replace(
        found,
        leaves=tuple(map(bare, found.leaves)),
        games=tuple(map(game, found.games)),
        unfinished=tuple(map(bare, found.unfinished)),
    )
