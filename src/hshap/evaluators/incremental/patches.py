"""Patches: rectangles in which activations differ from those of an anchor. Needs torch.

An anchor is an input whose activations are known. Inputs that differ from it in a rectangle differ
in a rectangle at every layer of a convolutional network; only that rectangle is computed. All rows
of a batch have rectangles of one size, each at a position of its own.

Operations that read a window around each place may run one after another on one window: the first
ones also run on the rim that the later ones read, so nothing between them is copied or kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import add, eq, sub
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from torch.nn import functional as f

from hshap.evaluators.incremental.drawing import (
    Known,
    Piece,
    Sides,
    Tiled,
    clear_beyond,
    draw,
    empty,
    meet,
    pieces_of,
    prefilled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from hshap.evaluators.incremental.drawing import Known, Sides

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
    needed. `is_owned` says that no other value shares the memory of `data`: only then may the sole
    reader of the patch write there. Nobody writes to `anchor`. `over` has further rectangles for
    each row, in which its tensor differs from the anchor; later ones lie on top.
    """

    data: torch.Tensor
    starts: tuple[Sides, ...]
    anchor: Known
    is_owned: bool = False
    over: tuple[tuple[Piece, ...], ...] = ()

    @cached_property
    def size(self) -> Sides:
        """Side lengths of the rectangles."""
        return tuple(self.data.shape[2:])

    @cached_property
    def grid(self) -> Sides:
        """Side lengths of the full tensor."""
        return tuple(self.anchor.shape[2:])

    @cached_property
    def rows(self) -> tuple[Piece, ...]:
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
            ground = prefilled(out, self.anchor, outside)
            for row, window in enumerate(pieces_of(out, starts)):
                draw(window, ground, self.pieces(row))
            return
        # The rectangles lie at one place of all windows, so one copy is enough for all rows.
        if inner[1] != size or any(inner[0]):
            ground = prefilled(out, self.anchor, outside)
            for row, window in enumerate(pieces_of(out, starts)):
                over = self.over[row] if self.over else ()
                low, high = (tuple(map(add, starts[row], corner)) for corner in inner)
                draw(window, ground, over, (low, high))
        there = map(slice, *(map(sub, corner, shift) for corner in inner))
        out[(..., *map(slice, *inner))] = self.data[(..., *there)]

    def pieces(self, row: int) -> tuple[Piece, ...]:
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

    def crop(self, patch: Patch, anchor: Known, act: Operation, *, wraps: bool) -> Patch:
        """Return the output patch of an operation that pads with pixels of the image.

        The operation runs in full, and the patch is cut out. A patch near a border changes the
        padding too; with `wraps`, the padding at the opposite border.
        """
        grid = tuple(anchor.shape[2:])
        spans = [
            self._touched_by_padding(start, patch, grid, wraps=wraps) for start in patch.starts
        ]
        starts, size = of_one_size(spans, grid)
        full = act(patch.full())
        return Patch(_cut_out(full, starts, size), starts, anchor, is_owned=True)

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

    def _touched_by_padding(
        self, start: Sides, patch: Patch, grid: Sides, *, wraps: bool
    ) -> list[Span]:
        """Return the outputs on each axis that see the rectangle, in the padding too."""
        spans: list[Span] = []
        axes = zip(
            self.touched(start, patch.size, grid),
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


@lru_cache(maxsize=2**12)
def _touched(a: int, n: int, most: int, window: tuple[int, int, int, int]) -> Span:
    """Return the outputs on one axis that see `n` places from `a` on, at least one of `most`."""
    # Rows of a batch share places on one axis, and layers of a network their windows.
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


def shifted(patch: Patch, by: Sides, anchor: Known) -> Patch:
    """Return the same rectangles, shifted, in another tensor; both share the memory."""
    starts = tuple(tuple(a + n for a, n in zip(start, by, strict=True)) for start in patch.starts)
    return Patch(patch.data, starts, anchor)


def upsampled(patch: Patch, times: Sides, anchor: Known, mode: str) -> Patch:
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
    firsts = [
        tuple(a - b * n for a, b, n in zip(place, start, times, strict=True))
        for place, start in zip(places, starts, strict=True)
    ]
    return Patch(_cut_out(made, firsts, sides), places, anchor, is_owned=True)


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
    starts, size = _around_all(patches)
    return [
        patch
        if patch.starts == starts and patch.size == size
        else Patch(patch.window(starts, size), starts, patch.anchor)
        for patch in patches
    ]


def concatenated(patches: Sequence[Patch], anchor: Known) -> Patch:
    """Return the channels of all patches in one, on rectangles that cover every one of them."""
    starts, size = _around_all(patches)
    channels = [patch.data.shape[1] for patch in patches]
    out = empty(patches[0].data, (len(starts), sum(channels), *size), anchor.dtype)
    for part, patch in zip(out.split(channels, 1), patches, strict=True):
        patch.fill(part, starts)
    return Patch(out, starts, anchor, is_owned=True)


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


def slid(slides: Sequence[Slide], patch: Patch, anchor: Known) -> Patch:
    """Return the output patch of operations that run one after another; `anchor` is the output's.

    Windows hold the padding, but for axes that patches cover: there the operations pad by
    themselves, which takes no copy.
    """
    fields = [slide.field for slide in slides]
    grids = [patch.grid]
    for field in fields:
        grids.append(field.outputs(grids[-1]))
    expected, grids[-1] = grids[-1], tuple(anchor.shape[2:])  # where a pool rounds up
    spans = [_touched_last(fields, start, patch.size, grids) for start in patch.starts]
    starts, size = of_one_size(spans, grids[-1])
    covered = [
        n == whole and m == most == known
        for n, whole, m, most, known in zip(
            *(patch.size, patch.grid, size, grids[-1], expected), strict=True
        )
    ]
    for field in fields:
        covered = [a and b for a, b in zip(covered, field.pads_alike, strict=True)]
    windows: list[tuple[tuple[Sides, ...], Sides]] = [(starts, size)]
    for field, grid in zip(reversed(fields), reversed(grids[:-1]), strict=True):
        windows.append(_seen(field, *windows[-1], grid, covered))
    windows.reverse()
    data = patch.window(*windows[0], slides[0].outside)
    for number, slide in enumerate(slides):
        # The operation before has made other numbers of its own padding. Also if this one pads
        # after the last pixel alone, as even kernels may.
        if number:
            clear_beyond(data, windows[number][0], grids[number], slide.outside)
        own = tuple(p * alone for p, alone in zip(slide.field.padding, covered, strict=True))
        data = slide.act(data, own)
    return Patch(data, starts, anchor, is_owned=True)


def _touched_last(
    fields: Sequence[ReceptiveField], start: Sides, size: Sides, grids: Sequence[Sides]
) -> list[Span]:
    """Return the outputs of the last operation, on each axis, that see a rectangle."""
    spans: list[Span] = []
    for field, grid in zip(fields, grids[1:], strict=True):
        spans = field.touched(start, size, grid)
        start, size = tuple(a for a, _ in spans), tuple(b - a for a, b in spans)
    return spans


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
