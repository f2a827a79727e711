"""Setups: the parts of each image's run, given by the caller or the usual ones."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from hshap._util.axes import by_name, check_layout, checked_spacing, grid_spacing
from hshap.errors import installing
from hshap.evaluators.canvas import Easel
from hshap.explainer.budgets import within
from hshap.explanation.settings import Settings
from hshap.games.automatic import (
    partition_by_template,
    usual_baseline,
    usual_partition,
    usual_search,
)
from hshap.games.jobs import ScoreTable
from hshap.games.search import BestFirst
from hshap.partitions.grids import Bisection
from hshap.partitions.protocol import spaced
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.axes import Spacing
    from hshap._util.types import Heat, Image
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.protocol import Session
    from hshap.explainer import Explainer, OnProgress
    from hshap.games.engine import Progress
    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition


@dataclass(frozen=True)
class Chosen:
    """The choices that were made for the caller, in words; empty where the caller chose."""

    reading: str = ""
    baseline: str = ""
    regions: str = ""
    search: str = ""

    def __str__(self) -> str:
        """Return the choices in one line."""
        return "; ".join(filter(None, (self.reading, self.baseline, self.regions, self.search)))


@dataclass(frozen=True)
class Setup:
    """The parts of one image's run, given or chosen."""

    easel: Easel
    partition: Partition
    search: Search
    settings: Settings
    started: float  # by `time.perf_counter()`
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
    """The baseline of one image, on its easel; `reason` is empty if the caller gave it."""

    easel: Easel
    settings: Settings
    started: float  # by `time.perf_counter()`
    reason: str = ""


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
        self._usual = explainer.baseline or usual_baseline()
        self._easel = Easel(self._usual, session.put, layout)
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
        """Return a receiver of progress that counts the evaluations of decisions, too."""
        if progress is None:
            return None

        def tell(made: Progress) -> None:
            progress(replace(made, evaluations=made.evaluations + self._spent))

        return tell

    def spend(self, evaluations: int) -> None:
        """Count evaluations that no search has asked for, for the progress of the run."""
        self._spent += evaluations

    def hide(self, image: Reading, baseline: Baseline | None) -> Hiding:
        """Return the baseline of an image: its own, the explainer's, or the usual one."""
        settings, started = self._settings.updated(**image.facts), time.perf_counter()
        if baseline is not None:
            easel = Easel(baseline, self._session.put, self._layout)
            return Hiding(easel, settings.updated(baseline=baseline), started)
        if self._explainer.baseline is not None:
            return Hiding(self._easel, settings, started)
        reason = "hidden pixels show the image's own colour"
        return Hiding(self._easel, settings.updated(baseline=self._usual), started, reason)

    def make(self, image: Reading, hiding: Hiding, *, notice_template: bool = True) -> Setup:
        """Return the setup of an image and its baseline; parts that were not given are chosen.

        `notice_template` allows the partition to be `Spots`, which cannot be moved.
        """
        given, settings = self._explainer, hiding.settings
        partition, regions = given.partition, ""
        if partition is None:
            is_template = notice_template and hiding.easel.may_be_template
            partition, regions = _partition(hiding.easel, image.pixels, is_template=is_template)
        partition = spaced(partition, image.spacing)
        if partition is not given.partition:
            settings = settings.updated(partition=partition)
        search, told = given.search, ""
        if search is None:
            search = usual_search(partition_is_given=given.partition is not None)
            settings = settings.updated(search=search)
            told = _told(search)
        return Setup(
            easel=hiding.easel,
            partition=partition,
            search=within(search, hiding.started),
            settings=settings,
            started=hiding.started,
            chosen=Chosen(image.told, hiding.reason, regions, told),
            class_names=self.class_names,
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the model's outputs, as far as known."""
        return self._explainer.facts.classes


def whole(pixels: Image) -> Box:
    """Return the region of all pixels of an image."""
    return Box((0,) * (pixels.ndim - 1), pixels.shape[1:])


def _partition(easel: Easel, pixels: Image, *, is_template: bool) -> tuple[Partition, str]:
    """Return the partition for an image and a baseline, and the reason for it in words."""
    if is_template:
        spots = partition_by_template(pixels, easel.hidden(pixels))
        if spots is not None:
            reason = "regions are cells around the differences (Spots)"
            return spots, f"{reason}: the baseline shows the same scene but for a few places"
    axes = pixels.ndim - 1
    found = usual_partition(axes)
    missing = axes > 1 and isinstance(found, Bisection)
    better = f" ({installing('trees')}: then they follow the image)" if missing else ""
    return found, f"regions are those of {type(found).__name__}{better}"


def _told(search: Search) -> str:
    """Return the choice of a search in words."""
    if not isinstance(search, BestFirst):
        return ""
    return f"the largest shares are split first, at most {search.max_evaluations} evaluations"


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
