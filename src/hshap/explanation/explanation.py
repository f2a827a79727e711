"""The result of a run: the leaves, every game that led to them, and doors to what they say.

Nothing here calls a model. Maps, findings, coarser readings, the audit and files are functions in
the modules beside this one; a method here says what its function promises.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, cast

from hshap._util.recipes import settle
from hshap.errors import ArgumentError
from hshap.evaluators.protocol import NOT_TOLD, Provenance
from hshap.explanation import findings, heatmaps, storage
from hshap.explanation.audit import Audit, audit
from hshap.explanation.concerns import Concern, HowSure, concerns_of, how_sure
from hshap.explanation.display import as_html, as_lines, heading
from hshap.explanation.placement import UNPLACED, Placement, whole
from hshap.explanation.plotting import Plotting
from hshap.explanation.replay import reread
from hshap.explanation.settings import Settings
from hshap.games.tree import Part, parts, shares

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from hshap._util.types import Array, Grid, Heat
    from hshap.explanation.findings import Finding
    from hshap.explanation.guarantees.calibration import Calibration
    from hshap.explanation.guarantees.significance import Tests
    from hshap.explanation.maps import Context, Smooth
    from hshap.export.page import NotebookPage
    from hshap.games.game import Game
    from hshap.games.search import Certificate
    from hshap.partitions.protocol import Region


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
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
    >>> import numpy as np
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
    def title(self) -> str:
        """Class, probability and number of findings, such as "tabby, 93 %: 2 findings"."""
        return heading(self)

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
        return self.games[0].total - sum(heatmaps.shares_of(self).values())

    @cached_property
    def parts(self) -> dict[Region, Part]:
        """Every region that was seen, with its place in the tree and its worth."""
        return parts(self.games, draws=self.draws)

    @cached_property
    def shares(self) -> dict[Region, float]:
        """The share of every region, as `parts` has it, without the rest: maps need no more."""
        return shares(self.games)

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

    def saliency(self) -> Heat:
        """Return the paper's map: even over the relevant pixels, its total is 1.

        With nothing relevant, it is 0 everywhere.
        """
        return heatmaps.saliency(self)

    def coefficients(self) -> Heat:
        """Return a map in which each leaf shows the coefficient it has in its own game."""
        return heatmaps.coefficients(self)

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
        it is, but not the sums over regions. "auto", the default for games in several contexts, is
        the mean of the maps at all sizes of regions, from the image to a pixel, since nothing tells
        at which size the evidence lies; each region is softened by half of its side. Once nothing
        can be split further, and for the cells of `Spots`, the finest map alone is softened by a
        hundredth of the image's shorter side instead. Maps of other searches are not smoothed.
        Nothing flows into parts that the model ignores.

        `context` gives one side of the answer: "alone" what suffices, with everything else hidden;
        "missing" what cannot be missing, with everything else shown. It takes games that were
        played in several contexts. Such a map need not add up: a region that changes little in a
        context, against the others, is not divided there and has no share.
        """
        return heatmaps.attribution(self, smooth=smooth, context=context)

    def boxes(
        self, *, context: Context | None = None, merge: bool = True, original: bool = True
    ) -> list[Finding]:
        """Return the boxes around the leaves, the highest score first.

        `context` gives the findings of one side: boxes around the regions where
        `attribution(context=...)` is strong, "alone" for what suffices and "missing" for what
        cannot be missing. A score is then the share of the box on that side. It takes games that
        were played in several contexts.

        `merge` joins leaves that touch; a box then goes around all of them. Boxes are in pixels of
        the original image, rounded outwards to whole ones: see `placement`. They are in pixels of
        the grid, as all maps are, where no placement was given or `original` is False.
        `guarantees.significance` has the boxes that survive tests.

        >>> import hshap
        >>> import numpy as np
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
        return findings.boxes(self, context=context, merge=merge, original=original)

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

    @property
    def plot(self) -> Plotting:
        """Pictures with matplotlib: `plot(image)`, `plot.tree()` and `plot.levels(image)`."""
        return Plotting(self)

    def view(
        self, image: Array | None = None, *, name: str = "image", height: int = 640
    ) -> NotebookPage:
        """Return the page of this explanation, which a notebook shows in place.

        Without `image`, the findings are shown on grey. `hshap.export.page.write_page` writes pages
        of many images and classes to a file.
        """
        from hshap.export.page import notebook_page  # noqa: PLC0415, it imports explanations

        return notebook_page(self, image, name=name, height=height)

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

        The file need not be trusted: nothing in it is run, and its types, shapes and tree are
        checked. A file that is not an explanation, is damaged, or takes more than `max_bytes` of
        memory (1 GiB; one map of its grid counts, too) is refused with a `FormatError`. A missing
        file is an `OSError`. `hshap verify` checks that coefficients follow from the scores.
        """
        return cls(**storage.read(path, max_bytes))

    def __repr__(self) -> str:
        return f"<Explanation: {as_lines(self)}>"

    def _repr_html_(self) -> str:
        return as_html(self)
