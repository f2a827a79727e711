"""Bags: multiple-instance models, explained on features that were computed once.

A slide is cut into tiles, an encoder gives each tile its features, and the score comes from a sum
or a maximum over tiles. Showing some tiles and hiding others changes only that: no encoder runs,
and no input is painted.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.recipes import recipe
from hshap.errors import ArgumentError
from hshap.evaluators.runners import as_scores
from hshap.partitions.regions import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hshap._util.types import Tensor
    from hshap.evaluators.canvas import Row
    from hshap.partitions.protocol import Region

ROWS = 1024
SLIDES = 40  # whose features are kept: more than a run has in hand at a time
POOLS = ("sum", "max")


@recipe
class Bags:
    """Score bags of tiles by what their features sum up to.

    The image is the grid of tiles' features, `(features, *grid)`. `embed` turns tiles `(n,
    features)` into what each adds to the bag `(n, width)`, and `head` bags `(n, width)` into scores
    `(n, classes)`; both get and give arrays. With `pool="max"` a bag holds the largest of each
    number instead of the sum. Hidden tiles have the baseline's features.

    Means and attention are sums of two things, whose ratio the head takes:

    >>> def embed(tiles):
    ...     weights = np.exp(tiles[:, :1])
    ...     return np.concatenate([weights * tiles, weights], axis=1)
    >>> def head(bags):
    ...     return bags[:, :-1] / bags[:, -1:]
    >>> Bags(embed, head).pool
    'sum'
    """

    embed: Callable[[Any], Any]
    head: Callable[[Any], Any]
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
    """Adds up what is shown; what a region adds is worked out once."""

    def __init__(self, bags: Bags) -> None:
        self._bags = bags
        self._slides: dict[int, _Slide] = {}

    def put(self, array: NDArray[Any]) -> Tensor:
        return array

    def capacity(self, shape: tuple[int, ...], itemsize: int) -> int:
        del shape, itemsize
        return ROWS

    def score(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        bags = np.stack([self._bag(row) for row in rows])
        return as_scores(self._bags.head(bags), len(rows))

    def _bag(self, row: Row) -> NDArray[np.float64]:
        shown = self._slide(row.canvas.image)
        hidden = self._slide(row.canvas.stand_ins(row.kept, row.draw))
        if self._bags.pool == "sum":
            bag = hidden.part(None).copy()
            for region in row.kept:
                bag += shown.part(region) - hidden.part(region)
            return bag
        parts = [shown.part(region) for region in row.kept]
        behind = hidden.tiles[~mask(row.kept, row.canvas.grid)]
        if len(behind):
            parts.append(behind.max(axis=0))
        return np.max(parts, axis=0)

    def _slide(self, whole: Tensor) -> _Slide:
        # The latest stays longest: a baseline is asked for by every image.
        slide = self._slides.pop(id(whole), None) or self._embedded(whole)
        self._slides[id(whole)] = slide
        while len(self._slides) > SLIDES:
            del self._slides[next(iter(self._slides))]
        return slide

    def _embedded(self, whole: Tensor) -> _Slide:
        grid = whole.shape[1:]
        made = to_numpy("embed's answer", self._bags.embed(whole.reshape(len(whole), -1).T))
        if made.ndim != 2 or len(made) != prod(grid):
            message = (
                f"embed returned shape {made.shape} for {prod(grid)} tiles; "
                f"it must return ({prod(grid)}, width)"
            )
            raise ArgumentError(message)
        tiles = made.astype(np.float64).reshape(*grid, -1)
        return _Slide(whole, tiles, np.sum if self._bags.pool == "sum" else np.max)


class _Slide:
    """What each tile of a slide adds `(*grid, width)`, and what regions of them amount to.

    The array it comes from is kept, so that nothing else can have its identity.
    """

    def __init__(self, whole: Tensor, tiles: NDArray[np.float64], pool: Callable[..., Any]) -> None:
        self.whole, self.tiles, self._pool = whole, tiles, pool
        self._parts: dict[Region | None, NDArray[np.float64]] = {}

    def part(self, region: Region | None) -> NDArray[np.float64]:
        """Return what the tiles of a region, or all, amount to."""
        if region not in self._parts:
            chosen = self.tiles if region is None else self.tiles[region.index]
            flat = chosen.reshape(-1, self.tiles.shape[-1])
            self._parts[region] = self._pool(flat, axis=0)
        return self._parts[region]
