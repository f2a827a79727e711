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
from hshap.evaluators.provenance import NOT_TOLD, Provenance
from hshap.explanation import storage, viewing
from hshap.explanation.audit import Audit, audit, bound_map, dropped
from hshap.explanation.concerns import Concern, HowSure, concerns_of, how_sure
from hshap.explanation.display import as_html, as_lines
from hshap.explanation.earlier_names import EarlierNames
from hshap.explanation.findings import (
    Finding,
    Reading,
    SignificantFinding,
    found_boxes,
    readings,
    significant_boxes,
)
from hshap.explanation.guarantees.methods import Guarantees
from hshap.explanation.nearby import confined, levels_nearby, ranked, smoothing_width, weighted
from hshap.explanation.placement import UNPLACED, Placement, whole
from hshap.explanation.plotting import Plotting
from hshap.explanation.reading import reread
from hshap.explanation.settings import AUTO, Settings
from hshap.games.search.automatic_size import uncut
from hshap.games.tree import Part, null_players, parts, shares
from hshap.partitions.regions import fill, mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Heat, Mask
    from hshap.explanation.guarantees.calibration import Calibration
    from hshap.explanation.guarantees.significance import ErrorRate, Tests
    from hshap.explanation.nearby import Smooth
    from hshap.explanation.viewing import Frame
    from hshap.games.game import Game
    from hshap.games.search import Certificate
    from hshap.partitions.protocol import Adaptive, Region


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Guarantees, EarlierNames):
    """The regions of an image that drive a classifier's score.

    `leaves` are the relevant regions, `games` all games that were played, the root's first.
    `target` describes the explained number, `class_index` is its output of the model (None for a
    callable of yours). `evaluations` counts the model inputs that this explanation rests on, shared
    with others or not; `seconds` is wall-clock time. `draws` is the number of model inputs for each
    value. `unfinished` are the leaves that a budget left unsplit. `position` is the image's number
    in its run, `settings` has the recipes of the run, and `provenance` tells how the model's scores
    for this image were made. `evidence` guides the maps inside leaves: 256 levels for each pixel,
    from the gradients of a torch module, its answers about single cells or yours, or None.
    `placement` tells where the grid lies in the original image, if the model saw it resized,
    cropped, padded or flipped: exports and `boxes` are in pixels of the original image. Give it
    with `placed`. `certificate` tells whether measurements confirm the answer of `GroupTesting`; it
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
    evidence: NDArray[np.uint8] | None = None
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
        """Whether the search ended by itself, and not because its budget was spent."""
        return not self.unfinished

    @property
    def adaptive(self) -> Adaptive:
        """The automatic rule by which branches ended; False where a size was given."""
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
        """Name of the explained class, as the model or the command line tells it; else empty."""
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
        return self.games[0].total - sum(self.parts[leaf].share for leaf in self.leaves)

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
        run = (self.games, self.leaves, self.unfinished)
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

        In that game, pixels outside of the divided region are hidden: what a part may do together
        with them was not asked. `attribution`, `alone` and `ranking` are 0 there. Leaves are not
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

    def attribution(self, *, smooth: Smooth = 0.0, even: bool = False) -> Heat:
        """Return a map whose total is `score - baseline_score`, but for `residual`.

        The image's parts get their coefficients. Further down, a part's share is divided among its
        own parts in proportion to their positive coefficients. The share of dropped parts is the
        residual.

        The sum over each leaf is exact: it is the leaf's share. How it is spread inside the leaf is
        a guide: by `evidence` if there is any, and by the leaves nearby if the model gave none and
        the explainer chose the partition; evenly if it was given. `even` asks for it in any case.
        Parts whose games showed that the model ignores them have 0.

        `smooth` is the standard deviation, in pixels, of a Gaussian filter that leaves the total as
        it is, but not the sums over leaves. It softens the arbitrary cuts of a partition; an eighth
        to a quarter of the size of the object is a good value. "auto" takes a quarter of the
        leaves' mean side, each leaf counted by its share, and 0 for cells of `Spots` without
        evidence, which have the largest difference in their middle. Nothing flows into parts that
        the model ignores. On photographs this makes the map of a model without gradients much
        better; on drawings, whose leaves are objects, it blurs them.
        """
        return self._spread(self._shares.__getitem__, smooth, even=even)

    def alone(self, *, smooth: Smooth = 0.0, even: bool = False) -> Heat:
        """Return a map in which each leaf spreads the score it adds to the baseline by itself.

        A finding then shows the same value however many other findings there are, where
        `attribution()` divides the score among them. `smooth` and `even` are as in
        `attribution`.
        """
        return self._spread(lambda leaf: self.parts[leaf].alone, smooth, even=even)

    def ranking(self) -> Heat:
        """Return a map to rank pixels by. Nothing adds up in it; `attribution()` does.

        With `evidence` of the model: the evidence, times the root of the score that each leaf adds
        by itself, and 0 outside the leaves and on parts that the model was shown to ignore. Of
        `Superpixels("uncut")`, regions count that no split has cut, where the search went on
        inside. Without evidence: `attribution(smooth="auto")`. On photographs both rank pixels
        better than `attribution()`, in which a small leaf shows its whole share on few pixels.
        """
        if self.evidence is None:
            return self.attribution(smooth=AUTO)
        regions = uncut(self.games, self.leaves) if self.adaptive == "uncut" else self.leaves
        heat = ranked(regions, lambda region: self.parts[region].alone, self.evidence)
        return heat * ~self.ignored

    def dropped_at_most(self) -> Heat:
        """Return a map of the most that dropped parts add alone, if the model is monotone.

        NaN on the leaves, which were not dropped. `audit` says whether the model was seen not to be
        monotone; `audit.dropped_at_most` is the largest of these values.
        """
        bounds = dropped(self.games, self.leaves, self.certificate)
        return bound_map(bounds, self.grid)

    @overload
    def boxes(self, *, merge: bool = ..., original: bool = ...) -> list[Finding]: ...

    @overload
    def boxes(
        self, *, alpha: float, error: ErrorRate = ..., merge: bool = ..., original: bool = ...
    ) -> list[SignificantFinding]: ...

    def boxes(
        self,
        *,
        alpha: float | None = None,
        error: ErrorRate = "family",
        merge: bool = True,
        original: bool = True,
    ) -> list[Finding] | list[SignificantFinding]:
        """Return the boxes around the leaves, the highest score first.

        With `alpha`, only leaves that survive at this level; see `significance`.

        `merge` joins leaves that touch; a box then goes around all of them. Boxes are in pixels of
        the original image, rounded outwards to whole ones: see `placement`. They are in pixels of
        the grid, as all maps are, where no placement was given or `original` is False.
        """
        place = self.placement if checks.flag("original", original) else Placement(self.grid)
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

    def _spread(self, value: Callable[[Region], float], smooth: Smooth, *, even: bool) -> Heat:
        """Return a map in which the pixels of each leaf add up to its value, before smoothing."""
        width = self.usual_width if smooth == AUTO else smooth
        levels = None if even else self._levels
        if levels is None:
            heat = self._paint(lambda leaf: value(leaf) / leaf.area)
        else:
            heat = weighted(self.leaves, value, levels)
        played = {game.region for game in self.games}
        ended = [leaf for leaf in self.leaves if leaf in played]  # by the automatic rule
        heat = confined(heat, ended, self.ignored) if ended else heat
        return smoothed(heat, width, self.ignored if width else None)

    @property
    def usual_width(self) -> float:
        """The width that `smooth="auto"` takes: that of the leaves, or 0 for even cells of `Spots`.

        Such a cell has the largest difference in its middle, and smoothing is strongest there: the
        map would follow the image and not the model.
        """
        is_even = self.evidence is None and self.settings.partition_name == "Spots"
        return 0.0 if is_even else self.width_of_leaves

    @cached_property
    def width_of_leaves(self) -> float:
        """A quarter of the leaves' mean side in pixels, each leaf counted by its share."""
        found = [self._shares[leaf] for leaf in self.leaves]
        return smoothing_width(self.leaves, found, self.grid)

    @cached_property
    def _levels(self) -> NDArray[np.uint8] | None:
        """The guide inside leaves: evidence or leaves nearby; None for an even map."""
        if not self.settings.nearby:
            return self.evidence
        return levels_nearby(self.attribution(even=True), self.usual_width)

    @cached_property
    def _shares(self) -> dict[Region, float]:
        """The share of every region: maps need no more of `parts`."""
        return shares(self.games)

    def _paint(self, value: Callable[[Region], float]) -> Heat:
        out = np.zeros(self.grid)
        for leaf in self.leaves:
            fill(leaf, out, value(leaf))
        return out
