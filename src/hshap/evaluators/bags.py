"""Bags: multiple-instance models, explained on features that were computed once.

A slide is cut into tiles, an encoder computes the features of each tile, and the score comes from a
sum or a maximum over tiles. Showing some tiles and hiding others changes only that sum or maximum:
no encoder runs, and no input is painted.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.cache import BoundedCache, ByIdentity
from hshap._util.recipes import recipe
from hshap.errors import ArgumentError
from hshap.evaluators.batch_independence import BatchIndependence
from hshap.evaluators.batch_size import BatchLimits
from hshap.evaluators.outputs import as_scores, naming_inputs
from hshap.evaluators.protocol import Provenance
from hshap.evaluators.runners import HIDDEN_PRECISION
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Array, Heat, Shape, Tensor
    from hshap.evaluators.canvas import Row
    from hshap.partitions.protocol import Coalition, Region

    ArrayFunction: TypeAlias = Callable[[Array], Array]

LARGEST_BATCH = 1024
MOST_SLIDES = 40
"""Slides whose embedded tiles are kept: more than a run works on at a time."""

POOLS = ("sum", "max")

LEAST_LEFT = 1 / 8
"""Share of a sum that must be left after a subtraction, which so costs three bits at most."""


@recipe
class Bags:
    """Score bags of tiles by the sum or the maximum of their features.

    The image is the grid of the tiles' features, `(features, *grid)`. `embed` turns tiles `(n,
    features)` into contributions to the bag `(n, width)`, and `head` turns bags `(n, width)` into
    scores `(n, classes)`; both take and return arrays. A bag is the sum of the contributions of its
    tiles, or with `pool="max"` their maximum. Hidden tiles have the baseline's features. An
    exception of `embed` or `head` becomes a `ModelFailedError`.

    A mean, and attention, is a ratio of two sums; the head divides:

    >>> def embed(tiles):
    ...     weights = np.exp(tiles[:, :1])
    ...     return np.concatenate([weights * tiles, weights], axis=1)
    >>> def head(bags):
    ...     return bags[:, :-1] / bags[:, -1:]
    >>> Bags(embed, head).pool
    'sum'
    """

    embed: ArrayFunction
    head: ArrayFunction
    pool: str = "sum"

    def __post_init__(self) -> None:
        for name in ("embed", "head"):
            value = getattr(self, name)
            if isinstance(value, type) or not callable(value):
                message = (
                    f"{name} must be a function of arrays, got {checks.shown(value)}; pass one"
                )
                raise ArgumentError(message)
        if self.pool not in POOLS:
            message = (
                f"pool must be one of {', '.join(POOLS)}, got {self.pool!r}; pass one of these"
            )
            raise ArgumentError(message)

    def open_session(self) -> BagSession:
        """Start a run."""
        return BagSession(self)


class BagSession:
    """Pools the tiles that are shown; the pooled value of a region is computed once."""

    def __init__(self, bags: Bags, *, max_slides: int = MOST_SLIDES) -> None:
        self._bags = bags
        self._slides = BoundedCache[_Slide](max_slides)
        self._limits = BatchLimits()
        self._independence = BatchIndependence(HIDDEN_PRECISION)
        self._scored = Counter[int]()

    def provenance(self, position: int) -> Provenance:
        """Return how the scores of an image were made so far."""
        return Provenance(full=self._scored[position], batches=self._independence.outcome)

    def put(self, array: Array) -> Tensor:
        return array

    def capacity(self, shape: Shape, itemsize: int) -> int:
        del itemsize
        if self._independence.run_alone:
            return 1
        return min(LARGEST_BATCH, self._limits.get(shape) or LARGEST_BATCH)

    def score(self, rows: Sequence[Row]) -> Heat:
        scores = self._limits.scores(
            rows, lambda batch: self._independence.scores(batch, self._run)
        )
        self._scored.update(row.canvas.position for row in rows)
        return scores

    def _run(self, rows: Sequence[Row]) -> Heat:
        bags = np.stack([self._bag(row) for row in rows])
        with naming_inputs(rows):
            return as_scores(self._bags.head(bags), len(rows))

    def _bag(self, row: Row) -> Heat:
        shown = self._slide(row.canvas.image, row)
        hidden = self._slide(row.canvas.stand_ins(row.kept, row.draw), row)
        parts = [shown.pooled(region) for region in row.kept]
        if self._bags.pool == "sum" and hidden.leaves_enough(row.kept):
            kept = sum(hidden.pooled(region) for region in row.kept)
            parts.append(hidden.pooled(None) - kept)
        else:
            outside = hidden.tiles[~mask(row.kept, row.canvas.grid)]
            if len(outside):
                parts.append(hidden.pool.reduce(outside, axis=0))
        return hidden.pool.reduce(parts, axis=0)

    def _slide(self, features: Array, row: Row) -> _Slide:
        key = ByIdentity(features)
        slide = self._slides.get(key)
        if slide is None:
            with naming_inputs([row]):
                slide = self._embed(features)
            self._slides.put(key, slide)
        return slide

    def _embed(self, features: Array) -> _Slide:
        grid = features.shape[1:]
        # A copy: the function may write to its input, which is the caller's image.
        tiles = features.reshape(len(features), -1).T.copy()
        made = to_numpy("embed's answer", self._bags.embed(tiles))
        if made.ndim != 2 or len(made) != prod(grid):
            message = (
                f"embed returned shape {made.shape} for {prod(grid)} tiles; "
                f"it must return ({prod(grid)}, width)"
            )
            raise ArgumentError(message)
        contributions = made.astype(np.float64).reshape(*grid, -1)
        return _Slide(contributions, np.add if self._bags.pool == "sum" else np.maximum)


class _Slide:
    """The contribution of each tile of a slide, `(*grid, width)`, pooled by regions."""

    def __init__(self, tiles: Heat, pool: np.ufunc) -> None:
        self.tiles, self.pool = tiles, pool
        self._pooled: dict[Region | None, Heat] = {}
        self._sizes: dict[Region | None, Heat] = {}

    def pooled(self, region: Region | None) -> Heat:
        """Return the sum or the maximum over the tiles of a region; None stands for all tiles."""
        if region not in self._pooled:
            self._pooled[region] = self.pool.reduce(self._flat(region), axis=0)
        return self._pooled[region]

    def leaves_enough(self, kept: Coalition) -> bool:
        """Tell whether the sum over all other tiles may be that of all tiles minus these.

        Sums are of sizes, without signs. Where a few tiles are nearly all of a sum, as one with a
        high weight of attention, the difference would be its rounding error.
        """
        whole = self._size(None)
        return bool(np.all(whole - sum(map(self._size, kept)) >= LEAST_LEFT * whole))

    def _size(self, region: Region | None) -> Heat:
        if region not in self._sizes:
            self._sizes[region] = np.abs(self._flat(region)).sum(axis=0)
        return self._sizes[region]

    def _flat(self, region: Region | None) -> Heat:
        chosen = self.tiles if region is None else self.tiles[region.index]
        return chosen.reshape(-1, self.tiles.shape[-1])
