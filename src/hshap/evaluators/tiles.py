"""Tiles: how a large image is cut into squares, and how their scores make one score."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError
from hshap.evaluators.bags import Bags
from hshap.evaluators.outputs import as_scores

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from hshap._util.types import Array, Grid, Heat, Image

Background: TypeAlias = "float | Callable[[Image], bool]"
"""A tile is background if its values differ by at most this, or if the function says so."""


def as_they_are(values: Array) -> Array:
    """Return the values unchanged: scores of tiles are pooled as the model gives them."""
    return values


def to_unit(pixels: Array) -> Array:
    """Return integers divided by the largest value of their type, and floats as they are.

    >>> to_unit(np.array([0, 51, 255], np.uint8)).tolist()
    [0.0, 0.20000000298023224, 1.0]
    """
    if pixels.dtype.kind == "f":
        return pixels.astype(np.float32, copy=False)
    most = 1 if pixels.dtype.kind == "b" else np.iinfo(pixels.dtype).max
    return pixels.astype(np.float32) / np.float32(most)


BEST_TILE = Bags(as_they_are, as_they_are, pool="max")
"""The score of an image is that of its best tile, for each output of the model."""


@recipe
class Tiles:
    """How a large image is cut into tiles, and how their outputs make the score of the image.

    `side` is the side of a tile in pixels, which the model must take. Neighbouring tiles share
    `overlap` pixels, so that an object up to that size lies whole in one of them. `bags` pools the
    outputs of the model over tiles; by default the image scores as its best tile does, for each
    output. The last tiles of a row or column are filled up with the baseline.

    `background` leaves out tiles before the model sees them: a number skips those in which no
    channel varies by more than this, a function `(tile) -> bool` those for which it returns True.
    They count as hidden. By default no tile is left out. At most `max_tiles` found tiles are
    looked into, the strongest first. `level` is the resolution that tiles are read at; 0 is the
    full one. `prepare` turns the pixels of the file `(channels, rows, columns)` into the floats
    that the model takes; by default integers are scaled to 0 to 1.

    >>> Tiles(side=256, overlap=32).grid((1000, 500))
    (5, 3)
    """

    side: int = 512
    overlap: int = 0
    bags: Bags = BEST_TILE
    background: Background | None = None
    max_tiles: int = 100
    level: int = 0
    prepare: Callable[[Array], ArrayLike] = to_unit

    def __post_init__(self) -> None:
        settle(
            self,
            side=checks.integer("side", self.side, minimum=1),
            overlap=checks.integer("overlap", self.overlap, minimum=0),
            max_tiles=checks.integer("max_tiles", self.max_tiles, minimum=1),
            level=checks.integer("level", self.level, minimum=0),
        )
        if self.overlap > self.side // 2:
            message = (
                f"overlap={self.overlap} is more than half of side={self.side}; pass at most "
                f"{self.side // 2}"
            )
            raise ArgumentError(message)
        check_bags(self.bags)
        if isinstance(self.prepare, type) or not callable(self.prepare):
            message = (
                f"prepare is {checks.shown(self.prepare)}; pass a function from pixels (channels, "
                "rows, columns) to floats"
            )
            raise ArgumentError(message)
        if self.background is not None and not callable(self.background):
            least = checks.number("background", self.background, minimum=0.0)
            settle(self, background=least)

    @property
    def stride(self) -> int:
        """Pixels from the start of a tile to that of the next."""
        return self.side - self.overlap

    def grid(self, size: Grid) -> Grid:
        """Return the rows and columns of tiles for an image of this height and width."""
        return tuple(max(1, -(-(length - self.overlap) // self.stride)) for length in size)

    def corner(self, place: Grid) -> Grid:
        """Return the first pixel of the tile at a row and column."""
        return tuple(at * self.stride for at in place)

    def is_background(self, tile: Image) -> bool:
        """Return whether a tile is left out."""
        if self.background is None:
            return False
        if callable(self.background):
            return bool(self.background(tile))
        flat = tile.reshape(len(tile), -1)
        return float((flat.max(axis=1) - flat.min(axis=1)).max()) <= self.background

    def prepared(self, pixels: Array) -> Image:
        """Return the pixels of a tile as the model takes them."""
        made = to_numpy("prepare's answer", self.prepare(pixels))
        if made.ndim != 3 or made.shape[1:] != pixels.shape[1:] or made.dtype.kind != "f":
            message = (
                f"prepare returned {made.dtype} of shape {made.shape} for pixels of shape "
                f"{pixels.shape}; it must return floats (channels, {pixels.shape[1]}, "
                f"{pixels.shape[2]})"
            )
            raise ArgumentError(message)
        return made


def check_bags(bags: object) -> None:
    """Refuse anything but `Bags`."""
    if not isinstance(bags, Bags):
        message = f"bags is {checks.shown(bags)}; pass Bags(embed, head, pool)"
        raise ArgumentError(message)


@dataclass(frozen=True, eq=False)
class Pool:
    """The contributions of all tiles to one bag, `(*grid, width)`: `shown`, and `hidden`."""

    bags: Bags
    shown: Heat
    hidden: Heat

    @classmethod
    def of(cls, bags: Bags, outputs: Heat, hidden: Heat) -> Pool:
        """Return the pool of outputs of the model `(*grid, classes)`."""
        return cls(bags, embedded(bags, outputs), embedded(bags, hidden))

    @property
    def whole(self) -> Heat:
        """The outputs of the whole image `(1, classes)`."""
        flat = self.shown.reshape(-1, self.shown.shape[-1])
        bag = flat.sum(axis=0) if self.bags.pool == "sum" else flat.max(axis=0)
        return outputs_of(self.bags, bag[None])

    @cached_property
    def rest(self) -> Heat:
        """For each tile, the bag of all others, hidden: `(*grid, width)`."""
        return (_sum_of_others if self.bags.pool == "sum" else _max_of_others)(self.hidden)

    def alone(self) -> Heat:
        """Return the outputs `(*grid, classes)` of the image with one tile shown at a time."""
        return joined(self.bags, self.shown, self.rest)


def embedded(bags: Bags, outputs: Heat) -> Heat:
    """Return the contributions to the bag of outputs `(..., classes)`."""
    # A copy: the function may write to its input.
    tiles = outputs.reshape(-1, outputs.shape[-1]).copy()
    made = to_numpy("embed's answer", bags.embed(tiles))
    if made.ndim != 2 or len(made) != len(tiles):
        message = (
            f"embed returned shape {made.shape} for {len(tiles)} tiles; it must return "
            f"({len(tiles)}, width)"
        )
        raise ArgumentError(message)
    return made.astype(np.float64).reshape(*outputs.shape[:-1], -1)


def joined(bags: Bags, contributions: Heat, rest: Heat) -> Heat:
    """Return the outputs `(..., classes)` of bags that hold one tile each, and a rest."""
    join = np.add if bags.pool == "sum" else np.maximum
    made = join(contributions, rest)
    flat = outputs_of(bags, made.reshape(-1, made.shape[-1]))
    return flat.reshape(*made.shape[:-1], -1)


def outputs_of(bags: Bags, made: Heat) -> Heat:
    """Return the outputs `(n, classes)` of bags `(n, width)`."""
    return as_scores(bags.head(made), len(made))


def _sum_of_others(values: Heat) -> Heat:
    """Return, for each tile, the sum over all other tiles.

    Those before and those after it: to subtract it from all would cancel the digits of the others.
    """
    flat = values.reshape(-1, values.shape[-1])
    out = np.zeros_like(flat)
    out[1:] += np.cumsum(flat[:-1], axis=0)
    out[:-1] += np.cumsum(flat[:0:-1], axis=0)[::-1]
    return out.reshape(values.shape)


def _max_of_others(values: Heat) -> Heat:
    """Return, for each tile, the largest value over all other tiles."""
    flat = values.reshape(-1, values.shape[-1])
    if len(flat) == 1:
        return np.full_like(values, -np.inf)
    ordered = np.sort(flat, axis=0)
    is_best = np.arange(len(flat))[:, None] == flat.argmax(axis=0)
    return np.where(is_best, ordered[-2], ordered[-1]).reshape(values.shape)
