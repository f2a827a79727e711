"""Setups: the parts of each image's run, given by the caller or chosen."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, cast
from weakref import WeakKeyDictionary

from hshap._util.arrays import to_numpy
from hshap._util.axes import by_name, check_layout, checked_spacing, grid_spacing
from hshap.baselines.recipes import OwnColour
from hshap.errors import installing
from hshap.evaluators.easel import Easel
from hshap.evaluators.evidence import MOST_COPIES, Guide, evidence_of
from hshap.explainer.budgets import (
    FEWEST_BESIDE_GRADIENTS,
    USUAL_PARTS,
    budget_of,
    room_in,
    with_probes,
    within,
)
from hshap.explainer.guides import (
    by_gradients,
    differences,
    given_guide,
    guide_with_differences,
    has_failed,
)
from hshap.explanation.settings import Settings
from hshap.games.automatic import partition_by_template, usual_partition, usual_search
from hshap.games.baseline_choice import choose_baseline, usual_baselines
from hshap.games.jobs import ScoreTable
from hshap.games.search import Share
from hshap.games.search.budget import first_game
from hshap.games.targets import slope
from hshap.partitions.grids import AUTO, Bisection
from hshap.partitions.protocol import spaced
from hshap.partitions.regions import Box
from hshap.partitions.spots import Spots

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hshap._util.axes import Spacing
    from hshap._util.types import Heat, Image
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session
    from hshap.explainer import Evidence, Explainer, OnProgress
    from hshap.games.baseline_choice import Choice
    from hshap.games.engine import Progress
    from hshap.games.search import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Partition, Region

EVEN = "even"


@dataclass(frozen=True)
class Chosen:
    """The choices that were made for the caller, in words; empty where the caller chose."""

    reading: str = ""
    baseline: str = ""
    regions: str = ""
    search: str = ""


@dataclass(frozen=True)
class Setup:
    """The parts of one image's run, given or chosen, and the evaluations of the choice."""

    easel: Easel
    partition: Partition
    search: Search
    settings: Settings
    guides: tuple[Guide, ...]
    started: float  # by `time.perf_counter()`
    evaluations: int = 0
    evidence: Evidence | Literal["auto", "even"] = EVEN
    chosen: Chosen = Chosen()
    class_names: tuple[str, ...] = ()
    negatives: Mapping[int, str] = field(default_factory=dict[int, str])
    """Why targets are not explained, by their column."""
    outputs: Heat | None = None
    """The model's for the image, then for the bare baseline, where they were known before."""


@dataclass(frozen=True, eq=False)
class Reading:
    """An image `(channels, *grid)`, the layout it had, and the sides of a pixel on its grid.

    `told` has the choices that were made for the caller, in words.
    """

    pixels: Image
    layout: str | None = None
    spacing: Spacing | None = None
    told: str = ""

    @property
    def facts(self) -> dict[str, object]:
        """The facts about the axes that are known, for the description of a run."""
        known = {"layout": self.layout, "spacing": self.spacing}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class Hiding:
    """The baseline of one image: given, or chosen with so many evaluations, and for what reason.

    `scores` are those of the image and of the bare baseline, `(2, targets)`, where a choice has
    asked for them.
    """

    easel: Easel
    settings: Settings
    started: float  # by `time.perf_counter()`
    reason: str = ""
    evaluations: int = 0
    scores: Heat | None = None


class Setups:
    """The setups of a run, made when an image is read, and forgotten when it is explained."""

    def __init__(
        self,
        explainer: Explainer,
        session: Session,
        layout: str | None,
        spacing: Sequence[float] | None = None,
    ) -> None:
        self._explainer, self._session, self._layout = explainer, session, layout
        self._spacing = checked_spacing(spacing)
        # Without a baseline, this easel only reads images.
        self._easel = Easel(_given(explainer.baseline) or OwnColour(), session.put, layout)
        self._settings = _settings(explainer)
        self._made = WeakKeyDictionary[ScoreTable, Setup]()
        self._spent = 0

    def read(self, image: object) -> Reading:
        """Return the pixels of an image as the model takes them, and the facts about its axes."""
        named, told = by_name("image", image, self._layout), ""
        intake = self._explainer.facts.intake
        if intake is not None:
            array, layout, told = intake.read(named.array, named.layout)
            named = replace(named, array=array, layout=layout)
        check_layout(named.layout)
        pixels = self._easel.pixels(named)
        spacing = grid_spacing(self._spacing, named, pixels.ndim - 1)
        return Reading(pixels, named.layout, spacing, told)

    def of(self, table: ScoreTable) -> Setup:
        """Return the setup of an image by the table of its scores."""
        return self._made[table]

    def keep(self, table: ScoreTable, setup: Setup) -> None:
        """Remember the setup of an image as long as the table of its scores is in use."""
        self._made[table] = setup

    def counted(self, progress: OnProgress | None) -> OnProgress | None:
        """Return a receiver of progress that counts the evaluations of choices, too."""
        if progress is None:
            return None

        def tell(made: Progress) -> None:
            progress(replace(made, evaluations=made.evaluations + self._spent))

        return tell

    def hide(
        self,
        position: int,
        image: Reading,
        targets: Sequence[Target],
        baseline: Baseline | None = None,
    ) -> Hiding:
        """Return the baseline of an image: its own, the given one, or the one the model chooses."""
        started = time.perf_counter()
        if not self.chooses(baseline):
            return self.first(image, baseline)
        budget = budget_of(self._search)
        choice = self._baseline(position, image.pixels, targets, budget)
        self.spend(choice.evaluations)
        return Hiding(
            Easel(choice.baseline, self._session.put, self._layout),
            self._settings.updated(**image.facts, baseline=choice.baseline),
            started,
            choice.reason,
            choice.evaluations,
            choice.scores,
        )

    def first(self, image: Reading, baseline: Baseline | None) -> Hiding:
        """Return the baseline of an image without a question: of candidates, the first one."""
        settings, started = self._settings.updated(**image.facts), time.perf_counter()
        if self.chooses(baseline):
            baseline = self._candidates(image.pixels)[0]
        if baseline is None:
            return Hiding(self._easel, settings, started)
        easel = Easel(baseline, self._session.put, self._layout)
        return Hiding(easel, settings.updated(baseline=baseline), started)

    def chooses(self, baseline: Baseline | None) -> bool:
        """Tell whether the model chooses the baseline of an image; `baseline` is its own."""
        return baseline is None and _given(self._explainer.baseline) is None

    def spend(self, evaluations: int) -> None:
        """Count evaluations that no search has asked for, for the progress of the run."""
        self._spent += evaluations

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the model's outputs, as far as it tells."""
        return self._explainer.facts.classes

    @property
    def _search(self) -> Search:
        given = self._explainer
        return given.search or usual_search(partition_is_given=given.partition is not None)

    def make(
        self,
        image: Reading,
        targets: Sequence[Target],
        hiding: Hiding,
        position: int,
        *,
        notice_template: bool = True,
    ) -> Setup:
        """Return the setup of an image and its baseline; parts that were not given are chosen.

        `notice_template` allows the partition to be `Spots`, which cannot be moved.
        """
        given, pixels, search = self._explainer, image.pixels, self._search
        easel, settings, spent = hiding.easel, hiding.settings, hiding.evaluations
        chosen = Chosen(image.told, hiding.reason)
        blank = partial(easel.canvas, pixels, whole(pixels), position)
        own = given.partition and spaced(given.partition, image.spacing)
        split = partial(easel.root, own, pixels) if own else None
        guides = self._guides(blank, split, targets, room_in(search, spent))
        guided = any(guide.levels is not None for guide in guides)
        partition = own
        if partition is None:
            by_template = notice_template and easel.may_be_template
            found, reason = self._partition(easel, pixels, guided=guided, by_template=by_template)
            partition = spaced(found, image.spacing)
            chosen = replace(chosen, regions=reason)
        if partition is not given.partition:
            settings = settings.updated(partition=partition)
        apart = None
        can_weigh = self._wanted == AUTO and not any(map(has_failed, guides))
        if can_weigh and isinstance(partition, Spots):
            apart = differences(partition, easel, pixels)
            guides = tuple(guide_with_differences(one, apart) for one in guides)
        if given.search is None:
            if given.partition is None and isinstance(partition, Spots):
                search = usual_search(partition_is_given=False, by_template=True)
            settings = settings.updated(search=search)
            told = _told(search) if isinstance(search, Share) else ""
            chosen = replace(chosen, search=told)
        search = within(search, spent + max(guide.evaluations for guide in guides), hiding.started)
        given_budget = given.search is not None and budget_of(search) is not None
        if given_budget and isinstance(partition, Spots) and apart is not None:
            fewest = FEWEST_BESIDE_GRADIENTS if any(map(by_gradients, guides)) else 1
            search = with_probes(search, partition, easel, pixels, fewest)
        return Setup(
            easel=easel,
            partition=partition,
            search=search,
            settings=settings,
            guides=guides,
            started=hiding.started,
            evaluations=spent,
            evidence=self._wanted,
            chosen=chosen,
            class_names=self.class_names,
        )

    @property
    def _wanted(self) -> Evidence | Literal["auto", "even"]:
        """The evidence that the caller asked for; by default, none for a partition of theirs."""
        given = self._explainer
        return given.evidence or (AUTO if given.partition is None else EVEN)

    def _partition(
        self, easel: Easel, pixels: Image, *, guided: bool, by_template: bool
    ) -> tuple[Partition, str]:
        """Return the partition for an image and a baseline, and the reason for it in words."""
        axes = pixels.ndim - 1
        if by_template:
            spots = partition_by_template(pixels, easel.hidden(pixels))
            if spots is not None:
                reason = "regions are cells around the differences (Spots)"
                return spots, f"{reason}: the baseline shows the same scene but for a few places"
        found = usual_partition(axes, guided=guided)
        return found, _regions(found, axes)

    def _baseline(
        self, position: int, pixels: Image, targets: Sequence[Target], budget: int | None
    ) -> Choice:
        """Return the baseline of an image, chosen among the caller's candidates or the usual."""
        given, candidates = self._explainer, self._candidates(pixels)
        easels = [Easel(one, self._session.put) for one in candidates]
        canvases = [one.canvas(pixels, whole(pixels), position) for one in easels]
        parts = USUAL_PARTS
        if budget is not None and given.partition is not None:
            parts = len(easels[0].root(given.partition, pixels).split())
        compared = list(zip(candidates, canvases, strict=True))
        return choose_baseline(self._session, targets, compared, budget, parts)

    def _candidates(self, pixels: Image) -> Sequence[Baseline]:
        given = self._explainer.baseline or usual_baselines(pixels.shape[1:])
        return cast("Sequence[Baseline]", given)

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
        wanted = self._wanted
        if wanted == EVEN:
            return (Guide(None, ""),) * len(targets)
        canvas = blank()
        if not isinstance(wanted, str):
            own = given_guide(wanted(to_numpy("image", canvas.image)), canvas.grid)
            return (own,) * len(targets)
        copies = MOST_COPIES
        if left < math.inf:
            parts = USUAL_PARTS if split is None else len(split().split())
            copies = max(0, min(copies, int(left) - first_game(canvas.draws, parts)))
        made = tuple(
            evidence_of(self._session, canvas, partial(slope, target), copies) for target in targets
        )
        self.spend(sum(guide.evaluations for guide in made))
        return made


def whole(pixels: Image) -> Box:
    """Return the region of all pixels of an image."""
    return Box((0,) * (pixels.ndim - 1), pixels.shape[1:])


def _given(baseline: Baseline | Sequence[Baseline] | None) -> Baseline | None:
    """Return the one baseline that the caller gave; None if it is to be chosen."""
    return None if isinstance(baseline, Sequence) else baseline


def _regions(partition: Partition, axes: int) -> str:
    """Return the choice of a partition in words."""
    missing = axes > 1 and isinstance(partition, Bisection)
    better = f" ({installing('trees')}: then they follow the image)" if missing else ""
    return f"regions are those of {type(partition).__name__}{better}"


def _told(search: Share) -> str:
    """Return the choice of a search in words."""
    limit = (
        "" if search.max_evaluations is None else f", at most {search.max_evaluations} evaluations"
    )
    unit = "the score" if search.of == "image" else "the strongest finding"
    return f"parts below {search.share:.0%} of {unit} are dropped{limit}"


def _settings(explainer: Explainer) -> Settings:
    made = Settings.of(
        type=type(explainer).__name__,
        model=explainer.evaluator,
        baseline=explainer.baseline,
        partition=explainer.partition,
        search=explainer.search,
    )
    prepared = explainer.facts.preparation
    return made.updated(preparation=prepared) if prepared else made
