"""Large images on the page: tiles are read as they are written, so memory does not grow with size.

The coarse levels are complete. The fine ones have tiles only around findings, since a page with all
pixels of a slide would be as large as the slide.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.raster import png
from hshap.errors import ArgumentError
from hshap.explanation.findings import finding_score
from hshap.explanation.tiled import TiledExplanation
from hshap.export.page.picture import BYTES, LEVELS, TILE, Shown, encoded, halved, sizes_of
from hshap.export.placed_findings import outlines
from hshap.formats.overview import samples
from hshap.formats.reading import opened

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from hshap._util.types import Array, Grid, Json
    from hshap.explanation.tiled import Leaf
    from hshap.export.page.picture import Pixels
    from hshap.formats.large_images import LargeImage

COMPLETE = 2**24
"""Pixels of the finest level that is written as a whole."""

MOST_CORNERS = 20_000
"""Corners of the outlines of one class; the findings with more than that are shown as boxes."""

Place = tuple[int, int, int]
"""Level, row and column of a tile of the page."""


class LargePicture:
    """A large image for the browser, with the outlines that were found in it."""

    def __init__(self, image: LargeImage, found: Mapping[str, TiledExplanation]) -> None:
        self._image, self._found = image, found
        self.shape = image.shape
        self.levels = sizes_of(image.shape[1:])
        self._shown = _shade(image)
        self._complete = next(n for n, size in enumerate(self.levels) if prod(size) <= COMPLETE)
        self._done: set[Place] = set()

    def table(self) -> dict[str, Json]:
        """Return the facts that the page needs to show it."""
        return {
            **self._shown.table(),
            "levels": self.levels,
            "complete": self._complete,
            "present": sorted(_name(place) for place in self._detailed),
        }

    def samples(self) -> Iterator[Array]:
        """Yield some of the pixels, by which the page knows an image: all would take too long."""
        yield from (found.thumbnail for found in self._found.values())
        yield from samples(self._image)

    def thumb(self) -> bytes:
        """Return a small picture as a PNG file."""
        return png(np.ascontiguousarray(next(iter(self._found.values())).thumbnail))

    def marks(self, name: str) -> list[Json]:
        """Return the polygons of the findings of a class: x and y in turns."""
        leaves = self._found[name].leaves
        out: list[Json] = []
        left = MOST_CORNERS
        for leaf in sorted(leaves, key=_strength, reverse=True):
            rings = [
                [number for corner in ring for number in corner]
                for polygon in outlines(leaf.region, leaf.explanation.placement)
                for ring in polygon
            ]
            corners = sum(map(len, rings)) // 2
            if corners > left:
                rings = [_box(rings)]
            left -= min(corners, left)
            out.append(rings)
        return out

    def tiles(self) -> Iterator[tuple[str, bytes]]:
        """Yield the name of each tile, level-row-column, and its bytes."""
        yield from self._built(len(self.levels) - 1, 0, 0)
        # A level that the file has needs none of the finer ones: these come by themselves.
        for place in sorted(self._detailed):
            if place not in self._done:
                yield from self._built(*place)

    def _built(
        self, level: int, row: int, column: int
    ) -> Generator[tuple[str, bytes], None, Pixels]:
        """Yield a tile and all that it is made of, and return its pixels."""
        start, stop = self._box(level, row, column)
        stored = self._stored.get(level)
        if stored is not None:
            pixels = self._read(stored, start, stop)
        else:
            below = self.levels[level - 1]
            first = [2 * at for at in start]
            last = [min(2 * at, side) for at, side in zip(stop, below, strict=True)]
            size = [b - a for a, b in zip(first, last, strict=True)]
            dtype = np.uint8 if self._shown.is_colour else self._shown.pixels.dtype
            whole = np.zeros((*size, 3) if self._shown.is_colour else size, dtype)
            for at in (2 * row, 2 * row + 1):
                for beside in (2 * column, 2 * column + 1):
                    (top, left), (bottom, right) = self._box(level - 1, at, beside)
                    if top < bottom and left < right:
                        part = yield from self._built(level - 1, at, beside)
                        a, b = top - first[0], left - first[1]
                        whole[a : a + part.shape[0], b : b + part.shape[1]] = part
            pixels = halved(cast("Pixels", whole))
        place = (level, row, column)
        if (level >= self._complete or place in self._detailed) and place not in self._done:
            self._done.add(place)
            yield _name(place), self._encoded(pixels)
        return pixels

    def _box(self, level: int, row: int, column: int) -> tuple[list[int], list[int]]:
        start = [row * TILE, column * TILE]
        ends = zip(start, self.levels[level], strict=True)
        return start, [min(at + TILE, side) for at, side in ends]

    @cached_property
    def _stored(self) -> dict[int, int]:
        """The levels of the page that the file has, up to a pixel at the border, by number."""
        out = {0: 0}
        for number, size in enumerate(self._image.levels[1:], start=1):
            for level, own in enumerate(self.levels):
                if all(abs(a - b) <= 1 for a, b in zip(size, own, strict=True)):
                    out[level] = number
        return out

    def _read(self, stored: int, start: Sequence[int], stop: Sequence[int]) -> Pixels:
        size = self._image.levels[stored]
        inside = [min(at, side) for at, side in zip(stop, size, strict=True)]
        pixels = self._image.read(start, inside, stored)
        missing = [b - a for a, b in zip(inside, stop, strict=True)]
        if any(missing):
            pixels = np.pad(pixels, [(0, 0), *((0, more) for more in missing)], mode="edge")
        return _toned(pixels, self._shown)

    def _encoded(self, pixels: Pixels) -> bytes:
        if self._shown.is_colour:
            return png(np.ascontiguousarray(cast("Array", pixels)), effort=1)
        return encoded(pixels, 1)

    @cached_property
    def _detailed(self) -> set[Place]:
        """The tiles of fine levels that show the surroundings of findings."""
        out: set[Place] = set()
        whole = self.levels[0]
        for found in self._found.values():
            for one in found.inside:
                touched = one.placement.pixels((0, 0), one.grid)
                if touched is None:
                    continue
                for level in range(self._complete):
                    size = self.levels[level]
                    low, high = (
                        [at * b // a for at, a, b in zip(corner, whole, size, strict=True)]
                        for corner in (touched[0], [at - 1 for at in touched[1]])
                    )
                    for row in range(low[0] // TILE, high[0] // TILE + 1):
                        for column in range(low[1] // TILE, high[1] // TILE + 1):
                            out.add((level, row, column))
        return out


def _name(place: Place) -> str:
    return "-".join(map(str, place))


def _strength(leaf: Leaf) -> float:
    return finding_score(leaf.explanation, [leaf.region])


def _box(rings: Sequence[Sequence[float]]) -> list[float]:
    """Return the ring of the box around some rings."""
    x = [number for ring in rings for number in ring[::2]]
    y = [number for ring in rings for number in ring[1::2]]
    left, top, right, bottom = min(x), min(y), max(x), max(y)
    return [left, top, right, top, right, bottom, left, bottom]


def _shade(image: LargeImage) -> Shown:
    """Return how the numbers of an image are shown, as far as some of its pixels tell."""
    none = np.zeros((0, 0), np.uint16)
    colour = image.shape[0] in {3, 4}
    if image.dtype == np.uint8:
        return Shown(np.zeros((0, 0), np.uint8), is_colour=colour)
    ends = [(float(np.nanmin(some)), float(np.nanmax(some))) for some in samples(image)]
    low, high = min(a for a, _ in ends), max(b for _, b in ends)
    window = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    if colour:
        return Shown(np.zeros((0, 0), np.uint8), window=window, is_colour=True)
    if image.dtype == np.uint16:
        return Shown(none, 0.0, 1.0, window, high)
    return Shown(none, low, (high - low) / (LEVELS - 1) or 1.0, window, high)


def _toned(pixels: Array, shown: Shown) -> Pixels:
    """Return pixels `(channels, height, width)` as the page stores them."""
    if shown.is_colour:
        colours = np.moveaxis(pixels[:3], 0, -1)
        if colours.dtype == np.uint8:
            return colours
        low, high = shown.window
        numbers = np.nan_to_num((colours.astype(np.float32) - low) / (high - low or 1.0))
        return np.rint(255 * np.clip(numbers, 0, 1)).astype(np.uint8)
    plane = pixels[0] if len(pixels) == 1 else pixels.mean(axis=0)
    if shown.pixels.dtype == np.uint8 and shown.window == BYTES:
        return np.rint(plane).astype(np.uint8)
    numbers = np.nan_to_num((plane.astype(np.float64) - shown.low) / shown.step)
    return np.rint(np.clip(numbers, 0, LEVELS - 1)).astype(np.uint16)


def tile_pixels(image: LargeImage, one: TiledExplanation, number: int) -> Array:
    """Return the pixels of a found tile `(channels, side, side)`; 0 beyond the image."""
    rows, columns = divmod(one.inside[number].position, one.scores.shape[1])
    stride = one.side - one.overlap
    start = (rows * stride, columns * stride)
    size: Grid = image.levels[one.level]
    stop = [min(at + one.side, side) for at, side in zip(start, size, strict=True)]
    pixels = image.read(start, stop, one.level)
    missing = [one.side - side for side in pixels.shape[1:]]
    return np.pad(pixels, [(0, 0), *((0, more) for more in missing)])


def check_found(found: object, image: LargeImage) -> Mapping[str, TiledExplanation]:
    """Return results of `explain_tiles` by class, or refuse others, and those of other images."""
    named = cast("Mapping[str, object]", found) if isinstance(found, Mapping) else {}
    if not named or not all(isinstance(one, TiledExplanation) for one in named.values()):
        message = (
            f"found is {checks.shown(found)}; pass a dictionary from class names to results of "
            "explain_tiles"
        )
        raise ArgumentError(message)
    given = cast("Mapping[str, TiledExplanation]", named)
    for name, one in given.items():
        if one.shape != image.shape[1:] or one.level >= len(image.levels):
            message = (
                f"found[{name!r}] is of an image of {one.shape}, but {image.name} has "
                f"{image.shape[1:]}; pass the image that was explained"
            )
            raise ArgumentError(message)
    return given


@contextmanager
def checked(
    image: object, found: object
) -> Generator[tuple[LargeImage, Mapping[str, TiledExplanation]]]:
    """Open an image and check that the results are its own."""
    with opened(image) as large:
        yield large, check_found(found, large)
