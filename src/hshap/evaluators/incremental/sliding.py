"""Sliding: operations that read a window around each place, one after another. Needs torch.

Several of them may run on one window: the first ones also run on the rim that the later ones read.
So nothing between them is copied from the anchor, or kept.
"""

from __future__ import annotations

from operator import sub
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hshap.evaluators.incremental.drawing import clear_beyond
from hshap.evaluators.incremental.patches import Patch, ReceptiveField, of_one_size

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from hshap.evaluators.incremental.drawing import Known, Sides
    from hshap.evaluators.incremental.patches import Span

    Sliding: TypeAlias = Callable[[torch.Tensor, Sides], torch.Tensor]


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
    spans = [_touched(fields, start, patch.size, grids) for start in patch.starts]
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


def _touched(
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
