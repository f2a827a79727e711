"""Patches: rectangles in which activations differ from those of an anchor. Needs torch.

An anchor is an input whose activations are known. Inputs that differ from it in a rectangle differ
in a rectangle at every layer of a convolutional network; only that rectangle is computed. All rows
of a batch have rectangles of one size, each at a position of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch.nn import functional as f

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Operation: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

Sides: TypeAlias = tuple[int, ...]
"""One number for each spatial axis: a position, side lengths, strides, ..."""

Span: TypeAlias = tuple[int, int]
"""Start and stop on one axis."""


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
class Patch:
    """Rectangles `(rows, channels, *size)` at `starts` of a tensor that equals `anchor` elsewhere.

    `anchor` is `(1, channels, *grid)`, or a meta tensor of that shape where its values are not
    needed. `is_owned` says that no other value shares the memory of `data`: only then may the sole
    reader of the patch write there. Nobody writes to `anchor`. `over` are further rectangles in
    which the tensors of all rows differ from the anchor; later ones lie on top.
    """

    data: torch.Tensor
    starts: tuple[Sides, ...]
    anchor: torch.Tensor
    is_owned: bool = False
    over: tuple[Piece, ...] = ()

    @property
    def size(self) -> Sides:
        """Side lengths of the rectangles."""
        return tuple(self.data.shape[2:])

    @property
    def grid(self) -> Sides:
        """Side lengths of the full tensor."""
        return tuple(self.anchor.shape[2:])

    def window(self, starts: Sequence[Sides], size: Sides, outside: float = 0.0) -> torch.Tensor:
        """Return other rectangles of the same tensor; beyond its borders they hold `outside`."""
        out = empty(self.data, (len(starts), self.data.shape[1], *size))
        for row, start, own, data in zip(out, starts, self.starts, self.data, strict=True):
            pieces = (*self.over, Piece(own, data))
            if row.numel() > LARGE_ROW:
                _draw_once(row, start, self.anchor[0], pieces, outside)
            else:
                _draw(row, start, self.anchor[0], pieces, outside)
        return out

    def full(self) -> torch.Tensor:
        """Return the full tensors, `(rows, channels, *grid)`."""
        out = self.anchor.expand(len(self.starts), *self.anchor.shape[1:]).clone()
        origin = (0,) * len(self.grid)
        for row, start, data in zip(out, self.starts, self.data, strict=True):
            for piece in (*self.over, Piece(start, data)):
                _copy(row, piece.data, (piece.start, piece.size), origin, piece.start)
        return out


def empty(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Return an empty tensor with the type, the device and the memory layout of another."""
    last = like.ndim == 4 and like.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)


def _span(start: int, length: int) -> slice:
    return slice(start, start + length)


def _overlap(start: Sides, size: Sides, other: Sides, length: Sides) -> tuple[Sides, Sides]:
    """Return the part of a rectangle that another one covers: its start, relative, and its size."""
    first: list[int] = []
    sides: list[int] = []
    # Loops, not generators: this runs several times for every layer and input.
    for a, n, b, m in zip(start, size, other, length, strict=True):
        low, high = max(a, b), min(a + n, b + m)
        first.append(low - a)
        sides.append(max(0, high - low))
    return tuple(first), tuple(sides)


def _draw(
    row: torch.Tensor,
    start: Sides,
    anchor: torch.Tensor,
    pieces: Sequence[Piece],
    outside: float,
) -> None:
    """Fill a rectangle that begins at `start`: the anchor, and the pieces over it."""
    origin, size = (0,) * len(start), tuple(row.shape[1:])
    overlaps = [_overlap(start, size, piece.start, piece.size) for piece in pieces]
    if overlaps[-1] != (origin, size):
        in_grid = _overlap(start, size, origin, tuple(anchor.shape[1:]))
        if in_grid != (origin, size):
            row.fill_(outside)
        _copy(row, anchor, in_grid, start, origin)
    for piece, part in zip(pieces, overlaps, strict=True):
        _copy(row, piece.data, part, start, piece.start)


def _draw_once(
    row: torch.Tensor,
    start: Sides,
    anchor: torch.Tensor,
    pieces: Sequence[Piece],
    outside: float,
) -> None:
    """Do the same, and copy no number that another one would cover."""
    origin = (0,) * len(start)
    left = [(origin, tuple(row.shape[1:]))]
    for source in (*reversed(pieces), Piece(origin, anchor)):
        uncovered: list[tuple[Sides, Sides]] = []
        for first, size in left:
            there = tuple(a + b for a, b in zip(start, first, strict=True))
            part = _overlap(there, size, source.start, source.size)
            if prod(part[1]):
                slab = row[(slice(None), *map(_span, first, size))]
                _copy(slab, source.data, part, there, source.start)
            for low, length in _around(part, size):
                uncovered.append((tuple(a + b for a, b in zip(first, low, strict=True)), length))
        left = uncovered
    for first, size in left:
        row[(slice(None), *map(_span, first, size))] = outside


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
        there = (slice(None), *map(_span, places, length))
        row[(slice(None), *map(_span, first, length))] = source[there]


@dataclass(frozen=True)
class ReceptiveField:
    """The inputs of one output: kernel, stride, padding before and after, dilation on each axis.

    Only `crop` reads the padding after the last pixel.
    """

    kernel: Sides
    stride: Sides
    padding: Sides
    dilation: Sides
    padding_after: Sides = ()

    def slide(self, patch: Patch, anchor: torch.Tensor, act: Operation, *, outside: float) -> Patch:
        """Return the output patch of a sliding operation; `act` runs it without padding."""
        grid = tuple(anchor.shape[2:])
        spans = [self._touched(start, patch.size, grid) for start in patch.starts]
        starts, size = _of_one_size(spans, grid)
        views = [
            tuple(a * s - p for a, s, p in zip(start, self.stride, self.padding, strict=True))
            for start in starts
        ]
        seen = tuple(
            (m - 1) * s + d * (k - 1) + 1
            for m, s, d, k in zip(size, self.stride, self.dilation, self.kernel, strict=True)
        )
        return Patch(act(patch.window(views, seen, outside)), starts, anchor, is_owned=True)

    def crop(self, patch: Patch, anchor: torch.Tensor, act: Operation, *, wraps: bool) -> Patch:
        """Return the output patch of an operation that pads with pixels of the image.

        The operation runs in full, and the patch is cut out. A patch near a border changes the
        padding too; with `wraps`, the padding at the opposite border.
        """
        grid = tuple(anchor.shape[2:])
        spans = [
            self._touched_by_padding(start, patch, grid, wraps=wraps) for start in patch.starts
        ]
        starts, size = _of_one_size(spans, grid)
        full = act(patch.full())
        rows = [
            row[(slice(None), *map(_span, start, size))]
            for row, start in zip(full, starts, strict=True)
        ]
        return Patch(_stacked(full, rows), starts, anchor, is_owned=True)

    def _touched(self, start: Sides, size: Sides, grid: Sides) -> list[Span]:
        """Return the outputs on each axis that see the rectangle, at least one."""
        spans: list[Span] = []
        axes = zip(
            start, size, grid, self.kernel, self.stride, self.padding, self.dilation, strict=True
        )
        for a, n, most, k, s, p, d in axes:
            first = max(0, -(-(a + p - d * (k - 1)) // s))
            last = min(most - 1, (a + n - 1 + p) // s)
            first = min(first, most - 1)
            spans.append((first, max(last, first) + 1))
        return spans

    def _touched_by_padding(
        self, start: Sides, patch: Patch, grid: Sides, *, wraps: bool
    ) -> list[Span]:
        """Return the outputs on each axis that see the rectangle, in the padding too."""
        spans: list[Span] = []
        axes = zip(
            self._touched(start, patch.size, grid),
            *(start, patch.size, patch.grid, grid, self.kernel, self.dilation),
            *(self.padding, self.padding_after or self.padding),
            strict=True,
        )
        for (low, high), a, n, most, outputs, k, d, before, after in axes:
            # Padding by reflection shows the pixel at distance `before` or `after` too.
            near = max(d * (k - 1), before + 1, after + 1)
            first, last = a < near, a + n > most - near
            everything = wraps and (first or last)
            spans.append(
                (0 if first or everything else low, outputs if last or everything else high)
            )
        return spans


def _of_one_size(spans: Sequence[Sequence[Span]], grid: Sides) -> tuple[tuple[Sides, ...], Sides]:
    """Return starts and the common size of rectangles that cover the spans of each row.

    Near the far border a rectangle starts earlier than its span, so that it fits.
    """
    size = tuple(max(b - a for a, b in axis) for axis in zip(*spans, strict=True))
    starts = tuple(
        tuple(min(a, n - m) for (a, _), m, n in zip(span, size, grid, strict=True))
        for span in spans
    )
    return starts, size


def _stacked(like: torch.Tensor, rows: Sequence[torch.Tensor]) -> torch.Tensor:
    out = empty(like, (len(rows), *rows[0].shape))
    for place, row in zip(out, rows, strict=True):
        place.copy_(row)
    return out


def shifted(patch: Patch, by: Sides, anchor: torch.Tensor) -> Patch:
    """Return the same rectangles, shifted, in another tensor; both share the memory."""
    starts = tuple(tuple(a + n for a, n in zip(start, by, strict=True)) for start in patch.starts)
    return Patch(patch.data, starts, anchor)


def upsampled(patch: Patch, times: Sides, anchor: torch.Tensor, mode: str) -> Patch:
    """Return the output patch of upsampling by whole factors, nearest or linear.

    Linear modes read one pixel to each side. They get two, and the output of the outer one is cut
    off, because torch takes the outermost pixel for a border of the image.
    """
    margin = 0 if mode == "nearest" else 1
    inner = _grown(patch, margin)
    starts, size = _grown(patch, 2 * margin)
    made = f.interpolate(
        patch.window(starts, size), scale_factor=[float(n) for n in times], mode=mode
    )
    places = tuple(tuple(a * n for a, n in zip(s, times, strict=True)) for s in inner[0])
    sides = tuple(m * n for m, n in zip(inner[1], times, strict=True))
    if not margin:
        return Patch(made, places, anchor, is_owned=True)
    rows = [
        row[
            (
                slice(None),
                *(_span(a - b * n, m) for a, b, n, m in zip(*cut, times, sides, strict=True)),
            )
        ]
        for row, *cut in zip(made, places, starts, strict=True)
    ]
    return Patch(_stacked(made, rows), places, anchor, is_owned=True)


def _grown(patch: Patch, margin: int) -> tuple[tuple[Sides, ...], Sides]:
    """Return starts and size of rectangles with a margin around, as far as the tensor reaches."""
    size = tuple(min(n, m + 2 * margin) for m, n in zip(patch.size, patch.grid, strict=True))
    starts = tuple(
        tuple(max(0, min(a - margin, n - m)) for a, m, n in zip(s, size, patch.grid, strict=True))
        for s in patch.starts
    )
    return starts, size


def aligned(patches: Sequence[Patch]) -> list[Patch]:
    """Return patches of tensors of one grid, all on rectangles that cover every one of them."""
    grid = patches[0].grid
    axes = range(len(grid))
    rows = list(zip(*(patch.starts for patch in patches), strict=True))
    lows = [tuple(min(start[i] for start in row) for i in axes) for row in rows]
    highs = [
        tuple(max(s[i] + p.size[i] for s, p in zip(row, patches, strict=True)) for i in axes)
        for row in rows
    ]
    size = tuple(max(high[i] - low[i] for low, high in zip(lows, highs, strict=True)) for i in axes)
    starts = tuple(tuple(min(low[i], grid[i] - size[i]) for i in axes) for low in lows)
    return [
        patch
        if patch.starts == starts and patch.size == size
        else Patch(patch.window(starts, size), starts, patch.anchor)
        for patch in patches
    ]
