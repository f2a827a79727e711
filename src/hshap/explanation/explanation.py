"""The result of a run: the leaves, every game that led to them, and views of both.

Nothing here calls a model: maps, boxes and coarser readings come from the games that were played.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast, overload

import numpy as np

from hshap._util import checks
from hshap._util.recipes import settle
from hshap._util.smoothing import smoothed
from hshap.errors import ArgumentError
from hshap.evaluators.protocol import NOT_TOLD, Provenance
from hshap.explanation import storage, viewing
from hshap.explanation.audit import Audit, audit, bound_map, dropped
from hshap.explanation.concerns import Concern, HowSure, concerns_of, how_sure
from hshap.explanation.display import as_html, as_lines
from hshap.explanation.findings import (
    Finding,
    Reading,
    SignificantFinding,
    context_boxes,
    found_boxes,
    readings,
    significant_boxes,
)
from hshap.explanation.guarantees.methods import Guarantees
from hshap.explanation.maps import (
    AUTO,
    CONTEXTS,
    Context,
    Smooth,
    border_width,
    confined,
    is_resolved,
    regions_left,
    shares_left,
    soft_map,
)
from hshap.explanation.placement import UNPLACED, Placement, whole
from hshap.explanation.plotting import Plotting
from hshap.explanation.reading import reread
from hshap.explanation.settings import Settings
from hshap.games.tree import Part, null_players, parts, shares
from hshap.partitions.regions import fill, mask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from hshap._util.types import Array, Grid, Heat, Mask
    from hshap.explanation.guarantees.calibration import Calibration
    from hshap.explanation.guarantees.significance import ErrorRate, Tests
    from hshap.explanation.viewing import Frame
    from hshap.games.game import Game
    from hshap.games.search import Certificate
    from hshap.partitions.protocol import Region


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Guarantees):
    """The regions of an image that drive a classifier's score.

    `leaves` are the relevant regions, `games` all games that were played, the root's first.
    `target` describes the explained number, `class_index` is its output of the model (None for a
    callable of yours). `evaluations` counts the model inputs that this explanation rests on, shared
    with others or not; `seconds` is wall-clock time. `draws` is the number of model inputs for each
    value. `unfinished` are the regions that a budget left unsplit: leaves, or of `BestFirst`, whose
    budget is its resolution, any regions of the map. `position` is the image's number
    in its run, `settings` has the recipes of the run, and `provenance` says how the model's scores
    for this image were made.
    `placement` says where the grid lies in the original image, if the model saw it resized,
    cropped, padded or flipped: exports and `boxes` are in pixels of the original image. Give it
    with `placed`. `certificate` says whether measurements confirm the answer of `GroupTesting`; it
    is None for other searches, which play every game. `filled` is the share of the leaves' pixels
    that hiding them changes, see `Audit`; None where it is not known. A reading by `at` has that of
    the run. `tests` are the draws behind `significance`, `calibration` is the promise of
    `marked_area`.

    >>> import hshap
    >>> image = np.zeros((1, 8, 8))
    >>> image[0, 2, 5] = 1.0
    >>> explanation = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ... ).explain(image, target=0)
    >>> explanation.score, explanation.evaluations
    (1.0, 14)
    >>> explanation.boxes()
    [Finding(start=(2, 5), stop=(3, 6), score=1.0)]
    >>> explanation.at(min_size=4).boxes()  # no model call
    [Finding(start=(0, 4), stop=(4, 8), score=1.0)]
    >>> explanation.placed((80, 80)).boxes()  # the image was resized from 80 x 80
    [Finding(start=(20, 50), stop=(30, 60), score=1.0)]
    """

    grid: Grid
    target: int | str
    leaves: tuple[Region, ...]
    games: tuple[Game, ...]
    evaluations: int
    seconds: float
    draws: int = 1
    unfinished: tuple[Region, ...] = ()
    position: int = 0
    settings: Settings = field(default_factory=Settings)
    class_index: int | None = None
    provenance: Provenance = NOT_TOLD
    placement: Placement = UNPLACED
    certificate: Certificate | None = None
    filled: float | None = None
    tests: Tests | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if self.placement is UNPLACED:
            settle(self, placement=whole(self.grid))
        if self.placement.grid != self.grid:
            message = f"{self.placement} is not one of the grid {self.grid}; pass one that is"
            raise ArgumentError(message)

    @property
    def complete(self) -> bool:
        """Whether the search was complete, and did not end because its budget was spent."""
        return not self.unfinished or self.settings.drops_nothing

    @property
    def adaptive(self) -> bool:
        """Whether branches ended by the automatic rule; False where a size was given."""
        return self.settings.adaptive or self.games[0].region.adaptive

    @property
    def negative(self) -> str:
        """Why the model does not decide for this target on this image; empty if it does.

        The rule is that of `Positives`: the decision by the scale of the model's outputs, and a
        score above the baseline's.
        """
        return self.settings.negative

    @property
    def is_explained(self) -> bool:
        """Whether the image was explained: runs leave negative ones out, see `explain_many`."""
        return self.settings.is_explained

    @property
    def class_name(self) -> str:
        """Name of the explained class, from the model or the command line; else empty."""
        return str(self.settings.source.get("class", ""))

    @property
    def probability(self) -> float | None:
        """The model's probability of the explained class on the whole image; None if not known.

        Outputs from 0 to 1 are probabilities themselves, other ones are logits. That of a callable
        target is not known.
        """
        return self.settings.probability

    @property
    def score(self) -> float:
        """The model's score on the whole image."""
        return float(self.games[0].values[-1])

    @property
    def baseline_score(self) -> float:
        """The model's mean score on the bare baseline."""
        return float(self.games[0].values[0])

    @property
    def residual(self) -> float:
        """The part of `score - baseline_score` that `attribution()` leaves out."""
        return self.games[0].total - sum(self._values(None).values())

    @cached_property
    def parts(self) -> dict[Region, Part]:
        """Every region that was seen, with its place in the tree and its worth."""
        return parts(self.games, draws=self.draws)

    @cached_property
    def audit(self) -> Audit:
        """How far the paper's assumption holds here, a bound on dropped parts, and the provenance.

        `print(explanation.audit)` says it in words.
        """
        found = sum(self.parts[leaf].share for leaf in self.leaves)
        run = (self.games, self.leaves, () if self.complete else self.unfinished)
        return audit(*run, found, self.provenance, certificate=self.certificate, filled=self.filled)

    @cached_property
    def concerns(self) -> tuple[Concern, ...]:
        """Reasons that change how to read this explanation, the gravest first; often none."""
        return concerns_of(self) if self.is_explained else ()

    @property
    def how_sure(self) -> HowSure:
        """The verdict on this explanation in one word, the gravest reason, and the next step."""
        if not self.is_explained:
            return HowSure("negative", f"not explained: {self.negative}")
        return how_sure(self.concerns, [self.certificate])

    @cached_property
    def ignored(self) -> Mask:
        """The pixels that the model was shown to ignore: parts that change no score of their game.

        They change none in any context that was played. In the paper's game, pixels outside of the
        divided region are hidden: what a part may do together with them was not asked.
        `attribution` and `alone` are 0 there. Leaves are not
        among them: at a tolerance of 0, a search keeps a part that only rounding raised above it.
        """
        kept = set(self.leaves)
        found = (part for part in null_players(self.games) if part not in kept)
        return mask(tuple(found), self.grid)

    def saliency(self) -> Heat:
        """Return the paper's map: even over the relevant pixels, its total is 1.

        With nothing relevant, it is 0 everywhere.
        """
        relevant = self._paint(lambda _: 1.0)
        return relevant / max(relevant.sum(), 1.0)

    def coefficients(self) -> Heat:
        """Return a map in which each leaf shows the coefficient it has in its own game."""
        return self._paint(lambda leaf: self.parts[leaf].coefficient)

    def errors(self) -> Heat:
        """Return a map of the coefficients' standard errors: 0 unless the baseline is random.

        NaN where the whole image is one leaf of a larger game: its own error is not stored.
        """
        return self._paint(lambda leaf: self.parts[leaf].error)

    def attribution(self, *, smooth: Smooth | None = None, context: Context | None = None) -> Heat:
        """Return a map whose total is `score - baseline_score`, but for `residual`.

        The image's parts get their coefficients. Further down, a part's share is divided among its
        own parts in proportion to their positive coefficients. Where parts can stand in for each
        other, what they have in common is divided by the number of sources of the score that each
        of them holds, so that several findings show alike however the tree parts them. The share of
        regions that a search drops is the residual. `BestFirst` drops none, so its map adds up; it
        divides all shares, the image's too, by the sums of coefficients over all contexts that were
        played. Without smoothing, the sum over each region is its share, and the map is even
        inside.

        `smooth` is the standard deviation, in pixels, of a Gaussian filter that leaves the total as
        it is, but not the sums over regions. "auto" takes half of its side for each region, since
        nothing is known inside it. Where a search in several contexts has divided the whole score
        among regions that its partition does not split, and for the cells of `Spots`, it takes a
        hundredth of the image's shorter side, or nothing below half a pixel. This is the default
        for games in several contexts and for cells; other maps are not smoothed. Nothing flows into
        parts that the model ignores.

        `context` gives one side of the answer: "alone" what suffices, with everything else hidden;
        "missing" what cannot be missing, with everything else shown. It takes games that were
        played in several contexts. Such a map need not add up: a region that changes little in a
        context, against the others, is not divided there and has no share.
        """
        values = {region: value for region, value in self._values(context).items() if value}
        softens = self.settings.drops_nothing or self.settings.has_cells
        width = smooth if smooth is not None else AUTO if softens else 0.0
        if width == AUTO:
            if not self.settings.has_cells and not self._is_exact(values):
                return self._without_ignored(soft_map(values, self.grid))
            width = border_width(self.grid)
        return smoothed(self._confined(values), width, self.ignored if width else None)

    def alone(self) -> Heat:
        """Return a map in which each leaf spreads the score it adds to the baseline by itself.

        A finding then shows the same value however many other findings there are, where
        `attribution()` divides the score among them.
        """
        return self._confined({leaf: self.parts[leaf].alone for leaf in self.leaves})

    def dropped_at_most(self) -> Heat:
        """Return a map of the most that dropped parts add alone, if the model is monotone.

        NaN on the leaves, which were not dropped. `audit` says whether the model was seen not to be
        monotone; `audit.dropped_at_most` is the largest of these values.
        """
        bounds = dropped(self.games, self.leaves, self.certificate)
        return bound_map(bounds, self.grid)

    @overload
    def boxes(
        self, *, context: Context | None = ..., merge: bool = ..., original: bool = ...
    ) -> list[Finding]: ...

    @overload
    def boxes(
        self, *, alpha: float, error: ErrorRate = ..., merge: bool = ..., original: bool = ...
    ) -> list[SignificantFinding]: ...

    def boxes(
        self,
        *,
        alpha: float | None = None,
        error: ErrorRate = "family",
        context: Context | None = None,
        merge: bool = True,
        original: bool = True,
    ) -> list[Finding] | list[SignificantFinding]:
        """Return the boxes around the leaves, the highest score first.

        With `alpha`, only leaves that survive at this level; see `significance`.

        `context` gives the findings of one side: boxes around the regions where
        `attribution(context=...)` is strong, "alone" for what suffices and "missing" for what
        cannot be missing. A score is then the share of the box on that side. It takes games that
        were played in several contexts, and is not combined with `alpha`: only leaves are tested.

        `merge` joins leaves that touch; a box then goes around all of them. Boxes are in pixels of
        the original image, rounded outwards to whole ones: see `placement`. They are in pixels of
        the grid, as all maps are, where no placement was given or `original` is False.

        >>> import hshap
        >>> explanation = hshap.Explainer(
        ...     lambda batch: batch[:, 0, 0, 0] * batch[:, 0, 7, 7],  # needs both places
        ...     baseline=hshap.Constant(0.0),
        ...     partition=hshap.Bisection(min_size=1),
        ...     search=hshap.BestFirst(contexts=2),
        ... ).explain(np.ones((1, 8, 8)), target=0)
        >>> [box.start for box in explanation.boxes(context="missing")]
        [(0, 0), (7, 7)]
        >>> explanation.boxes(context="alone")  # neither suffices
        []
        """
        place = self.placement if checks.flag("original", original) else Placement(self.grid)
        if context is not None:
            values = self._values(context)
            if alpha is not None:
                message = "boxes takes alpha or context, not both: only leaves are tested"
                raise ArgumentError(message)
            return context_boxes(values, self.unknown, self.grid, merge=merge, placement=place)
        if alpha is None:
            return found_boxes(self, merge=merge, placement=place)
        rows = self.significance(error=error).regions
        return significant_boxes(self, rows, alpha, merge=merge, placement=place)

    def placed(
        self, shape: Sequence[int], *, start: Sequence[float] = (), stop: Sequence[float] = ()
    ) -> Explanation:
        """Return the same explanation with its place in an original image of this shape.

        `shape` is the size of the original image without channels. The explained pixels reach from
        position `start` of it to `stop`; by default they are the whole image, resized. A crop
        begins later and ends earlier, padding reaches beyond the image, and an axis that was
        flipped has its stop before its start.
        """
        place = Placement(self.grid, cast("Grid", shape), tuple(start), tuple(stop))
        return replace(self, placement=place)

    def at(
        self,
        *,
        min_size: int | Sequence[int] | Literal["auto"] | None = None,
        min_area: int | None = None,
        tolerance: float | None = None,
        percentile: float | None = None,
    ) -> Explanation:
        """Return the same run read more coarsely, or more strictly, without a model call.

        Only runs of the paper's searches and of `GroupTesting` can be read again, not those of
        `BestFirst`: there, a larger region is a coarser part of the map, not another finding.

        A region becomes a leaf as soon as no axis is longer than `min_size`, or as it has at most
        `min_area` pixels. This equals a new run at that size wherever every axis is split alike,
        and always for `Bisection` with one `min_size` for all axes. `min_size="auto"` ends where no
        part is enough alone, as a run with it does; readings of such a run end where it ended.
        """
        return reread(
            self, min_size=min_size, min_area=min_area, tolerance=tolerance, percentile=percentile
        )

    def sizes(self) -> tuple[Reading, ...]:
        """Return the results at the sizes of this run's regions, the finest first.

        The first is the run as it is; each equals `at(min_area=...)`. No model call is made. At
        most 64 sizes are taken, evenly.
        """
        return readings(self)

    @property
    def plot(self) -> Plotting:
        """Pictures with matplotlib: `plot(image)`, `plot.tree()` and `plot.levels(image)`."""
        return Plotting(self)

    def view(self, image: Array | None = None, *, name: str = "image", height: int = 640) -> Frame:
        """Return the page of this explanation, which a notebook shows in place.

        Without `image`, the findings are shown on grey. `hshap.viewer.write_page` writes pages of
        many images and classes to a file.
        """
        return viewing.frame(self, image, name=name, height=height)

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one compressed file, without pickle.

        The file appears when it is complete. An existing one keeps its permissions, and a link is
        followed. A folder, pipe or device, and an explanation whose regions overlap or miss pixels,
        are refused with an `ArgumentError`.
        """
        storage.write(path, self)

    @classmethod
    def load(cls, path: str | PathLike[str], *, max_bytes: int = storage.MAX_BYTES) -> Explanation:
        """Read a file that `save` wrote. Regions compare equal to the saved ones.

        The file need not be trusted: nothing in it is run, and all of it is checked. A file that is
        not an explanation, is damaged, or takes more than `max_bytes` of memory (1 GiB; one map of
        its grid counts, too) is refused with a `FormatError`. A missing file is an `OSError`.
        """
        return cls(**storage.read(path, max_bytes))

    def __repr__(self) -> str:
        return f"<Explanation: {as_lines(self)}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    def _values(self, context: Context | None) -> dict[Region, float]:
        """Return the share of each region of the map, from one context or from all."""
        if context is None:
            left = regions_left(self.games) if self.settings.drops_nothing else self.leaves
            return {region: self._shares[region] for region in left}
        if not self.settings.has_contexts:
            message = (
                f"context is {checks.shown(context)}, but this run did not play games in several "
                "contexts; explain with search=BestFirst(contexts=2), or leave it out"
            )
            raise ArgumentError(message)
        if context not in CONTEXTS:
            message = f'context is {checks.shown(context)}; pass "alone", "missing" or None'
            raise ArgumentError(message)
        return shares_left(self.games, context)

    @property
    def unknown(self) -> tuple[Region, ...]:
        """The regions inside which a share may lie anywhere, if their search drops nothing."""
        # The largest difference of a cell of `Spots` is in its middle.
        return () if self.settings.has_cells else self.unfinished

    def _is_exact(self, values: Mapping[Region, float]) -> bool:
        """Whether a map needs no softening: its regions are all that the partition can tell."""
        return self.settings.drops_nothing and is_resolved(values, self.unknown)

    def _confined(self, values: Mapping[Region, float]) -> Heat:
        """Return an even map; a region that holds ignored parts shows its value on the others."""
        heat = np.zeros(self.grid)
        for region, value in values.items():
            fill(region, heat, value / region.area)
        played = {game.region for game in self.games}
        ended = [region for region in values if region in played]  # by the automatic rule
        return confined(heat, ended, self.ignored) if ended else heat

    def _without_ignored(self, heat: Heat) -> Heat:
        """Return a map of the same total that is 0 on ignored pixels."""
        kept = np.where(self.ignored, 0.0, heat)
        left = float(kept.sum())
        return kept * (float(heat.sum()) / left) if left else heat

    @cached_property
    def _shares(self) -> dict[Region, float]:
        """The share of every region: maps need no more of `parts`."""
        return shares(self.games)

    def _paint(self, value: Callable[[Region], float]) -> Heat:
        out = np.zeros(self.grid)
        for leaf in self.leaves:
            fill(leaf, out, value(leaf))
        return out
