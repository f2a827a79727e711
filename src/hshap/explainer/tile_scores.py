"""The scores of tiles: each is read once, and scored in batches; memory does not grow with size."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_floats
from hshap.baselines.protocol import IgnoresImage
from hshap.baselines.recipes import Constant
from hshap.errors import ArgumentError
from hshap.evaluators.canvas import Backdrop, Row
from hshap.explainer.tile_parts import ScoredPart
from hshap.formats.large_images import size_of_level
from hshap.formats.overview import Thumbnail, samples
from hshap.games.engine import Progress
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Heat, Image, Mask
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.canvas import Canvas
    from hshap.evaluators.protocol import Session
    from hshap.evaluators.tiles import Tiles
    from hshap.explainer import Explainer
    from hshap.explainer.tile_parts import Parts
    from hshap.formats.large_images import LargeImage

MOST_BYTES = 2**26
"""Bytes of tiles that are read for one call of the model."""


@dataclass(frozen=True, eq=False)
class TileReader:
    """Reads the tiles of a large image, as the model takes them."""

    image: LargeImage
    tiles: Tiles
    baseline: Baseline

    @property
    def size(self) -> Grid:
        """Height and width of the level that tiles are read at."""
        return size_of_level(self.image, self.tiles.level)

    @property
    def grid(self) -> Grid:
        """Rows and columns of tiles."""
        return self.tiles.grid(self.size)

    def raw(self, place: Grid) -> Array:
        """Return the pixels of a tile as far as it lies in the image."""
        start = self.tiles.corner(place)
        ends = zip(start, self.size, strict=True)
        stop = tuple(min(at + self.tiles.side, length) for at, length in ends)
        return self.image.read(start, stop, self.tiles.level)

    def tile(self, raw: Array) -> Image:
        """Return a whole tile; beyond the image it shows the baseline."""
        found = as_floats("prepare's answer", self.tiles.prepared(raw))
        missing = [self.tiles.side - length for length in found.shape[1:]]
        if not any(missing):
            return found
        whole = np.pad(found, [(0, 0), *((0, more) for more in missing)], mode="edge")
        out = Backdrop(self.baseline, np.asarray).hidden(whole).astype(found.dtype)
        out[:, : found.shape[1], : found.shape[2]] = found
        return out


@dataclass(frozen=True, eq=False)
class TileScores:
    """The model's outputs `(*grid, classes)` for each tile, and for the same tiles hidden.

    `skipped` is True on tiles that were left out as background; they have the outputs of hidden
    ones. `evaluations` counts the inputs of the model.
    """

    reader: TileReader
    outputs: Heat
    hidden: Heat
    skipped: Mask
    thumbnail: NDArray[np.uint8]
    evaluations: int
    seconds: float


def score_tiles(
    explainer: Explainer,
    image: LargeImage,
    tiles: Tiles,
    progress: Callable[[Progress], None] | None = None,
    parts: Parts | None = None,
) -> TileScores:
    """Score every tile of an image, batch by batch; tiles whose scores `parts` keeps are not."""
    reader = TileReader(image, tiles, _baseline(explainer, image, tiles))
    work = _Work(explainer.evaluator.open_session(), reader)
    places = list(np.ndindex(*reader.grid))
    kept = _Kept(work, parts, len(places))
    for start, batch in _batches(places, work):
        work.score(start, batch)
        kept.note(is_last=start + len(batch) == len(places))
        if progress is not None:
            progress(Progress(work.evaluations, 0, len(places) - start - len(batch)))
    outputs, hidden = work.finished()
    grid = reader.grid
    return TileScores(
        reader,
        outputs.reshape(*grid, -1),
        hidden.reshape(*grid, -1),
        np.array(work.skipped, dtype=bool).reshape(grid),
        work.thumbnail.picture(),
        work.evaluations,
        kept.seconds,
    )


def _batches(places: Sequence[Grid], work: _Work) -> Iterator[tuple[int, Sequence[Grid]]]:
    start = len(work.skipped)
    while start < len(places):
        batch = places[start : start + work.capacity()]
        yield start, batch
        start += len(batch)


class _Work:
    """The tiles that were scored so far."""

    def __init__(self, session: Session, reader: TileReader) -> None:
        self._session, self._reader = session, reader
        self._backdrop = Backdrop(reader.baseline, session.put)
        self._root = Box((0, 0), (reader.tiles.side,) * 2)
        self._outputs: list[Heat | None] = []
        self._hidden: list[Heat | None] = []
        self._one: Heat | None = None  # outputs of a hidden tile, if all look the same
        self._shape: tuple[int, ...] | None = None
        self._itemsize = 4
        self._is_shared = isinstance(reader.baseline, IgnoresImage)
        image = reader.image
        self.thumbnail = Thumbnail(image.shape[0], reader.size, image.dtype)
        self.skipped: list[bool] = []
        self.evaluations = 0

    def capacity(self) -> int:
        """Return how many tiles are read at a time; one, until their shape is known."""
        if self._shape is None:
            return 1
        by_memory = max(1, MOST_BYTES // (prod(self._shape) * self._itemsize))
        return max(1, min(by_memory, self._session.capacity(self._shape, self._itemsize)))

    def score(self, first: int, places: Sequence[Grid]) -> None:
        """Score the tiles at some places; the number of the first is given."""
        shown: list[Row] = []
        hidden: list[Row] = []
        slots: list[int] = []
        for offset, place in enumerate(places):
            raw = self._reader.raw(place)
            self.thumbnail.add(raw, self._reader.tiles.corner(place))
            tile = self._reader.tile(raw)
            self._shape, self._itemsize = tile.shape, tile.dtype.itemsize
            left_out = self._reader.tiles.is_background(tile)
            self.skipped.append(left_out)
            self._outputs.append(None)
            self._hidden.append(None)
            if left_out and (self._is_shared and self._one is not None):
                continue
            canvas = self._canvas(tile, first + offset)
            if not (self._is_shared and (self._one is not None or hidden)):
                hidden.append(Row(canvas, (), 0))
            if not left_out:
                shown.append(Row(canvas, (canvas.root,), 0))
                slots.append(first + offset)
        self._keep(slots, shown, hidden)

    def _canvas(self, tile: Image, position: int) -> Canvas:
        canvas = self._backdrop.canvas(tile, self._root, position)
        if canvas.draws > 1:
            message = (
                f"baseline={checks.shown(self._reader.baseline)} draws {canvas.draws} stand-ins; "
                "tiles are pooled once, so pass a baseline with one, such as Constant or Mean"
            )
            raise ArgumentError(message)
        return canvas

    def _keep(self, slots: Sequence[int], shown: Sequence[Row], hidden: Sequence[Row]) -> None:
        rows = [*shown, *hidden]
        most = self.capacity()
        scored = [
            self._session.score(rows[start : start + most]) for start in range(0, len(rows), most)
        ]
        if not scored:
            return
        made = np.concatenate(scored)
        self.evaluations += len(rows)
        for slot, output in zip(slots, made, strict=False):
            self._outputs[slot] = output
        for row, output in zip(hidden, made[len(shown) :], strict=True):
            self._hidden[row.canvas.position] = output
            self._one = output if self._is_shared else None

    def part(self, first: int, seconds: float) -> ScoredPart:
        """Return the scores of all tiles from a number on; `seconds` is the time they took."""
        outputs, hidden = self._outputs[first:], self._hidden[first:]
        return ScoredPart(
            first=np.array([first]),
            scored=_there(outputs),
            outputs=_stacked(outputs),
            bare=_there(hidden),
            hidden=_stacked(hidden),
            skipped=np.array(self.skipped[first:], dtype=np.uint8),
            thumbnail=np.frombuffer(self.thumbnail.pixels.tobytes(), np.uint8),
            tile=np.array([*(self._shape or ()), self._itemsize]),
            seconds=np.array([seconds]),
        )

    def take_over(self, part: ScoredPart) -> None:
        """Add the scores of the tiles that follow, as if they had been computed here."""
        for mine, there, values in (
            (self._outputs, part.scored, part.outputs),
            (self._hidden, part.bare, part.hidden),
        ):
            rows = iter(values)
            mine += [next(rows) if one else None for one in there.tolist()]
        self.skipped += part.skipped.astype(bool).tolist()
        self.evaluations += len(part.outputs) + len(part.hidden)
        if self._is_shared and len(part.hidden):
            self._one = part.hidden[-1]
        *shape, self._itemsize = part.tile.tolist()
        self._shape = tuple(shape)
        small = self.thumbnail.pixels
        small[...] = np.frombuffer(part.thumbnail.tobytes(), small.dtype).reshape(small.shape)

    def finished(self) -> tuple[Heat, Heat]:
        """Return the outputs of all tiles `(n, classes)`, and those of the same tiles hidden."""
        hidden = np.stack([self._one if one is None else one for one in self._hidden])  # pyright: ignore[reportArgumentType, reportCallIssue]
        outputs = [
            bare if own is None else own for own, bare in zip(self._outputs, hidden, strict=True)
        ]
        return np.stack(outputs), hidden


class _Kept:
    """Keeps the scores of tiles from time to time, and takes over those that are kept."""

    def __init__(self, work: _Work, parts: Parts | None, places: int) -> None:
        self._work, self._parts, self._number, self._before = work, parts, 0, 0.0
        picture = work.thumbnail.pixels.nbytes
        for part in () if parts is None else parts.scored():
            done = len(work.skipped)
            fits = part.first[0] == done and done + len(part.skipped) <= places
            if not fits or len(part.thumbnail) != picture:
                break
            work.take_over(part)
            self._number += 1
            self._before += float(part.seconds[0])
        self._first, self._since = len(work.skipped), time.perf_counter()

    @property
    def seconds(self) -> float:
        """The time that all tiles took, also in calls that were killed."""
        return self._before + time.perf_counter() - self._since

    def note(self, *, is_last: bool) -> None:
        """Keep the scores since the last time, if it is time, or if these were the last tiles."""
        passed = time.perf_counter() - self._since
        if self._parts is None or not (is_last or passed >= self._parts.every):
            return
        self._parts.keep_scores(self._number, self._work.part(self._first, passed))
        self._number, self._first = self._number + 1, len(self._work.skipped)
        self._before, self._since = self._before + passed, time.perf_counter()


def _there(rows: Sequence[Heat | None]) -> NDArray[np.uint8]:
    """Return 1 for each row that is there, and 0 for the others."""
    return np.array([row is not None for row in rows], dtype=np.uint8)


def _stacked(rows: Sequence[Heat | None]) -> Heat:
    """Return the rows that are there as one array; empty without any."""
    there = [row for row in rows if row is not None]
    return np.stack(there) if there else np.zeros((0, 0))


def _baseline(explainer: Explainer, image: LargeImage, tiles: Tiles) -> Baseline:
    """Return the one baseline of all tiles: that of the explainer, or the image's own colour."""
    given = explainer.baseline
    if isinstance(given, Sequence):
        message = f"baseline={checks.shown(given)} is several; pass one, so that all tiles share it"
        raise ArgumentError(message)
    if given is not None:
        return given
    size_of_level(image, tiles.level)  # refuses a level that is not there before pixels are read
    prepared = [tiles.prepared(pixels) for pixels in samples(image)]
    flat = np.concatenate([one.reshape(len(one), -1) for one in prepared], axis=1)
    return Constant(tuple(np.median(flat, axis=1).tolist()))
