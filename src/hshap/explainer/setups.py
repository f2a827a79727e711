"""Setups: the parts of each image's run, given by the caller or chosen, and its explanation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.baselines.recipes import OwnColour
from hshap.errors import ArgumentError
from hshap.evaluators.easel import Easel
from hshap.evaluators.evidence import Guide, evidence_of, levels
from hshap.explanation.explanation import Explanation
from hshap.explanation.settings import Settings
from hshap.games.automatic import choose_baseline, usual_partition, usual_search
from hshap.games.jobs import ScoreTable
from hshap.games.search import BreadthFirst, DepthFirst, SearchResult, Share
from hshap.games.targets import class_index, describe_target, slope
from hshap.partitions.grids import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Image
    from hshap.evaluators.protocol import Session
    from hshap.evaluators.provenance import Provenance
    from hshap.explainer import Explainer
    from hshap.games.jobs import Job
    from hshap.games.search import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Partition


@dataclass(frozen=True)
class Setup:
    """The parts of one image's run, given or chosen, and the evaluations of the choice."""

    easel: Easel
    partition: Partition
    search: Search
    settings: Settings
    evaluations: int = 0


class Setups:
    """The setups of a run, made when an image is read, and forgotten when it is explained."""

    def __init__(self, explainer: Explainer, session: Session, layout: str | None) -> None:
        self._explainer, self._session, self._layout = explainer, session, layout
        # Without a baseline, this easel only reads images.
        self._easel = Easel(explainer.baseline or OwnColour(), session.put, layout)
        self._settings = _settings(explainer, layout)
        self._made = WeakKeyDictionary[ScoreTable, Setup]()

    def pixels(self, image: object) -> Image:
        """Return the pixels of an image."""
        return self._easel.pixels(image)

    def of(self, table: ScoreTable) -> Setup:
        """Return the setup of an image by the table of its scores."""
        return self._made[table]

    def keep(self, table: ScoreTable, setup: Setup) -> None:
        """Remember the setup of an image as long as the table of its scores is in use."""
        self._made[table] = setup

    def make(self, position: int, pixels: Image, targets: Sequence[Target]) -> Setup:
        """Return the setup of an image; parts that were not given are chosen."""
        given, settings = self._explainer, self._settings
        search = given.search or usual_search(partition_is_given=given.partition is not None)
        if given.search is None:
            settings = settings.updated(search=search)
        partition = given.partition
        if partition is None:
            partition = usual_partition(pixels.ndim - 1)
            settings = settings.updated(partition=partition)
        if given.baseline is not None:
            return Setup(self._easel, partition, search, settings)
        choice = choose_baseline(self._session, pixels, targets, position)
        settings = settings.updated(baseline=choice.baseline, chosen=choice.reason)
        easel = Easel(choice.baseline, self._session.put, self._layout)
        search = _within(search, choice.evaluations)
        return Setup(easel, partition, search, settings, choice.evaluations)


def evidence_for(explainer: Explainer, session: Session, job: Job) -> Guide:
    """Return the guide to the pixels inside leaves."""
    target, canvas = job.table.targets[job.column], job.canvas
    if explainer.evidence is None:
        return Guide(None, "")
    if explainer.evidence == AUTO:
        return evidence_of(session, canvas, partial(slope, target))
    given = np.asarray(explainer.evidence(to_numpy("image", canvas.image)), dtype=np.float64)
    if given.shape != canvas.grid or not np.isfinite(given).all() or given.min() < 0:
        message = (
            f"evidence returned {checks.shown(given)}; it must return a finite number of 0 or more "
            f"for each pixel, {canvas.grid}"
        )
        raise ArgumentError(message)
    return Guide(levels(given), "a function") if given.any() else Guide(None, "none: it is 0")


def explanation_of(job: Job, setup: Setup, provenance: Provenance, guide: Guide) -> Explanation:
    """Return the explanation of a finished job."""
    found, canvas = job.result or SearchResult(()), job.canvas
    target, settings = job.table.targets[job.column], setup.settings
    if isinstance(setup.search, Share):
        settings = settings.updated(search=setup.search.search(job.games[0]))
    if guide.origin:
        settings = settings.updated(evidence=guide.origin)
    return Explanation(
        grid=canvas.grid,
        target=describe_target(target),
        leaves=found.leaves,
        games=tuple(job.games),
        evaluations=job.evaluations + setup.evaluations,
        seconds=job.seconds,
        draws=canvas.draws,
        unfinished=found.unfinished,
        position=canvas.position,
        settings=settings,
        class_index=class_index(target),
        provenance=provenance,
        evidence=guide.levels,
    )


def _within(search: Search, spent: int) -> Search:
    """Return the search with a budget that leaves room for the evaluations that are spent."""
    most = getattr(search, "max_evaluations", None)
    if not spent or most is None or not isinstance(search, (DepthFirst, BreadthFirst, Share)):
        return search
    return replace(search, max_evaluations=max(1, most - spent))


def _settings(explainer: Explainer, layout: str | None) -> Settings:
    made = Settings.of(
        type=type(explainer).__name__,
        model=explainer.evaluator,
        baseline=explainer.baseline,
        partition=explainer.partition,
        search=explainer.search,
    )
    return made if layout is None else made.updated(layout=layout)
