"""Choosing the parts of each image's run: those of the caller, or the usual ones.

An `ImageRun` is one image on its way through a run, and all that its explanation needs besides
scores. It is frozen: `PartChooser` begins it with a baseline and adds partition and search, and
its jobs carry it to their explanations. No step calls the model.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from operator import itemgetter
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.cache import BoundedCache, ByIdentity
from hshap.baselines.recipes import OwnColour
from hshap.errors import installing
from hshap.evaluators.canvas import Backdrop
from hshap.explanation.settings import Settings
from hshap.games.search import BestFirst, BreadthFirst, DepthFirst, GroupTesting, Share
from hshap.partitions.grids import AUTO, Bisection, Dyadic, most_regions
from hshap.partitions.protocol import ComparesWithBaseline, as_region, spaced
from hshap.partitions.regions import Box
from hshap.partitions.spots import Spots
from hshap.partitions.superpixels import Superpixels
from hshap.partitions.templates import is_template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Heat, Image
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.protocol import Session
    from hshap.explainer import Explainer
    from hshap.explainer.readings import Reading
    from hshap.games.search import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Partition, Region

TIMED = (DepthFirst, BreadthFirst, GroupTesting)
LIMITED = (*TIMED, Share, BestFirst)
"""Searches with a budget of seconds, and of evaluations."""

MOST_REGIONS = 8192
"""Regions of grids that are kept for the next images, up to 600 bytes each."""


@dataclass(frozen=True)
class Choices:
    """The choices that were made for the caller, in words; empty where the caller chose."""

    reading: str = ""
    baseline: str = ""
    regions: str = ""
    search: str = ""

    def __str__(self) -> str:
        """Return the choices in one line."""
        return "; ".join(filter(None, (self.reading, self.baseline, self.regions, self.search)))


@dataclass(frozen=True, eq=False)
class ImageRun:
    """One image of a run: its pixels and targets, and the parts that explain it, given or chosen.

    `partition` and `search` are None until they are chosen, and for an image that the model calls
    negative, which no search looks into. `negatives` has the reasons why targets are not explained,
    by their number. `outputs` are the model's for the image, then for the bare baseline, where they
    were known before the search.
    """

    position: int
    reading: Reading
    targets: tuple[Target, ...]
    backdrop: Backdrop
    settings: Settings
    started: float  # by `time.perf_counter()`
    chosen: Choices = Choices()
    partition: Partition | None = None
    search: Search | None = None
    negatives: Mapping[int, str] = field(default_factory=dict[int, str])
    outputs: Heat | None = None

    @property
    def pixels(self) -> Image:
        """The image `(channels, *grid)`."""
        return self.reading.pixels


class PartChooser:
    """Chooses the parts of the images of one run, and makes their trees."""

    def __init__(self, explainer: Explainer, session: Session) -> None:
        self._explainer, self._put = explainer, session.put
        self._backdrop = Backdrop(explainer.baseline or usual_baseline(), session.put)
        self._settings = _settings(explainer)
        self._roots = BoundedCache[tuple["Region", int]](MOST_REGIONS, itemgetter(1))

    def begin(
        self,
        position: int,
        reading: Reading,
        targets: tuple[Target, ...],
        own_baseline: Baseline | None = None,
    ) -> ImageRun:
        """Return the run of an image with its baseline: its own, the explainer's, or the usual."""
        backdrop, settings = self._backdrop, self._settings.updated(**reading.facts)
        chosen = Choices(reading.choice)
        if own_baseline is not None:
            backdrop = Backdrop(own_baseline, self._put)
            settings = settings.updated(baseline=own_baseline)
        elif self._explainer.baseline is None:
            settings = settings.updated(baseline=backdrop.baseline)
            chosen = replace(chosen, baseline="hidden pixels show the image's own colour")
        return ImageRun(position, reading, targets, backdrop, settings, time.perf_counter(), chosen)

    def choose(self, run: ImageRun, *, notice_template: bool = True) -> ImageRun:
        """Return the run of an image with its partition and its search.

        `notice_template` allows the partition to be `Spots`, which cannot be moved.
        """
        return self._with_search(self._with_partition(run, notice_template=notice_template))

    def _with_partition(self, run: ImageRun, *, notice_template: bool) -> ImageRun:
        given, reason = self._explainer.partition, ""
        partition = given
        if partition is None:
            template = notice_template and run.backdrop.may_be_template
            partition, reason = _usual_partition(run, may_be_template=template)
        partition = spaced(partition, run.reading.spacing)
        settings = run.settings if partition is given else run.settings.updated(partition=partition)
        chosen = replace(run.chosen, regions=reason)
        return replace(run, partition=partition, settings=settings, chosen=chosen)

    def _with_search(self, run: ImageRun) -> ImageRun:
        search = self._explainer.search
        if search is not None:
            return replace(run, search=within(search, run.started))
        search, reason = usual_search(partition_is_given=self._explainer.partition is not None), ""
        if isinstance(search, BestFirst):
            reason = (
                f"the largest shares are split first, at most {search.max_evaluations} evaluations"
            )
        settings, chosen = run.settings.updated(search=search), replace(run.chosen, search=reason)
        return replace(run, search=search, settings=settings, chosen=chosen)

    def root(self, run: ImageRun) -> Region:
        """Return the root region of an image; images of one grid share it if pixels do not count.

        A region remembers its parts, so that a tree that is not too large is made once for a run.
        """
        partition = run.partition
        if partition is None:
            return whole(run.pixels)
        if type(partition) in (Dyadic, Bisection):  # a class derived from them may look at pixels
            return self._grid_root(cast("Dyadic | Bisection", partition), run.pixels)
        # A look at the name first: to check a protocol takes longer than to split an image.
        if hasattr(partition, "compare") and isinstance(partition, ComparesWithBaseline):
            return as_region(partition.compare(run.pixels, run.backdrop.hidden(run.pixels)))
        return as_region(partition(run.pixels))

    def _grid_root(self, partition: Dyadic | Bisection, pixels: Image) -> Region:
        key = (ByIdentity(partition), pixels.shape[1:])
        kept = self._roots.get(key)
        if kept is not None:
            return kept[0]
        root, regions = partition(pixels), most_regions(partition, pixels.shape[1:])
        if regions <= MOST_REGIONS:
            self._roots.put(key, (root, regions))
        return root


def usual_baseline() -> Baseline:
    """Return the baseline of an explainer without one: the image's own colour."""
    return OwnColour()


def usual_partition(axes: int, needed: Sequence[str] = ("higra", "scipy")) -> Partition:
    """Return the partition for images of so many spatial axes.

    >>> usual_partition(axes=1), usual_partition(axes=2, needed=["no such library"])
    (Bisection(min_size=1), Bisection(min_size=1))
    """
    has_trees = all(find_spec(name) is not None for name in needed)
    return Superpixels() if has_trees and axes > 1 else Bisection(1)


def partition_by_template(
    image: Image, hidden: Image, needed: Sequence[str] = ("scipy",)
) -> Partition | None:
    """Return cells around the differences if the hidden image is a template, else None.

    >>> import numpy as np
    >>> flat = np.zeros((1, 8, 8))
    >>> partition_by_template(np.eye(8)[None], flat) is None
    True
    """
    has_spots = all(find_spec(name) is not None for name in needed)
    usable = has_spots and bool(np.isfinite(hidden).all())
    return Spots(AUTO) if usable and is_template(image, hidden) else None


def usual_search(*, partition_is_given: bool) -> Search:
    """Return the paper's search for a partition that is given, else games in several contexts."""
    return DepthFirst() if partition_is_given else BestFirst()


def within(search: Search, started: float) -> Search:
    """Return the search with a budget of seconds that leaves room for those since the start."""
    if isinstance(search, TIMED) and search.max_seconds is not None:
        passed = time.perf_counter() - started
        return replace(search, max_seconds=max(0.0, search.max_seconds - passed))
    return search


def budget_of(search: Search) -> int | None:
    """Return the most evaluations of a search; None without a limit that is known."""
    return search.max_evaluations if isinstance(search, LIMITED) else None


def whole(pixels: Image) -> Box:
    """Return the region of all pixels of an image."""
    return Box((0,) * (pixels.ndim - 1), pixels.shape[1:])


def _usual_partition(run: ImageRun, *, may_be_template: bool) -> tuple[Partition, str]:
    """Return the partition for an image and a baseline, and the reason for it in words."""
    if may_be_template:
        spots = partition_by_template(run.pixels, run.backdrop.hidden(run.pixels))
        if spots is not None:
            reason = "regions are cells around the differences (Spots)"
            return spots, f"{reason}: the baseline shows the same scene but for a few places"
    axes = run.pixels.ndim - 1
    partition = usual_partition(axes)
    missing = axes > 1 and isinstance(partition, Bisection)
    better = f" ({installing('trees')}: then they follow the image)" if missing else ""
    return partition, f"regions are those of {type(partition).__name__}{better}"


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
