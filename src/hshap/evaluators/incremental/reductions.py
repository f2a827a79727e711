"""Reductions over all places, of tensors that are known in pieces: few are put together.

Needs torch.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from hshap.evaluators.incremental.drawing import SMALL_ROW, shown
from hshap.evaluators.incremental.graph import Rule, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Array
    from hshap.evaluators.incremental.drawing import Corners, Known, Piece
    from hshap.evaluators.incremental.frames import Frame
    from hshap.evaluators.incremental.patches import Patch

    Part: TypeAlias = torch.Tensor | Array
    Parts: TypeAlias = Sequence[Part]

SMALL_PART = 2**12
"""Numbers of a part: up to here, NumPy is several times as fast as torch."""


def reduction(act: Callable[[Parts], torch.Tensor]) -> Rule:
    """Return the rule of a reduction.

    `act` gets parts `(rows, channels, *size)` that cover the tensors of these rows. Small ones are
    arrays.
    """

    def rule(args: Sequence[Value], anchor: Known) -> torch.Tensor:
        value: Patch | Frame = args[0]
        count = len(value.starts)
        if prod(value.anchor.shape) <= SMALL_ROW:  # one call for all rows is faster
            made = act([value.full()])
        else:
            with np.errstate(all="ignore"):  # torch tells nothing of infinite sums either
                made = torch.cat([act(_parts(value, row)) for row in range(count)])
        return made.reshape(count, *anchor.shape[1:]).to(anchor.dtype)

    return Rule(rule, drops_space=True)


def mean(parts: Parts) -> torch.Tensor:
    """Return the mean of each channel."""
    return total(parts) / sum(prod(part.shape[2:]) for part in parts)


def total(parts: Parts) -> torch.Tensor:
    """Return the sum of each channel, in double precision."""

    def small(part: Array) -> Array:
        wide = np.promote_types(part.dtype, np.float64)
        return _cut_repeats(part).sum(_places(part), dtype=wide) * _repeats(part)

    def large(part: torch.Tensor) -> torch.Tensor:
        # In single precision at least, as in a full pass; their sums in double precision.
        wide, widest = (
            torch.promote_types(part.dtype, one) for one in (torch.float32, torch.float64)
        )
        return _without_repeats(part).sum(_places(part), dtype=wide).to(widest) * _repeats(part)

    return _each(parts, small, large).sum(0)


def largest(parts: Parts) -> torch.Tensor:
    """Return the largest number of each channel."""
    return _each(
        parts,
        lambda part: _cut_repeats(part).max(_places(part)),
        lambda part: _without_repeats(part).amax(_places(part)),
    ).amax(0)


def smallest(parts: Parts) -> torch.Tensor:
    """Return the smallest number of each channel."""
    return _each(
        parts,
        lambda part: _cut_repeats(part).min(_places(part)),
        lambda part: _without_repeats(part).amin(_places(part)),
    ).amin(0)


def _each(
    parts: Parts,
    small: Callable[[Array], Array],
    large: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Return the results `(parts, rows, channels)` of all parts."""
    arrays = [small(part) for part in parts if isinstance(part, np.ndarray)]
    found = [large(part) for part in parts if isinstance(part, torch.Tensor)]
    if not arrays:
        return torch.stack(found)
    together = torch.from_numpy(np.stack(arrays))
    return torch.cat([together, torch.stack(found)]) if found else together


def _parts(value: Patch | Frame, row: int) -> list[Part]:
    """Return parts that cover all places of a row, each place once."""
    parts, _ = shown(((0,) * len(value.grid), value.grid), value.anchor, value.pieces(row))
    return [_part(source, corners) for corners, source in parts]


def _part(source: Piece, corners: Corners) -> Part:
    array = source.cut_array(corners)
    if array is None:
        return source.cut(corners)
    size = prod(n for n, stride in zip(array.shape, array.strides, strict=True) if stride)
    return array if size <= SMALL_PART else source.cut(corners)


def _places(part: Part) -> tuple[int, ...]:
    return tuple(range(2, part.ndim))


def _without_repeats(part: torch.Tensor) -> torch.Tensor:
    """Return a part without the places that share the memory of others."""
    strides = part.stride()
    for axis in _places(part) if 0 in strides else ():
        if strides[axis] == 0:
            part = part.narrow(axis, 0, 1)
    return part


def _cut_repeats(part: Array) -> Array:
    """Return the same of an array."""
    if 0 not in part.strides:
        return part
    return part[tuple(slice(None) if stride else slice(0, 1) for stride in part.strides)]


def _repeats(part: Part) -> int:
    strides = part.stride() if isinstance(part, torch.Tensor) else part.strides
    return prod(part.shape[axis] for axis in _places(part) if strides[axis] == 0)
