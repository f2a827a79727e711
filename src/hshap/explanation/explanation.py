"""The result of a run: the leaves, every game that led to them, and views of both.

Nothing here calls a model: maps, boxes and coarser readings come from the games that were played.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from hshap._util.smoothing import smoothed
from hshap.evaluators.evidence import weights
from hshap.evaluators.provenance import NOT_TOLD, Provenance
from hshap.explanation import storage
from hshap.explanation.audit import Audit, audit, dropped
from hshap.explanation.concerns import Concern, concerns_of
from hshap.explanation.display import as_html, as_lines
from hshap.explanation.earlier_names import EarlierNames
from hshap.explanation.plotting import Plotting
from hshap.explanation.reading import reread
from hshap.explanation.settings import Settings
from hshap.games.tree import Part, parts
from hshap.partitions.regions import blocks, touching

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from hshap._util.types import Grid, Heat
    from hshap.games.game import Game
    from hshap.partitions.protocol import Region
    from hshap.partitions.regions import Corners

MOST_SIZES = 64


class Finding(NamedTuple):
    """A box of relevant pixels: first pixel, the one past the last, and its largest coefficient.

    >>> Finding(start=(2, 5), stop=(3, 6), score=1.0).start
    (2, 5)
    """

    start: tuple[int, ...]
    stop: tuple[int, ...]
    score: float


class Reading(NamedTuple):
    """The result at one size: regions of up to `min_area` pixels are leaves.

    `found` is the share of the image that its leaves cover, `mass` the sum of `attribution()`.

    >>> Reading(min_area=4, found=0.25, mass=1.0).found
    0.25
    """

    min_area: int
    found: float
    mass: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(EarlierNames):
    """The regions of an image that drive a classifier's score.

    `leaves` are the relevant regions, `games` all games that were played, the root's first.
    `target` describes the explained number, `class_index` is its output of the model (None for a
    callable of yours). `evaluations` counts the model inputs that this explanation rests on, shared
    with others or not; `seconds` is wall-clock time. `draws` is the number of model inputs for each
    value. `unfinished` are the leaves that a budget left unsplit. `position` is the image's number
    in its run, `settings` has the recipes of the run, and `provenance` tells how the model's scores
    for this image were made. `evidence` guides the maps inside leaves: 256 levels for each pixel,
    from the gradients of a torch module, or None.

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

    @property
    def complete(self) -> bool:
        """Whether the search ended by itself, and not because its budget was spent."""
        return not self.unfinished

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
        return audit(self.games, self.leaves, self.unfinished, found, self.provenance)

    @cached_property
    def concerns(self) -> tuple[Concern, ...]:
        """Reasons not to trust this explanation as it is, each with the next step; often none."""
        return concerns_of(self)

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

    def attribution(self, *, smooth: float = 0.0, even: bool = False) -> Heat:
        """Return a map whose total is `score - baseline_score`, but for `residual`.

        The image's parts get their coefficients. Further down, a part's share is divided among its
        own parts in proportion to their positive coefficients. The share of dropped parts is the
        residual.

        The sum over each leaf is exact: it is the leaf's share. How it is spread inside the leaf is
        a guide: by `evidence` if there is any, else evenly, and evenly if `even` asks for it.

        `smooth` is the standard deviation, in pixels, of a Gaussian filter that leaves the total as
        it is. It softens the arbitrary cuts of a grid; an eighth to a quarter of the size of the
        object is a good value.
        """
        return smoothed(self._spread(lambda leaf: self.parts[leaf].share, even=even), smooth)

    def alone(self, *, smooth: float = 0.0, even: bool = False) -> Heat:
        """Return a map in which each leaf spreads the score it adds to the baseline by itself.

        A finding then shows the same value however many other findings there are, where
        `attribution()` divides the score among them. `smooth` and `even` are as in
        `attribution`.
        """
        return smoothed(self._spread(lambda leaf: self.parts[leaf].alone, even=even), smooth)

    def dropped_at_most(self) -> Heat:
        """Return a map of the most that dropped parts add alone, if the model is monotone.

        NaN on the leaves, which were not dropped. `audit` says whether the model was seen not to be
        monotone; `audit.dropped_at_most` is the largest of these values.
        """
        out = np.full(self.grid, np.nan)
        for part, most in dropped(self.games, self.leaves):
            out[part.index] = most
        return out

    def boxes(self, *, merge: bool = True) -> list[Finding]:
        """Return the boxes around the leaves, the highest score first.

        `merge` joins leaves that touch; a box then goes around all of them.
        """
        pieces = [
            (corners, self.parts[leaf].coefficient)
            for leaf in self.leaves
            for corners in blocks(leaf, self.grid)
        ]
        groups = [[i] for i in range(len(pieces))]
        if merge:
            groups = touching([corners for corners, _ in pieces], self.leaves, self.grid)
        found = [_around([pieces[i] for i in group]) for group in groups]
        return sorted(found, key=lambda finding: (-finding.score, finding.start))

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
        every = [part.area for game in self.games for part in (game.region, *game.children)]
        own = max(min(every), self.settings.min_area or 1)
        coarser = np.unique([game.region.area for game in self.games if game.region.area > own])
        few = np.unique(np.linspace(0, len(coarser) - 1, MOST_SIZES).astype(int))
        chosen = [own, *coarser[few].tolist()] if len(coarser) else [own]
        return tuple(_reading(area, self.at(min_area=area)) for area in chosen)

    @property
    def plot(self) -> Plotting:
        """Pictures with matplotlib: `plot(image)`, `plot.tree()` and `plot.levels(image)`."""
        return Plotting(self)

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

    def _spread(self, value: Callable[[Region], float], *, even: bool) -> Heat:
        """Return a map in which the pixels of each leaf add up to its value."""
        levels = None if even else self.evidence
        if levels is None:
            return self._paint(lambda leaf: value(leaf) / leaf.area)
        out = np.zeros(self.grid)
        for leaf in self.leaves:
            out[leaf.index] = value(leaf) * weights(levels[leaf.index])
        return out

    def _paint(self, value: Callable[[Region], float]) -> Heat:
        out = np.zeros(self.grid)
        for leaf in self.leaves:
            out[leaf.index] = value(leaf)
        return out


def _reading(area: int, read: Explanation) -> Reading:
    found = sum(leaf.area for leaf in read.leaves) / prod(read.grid)
    return Reading(area, found, read.games[0].total - read.residual)


def _around(pieces: list[tuple[Corners, float]]) -> Finding:
    starts, stops = zip(*(corners for corners, _ in pieces), strict=True)
    return Finding(
        tuple(map(min, zip(*starts, strict=True))),
        tuple(map(max, zip(*stops, strict=True))),
        max(score for _, score in pieces),
    )
