"""Reductions over all places, of tensors that are known in pieces: few are put together.

Needs torch.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from hshap.evaluators.incremental.drawing import SMALL_ROW, shown
from hshap.evaluators.incremental.graph import Rule, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap.evaluators.incremental.drawing import Known
    from hshap.evaluators.incremental.frames import Frame
    from hshap.evaluators.incremental.patches import Patch

    Parts = Sequence[torch.Tensor]


def reduction(act: Callable[[Parts], torch.Tensor]) -> Rule:
    """Return the rule of a reduction.

    `act` gets parts `(rows, channels, *size)` that cover the tensors of these rows.
    """

    def rule(args: Sequence[Value], anchor: Known) -> torch.Tensor:
        value: Patch | Frame = args[0]
        count = len(value.starts)
        if prod(value.anchor.shape) <= SMALL_ROW:  # one call for all rows is faster
            made = act([value.full()])
        else:
            made = torch.cat([act(_parts(value, row)) for row in range(count)])
        return made.reshape(count, *anchor.shape[1:]).to(anchor.dtype)

    return Rule(rule, drops_space=True)


def mean(parts: Parts) -> torch.Tensor:
    """Return the mean of each channel."""
    return total(parts) / sum(prod(part.shape[2:]) for part in parts)


def total(parts: Parts) -> torch.Tensor:
    """Return the sum of each channel, in double precision."""
    # Parts in single precision at least, as in a full pass; their sums in double precision.
    wide, widest = (
        torch.promote_types(parts[0].dtype, one) for one in (torch.float32, torch.float64)
    )
    sums = [
        _without_repeats(part).sum(_places(part), dtype=wide).to(widest) * _repeats(part)
        for part in parts
    ]
    return torch.stack(sums).sum(0)


def largest(parts: Parts) -> torch.Tensor:
    """Return the largest number of each channel."""
    return torch.stack([_without_repeats(part).amax(_places(part)) for part in parts]).amax(0)


def smallest(parts: Parts) -> torch.Tensor:
    """Return the smallest number of each channel."""
    return torch.stack([_without_repeats(part).amin(_places(part)) for part in parts]).amin(0)


def _parts(value: Patch | Frame, row: int) -> list[torch.Tensor]:
    """Return parts that cover all places of a row, each place once."""
    parts, _ = shown(((0,) * len(value.grid), value.grid), value.anchor, value.pieces(row))
    return [source.cut(corners) for corners, source in parts]


def _places(part: torch.Tensor) -> tuple[int, ...]:
    return tuple(range(2, part.ndim))


def _without_repeats(part: torch.Tensor) -> torch.Tensor:
    """Return a part without the places that share the memory of others."""
    strides = part.stride()
    for axis in _places(part) if 0 in strides else ():
        if strides[axis] == 0:
            part = part.narrow(axis, 0, 1)
    return part


def _repeats(part: torch.Tensor) -> int:
    return prod(part.shape[axis] for axis in _places(part) if part.stride(axis) == 0)
