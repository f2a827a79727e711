"""Windows of a tensor that is known in pieces: parts of pieces, of an anchor, and beyond borders.

Needs torch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from operator import add, lt
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


Sides: TypeAlias = tuple[int, ...]
"""One number for each spatial axis: a position, side lengths, strides, ..."""

Corners: TypeAlias = tuple[Sides, Sides]
"""The first place of a rectangle, and the place after its last one."""


ALL_CHANNELS = slice(None)


class KnownPiece(NamedTuple):
    """A rectangle of a tensor, in one row of `data`, whose first place is `origin`."""

    corners: Corners
    data: torch.Tensor
    row: int
    origin: Sides

    def cut(self, corners: Corners) -> torch.Tensor:
        """Return the numbers `(1, channels, *size)` of a part, in the same memory."""
        return self.data[self._index(corners)]

    def fill(self, corners: Corners, number: float) -> None:
        """Write one number everywhere in a part."""
        self.data[self._index(corners)] = number

    def copy(self, corners: Corners, source: KnownPiece) -> None:
        """Write a part of another piece into the same part of this one."""
        self.data[self._index(corners)] = source.cut(corners)

    def clipped(self, corners: Corners) -> KnownPiece | None:
        """Return the part of a piece inside of a rectangle; None if there is none."""
        met = meet(self.corners, corners)
        return None if met is None else self._replace(corners=met)

    def _index(self, corners: Corners) -> tuple[slice, ...]:
        low, high = corners
        row, origin = slice(self.row, self.row + 1), self.origin
        if len(low) == 2:  # pictures: twice as fast as a loop
            (top, left), (bottom, right), (y, x) = low, high, origin
            return row, ALL_CHANNELS, slice(top - y, bottom - y), slice(left - x, right - x)
        spans = [slice(a - o, b - o) for a, b, o in zip(low, high, origin, strict=True)]
        return (row, ALL_CHANNELS, *spans)


def pieces_of(data: torch.Tensor, starts: Sequence[Sides]) -> tuple[KnownPiece, ...]:
    """Return each row of `data`, `(rows, channels, *size)`, as a piece with a start of its own."""
    size = data.shape[2:]
    return tuple(
        KnownPiece((start, tuple(map(add, start, size))), data, row, start)
        for row, start in enumerate(starts)
    )


@dataclass(frozen=True, eq=False)
class Tiled:
    """A tensor of a shape `(1, channels, *grid)` that is never put together.

    `tiles` cover it without overlap, in rows and columns that begin at `starts` of each axis. Some
    may repeat one number, and take no memory for it. Without these repeats, all tiles are the
    tensor `small`; `repeats` are the place on each axis of it that is repeated, and how often.
    """

    shape: tuple[int, ...]
    starts: tuple[Sides, ...]
    tiles: tuple[KnownPiece, ...]
    small: KnownPiece
    repeats: tuple[tuple[int, int], ...]

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return self.tiles[0].data.dtype

    def tiles_in(self, corners: Corners) -> Iterator[KnownPiece]:
        """Yield the tiles that reach into a rectangle inside of the grid."""
        number = [0]
        for starts, low, high in zip(self.starts, *corners, strict=True):
            first, last, count = (
                bisect_right(starts, low) - 1,
                bisect_left(starts, high),
                len(starts),
            )
            number = [n * count + place for n in number for place in range(first, last)]
        return (self.tiles[n] for n in number)

    def without_repeats(self, corners: Corners) -> tuple[Corners, tuple[Sides, ...]]:
        """Return a rectangle in the small tensor, and how often each place counts, by axis."""
        low, high, times = list[int](), list[int](), list[Sides]()
        for (place, more), a, b in zip(self.repeats, *corners, strict=True):
            first, last = (min(n, max(place, n - more)) for n in (a, b - 1))
            counts = [1] * (last - first + 1)
            if first <= place <= last:
                counts[place - first] = b - a - (last - first)
            low.append(first)
            high.append(last + 1)
            times.append(tuple(counts))
        return (tuple(low), tuple(high)), tuple(times)


Known: TypeAlias = torch.Tensor | Tiled
"""A tensor whose values are known everywhere."""

Shown: TypeAlias = tuple[list[tuple[Corners, KnownPiece]], list[Corners]]
"""Parts of a window with their sources, and parts without one: those beyond the borders."""


def tiles_of(known: Known) -> tuple[KnownPiece, ...]:
    """Return pieces that cover the only row of a tensor without overlap."""
    if isinstance(known, Tiled):
        return known.tiles
    return pieces_of(known, [(0,) * (known.ndim - 2)])


def put_together(known: Known) -> torch.Tensor:
    """Return a tensor with all values in memory of its own."""
    if not isinstance(known, Tiled):
        return known.clone()
    out = empty(known.tiles[0].data, known.shape)
    (whole,) = tiles_of(out)
    draw(whole, known, ())
    return out


def empty(
    like: torch.Tensor, shape: Sequence[int], dtype: torch.dtype | None = None
) -> torch.Tensor:
    """Return an empty tensor with the type, the device and the memory layout of another."""
    # A part of a tensor with channels last is not contiguous, but its channels are neighbours.
    # So are those of a plain tensor with one place, whose last stride is 1.
    last = like.ndim == 4 and like.shape[1] > 1 and like.stride(1) == 1 < like.stride(3)
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=dtype or like.dtype, device=like.device, memory_format=layout)


def draw(
    window: KnownPiece,
    anchor: Known,
    pieces: Sequence[KnownPiece],
    *,
    outside: float = 0.0,
    hole: Corners | None = None,
) -> None:
    """Fill a window with its anchor, and with pieces over it; beyond the borders with `outside`.

    Later pieces lie on top. The `hole` in it is left as it is.
    """
    parts, beyond = shown(window.corners, anchor, pieces, hole)
    for corners in beyond:
        window.fill(corners, outside)
    for corners, source in parts:
        window.copy(corners, source)


def shown(
    window: Corners, anchor: Known, pieces: Sequence[KnownPiece], hole: Corners | None = None
) -> Shown:
    """Return the parts of a window with their sources, and the parts beyond the anchor's borders.

    They cover all of the window but the `hole`, without overlap. Later pieces lie on top.
    """
    parts, left = parts_of(window, pieces, hole)
    beyond: list[Corners] = []
    for rest in left:
        under, more = _anchored(rest, anchor)
        parts += under
        beyond += more
    return parts, beyond


def parts_of(window: Corners, pieces: Sequence[KnownPiece], hole: Corners | None = None) -> Shown:
    """Return the parts of a window that show pieces, and those that show none of them."""
    parts: list[tuple[Corners, KnownPiece]] = []
    left = [window] if hole is None else list(_around(hole, window))
    for piece in reversed(pieces):
        uncovered: list[Corners] = []
        for rest in left:
            met = meet(rest, piece.corners)
            if met is None:
                uncovered.append(rest)
            else:
                parts.append((met, piece))
                uncovered += _around(met, rest)
        left = uncovered
    return parts, left


def _anchored(window: Corners, anchor: Known) -> Shown:
    """Return the parts of a window that shows the anchor alone, and those beyond its borders."""
    grid = tuple(anchor.shape[2:])
    inside = meet(window, ((0,) * len(grid), grid))
    if inside is None:
        return [], [window]
    tiles = tuple(anchor.tiles_in(inside) if isinstance(anchor, Tiled) else tiles_of(anchor))
    beyond = [] if inside == window else list(_around(inside, window))
    if len(tiles) == 1:
        return [(inside, tiles[0])], beyond
    met = ((meet(inside, tile.corners), tile) for tile in tiles)
    return [(part, tile) for part, tile in met if part is not None], beyond


def meet(one: Corners, other: Corners) -> Corners | None:
    """Return the rectangle that two have in common, or None."""
    (low, high), (first, last) = one, other
    if len(low) == 2:  # pictures: three times as fast as the general way
        (top, left), (bottom, right) = low, high
        top, left = max(top, first[0]), max(left, first[1])
        bottom, right = min(bottom, last[0]), min(right, last[1])
        return ((top, left), (bottom, right)) if top < bottom and left < right else None
    low, high = tuple(map(max, low, first)), tuple(map(min, high, last))
    return (low, high) if all(map(lt, low, high)) else None


def _around(part: Corners, whole: Corners) -> Iterator[Corners]:
    """Yield the slabs of a rectangle around a part of it, without overlap."""
    (low, high), (first, last) = part, whole
    for axis in range(len(low)):
        # Before this axis as far as the part reaches, after it as far as the rectangle does.
        if first[axis] < low[axis]:
            end = (*high[:axis], low[axis], *last[axis + 1 :])
            yield (*low[:axis], *first[axis:]), end
        if high[axis] < last[axis]:
            yield (*low[:axis], high[axis], *first[axis + 1 :]), (*high[:axis], *last[axis:])
