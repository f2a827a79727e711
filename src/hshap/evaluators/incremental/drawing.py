"""Drawing: windows of a tensor that is known in pieces, filled by few copies. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Sides: TypeAlias = tuple[int, ...]
"""One number for each spatial axis: a position, side lengths, strides, ..."""

LARGE_ROW = 2**18
"""Numbers in a row: in larger ones, no number is copied twice, which takes more calls."""


class Piece(NamedTuple):
    """A rectangle `(channels, *size)` of a tensor, and where it starts."""

    start: Sides
    data: torch.Tensor

    @property
    def size(self) -> Sides:
        """Side lengths of the rectangle."""
        return tuple(self.data.shape[1:])


@dataclass(frozen=True, eq=False)
class Tiled:
    """A tensor of a shape `(1, channels, *grid)` that is never put together.

    `tiles` cover it without overlap. Some may repeat one number, and take no memory for it.
    """

    shape: tuple[int, ...]
    tiles: tuple[Piece, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return self.tiles[0].data.dtype


Known: TypeAlias = torch.Tensor | Tiled
"""A tensor whose values are known everywhere."""


def tiles_of(known: Known) -> tuple[Piece, ...]:
    """Return pieces that cover the only row of a tensor without overlap."""
    if isinstance(known, Tiled):
        return known.tiles
    return (Piece((0,) * (known.ndim - 2), known[0]),)


def put_together(known: Known) -> torch.Tensor:
    """Return a tensor with all values in memory of its own."""
    if not isinstance(known, Tiled):
        return known.clone()
    out = empty(known.tiles[0].data[None], known.shape)
    draw(out[0], (0,) * (len(known.shape) - 2), known, (), 0.0)
    return out


def sums(known: Known) -> torch.Tensor:
    """Return the sums over all places, `(1, channels)`, in double precision."""
    total = 0
    for tile in tiles_of(known):
        axes, data, times = tuple(range(1, tile.data.ndim)), tile.data, 1
        for axis in axes:
            if data.stride(axis) == 0:  # one number, repeated
                times *= data.shape[axis]
                data = data.narrow(axis, 0, 1)
        total = total + times * data.double().sum(axes)
    return torch.as_tensor(total)[None]


def empty(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return an empty tensor with the type, the device and the memory layout of another."""
    # A part of a tensor with channels last is not contiguous, but its channels are neighbours.
    last = like.ndim == 4 and like.stride(1) == 1 and like.shape[1] > 1
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)


def draw(
    row: torch.Tensor, start: Sides, anchor: Known, pieces: Sequence[Piece], outside: float
) -> None:
    """Fill a window `(channels, *size)` that begins at `start`: the anchor, and pieces over it.

    Later pieces lie on top. Beyond the borders of the anchor, the window holds `outside`.
    """
    act = _draw_once if row.numel() > LARGE_ROW else _draw
    act(row, start, anchor, pieces, outside)


def _draw(
    row: torch.Tensor, start: Sides, anchor: Known, pieces: Sequence[Piece], outside: float
) -> None:
    """Fill a small window in few calls, so that some numbers are copied twice."""
    origin, size = (0,) * len(start), tuple(row.shape[1:])
    overlaps = [overlap(start, size, piece.start, piece.size) for piece in pieces]
    if not overlaps or overlaps[-1] != (origin, size):
        if overlap(start, size, origin, tuple(anchor.shape[2:])) != (origin, size):
            row.fill_(outside)
        for tile in tiles_of(anchor):
            _copy(row, tile.data, overlap(start, size, tile.start, tile.size), start, tile.start)
    for piece, part in zip(pieces, overlaps, strict=True):
        _copy(row, piece.data, part, start, piece.start)


def _draw_once(
    row: torch.Tensor, start: Sides, anchor: Known, pieces: Sequence[Piece], outside: float
) -> None:
    """Fill a large window, and copy no number that another one would cover."""
    left = [((0,) * len(start), tuple(row.shape[1:]))]
    for source in (*reversed(pieces), *tiles_of(anchor)):
        uncovered: list[tuple[Sides, Sides]] = []
        for first, size in left:
            there = tuple(a + b for a, b in zip(start, first, strict=True))
            part = overlap(there, size, source.start, source.size)
            if prod(part[1]):
                slab = row[(slice(None), *map(span, first, size))]
                _copy(slab, source.data, part, there, source.start)
            for low, length in _around(part, size):
                uncovered.append((tuple(a + b for a, b in zip(first, low, strict=True)), length))
        left = uncovered
    for first, size in left:
        row[(slice(None), *map(span, first, size))] = outside


def span(start: int, length: int) -> slice:
    """Return the slice of so many places."""
    return slice(start, start + length)


def overlap(start: Sides, size: Sides, other: Sides, length: Sides) -> tuple[Sides, Sides]:
    """Return the part of a rectangle that another one covers: its start, relative, and its size."""
    first: list[int] = []
    sides: list[int] = []
    # Loops, not generators: this runs several times for every layer and input.
    for a, n, b, m in zip(start, size, other, length, strict=True):
        low, high = max(a, b), min(a + n, b + m)
        first.append(low - a)
        sides.append(max(0, high - low))
    return tuple(first), tuple(sides)


def _around(part: tuple[Sides, Sides], size: Sides) -> Iterator[tuple[Sides, Sides]]:
    """Yield the slabs of a rectangle around a part of it: start and size of each, disjoint."""
    start, length = part
    if not prod(length):
        yield (0,) * len(size), size
        return
    for axis, (a, n, most) in enumerate(zip(start, length, size, strict=True)):
        # Before this axis as far as the part reaches, after it as far as the rectangle does.
        first, sides = start[:axis], length[:axis]
        later = (0,) * (len(size) - axis - 1), size[axis + 1 :]
        for low, high in ((0, a), (a + n, most)):
            if high > low:
                yield (*first, low, *later[0]), (*sides, high - low, *later[1])


def _copy(
    row: torch.Tensor,
    source: torch.Tensor,
    part: tuple[Sides, Sides],
    start: Sides,
    origin: Sides,
) -> None:
    """Copy a part of a row that begins at `start` from a source that begins at `origin`."""
    first, length = part
    if prod(length):
        places = [s + f - o for s, f, o in zip(start, first, origin, strict=True)]
        there = (slice(None), *map(span, places, length))
        row[(slice(None), *map(span, first, length))] = source[there]
