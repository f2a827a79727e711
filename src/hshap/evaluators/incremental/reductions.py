"""Reductions over all places, of tensors that are known in pieces: few are put together.

Needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch

from hshap.evaluators.incremental.drawing import SMALL_ROW, Tiled, parts_of, tiles_of
from hshap.evaluators.incremental.graph import Rule, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Array
    from hshap.evaluators.incremental.drawing import Corners, Known, Piece, Sides
    from hshap.evaluators.incremental.frames import Frame
    from hshap.evaluators.incremental.patches import Patch

    Numbers: TypeAlias = torch.Tensor | Array
    Times: TypeAlias = tuple[Sides, ...]

SMALL_PART = 2**12
"""Numbers of a part: up to here, NumPy is several times as fast as torch."""


class Part(NamedTuple):
    """Numbers `(rows, channels, *size)` of a tensor; small ones are arrays.

    `times` tells how often each place counts, by axis; once if it is empty.
    """

    numbers: Numbers
    times: Times = ()


Parts: TypeAlias = Sequence[Part]


def reduction(act: Callable[[Parts], torch.Tensor]) -> Rule:
    """Return the rule of a reduction. `act` gets parts that cover the tensors of some rows."""

    def rule(args: Sequence[Value], anchor: Known) -> torch.Tensor:
        value: Patch | Frame = args[0]
        count = len(value.starts)
        if prod(value.anchor.shape) <= SMALL_ROW:  # one call for all rows is faster
            made = act([Part(value.full())])
        else:
            with np.errstate(all="ignore"):  # torch tells nothing of infinite sums either
                made = torch.cat([act(_parts(value, row)) for row in range(count)])
        return made.reshape(count, *anchor.shape[1:]).to(anchor.dtype)

    return Rule(rule, drops_space=True)


def mean(parts: Parts) -> torch.Tensor:
    """Return the mean of each channel."""
    sides = (map(sum, times) if times else numbers.shape[2:] for numbers, times in parts)
    return total(parts) / sum(map(prod, sides))


def total(parts: Parts) -> torch.Tensor:
    """Return the sum of each channel, in double precision."""

    def small(part: Array, times: Times) -> Array:
        wide = np.promote_types(part.dtype, np.float64)
        if not times:
            return part.sum(_places(part), dtype=wide)
        made = part.astype(wide)
        for each in reversed(times):
            made = made @ np.array(each, wide)
        return made

    def large(part: torch.Tensor, times: Times) -> torch.Tensor:
        # In single precision at least, as in a full pass; their sums in double precision.
        wide, widest = (
            torch.promote_types(part.dtype, one) for one in (torch.float32, torch.float64)
        )
        if not times:
            return part.sum(_places(part), dtype=wide).to(widest)
        made = part.to(widest)
        for each in reversed(times):
            made = made @ torch.tensor(each, dtype=widest, device=part.device)
        return made

    return _each(parts, small, large).sum(0)


def largest(parts: Parts) -> torch.Tensor:
    """Return the largest number of each channel."""
    return _each(
        parts,
        lambda part, _: part.max(_places(part)),
        lambda part, _: part.amax(_places(part)),
    ).amax(0)


def smallest(parts: Parts) -> torch.Tensor:
    """Return the smallest number of each channel."""
    return _each(
        parts,
        lambda part, _: part.min(_places(part)),
        lambda part, _: part.amin(_places(part)),
    ).amin(0)


def _each(
    parts: Parts,
    small: Callable[[Array, Times], Array],
    large: Callable[[torch.Tensor, Times], torch.Tensor],
) -> torch.Tensor:
    """Return the results `(parts, rows, channels)` of all parts."""
    arrays = [small(part, times) for part, times in parts if isinstance(part, np.ndarray)]
    found = [large(part, times) for part, times in parts if isinstance(part, torch.Tensor)]
    if not arrays:
        return torch.stack(found)
    together = torch.from_numpy(np.stack(arrays))
    return torch.cat([together, torch.stack(found)]) if found else together


def _parts(value: Patch | Frame, row: int) -> list[Part]:
    """Return parts that cover all places of a row, each place once."""
    shown, hidden = parts_of(((0,) * len(value.grid), value.grid), value.pieces(row))
    found = [Part(_numbers(source, corners)) for corners, source in shown]
    if isinstance(value.anchor, Tiled):
        for each in hidden:
            corners, times = value.anchor.without_repeats(each)
            found.append(Part(_numbers(value.anchor.small, corners), times))
        return found
    (anchor,) = tiles_of(value.anchor)
    return found + [Part(_numbers(anchor, corners)) for corners in hidden]


def _numbers(source: Piece, corners: Corners) -> Numbers:
    array = source.cut_array(corners)
    return source.cut(corners) if array is None or array.size > SMALL_PART else array


def _places(part: Numbers) -> tuple[int, ...]:
    return tuple(range(2, part.ndim))
