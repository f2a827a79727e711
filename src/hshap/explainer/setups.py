"""Setups: the parts of each image's run, given by the caller or chosen, and its explanation."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, cast
from weakref import WeakKeyDictionary

from hshap._util.arrays import to_numpy
from hshap._util.axes import by_name, check_layout, checked_spacing, grid_spacing
from hshap.baselines.recipes import OwnColour
from hshap.errors import installing
from hshap.evaluators.easel import Easel
from hshap.evaluators.evidence import MOST_COPIES, Guide, evidence_of
from hshap.evaluators.models.facts import Facts
from hshap.explainer.guides import (
    by_differences,
    follows_nearby,
    given_guide,
    guide_by_difference,
    guide_by_probes,
    told_inside,
)
from hshap.explainer.rarity import guides_by_rarity, unless_refuted
from hshap.explanation.audit import filled_by
from hshap.explanation.explanation import Explanation
from hshap.explanation.settings import NEARBY, Settings
from hshap.games.automatic import partition_by_template, usual_partition, usual_search
from hshap.games.baseline_choice import choose_baseline, usual_baselines
from hshap.games.jobs import ScoreTable
from hshap.games.search import BreadthFirst, DepthFirst, GroupTesting, SearchResult, Share
from hshap.games.search.budget import first_game
from hshap.games.search.probing import Probing, probes_within
from hshap.games.targets import class_index, describe_target, slope
from hshap.partitions.grids import AUTO, Bisection
from hshap.partitions.protocol import spaced
from hshap.partitions.regions import Box
from hshap.partitions.spots import Spots

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.axes import Spacing
    from hshap._util.types import Image
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session
    from hshap.evaluators.provenance import Provenance
    from hshap.explainer import Evidence, Explainer
    from hshap.games.baseline_choice import Choice
    from hshap.games.engine import Progress
    from hshap.games.jobs import Job
    from hshap.games.search import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Partition, Region

EVEN = "even"

TIMED = (DepthFirst, BreadthFirst, GroupTesting)
LIMITED = (*TIMED, Share)
"""Searches with a budget of seconds, and of evaluations."""

PLAYING = (DepthFirst, BreadthFirst, Share)
"""Searches with a budget that begin with a game. Probes may follow it."""

USUAL_PARTS = 2
"""Parts of the root in every partition that is chosen."""


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

    def counted(self, progress: Callable[[Progress], None] | None) -> Callable[[Progress], None]:
        """Return a receiver of progress that counts the evaluations of choices, too."""

        def tell(made: Progress) -> None:
            if progress is not None:
                progress(replace(made, evaluations=made.evaluations + self._spent))

        return tell

    def make(
        self,
        position: int,
        image: Reading,
        targets: Sequence[Target],
        baseline: Baseline | None = None,
        *,
        notice_template: bool = True,
    ) -> Setup:
        """Return the setup of an image; parts that were not given are chosen.

        `baseline` is one for this image alone. `notice_template` allows the partition to be
        `Spots`, which cannot be moved.
        """
        started = time.perf_counter()
        given, pixels = self._explainer, image.pixels
        settings = self._settings.updated(**image.facts)
        search = given.search or usual_search(partition_is_given=given.partition is not None)
        easel, spent, chosen = self._easel, 0, Chosen(image.told)
        if baseline is not None:
            easel = Easel(baseline, self._session.put, self._layout)
            settings = settings.updated(baseline=baseline)
        elif _given(given.baseline) is None:
            choice = self._baseline(position, pixels, targets, _budget(search))
            easel = Easel(choice.baseline, self._session.put, self._layout)
            spent = choice.evaluations
            self._spent += spent
            settings = settings.updated(baseline=choice.baseline)
            chosen = replace(chosen, baseline=choice.reason)
        blank = partial(easel.canvas, pixels, _whole(pixels), position)
        own = given.partition and spaced(given.partition, image.spacing)
        split = partial(easel.root, own, pixels) if own else None
        guides = self._guides(blank, split, targets, _left(search, spent))
        guided = any(guide.levels is not None for guide in guides)
        partition = own
        if partition is None:
            by_template = notice_template and easel.may_be_template
            found, reason = self._partition(easel, pixels, guided=guided, by_template=by_template)
            partition = spaced(found, image.spacing)
            chosen = replace(chosen, regions=reason)
        if partition is not given.partition:
            settings = settings.updated(partition=partition)
        if self._wanted == AUTO and isinstance(partition, Spots):
            by_difference = partial(guide_by_difference, partition, easel, pixels)
            guides = tuple(one if one.levels is not None else by_difference(one) for one in guides)
        if self._wanted == AUTO:
            guides = guides_by_rarity(pixels, guides)
        if given.search is None:
            if given.partition is None and isinstance(partition, Spots):
                search = usual_search(partition_is_given=False, by_template=True)
            settings = settings.updated(search=search)
            told = _told(search) if isinstance(search, Share) else ""
            chosen = replace(chosen, search=told)
        search = _within(search, spent + max(guide.evaluations for guide in guides), started)
        given_budget = given.search is not None and _budget(search) is not None
        if given_budget and isinstance(partition, Spots) and all(map(by_differences, guides)):
            search = _probing(search, partition, easel, pixels)
        return Setup(
            easel=easel,
            partition=partition,
            search=search,
            settings=settings,
            guides=guides,
            started=started,
            evaluations=spent,
            evidence=self._wanted,
            chosen=chosen,
            class_names=given.facts.classes,
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
        given = self._explainer
        candidates = cast("Sequence[Baseline]", given.baseline or usual_baselines(pixels.shape[1:]))
        easels = [Easel(one, self._session.put) for one in candidates]
        canvases = [one.canvas(pixels, _whole(pixels), position) for one in easels]
        parts = USUAL_PARTS
        if budget is not None and given.partition is not None:
            parts = len(easels[0].root(given.partition, pixels).split())
        compared = list(zip(candidates, canvases, strict=True))
        return choose_baseline(self._session, targets, compared, budget, parts)

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
        self._spent += sum(guide.evaluations for guide in made)
        return made


def explanation_of(job: Job, setup: Setup, provenance: Provenance) -> Explanation:
    """Return the explanation of a finished job."""
    found, canvas = job.result or SearchResult(()), job.canvas
    target, settings = job.table.targets[job.column], setup.settings
    games = found.games or tuple(job.games)
    guide = unless_refuted(setup.guides[job.column], games)
    guide = guide_by_probes(guide, found.probes, float(games[0].values[0]))
    if found.equal_to is not None:
        settings = settings.updated(search=found.equal_to)
    if guide.origin:
        settings = settings.updated(evidence=guide.origin)
    nearby = setup.evidence == AUTO and follows_nearby(guide, canvas.grid)
    if nearby:
        settings = settings.updated(inside=NEARBY)
    name = Facts(setup.class_names).name(class_index(target))
    if name:
        settings = settings.updated(source={"class": name})
    chosen = setup.chosen
    inside = told_inside(guide, nearby=nearby) if chosen.regions and setup.evidence != EVEN else ""
    told = "; ".join(
        filter(None, (chosen.reading, chosen.baseline, chosen.regions, inside, chosen.search))
    )
    if told:
        settings = settings.updated(chosen=told)
    return Explanation(
        grid=canvas.grid,
        target=describe_target(target),
        leaves=found.leaves,
        games=games,
        evaluations=job.evaluations + setup.evaluations + guide.evaluations,
        seconds=job.seconds,
        draws=canvas.draws,
        unfinished=found.unfinished,
        position=canvas.position,
        settings=settings,
        class_index=class_index(target),
        provenance=provenance,
        evidence=guide.levels,
        certificate=found.certificate,
        filled=_filled(found, canvas, setup.partition),
    )


def _filled(found: SearchResult, canvas: Canvas, partition: Partition) -> float | None:
    """Return how filled the leaves are; None where that tells nothing.

    That is where stand-ins depend on the shown pixels, and for cells around the differences from a
    template: by their making, most of their pixels are those of the template.
    """
    if not canvas.is_still or isinstance(partition, Spots):
        return None
    unsplit = set(found.unfinished)
    stand_ins = [canvas.stand_ins((), draw) for draw in range(canvas.draws)]
    return filled_by(
        [leaf for leaf in found.leaves if leaf not in unsplit],
        to_numpy("image", canvas.image),
        [to_numpy("baseline", one) for one in stand_ins],
    )


def _whole(pixels: Image) -> Box:
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


def _left(search: Search, spent: int) -> float:
    """Return the evaluations that the budget of a search leaves."""
    most = _budget(search)
    return math.inf if most is None else most - spent


def _within(search: Search, spent: int, started: float) -> Search:
    """Return the search with budgets that leave room for the evaluations and seconds spent."""
    most = _budget(search)
    if spent and most is not None and isinstance(search, LIMITED):
        search = replace(search, max_evaluations=max(1, most - spent))
    if isinstance(search, TIMED) and search.max_seconds is not None:
        passed = time.perf_counter() - started
        search = replace(search, max_seconds=max(0.0, search.max_seconds - passed))
    return search


def _probing(search: Search, partition: Spots, easel: Easel, pixels: Image) -> Search:
    """Return the search with probes of cells, which its budget pays for. No limit of time does."""
    most, draws = _budget(search), easel.draws(pixels)
    is_timed = isinstance(search, TIMED) and search.max_seconds is not None
    if most is None or is_timed or not isinstance(search, PLAYING):
        return search
    cells = probes_within(most, partition.cells(pixels, easel.hidden(pixels)), draws, USUAL_PARTS)
    if not cells:
        return search
    return Probing(replace(search, max_evaluations=most - draws * len(cells)), cells)


def _budget(search: Search) -> int | None:
    """Return the most evaluations of a search; None without a limit that is known."""
    return search.max_evaluations if isinstance(search, LIMITED) else None


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
