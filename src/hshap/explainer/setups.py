"""Setups: the parts of each image's run, given by the caller or chosen, and its explanation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.baselines.recipes import OwnColour
from hshap.errors import ArgumentError
from hshap.evaluators.easel import Easel
from hshap.evaluators.evidence import MOST_COPIES, Guide, evidence_of, levels
from hshap.explanation.explanation import Explanation
from hshap.explanation.settings import Settings
from hshap.games.automatic import usual_partition, usual_search
from hshap.games.baseline_choice import affordable, choose_baseline, usual_baselines
from hshap.games.jobs import ScoreTable
from hshap.games.search import BreadthFirst, DepthFirst, SearchResult, Share
from hshap.games.targets import class_index, describe_target, slope
from hshap.partitions.grids import AUTO, Bisection
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from hshap._util.types import Grid, Image
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session
    from hshap.evaluators.provenance import Provenance
    from hshap.explainer import Explainer
    from hshap.games.engine import Progress
    from hshap.games.jobs import Job
    from hshap.games.search import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Partition, Region

EVEN = "even"


@dataclass(frozen=True)
class Setup:
    """The parts of one image's run, given or chosen, and the evaluations of the choice."""

    easel: Easel
    partition: Partition
    search: Search
    settings: Settings
    guides: tuple[Guide, ...]
    evaluations: int = 0


class Setups:
    """The setups of a run, made when an image is read, and forgotten when it is explained."""

    def __init__(self, explainer: Explainer, session: Session, layout: str | None) -> None:
        self._explainer, self._session, self._layout = explainer, session, layout
        # Without a baseline, this easel only reads images.
        self._easel = Easel(_given(explainer.baseline) or OwnColour(), session.put, layout)
        self._settings = _settings(explainer, layout)
        self._made = WeakKeyDictionary[ScoreTable, Setup]()
        self._spent = 0

    def pixels(self, image: object) -> Image:
        """Return the pixels of an image."""
        return self._easel.pixels(image)

    def of(self, table: ScoreTable) -> Setup:
        """Return the setup of an image by the table of its scores."""
        return self._made[table]

    def keep(self, table: ScoreTable, setup: Setup) -> None:
        """Remember the setup of an image as long as the table of its scores is in use."""
        self._made[table] = setup

    def counted(self, progress: Callable[[Progress], None] | None) -> Callable[[Progress], None]:
        """Return a receiver of progress that counts the evaluations of choices, too."""

        def tell(made: Progress) -> None:
            if progress is not None:
                progress(replace(made, evaluations=made.evaluations + self._spent))

        return tell

    def make(self, position: int, pixels: Image, targets: Sequence[Target]) -> Setup:
        """Return the setup of an image; parts that were not given are chosen."""
        given, settings = self._explainer, self._settings
        search = given.search or usual_search(partition_is_given=given.partition is not None)
        easel, spent, chosen = self._easel, 0, list[str]()
        if _given(given.baseline) is None:
            candidates = cast(
                "Sequence[Baseline]", given.baseline or usual_baselines(pixels.shape[1:])
            )
            few = affordable(candidates, _budget(search))
            choice = choose_baseline(self._session, pixels, targets, position, few)
            easel = Easel(choice.baseline, self._session.put, self._layout)
            spent = choice.evaluations
            self._spent += spent
            settings = settings.updated(baseline=choice.baseline)
            chosen.append(choice.reason)
        whole = Box((0,) * (pixels.ndim - 1), pixels.shape[1:])
        blank = partial(easel.canvas, pixels, whole, position)
        split = partial(easel.root, given.partition, pixels) if given.partition else None
        guides = self._guides(blank, split, targets, _left(search, spent))
        guided = any(guide.levels is not None for guide in guides)
        partition = given.partition or usual_partition(pixels.ndim - 1, guided=guided)
        if given.partition is None:
            settings = settings.updated(partition=partition)
            chosen.append(_regions(partition, pixels.ndim - 1))
            chosen += ["maps inside regions follow the model's gradients"] if guided else []
        if given.search is None:
            settings = settings.updated(search=search)
            chosen += [_told(search)] if isinstance(search, Share) else []
        if chosen:
            settings = settings.updated(chosen="; ".join(chosen))
        search = _within(search, spent + max(guide.evaluations for guide in guides))
        return Setup(easel, partition, search, settings, guides, spent)

    def _guides(
        self,
        blank: Callable[[], Canvas],
        split: Callable[[], Region] | None,
        targets: Sequence[Target],
        left: float,
    ) -> tuple[Guide, ...]:
        """Return the guide to the pixels inside leaves, for each target.

        `split` returns the root if the caller gave a partition. `left` are the evaluations that the
        budget leaves; the first game must have room in it.
        """
        wanted = self._explainer.evidence
        if wanted is None:
            wanted = AUTO if split is None else EVEN
        if wanted == EVEN:
            return (Guide(None, ""),) * len(targets)
        canvas = blank()
        if not isinstance(wanted, str):
            own = _given_guide(wanted(to_numpy("image", canvas.image)), canvas.grid)
            return (own,) * len(targets)
        copies = MOST_COPIES
        if left < math.inf:
            parts = 2 if split is None else len(split().split())
            first_game = 1 + canvas.draws * max(2**parts - 1, 1)
            copies = max(0, min(copies, int(left) - first_game))
        made = tuple(
            evidence_of(self._session, canvas, partial(slope, target), copies) for target in targets
        )
        self._spent += sum(guide.evaluations for guide in made)
        return made


def _given_guide(heat: ArrayLike, grid: Grid) -> Guide:
    """Return the guide of the caller's own evidence."""
    given = np.asarray(heat, dtype=np.float64)
    if given.shape != grid or not np.isfinite(given).all() or given.min() < 0:
        message = (
            f"evidence returned {checks.shown(given)}; it must return a finite number of 0 or more "
            f"for each pixel, {grid}"
        )
        raise ArgumentError(message)
    return Guide(levels(given), "a function") if given.any() else Guide(None, "none: it is 0")


def explanation_of(job: Job, setup: Setup, provenance: Provenance) -> Explanation:
    """Return the explanation of a finished job."""
    found, canvas = job.result or SearchResult(()), job.canvas
    target, settings = job.table.targets[job.column], setup.settings
    guide = setup.guides[job.column]
    if found.equal_to is not None:
        settings = settings.updated(search=found.equal_to)
    if guide.origin:
        settings = settings.updated(evidence=guide.origin)
    return Explanation(
        grid=canvas.grid,
        target=describe_target(target),
        leaves=found.leaves,
        games=tuple(job.games),
        evaluations=job.evaluations + setup.evaluations + guide.evaluations,
        seconds=job.seconds,
        draws=canvas.draws,
        unfinished=found.unfinished,
        position=canvas.position,
        settings=settings,
        class_index=class_index(target),
        provenance=provenance,
        evidence=guide.levels,
    )


def _given(baseline: Baseline | Sequence[Baseline] | None) -> Baseline | None:
    """Return the one baseline that the caller gave; None if it is to be chosen."""
    return None if isinstance(baseline, Sequence) else baseline


def _regions(partition: Partition, axes: int) -> str:
    """Return the choice of a partition in words."""
    missing = axes > 1 and isinstance(partition, Bisection)
    better = " (install hshap[trees] for regions that follow the image)" if missing else ""
    return f"regions are those of {type(partition).__name__}{better}"


def _told(search: Share) -> str:
    """Return the choice of a search in words."""
    limit = (
        "" if search.max_evaluations is None else f", at most {search.max_evaluations} evaluations"
    )
    unit = "the score" if search.of == "image" else "the strongest finding"
    return f"parts below {search.share:.0%} of {unit} are dropped{limit}"


def _left(search: Search, spent: int) -> float:
    """Return the evaluations that the budget of a search leaves."""
    most = _budget(search)
    return math.inf if most is None else most - spent


def _within(search: Search, spent: int) -> Search:
    """Return the search with a budget that leaves room for the evaluations that are spent."""
    most = _budget(search)
    if not spent or most is None or not isinstance(search, (DepthFirst, BreadthFirst, Share)):
        return search
    return replace(search, max_evaluations=max(1, most - spent))


def _budget(search: Search) -> int | None:
    """Return the most evaluations of a search; None without a limit that is known."""
    known = isinstance(search, (DepthFirst, BreadthFirst, Share))
    return search.max_evaluations if known else None


def _settings(explainer: Explainer, layout: str | None) -> Settings:
    made = Settings.of(
        type=type(explainer).__name__,
        model=explainer.evaluator,
        baseline=explainer.baseline,
        partition=explainer.partition,
        search=explainer.search,
    )
    return made if layout is None else made.updated(layout=layout)
