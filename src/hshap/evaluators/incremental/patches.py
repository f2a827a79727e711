"""Patches: rectangles in which activations differ from those of an anchor. Needs torch.

An anchor is an input whose activations are known. Inputs that differ from it in a rectangle differ
in a rectangle at every layer of a convolutional network; only that rectangle is computed. All rows
of a batch have rectangles of one size, each at a position of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from operator import add, eq, sub
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from torch.nn import functional as f

from hshap.evaluators.incremental.windows import (
    Known,
    KnownPiece,
    Sides,
    Tiled,
    draw,
    empty,
    meet,
    pieces_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from hshap.evaluators.incremental.windows import Known, Sides

    Operation: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
    Sliding: TypeAlias = Callable[[torch.Tensor, Sides], torch.Tensor]


Span: TypeAlias = tuple[int, int]
"""Start and stop on one axis."""


class Zone(NamedTuple):
    """One axis of an activation of an image of one colour: all places from `low` to `high` agree.

    It is that of a small image. In a larger one, `more` further places there are the same.
    """

    low: int
    high: int
    more: int


@dataclass(frozen=True, eq=False)
class Patch:
    """Rectangles `(rows, channels, *size)` at `starts` of a tensor that equals `anchor` elsewhere.

    `anchor` is `(1, channels, *grid)`, or a meta tensor of that shape where its values are not
    needed. Nobody writes to it. `over` has further rectangles for
    each row, in which its tensor differs from the anchor; later ones lie on top.
    """

    data: torch.Tensor
    starts: tuple[Sides, ...]
    anchor: Known
    over: tuple[tuple[KnownPiece, ...], ...] = ()

    @cached_property
    def size(self) -> Sides:
        """Side lengths of the rectangles."""
        return tuple(self.data.shape[2:])

    @cached_property
    def grid(self) -> Sides:
        """Side lengths of the full tensor."""
        return tuple(self.anchor.shape[2:])

    @cached_property
    def rows(self) -> tuple[KnownPiece, ...]:
        """The rectangle of each row."""
        return pieces_of(self.data, self.starts)

    def window(self, starts: Sequence[Sides], size: Sides, outside: float = 0.0) -> torch.Tensor:
        """Return other rectangles of the same tensor; beyond its borders they hold `outside`.

        The very same rectangles are not copied.
        """
        if size == self.size and tuple(starts) == self.starts:
            return self.data
        out = empty(self.data, (len(starts), self.data.shape[1], *size))
        self.fill(out, starts, outside)
        return out

    def fill(self, out: torch.Tensor, starts: Sequence[Sides], outside: float = 0.0) -> None:
        """Write other rectangles of the same tensor into `out`, see `window`."""
        size = tuple(out.shape[2:])
        shifts = {tuple(map(sub, *each)) for each in zip(self.starts, starts, strict=True)}
        shift = shifts.pop()
        inner = meet(((0,) * len(size), size), (shift, tuple(map(add, shift, self.size))))
        if shifts or inner is None:
            for row, window in enumerate(pieces_of(out, starts)):
                draw(window, self.anchor, self.pieces(row), outside=outside)
            return
        # The rectangles lie at one place of all windows, so one copy is enough for all rows.
        if inner[1] != size or any(inner[0]):
            for row, window in enumerate(pieces_of(out, starts)):
                over = self.over[row] if self.over else ()
                low, high = (tuple(map(add, starts[row], corner)) for corner in inner)
                draw(window, self.anchor, over, outside=outside, hole=(low, high))
        there = map(slice, *(map(sub, corner, shift) for corner in inner))
        out[(..., *map(slice, *inner))] = self.data[(..., *there)]

    def pieces(self, row: int) -> tuple[KnownPiece, ...]:
        """Return everything in which a row differs from the anchor; later pieces lie on top."""
        over = self.over[row] if self.over else ()
        return (*over, self.rows[row])

    def full(self) -> torch.Tensor:
        """Return the full tensors, `(rows, channels, *grid)`, in the memory layout of the anchor.

        A patch of one place has every layout, and torch rounds some layers otherwise in each.
        """
        anchor = self.anchor.small.data if isinstance(self.anchor, Tiled) else self.anchor
        shape = (len(self.starts), *self.anchor.shape[1:])
        out = empty(anchor, shape, self.anchor.dtype)
        self.fill(out, [(0,) * len(self.grid)] * len(self.starts))
        return out


@dataclass(frozen=True)
class ReceptiveField:
    """The inputs of one output: kernel, stride, padding before and after, dilation on each axis."""

    kernel: Sides
    stride: Sides
    padding: Sides
    dilation: Sides
    padding_after: Sides = ()

    @property
    def is_one_place(self) -> bool:
        """Whether every output reads its own place alone, as in a convolution of 1 x 1."""
        return {*self.kernel, *self.stride} == {1} and not any(self.padding)

    @property
    def pads_alike(self) -> Sequence[bool]:
        """Whether the padding before and after is the same, for each axis: torch can do it."""
        return list(map(eq, self.padding, self.padding_after or self.padding))

    def outputs(self, grid: Sides) -> Sides:
        """Return the side lengths of the output, rounded down as torch does unless told."""
        axes = zip(
            *(grid, self.kernel, self.stride, self.dilation),
            *(self.padding, self.padding_after or self.padding),
            strict=True,
        )
        return tuple((n + p + q - d * (k - 1) - 1) // s + 1 for n, k, s, d, p, q in axes)

    def zones(self, zones: Sequence[Zone]) -> list[Zone] | None:
        """Return where outputs are equal, given where inputs are; None if strides do not fit."""
        found: list[Zone] = []
        axes = zip(zones, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        for zone, k, s, p, d in axes:
            if zone.more % s:
                return None
            last = (zone.high - 1 + p - d * (k - 1)) // s
            found.append(Zone(-(-(zone.low + p) // s), last + 1, zone.more // s))
        return found

    def touched(self, start: Sides, size: Sides, grid: Sides) -> list[Span]:
        """Return the outputs on each axis that see the rectangle, at least one."""
        windows = zip(self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return list(map(_touched, start, size, grid, windows))


def _touched(a: int, n: int, most: int, window: tuple[int, int, int, int]) -> Span:
    """Return the outputs on one axis that see `n` places from `a` on, at least one of `most`."""
    k, s, p, d = window
    first = max(0, -(-(a + p - d * (k - 1)) // s))
    last = min(most - 1, (a + n - 1 + p) // s)
    first = min(first, most - 1)
    return first, max(last, first) + 1


def of_one_size(spans: Sequence[Sequence[Span]], grid: Sides) -> tuple[tuple[Sides, ...], Sides]:
    """Return starts and the common size of rectangles that cover the spans of each row.

    Near the far border a rectangle starts earlier than its span, so that it fits.
    """
    size = tuple(max(b - a for a, b in axis) for axis in zip(*spans, strict=True))
    starts = tuple(
        tuple(min(a, n - m) for (a, _), m, n in zip(each, size, grid, strict=True))
        for each in spans
    )
    return starts, size


def _cut_out(full: torch.Tensor, starts: Sequence[Sides], size: Sides) -> torch.Tensor:
    """Return a copy of one rectangle of each row."""
    out = empty(full, (*full.shape[:2], *size))
    for row, start in enumerate(starts):
        out[row] = full[(row, slice(None), *map(slice, start, map(add, start, size)))]
    return out


def shift(patch: Patch, by: Sides, anchor: Known) -> Patch:
    """Return the same rectangles, shifted, in another tensor; both share the memory."""
    starts = tuple(tuple(a + n for a, n in zip(start, by, strict=True)) for start in patch.starts)
    return Patch(patch.data, starts, anchor)


def upsample(patch: Patch, times: Sides, anchor: Known, mode: str) -> Patch:
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
        return Patch(made, places, anchor)
    firsts = [
        tuple(a - b * n for a, b, n in zip(place, start, times, strict=True))
        for place, start in zip(places, starts, strict=True)
    ]
    return Patch(_cut_out(made, firsts, sides), places, anchor)


def _grown(patch: Patch, margin: int) -> tuple[tuple[Sides, ...], Sides]:
    """Return starts and size of rectangles with a margin around, as far as the tensor reaches."""
    size = tuple(min(n, m + 2 * margin) for m, n in zip(patch.size, patch.grid, strict=True))
    starts = tuple(
        tuple(max(0, min(a - margin, n - m)) for a, m, n in zip(s, size, patch.grid, strict=True))
        for s in patch.starts
    )
    return starts, size


def align(patches: Sequence[Patch]) -> list[Patch]:
    """Return patches of tensors of one grid, all on rectangles that cover every one of them."""
    starts, size = _around_all(patches)
    return [
        patch
        if patch.starts == starts and patch.size == size
        else Patch(patch.window(starts, size), starts, patch.anchor)
        for patch in patches
    ]


def concatenate(patches: Sequence[Patch], anchor: Known) -> Patch:
    """Return the channels of all patches in one, on rectangles that cover every one of them."""
    starts, size = _around_all(patches)
    channels = [patch.data.shape[1] for patch in patches]
    out = empty(patches[0].data, (len(starts), sum(channels), *size), anchor.dtype)
    for part, patch in zip(out.split(channels, 1), patches, strict=True):
        patch.fill(part, starts)
    return Patch(out, starts, anchor)


def _around_all(patches: Sequence[Patch]) -> tuple[tuple[Sides, ...], Sides]:
    """Return starts and size of rectangles that cover every patch of their row."""
    grid = patches[0].grid
    sizes = [patch.size for patch in patches]
    spans: list[list[Span]] = []
    for row in zip(*(patch.starts for patch in patches), strict=True):
        lows = zip(*row, strict=True)
        stops = [map(sum, zip(*each, strict=True)) for each in zip(row, sizes, strict=True)]
        highs = zip(*stops, strict=True)
        spans.append([(min(low), max(high)) for low, high in zip(lows, highs, strict=True)])
    return of_one_size(spans, grid)


class Slide(NamedTuple):
    """An operation on windows: `act` gets them and the padding of each axis.

    Beyond the borders, the operation sees `outside`. The result has memory of its own.
    """

    field: ReceptiveField
    act: Sliding
    outside: float


def slide_over(slide: Slide, patch: Patch, anchor: Known) -> Patch:
    """Return the output patch of an operation; `anchor` is the output's.

    Windows hold the padding, but for axes that patches cover: there the operation pads by itself,
    which takes no copy.
    """
    field, grid = slide.field, tuple(anchor.shape[2:])
    spans = [field.touched(start, patch.size, grid) for start in patch.starts]
    starts, size = of_one_size(spans, grid)
    covered = [
        is_alike and n == whole and m == most == expected
        for is_alike, n, whole, m, most, expected in zip(
            *(field.pads_alike, patch.size, patch.grid, size, grid, field.outputs(patch.grid)),
            strict=True,
        )
    ]
    window = patch.window(*_seen(field, starts, size, patch.grid, covered), slide.outside)
    own = tuple(p * alone for p, alone in zip(field.padding, covered, strict=True))
    return Patch(slide.act(window, own), starts, anchor)


def _seen(
    field: ReceptiveField,
    starts: tuple[Sides, ...],
    size: Sides,
    grid: Sides,
    covered: Sequence[bool],
) -> tuple[tuple[Sides, ...], Sides]:
    """Return the windows that some outputs see; on a covered axis, all of the grid."""
    own = tuple(p * alone for p, alone in zip(field.padding, covered, strict=True))
    inner = tuple(map(sub, field.padding, own))
    views = tuple(
        tuple(a * s - p for a, s, p in zip(start, field.stride, inner, strict=True))
        for start in starts
    )
    axes = zip(grid, covered, size, field.stride, field.dilation, field.kernel, strict=True)
    seen = tuple(n if alone else (m - 1) * s + d * (k - 1) + 1 for n, alone, m, s, d, k in axes)
    return views, seen
