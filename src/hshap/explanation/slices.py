"""The slices that an explanation of an exam found, each with the explanation inside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.errors import ArgumentError
from hshap.explanation.placement import UNPLACED
from hshap.games.game import Game
from hshap.partitions.by_slices import in_slices
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hshap._util.types import Grid, Heat
    from hshap.explanation.explanation import Explanation
    from hshap.games.tree import Part
    from hshap.partitions.protocol import Region


class FoundSlice(NamedTuple):
    """A slice that drives the score of an exam.

    `number` is its place on the axis of slices. `coefficient` is its Shapley value in the game that
    it was part of, `share` its part of the exam's `score - baseline_score`, and `alone` the score
    that it adds with all other slices hidden. `explanation` has the regions inside the slice, on
    its own grid. `slices` is 1, or more for a block of slices that the search left together; the
    explanation of a block is that of its first slice, and has no regions but the whole.

    >>> import hshap
    >>> exam = np.zeros((1, 4, 8, 8))
    >>> exam[0, 2, 5, 3] = 1.0
    >>> explainer = hshap.Explainer(hshap.demo.brightest, hshap.Constant(0.0))
    >>> made = hshap.volumes.explain_slices(explainer, exam, target=0, layout="CZYX")
    >>> found_slices(made)[0].number
    2
    """

    number: int
    coefficient: float
    share: float
    alone: float
    explanation: Explanation
    slices: int = 1


def found_slices(explanation: Explanation) -> list[FoundSlice]:
    """Return the slices that `explain_slices` found, the one with the largest share first.

    >>> import hshap
    >>> exam = np.zeros((1, 4, 8, 8))
    >>> exam[0, 2, 5, 3] = 1.0
    >>> explainer = hshap.Explainer(
    ...     hshap.demo.brightest, hshap.Constant(0.0), hshap.Bisection(min_size=1)
    ... )
    >>> made = hshap.volumes.explain_slices(explainer, exam, target=0, layout="CZYX")
    >>> found = found_slices(made)
    >>> [(one.number, one.coefficient, one.explanation.boxes()) for one in found]
    [(2, 1.0, [Finding(start=(5, 3), stop=(6, 4), score=1.0)])]
    """
    axis = axis_of(explanation)
    found = [_slice(explanation, axis, part) for part in _kept(explanation, axis)]
    return sorted(found, key=lambda one: (-one.share, one.number))


def axis_of(explanation: Explanation) -> int:
    """Return the axis of slices; an explanation of another making is refused."""
    axis = explanation.settings.slice_axis
    if axis is None or axis >= len(explanation.grid):
        message = (
            f"explanation has regions of {explanation.settings.partition_name}, not of slices; "
            "pass one that explain_slices made"
        )
        raise ArgumentError(message)
    return axis


def slice_coefficients(explanation: Explanation) -> Heat:
    """Return the coefficient of each slice, 0 for those that were not found.

    >>> import hshap
    >>> exam = np.zeros((1, 4, 8, 8))
    >>> exam[0, 2, 5, 3] = 1.0
    >>> explainer = hshap.Explainer(hshap.demo.brightest, hshap.Constant(0.0))
    >>> slice_coefficients(hshap.volumes.explain_slices(explainer, exam, target=0, layout="CZYX"))
    array([0., 0., 1., 0.])
    """
    out = np.zeros(explanation.grid[axis_of(explanation)])
    for one in found_slices(explanation):
        out[one.number : one.number + one.slices] = one.coefficient
    return out


def _kept(explanation: Explanation, axis: int) -> Iterator[Part]:
    """Yield the single slices that hold a leaf, and blocks of slices that are leaves."""
    every = list(explanation.parts.values())
    seen: set[int] = set()
    for leaf in explanation.leaves:
        part = explanation.parts[leaf]
        while not _is_whole(part.region, axis, explanation.grid) and part.parent >= 0:
            part = every[part.parent]
        if part.number not in seen:
            seen.add(part.number)
            yield part


def _is_whole(region: Region, axis: int, grid: Grid) -> bool:
    """Tell whether a region is made of whole slices."""
    if not isinstance(region, Box):
        return False
    sides = zip(region.shape, grid, strict=True)
    return all(own == side for i, (own, side) in enumerate(sides) if i != axis)


def _slice(explanation: Explanation, axis: int, part: Part) -> FoundSlice:
    whole = part.region
    assert isinstance(whole, Box)  # noqa: S101, `_kept` yields no other
    number, count = whole.start[axis], whole.shape[axis]
    grid = explanation.grid

    def flat(region: Region) -> Region:
        return in_slices(region, axis, grid)[number]

    # Games inside this slice, the slice's own first; a block of slices has none.
    inside = [game for game in explanation.games if count == 1 and _within(game, whole)]
    games = tuple(
        replace(game, region=flat(game.region), children=tuple(map(flat, game.children)))
        for game in inside
    )
    base = explanation.baseline_score
    root = flat(whole)
    ends = np.array([base, base + part.alone])
    alone = Game(root, (root,), ends, np.array([part.alone]), np.array([part.error]))
    leaves = [leaf for leaf in explanation.leaves if count == 1 and _inside(leaf, whole)]
    kept = explanation.unfinished
    if count > 1 or not explanation.settings.drops_nothing:
        kept = tuple(one for one in kept if one in leaves)
    made = replace(
        explanation,
        grid=(*grid[:axis], *grid[axis + 1 :]),
        leaves=tuple(map(flat, leaves)) or (root,),
        games=games or (alone,),
        unfinished=tuple(flat(one) for one in kept if _inside(one, whole)),
        position=number,
        settings=explanation.settings.of_slice(axis),
        placement=UNPLACED,
        tests=None,
        calibration=None,
    )
    return FoundSlice(number, part.coefficient, part.share, part.alone, made, count)


def _within(game: Game, whole: Box) -> bool:
    return _inside(game.region, whole)


def _inside(region: Region, whole: Box) -> bool:
    if isinstance(region, Box):
        ends = zip(region.start, region.stop, whole.start, whole.stop, strict=True)
        return all(low <= a and b <= high for a, b, low, high in ends)
    return all(
        bool(((np.asarray(places) >= low) & (np.asarray(places) < high)).all())
        for places, low, high in zip(region.index, whole.start, whole.stop, strict=True)
    )
