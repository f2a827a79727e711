"""The result of a run: what was found, every game that led there, and ways to look at it.

Nothing here calls a model: maps, boxes and coarser readings come from the games that were played.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from hshap import checks, storage
from hshap.audit import Audit, audit, dropped
from hshap.display import as_html, as_text
from hshap.errors import ArgumentError
from hshap.parts import Part, parts
from hshap.plot import draw, levels, tree
from hshap.reading import reread
from hshap.regions import Region, blocks, touching
from hshap.smoothing import smoothed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from hshap.search import Game


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
    """What is found where regions of up to `min_area` pixels are leaves.

    `found` is the share of the image that is, `mass` the sum of `attribution()`.

    >>> Reading(min_area=4, found=0.25, mass=1.0).found
    0.25
    """

    min_area: int
    found: float
    mass: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Where in an image a model saw what it says.

    `leaves` are the relevant regions, `games` all that were played, the root's first. `evaluations`
    counts the model inputs that this explanation rests on, shared with others or not. `unfinished`
    are the leaves that a budget left unsplit. `position` says which image of a run was explained.

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

    grid: tuple[int, ...]
    target: int | str
    leaves: tuple[Region, ...]
    games: tuple[Game, ...]
    evaluations: int
    seconds: float
    draws: int = 1
    unfinished: tuple[Region, ...] = ()
    position: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the search came to its own end and not to that of its budget."""
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
        """What `attribution()` leaves out of `score - baseline_score`."""
        return self.games[0].total - self._found

    def saliency(self) -> NDArray[np.float64]:
        """Return the paper's map: one in all, spread evenly over the relevant pixels.

        With nothing relevant, all is 0.
        """
        relevant = self._paint(lambda _: 1.0)
        return relevant / max(relevant.sum(), 1.0)

    def coefficients(self) -> NDArray[np.float64]:
        """Return a map in which each leaf shows the coefficient it has in its own game."""
        return self._paint(lambda leaf: self._parts[leaf].coefficient)

    def errors(self) -> NDArray[np.float64]:
        """Return a map of the coefficients' standard errors: 0 unless the baseline is random.

        NaN where the whole image is one leaf of a larger game: its own error is not kept.
        """
        return self._paint(lambda leaf: self._parts[leaf].error)

    def attribution(self, *, smooth: float = 0.0) -> NDArray[np.float64]:
        """Return a map that adds up, but for `residual`, to `score - baseline_score`.

        The image's parts get their coefficients; from there down, a part's share goes to its own
        parts in proportion to their positive coefficients, and a leaf spreads its share evenly.
        What falls to parts that were dropped is the residual.

        `smooth` is the standard deviation, in pixels, of a Gaussian to smooth the map with; it adds
        up as before. Where a grid happens to cut says nothing: an eighth to a quarter of the size
        of what is sought softens that.
        """
        return smoothed(self._paint(lambda leaf: self._parts[leaf].share / leaf.size), smooth)

    def alone(self, *, smooth: float = 0.0) -> NDArray[np.float64]:
        """Return a map in which each leaf spreads what it adds to the baseline by itself.

        Where parts speak for themselves, a thing then shows the same however many others there are;
        `attribution()` shares the score among them. `smooth` is as there.
        """
        return smoothed(self._paint(lambda leaf: self._parts[leaf].alone / leaf.size), smooth)

    def boxes(self, *, merge: bool = True) -> list[Finding]:
        """Return the boxes around what was found, the highest score first.

        `merge` joins leaves that touch; a box then goes around all of them.
        """
        pieces = [
            (bounds, self._parts[leaf].coefficient)
            for leaf in self.leaves
            for bounds in blocks(leaf, self.grid)
        ]
        groups = [[i] for i in range(len(pieces))]
        if merge:
            groups = touching([bounds for bounds, _ in pieces], self.leaves, self.grid)
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
        """Return what is found at the sizes that regions of this run have, the finest first.

        The first is the run as it is; each equals `at(min_area=...)`. No model call is made. At
        most 64 sizes are taken, evenly.
        """
        every = [part.size for game in self.games for part in (game.region, *game.children)]
        inner = self.settings.get("partition", {})
        while "partition" in inner:  # the one that another moves
            inner = inner["partition"]
        least = inner.get("min_area")
        own = max(min(every), least if isinstance(least, int) else 1)
        coarser = np.unique([game.region.size for game in self.games if game.region.size > own])
        few = np.unique(np.linspace(0, len(coarser) - 1, MOST_SIZES).astype(int))
        chosen = [own, *coarser[few].tolist()] if len(coarser) else [own]
        return tuple(_reading(area, self.at(min_area=area)) for area in chosen)

    @cached_property
    def audit(self) -> Audit:
        """How far the model is from the paper's assumption here, and a bound on what was dropped.

        `print(explanation.audit)` says it in words.
        """
        return audit(self.games, self.leaves, self._found)

    def bounds(self) -> NDArray[np.float64]:
        """Return a map of the most that dropped parts add alone, if the model is monotone.

        NaN on the leaves, which were not dropped. `audit` says whether the model was seen not to be
        monotone.
        """
        out = np.full(self.grid, np.nan)
        for part, bound in dropped(self.games, self.leaves):
            out[part.index] = bound
        return out

    def plot(
        self,
        image: Any = None,
        *,
        heat: NDArray[Any] | None = None,
        outlines: bool = True,
        title: str | None = None,
        ax: Any = None,
    ) -> Any:
        """Return a matplotlib figure: the map over the image, the tree's outlines, a colour bar.

        `heat` is the map to show, by default `coefficients()`; `ax` are axes of yours to draw on.
        `hshap.plot` has more: `compare` for maps of several methods, `curves` for ablation.
        """
        shown = self.coefficients() if heat is None else np.asarray(heat)
        if shown.shape != self.grid:
            message = f"heat has shape {shown.shape}; pass a map of shape {self.grid}"
            raise ArgumentError(message)
        parts = [part for game in self.games for part in game.children]
        return draw(
            image,
            shown,
            visited=self._numbered(parts) if outlines else None,
            found=self._numbered(self.leaves) if outlines else None,
            title=as_text(self) if title is None else title,
            ax=ax,
        )

    def plot_tree(self, *, title: str | None = None, ax: Any = None) -> Any:
        """Return a matplotlib figure of the tree: what was split, what was kept and its worth."""
        seen, text = list(self._parts.values()), as_text(self) if title is None else title
        return tree(seen, set(self.leaves), title=text, ax=ax)

    def plot_levels(self, image: Any = None, *, most: int = 6, figure: Any = None) -> Any:
        """Return a matplotlib figure of the tree's levels side by side, down to the leaves.

        A level shows the coefficients of all parts that were scored there, and of leaves above it.
        Of more than `most` levels, some are left out evenly.
        """
        count = checks.integer("most", most, minimum=1)
        deepest = max(part.depth for part in self._parts.values())
        chosen = np.unique(np.linspace(deepest, min(deepest, 1), count).astype(int))
        maps = {f"level {depth}": self._level(depth) for depth in chosen.tolist()}
        return levels(image, maps, title=as_text(self), figure=figure)

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one compressed file, without pickle."""
        storage.write(path, self)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Explanation:
        """Read what `save` wrote. Regions compare equal to the saved ones."""
        return cls(**storage.read(path))

    def __repr__(self) -> str:
        return f"<Explanation: {as_text(self)}>"

    def _repr_html_(self) -> str:
        return as_html(self)

    def _numbered(self, regions: Sequence[Region]) -> NDArray[np.intp]:
        """Return the number of the last region that holds each pixel, from 1 on; 0 if none does."""
        out = np.zeros(self.grid, dtype=np.intp)
        for number, region in enumerate(regions, start=1):
            out[region.index] = number
        return out

    def _level(self, depth: int) -> NDArray[np.float64]:
        out, kept = np.zeros(self.grid), set(self.leaves)
        for part in self._parts.values():
            if part.depth == depth or (part.depth < depth and part.region in kept):
                out[part.region.index] = part.coefficient
        return out

    def _paint(self, value: Callable[[Region], float]) -> NDArray[np.float64]:
        out = np.zeros(self.grid)
        for leaf in self.leaves:
            out[leaf.index] = value(leaf)
        return out

    @cached_property
    def _found(self) -> float:
        return sum(self._parts[leaf].share for leaf in self.leaves)

    @cached_property
    def _parts(self) -> dict[Region, Part]:
        return parts(self.games, draws=self.draws)


def _reading(area: int, read: Explanation) -> Reading:
    found = sum(leaf.size for leaf in read.leaves) / prod(read.grid)
    return Reading(area, found, read.games[0].total - read.residual)


def _around(pieces: list[tuple[Any, float]]) -> Finding:
    starts, stops = zip(*(bounds for bounds, _ in pieces), strict=True)
    return Finding(
        tuple(map(min, zip(*starts, strict=True))),
        tuple(map(max, zip(*stops, strict=True))),
        max(score for _, score in pieces),
    )
