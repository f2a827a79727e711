"""The result of explaining a large image: a game over its tiles, and explanations inside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.explanation import storage
from hshap.explanation.concerns import Concern, HowSure, how_sure, in_order
from hshap.explanation.display import map_as_html
from hshap.explanation.join_tiles import joined, pieces_of, without_copies
from hshap.games.tree import shares, sources, sources_held
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from os import PathLike

    from numpy.typing import NDArray

    from hshap._util.types import Grid, Heat, Mask
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.findings import Finding
    from hshap.explanation.join_tiles import Piece
    from hshap.partitions.protocol import Region

MOST_PIXELS = 2**27
"""Pixels of a map that is asked for: one gigabyte."""


class Leaf(NamedTuple):
    """A relevant region inside a tile, with the explanation of the tile, and its share."""

    explanation: Explanation
    region: Region
    share: float


def tiles_of(leaves: Sequence[Region]) -> Iterator[Grid]:
    """Yield the row and column of every tile in some regions of the grid of tiles."""
    for leaf in leaves:
        if isinstance(leaf, Box):
            yield from product(*map(range, leaf.start, leaf.stop))


@dataclass(frozen=True, eq=False, repr=False)
class TiledExplanation:
    """The regions of a large image that drive the score of a model which pools over tiles.

    `tiles` is the explanation over the grid of tiles, at its place in the whole image. `inside`
    are the explanations of the tiles that it found, the strongest first. Each has its `position`,
    the number of its tile row by row, and its `placement` in the whole image. `scores` is the
    score that each tile adds by itself, `(rows, columns)`. `skipped` is True on tiles that were
    left out as background. `evaluations` counts the inputs of the model in both stages.
    `thumbnail` is a small picture in bytes.

    >>> import hshap
    >>> image = np.zeros((1, 64, 64))
    >>> image[0, 40, 21] = 1.0
    >>> explainer = hshap.Explainer(
    ...     hshap.demo.brightest,
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ... )
    >>> tiles = hshap.large.Tiles(side=16)
    >>> found = hshap.large.explain_tiles(explainer, image, target=0, tiles=tiles)
    >>> found.shape, found.scores.shape, len(found.inside)
    ((64, 64), (4, 4), 1)
    >>> found.boxes()
    [Finding(start=(40, 21), stop=(41, 22), score=1.0)]
    >>> found.attribution((40, 20), (41, 24))
    array([[0., 1., 0., 0.]])
    """

    name: str
    tiles: Explanation
    inside: tuple[Explanation, ...]
    scores: Heat
    skipped: Mask
    side: int
    overlap: int
    level: int
    pixel_size: tuple[float, ...] | None
    thumbnail: NDArray[np.uint8]
    evaluations: int
    seconds: float

    @property
    def shape(self) -> Grid:
        """Height and width of the whole image."""
        return self.tiles.placement.shape

    @property
    def target(self) -> int | str:
        """The explained number."""
        return self.tiles.target

    @property
    def score(self) -> float:
        """The score of the whole image."""
        return self.tiles.score

    @property
    def baseline_score(self) -> float:
        """The score with every tile hidden."""
        return self.tiles.baseline_score

    @property
    def unexplained(self) -> int:
        """How many found tiles were not explained, because `max_tiles` was reached."""
        found = [place for place in tiles_of(self.tiles.leaves) if not self.skipped[place]]
        return len(found) - len(self.inside)

    @property
    def concerns(self) -> tuple[Concern, ...]:
        """Reasons that change how to read this explanation: of the game over tiles, and of tiles.

        The gravest comes first.
        """
        out = [one for one in self.tiles.concerns if one.kind != "whole"]
        if self.unexplained:
            out.append(
                Concern(
                    "unfinished",
                    f"{self.unexplained} found tiles were not looked into",
                    "raise max_tiles (--max-tiles), or the tolerance",
                )
            )
        doubtful = [one.concerns[0] for one in self.inside if one.concerns]
        if doubtful:
            worst = in_order(doubtful)[0]
            text = (
                f"{len(doubtful)} of {len(self.inside)} found tiles have concerns of their own, "
                f"the gravest: {worst.text}"
            )
            out.append(Concern(worst.kind, text, worst.fix))
        return in_order(out)

    @property
    def how_sure(self) -> HowSure:
        """The verdict on this explanation in one word, the gravest reason, and the next step."""
        if not self.tiles.is_explained:
            return self.tiles.how_sure
        return how_sure(self.concerns, [one.certificate for one in (self.tiles, *self.inside)])

    def boxes(self, *, merge: bool = True) -> list[Finding]:
        """Return the boxes around the findings in pixels of the whole image, the strongest first.

        A finding that several overlapping tiles show is listed once. `merge` joins findings that
        touch, also across the border of two tiles.
        """
        if checks.flag("merge", merge):
            return joined(self._pieces)
        apart = [joined([piece]) for piece in self._pieces]
        return sorted((one for some in apart for one in some), key=lambda one: -one.score)

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The relevant regions inside tiles, without copies; each with its share of the score."""
        return tuple(
            Leaf(piece.explanation, leaf, self._factor(piece.explanation) * part.share)
            for piece in self._pieces
            for leaf in piece.leaves
            for part in (piece.explanation.parts[leaf],)
        )

    def attribution(self, start: Sequence[int], stop: Sequence[int]) -> Heat:
        """Return the map of the attribution in a region of the whole image.

        Over the whole image, its total is `score - baseline_score`, but for the shares of dropped
        parts. A tile holds as many sources of the score as were found inside it. Where tiles
        overlap, their maps are added.
        """
        size = [b - a for a, b in zip(start, stop, strict=True)]
        fits = all(0 <= a < b <= n for a, b, n in zip(start, stop, self.shape, strict=True))
        if not fits or np.prod(size, dtype=float) > MOST_PIXELS:
            message = (
                f"start={tuple(start)} to stop={tuple(stop)} is no region of up to "
                f"{MOST_PIXELS:,} pixels of the image of {self.shape}; pass a smaller one"
            )
            raise ArgumentError(message)
        out = np.zeros(size)
        for one in self.inside:
            _add(out, start, one, self._factor(one))
        return out

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one compressed file, without pickle; see `Explanation.save`."""
        storage.write_tiled(path, self)

    @classmethod
    def load(
        cls, path: str | PathLike[str], *, max_bytes: int = storage.MAX_BYTES
    ) -> TiledExplanation:
        """Read a file that `save` wrote. It need not be trusted; see `Explanation.load`."""
        return cls(**storage.read_tiled(path, max_bytes))

    def __repr__(self) -> str:
        return f"<TiledExplanation: {self._text()}>"

    def _repr_html_(self) -> str:
        return map_as_html(self.scores, self._text())

    def _text(self) -> str:
        """Return one line: findings, tiles and cost; and one for each concern."""
        rows, columns = self.scores.shape
        height, width = self.shape
        skipped = int(self.skipped.sum())
        left_out = f", {skipped} skipped as background" if skipped else ""
        found = len(self.inside) + self.unexplained
        line = (
            f"target {self.target}, {_count(len(self.boxes()), 'finding')} in {found} of "
            f"{rows * columns} tiles of {self.side} pixels{left_out}, image of {height} x {width}, "
            f"{_count(self.evaluations, 'evaluation')}, {self.seconds:.2f} s"
        )
        told = [str(self.how_sure), *(f"also: {one}" for one in self.concerns[1:])]
        is_told = self.concerns or not self.tiles.is_explained
        return "\n  ".join([line, *(told if is_told else ())])

    @cached_property
    def _pieces(self) -> list[Piece]:
        """The findings of all tiles, without copies."""
        rows, columns = self.scores.shape
        stride = self.side - self.overlap
        size = (rows * stride + self.overlap, columns * stride + self.overlap)
        pieces: list[Piece] = []
        for one in self.inside:
            row, column = divmod(one.position, columns)
            pieces += pieces_of(one, (row * stride, column * stride), size)
        return without_copies(pieces) if self.overlap else pieces

    def _factor(self, inside: Explanation) -> float:
        """Return the share of a tile in the whole score, for each unit of its own shares."""
        place = divmod(inside.position, self.scores.shape[1])
        region = self._owner[place]
        own, every = self.scores[place], self._sums[region]
        first = inside.games[0]
        # A share is divided among parts in proportion to their positive values.
        is_whole = first.region in inside.leaves or bool(first.contexts)
        divided = [inside.parts[part].share for part in first.children]
        unit = first.total if is_whole else sum(max(share, 0.0) for share in divided)
        if unit <= 0 or every <= 0:
            return 0.0
        return self._shares[region] * (own / every) / unit

    @cached_property
    def _shares(self) -> dict[Region, float]:
        """The share of each region of tiles, which holds the sources that were found inside."""
        held: dict[Region, float] = {}
        for one in self.inside:
            place = divmod(one.position, self.scores.shape[1])
            region = self._owner[place]
            alone = self.tiles.parts[region].alone
            part = min(max(float(self.scores[place]) / alone, 0.0), 1.0) if alone else 0.0
            count = sources_held(one.games).get(one.games[0].region, 1.0)
            held[region] = held.get(region, 0.0) + count * part
        inside = {region: max(count, 1.0) for region, count in held.items()}
        return shares(self.tiles.games, sources(self.tiles.games, inside))

    @cached_property
    def _owner(self) -> dict[Grid, Region]:
        """The leaf over tiles that each found tile lies in; nearly always the tile itself."""
        return {place: leaf for leaf in self.tiles.leaves for place in tiles_of([leaf])}

    @cached_property
    def _sums(self) -> dict[Region, float]:
        """For each leaf over tiles, the scores that its tiles add by themselves."""
        sums: dict[Region, float] = {}
        for place, leaf in self._owner.items():
            sums[leaf] = sums.get(leaf, 0.0) + float(self.scores[place])
        return sums


def _add(out: Heat, start: Sequence[int], one: Explanation, factor: float) -> None:
    """Add the map of a tile to that of a region which begins at `start`."""
    place = one.placement
    touched = place.pixels((0,) * len(one.grid), one.grid)
    if touched is None:
        return
    low = [max(a, b) for a, b in zip(start, touched[0], strict=True)]
    high = [min(a + n, b) for a, n, b in zip(start, out.shape, touched[1], strict=True)]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return
    heat = _placed(one)
    to = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, start, strict=True))
    of = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, touched[0], strict=True))
    out[to] += factor * heat[of]


def _placed(one: Explanation) -> Heat:
    """Return the attribution of a tile over the pixels of the whole image that it touches."""
    place = one.placement
    (top, left), (bottom, right) = place.pixels((0, 0), one.grid) or ((0, 0), (0, 0))
    local = one.placed(
        (bottom - top, right - left),
        start=(place.start[0] - top, place.start[1] - left),
        stop=(place.stop[0] - top, place.stop[1] - left),
    )
    return local.placement.spread(one.attribution())


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
