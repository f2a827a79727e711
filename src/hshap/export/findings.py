"""Findings for other programs: leaves that touch are one finding, with one number and one score.

The rules that all exports share: findings are numbered from 1, the highest score first; maps and
labels have the size of the original image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.explanation.findings import finding_score
from hshap.explanation.tiled import TiledExplanation
from hshap.export.inputs import as_explanation, as_result, leaves_of
from hshap.partitions.joining import touching
from hshap.partitions.regions import Pixels, blocks, mask

if TYPE_CHECKING:
    from hshap._util.types import Array
    from hshap.explanation.explanation import Explanation
    from hshap.explanation.placement import Placement
    from hshap.partitions.protocol import Region


class Found(NamedTuple):
    """A finding: its pixels in the grid, the place of the grid, and its figures."""

    region: Region
    placement: Placement
    score: float
    share: float


def found_in(explanation: object) -> tuple[Found, ...]:
    """Return the findings of a result, the highest score first; inside tiles, each leaf is one."""
    result = as_result(explanation)
    if isinstance(result, TiledExplanation):
        every = [
            Found(
                leaf.region,
                leaf.explanation.placement,
                finding_score(leaf.explanation, [leaf.region]),
                leaf.share,
            )
            for leaf in leaves_of(result)
        ]
        return tuple(sorted(every, key=lambda each: -each.score))
    every = [_joined(result, group) for group in _groups(result)]
    first = {id(each.region): blocks(each.region, result.grid)[0][0] for each in every}
    return tuple(sorted(every, key=lambda each: (-each.score, first[id(each.region)])))


def labels(explanation: Explanation) -> Array:
    """Return the number of the finding at each pixel of the original image; 0 for none.

    Leaves that touch are one finding. Findings are numbered from 1, the highest score first.

    >>> from hshap.demo import example
    >>> labels(example())[2].tolist()
    [0, 0, 0, 0, 0, 1, 0, 0]
    """
    result = as_explanation(explanation)
    found = found_in(result)
    out = np.zeros(result.grid, _integers(len(found)))
    for number, each in enumerate(found, start=1):
        out[mask((each.region,), result.grid)] = number
    return result.placement.nearest(out)


def _groups(explanation: Explanation) -> list[list[Region]]:
    """Return the leaves in groups that touch."""
    leaves = explanation.leaves
    pieces = [
        (corners, number)
        for number, leaf in enumerate(leaves)
        for corners in blocks(leaf, explanation.grid)
    ]
    joined = touching([corners for corners, _ in pieces], leaves, explanation.grid)
    parent = list(range(len(leaves)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    # A leaf that continues at the opposite border joins the groups of its pieces.
    for group in joined:
        for piece in group[1:]:
            parent[root(pieces[piece][1])] = root(pieces[group[0]][1])
    out: dict[int, list[Region]] = {}
    for number, leaf in enumerate(leaves):
        out.setdefault(root(number), []).append(leaf)
    return list(out.values())


def _joined(explanation: Explanation, group: list[Region]) -> Found:
    region = group[0]
    if len(group) > 1:
        flat = np.flatnonzero(mask(tuple(group), explanation.grid))
        region = Pixels(flat, explanation.grid)
    share = float(sum(explanation.parts[leaf].share for leaf in group))
    return Found(region, explanation.placement, finding_score(explanation, group), share)


def _integers(count: int) -> type[np.unsignedinteger]:
    return np.uint8 if count < 2**8 else np.uint16 if count < 2**16 else np.uint32
