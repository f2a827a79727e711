"""Patches: what differs from an anchor, layer by layer, and nothing else.

An anchor is an input whose activations are known. Inputs that differ from it in a rectangle differ
in a rectangle at every layer of a convolutional network; only that is computed here. The rows of a
batch have rectangles of one size at places of their own. Needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as f

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Tensor = Any
Place = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Patch:
    """Rectangles `(rows, channels, *size)` at `starts` of a tensor that else equals `anchor`.

    `anchor` is `(1, channels, *grid)`, or a meta tensor of its shape where nobody looks at it.
    """

    data: Tensor
    starts: tuple[Place, ...]
    anchor: Tensor

    @property
    def size(self) -> Place:
        """Side lengths of the rectangles."""
        return tuple(self.data.shape[2:])

    @property
    def grid(self) -> Place:
        """Side lengths of the whole tensor."""
        return tuple(self.anchor.shape[2:])

    def window(self, starts: Sequence[Place], size: Place, outside: float = 0.0) -> Tensor:
        """Return other rectangles of the same tensor; `outside` stands beyond its borders."""
        out = room(self.data, (len(starts), self.data.shape[1], *size))
        for row, start, own, data in zip(out, starts, self.starts, self.data, strict=True):
            whole = _overlap(start, size, (0,) * len(size), self.grid)
            inner = _overlap(start, size, own, self.size)
            if inner != ((0,) * len(size), size):
                if whole != ((0,) * len(size), size):
                    row.fill_(outside)
                _copy(row, self.anchor[0], whole, start, (0,) * len(size))
            _copy(row, data, inner, start, own)
        return out

    def whole(self) -> Tensor:
        """Return the tensors themselves, `(rows, channels, *grid)`."""
        out = self.anchor.expand(len(self.starts), *self.anchor.shape[1:]).clone()
        for row, start, data in zip(out, self.starts, self.data, strict=True):
            row[(slice(None), *map(_span, start, self.size))] = data
        return out


def room(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Return an empty tensor whose pixels lie in memory as another's do."""
    last = like.ndim == 4 and like.is_contiguous(memory_format=torch.channels_last)
    layout = torch.channels_last if last else torch.contiguous_format
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=layout)


def _span(start: int, length: int) -> slice:
    return slice(start, start + length)


def _overlap(start: Place, size: Place, other: Place, length: Place) -> tuple[Place, Place]:
    """Return where another rectangle lies in this one: its first place, and how long."""
    low = tuple(max(a, b) for a, b in zip(start, other, strict=True))
    high = tuple(min(a + n, b + m) for a, n, b, m in zip(start, size, other, length, strict=True))
    first = tuple(a - s for a, s in zip(low, start, strict=True))
    return first, tuple(max(0, b - a) for a, b in zip(low, high, strict=True))


def _copy(
    row: Tensor, source: Tensor, part: tuple[Place, Place], start: Place, origin: Place
) -> None:
    """Copy the part of a row that begins at `start` from a source that begins at `origin`."""
    first, length = part
    if prod(length):
        places = [s + f - o for s, f, o in zip(start, first, origin, strict=True)]
        there = (slice(None), *map(_span, places, length))
        row[(slice(None), *map(_span, first, length))] = source[there]


@dataclass(frozen=True)
class Reach:
    """How far an output sees: kernel, stride, padding before and dilation on each axis."""

    kernel: Place
    stride: Place
    padding: Place
    dilation: Place

    def slide(
        self, patch: Patch, anchor: Tensor, act: Callable[[Tensor], Tensor], outside: float
    ) -> Patch:
        """Return what a sliding operation makes of a patch; `act` is it, without any padding."""
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
        return Patch(act(patch.window(views, seen, outside)), starts, anchor)

    def cut(
        self, patch: Patch, anchor: Tensor, act: Callable[[Tensor], Tensor], *, around: bool
    ) -> Patch:
        """Return what an operation that pads with pixels of its own makes of a patch.

        It runs as a whole. Near a border its padding changes too; with `around`, at the other side.
        """
        grid = tuple(anchor.shape[2:])
        spans: list[list[tuple[int, int]]] = []
        for start in patch.starts:
            axes = zip(
                self._touched(start, patch.size, grid),
                *(start, patch.size, patch.grid, grid, self.kernel, self.dilation, self.padding),
                strict=True,
            )
            span: list[tuple[int, int]] = []
            for (low, high), a, n, most, outputs, k, d, p in axes:
                near = max(d * (k - 1), p + 1)  # mirrored, the pixel at `p` is shown too
                first, last = a < near, a + n > most - near
                everything = around and (first or last)
                span.append(
                    (0 if first or everything else low, outputs if last or everything else high)
                )
            spans.append(span)
        starts, size = _of_one_size(spans, grid)
        whole = act(patch.whole())
        rows = [
            row[(slice(None), *map(_span, start, size))]
            for row, start in zip(whole, starts, strict=True)
        ]
        return Patch(_stacked(whole, rows), starts, anchor)

    def _touched(self, start: Place, size: Place, grid: Place) -> list[tuple[int, int]]:
        """Return the outputs on each axis that see the rectangle, at least one."""
        spans: list[tuple[int, int]] = []
        axes = zip(
            start, size, grid, self.kernel, self.stride, self.padding, self.dilation, strict=True
        )
        for a, n, most, k, s, p, d in axes:
            first = max(0, -(-(a + p - d * (k - 1)) // s))
            last = min(most - 1, (a + n - 1 + p) // s)
            first = min(first, most - 1)
            spans.append((first, max(last, first) + 1))
        return spans


def _of_one_size(
    spans: Sequence[Sequence[tuple[int, int]]], grid: Place
) -> tuple[tuple[Place, ...], Place]:
    """Return rectangles that hold the spans of each row, of one size for all.

    Those near the border reach further in than they must.
    """
    size = tuple(max(b - a for a, b in axis) for axis in zip(*spans, strict=True))
    starts = tuple(
        tuple(min(a, n - m) for (a, _), m, n in zip(span, size, grid, strict=True))
        for span in spans
    )
    return starts, size


def _stacked(like: Tensor, rows: Sequence[Tensor]) -> Tensor:
    out = room(like, (len(rows), *rows[0].shape))
    for place, row in zip(out, rows, strict=True):
        place.copy_(row)
    return out


def moved(patch: Patch, by: Place, anchor: Tensor) -> Patch:
    """Return the same rectangles at other places of another tensor."""
    starts = tuple(tuple(a + n for a, n in zip(start, by, strict=True)) for start in patch.starts)
    return Patch(patch.data, starts, anchor)


def enlarged(patch: Patch, times: Place, anchor: Tensor, mode: str) -> Patch:
    """Return what repeating pixels so many times, or going from one to the next, makes of a patch.

    Linear modes look at one pixel to each side. Two are given to them, and what they make of the
    outer one is cut off: except at a border, where they see what they would see in the whole.
    """
    margin = 0 if mode == "nearest" else 1
    inner = _grown(patch, margin)
    starts, size = _grown(patch, 2 * margin)
    made = f.interpolate(patch.window(starts, size), scale_factor=times, mode=mode)
    places = tuple(tuple(a * n for a, n in zip(s, times, strict=True)) for s in inner[0])
    sides = tuple(m * n for m, n in zip(inner[1], times, strict=True))
    if not margin:
        return Patch(made, places, anchor)
    rows = [
        row[
            (
                slice(None),
                *(_span(a - b * n, m) for a, b, n, m in zip(*cut, times, sides, strict=True)),
            )
        ]
        for row, *cut in zip(made, places, starts, strict=True)
    ]
    return Patch(_stacked(made, rows), places, anchor)


def _grown(patch: Patch, margin: int) -> tuple[tuple[Place, ...], Place]:
    """Return rectangles with so many more pixels around, as far as there are any, of one size."""
    size = tuple(min(n, m + 2 * margin) for m, n in zip(patch.size, patch.grid, strict=True))
    starts = tuple(
        tuple(max(0, min(a - margin, n - m)) for a, m, n in zip(s, size, patch.grid, strict=True))
        for s in patch.starts
    )
    return starts, size


def joined(patches: Sequence[Patch]) -> list[Patch]:
    """Return patches of tensors of one grid, all on the rectangles that hold every one of them."""
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
