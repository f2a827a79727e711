"""Checks of the arguments of the exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.explanation.explanation import Explanation
from hshap.explanation.tiled import Leaf, TiledExplanation

if TYPE_CHECKING:
    from hshap._util.types import Grid, Heat


def as_explanation(explanation: object) -> Explanation:
    """Return an explanation, and refuse anything else."""
    if not isinstance(explanation, Explanation):
        message = (
            f"explanation is {checks.shown(explanation)}; pass the result of Explainer.explain"
        )
        raise ArgumentError(message)
    return explanation


def as_result(explanation: object) -> Explanation | TiledExplanation:
    """Return an explanation of an image, or of a large image by tiles; refuse anything else."""
    if isinstance(explanation, TiledExplanation):
        return explanation
    return as_explanation(explanation)


def leaves_of(explanation: Explanation | TiledExplanation) -> tuple[Leaf, ...]:
    """Return the leaves of a result, each with the explanation that found it, and its share."""
    if isinstance(explanation, TiledExplanation):
        return explanation.leaves
    parts = explanation.parts
    return tuple(Leaf(explanation, leaf, parts[leaf].share) for leaf in explanation.leaves)


def picture_size(function: str, explanation: object) -> Grid:
    """Return height and width of the original image; refuse signals and volumes."""
    result = as_result(explanation)
    if isinstance(result, TiledExplanation):
        return result.shape
    picture_grid(function, result)
    return result.placement.shape


def by_category(
    explanations: object, category: str
) -> dict[str, dict[str, Explanation | TiledExplanation]]:
    """Return explanations by the names of their image files and of their categories."""
    if not isinstance(explanations, Mapping):
        message = (
            f"explanations is {checks.shown(explanations)}; "
            "pass a dictionary of file names and explanations"
        )
        raise ArgumentError(message)
    out: dict[str, dict[str, Explanation | TiledExplanation]] = {}
    for file, given in cast("Mapping[object, object]", explanations).items():
        several = cast("Mapping[object, object]", given) if isinstance(given, Mapping) else None
        classes = {category: given} if several is None else several
        if not classes:
            message = f"explanations[{file!r}] is empty; pass at least one explanation"
            raise ArgumentError(message)
        out[str(file)] = {
            as_name("category", label): as_result(each) for label, each in classes.items()
        }
    return out


def picture_grid(function: str, explanation: object) -> tuple[int, int]:
    """Return height and width of the explained image; for other grids, name other exports."""
    grid = as_explanation(explanation).grid
    if len(grid) != 2:
        message = (
            f"{function} holds pictures, but the explanation has the grid {grid}; use table() or "
            "dataarray(), which take any number of axes, or explain one plane"
        )
        raise ArgumentError(message)
    return grid[0], grid[1]


def as_plane(function: str, values: object, *, most: int = 2) -> Heat:
    """Return a map of two axes, or up to `most`; NaN is allowed, infinity is not."""
    plane = to_numpy("values", values)
    if not 2 <= plane.ndim <= most or not plane.size:
        message = (
            f"{function} holds a map with two axes, but values is {checks.shown(plane)} of type "
            f"{plane.dtype}; pass one plane of numbers, values[None] for a signal or values[i] for "
            "a volume"
        )
        raise ArgumentError(message)
    if np.isinf(plane).any():
        message = f"values has {np.isinf(plane).sum()} infinite entries; replace them first"
        raise ArgumentError(message)
    return plane.astype(np.float64)


def as_name(name: str, value: object) -> str:
    """Return text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        message = f"{name} must be a name, got {checks.shown(value)}; pass text that is not empty"
        raise ArgumentError(message)
    return value
