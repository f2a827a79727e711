"""What the exports are given, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap.errors import ArgumentError
from hshap.explanation.explanation import Explanation

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_explanation(explanation: Any) -> Explanation:
    """Return an explanation, or say what is needed."""
    if not isinstance(explanation, Explanation):
        message = (
            f"explanation is {checks.shown(explanation)}; pass what Explainer.explain returned"
        )
        raise ArgumentError(message)
    return explanation


def by_file(explanations: Any) -> Mapping[str, Explanation]:
    """Return explanations by the names of their files."""
    if not isinstance(explanations, Mapping):
        message = (
            f"explanations is {checks.shown(explanations)}; "
            "pass a dictionary of file names and explanations"
        )
        raise ArgumentError(message)
    return explanations


def picture_grid(what: str, explanation: Any) -> tuple[int, int]:
    """Return height and width of what was explained, or say where else it can go."""
    grid = as_explanation(explanation).grid
    if len(grid) != 2:
        message = (
            f"{what} holds pictures, but the explanation has the grid {grid}; use table() or "
            "dataarray(), which take any number of axes, or explain one plane"
        )
        raise ArgumentError(message)
    return grid[0], grid[1]


def as_plane(what: str, values: Any) -> NDArray[Any]:
    """Return a map with two axes; NaN may be in it, infinity may not."""
    plane = to_numpy("values", values)
    if plane.ndim != 2 or not plane.size or plane.dtype.kind not in "fiub":
        message = (
            f"{what} holds a map with two axes, but values is {checks.shown(plane)} of type "
            f"{plane.dtype}; pass one plane of numbers, values[None] for a signal or values[i] for "
            "a volume"
        )
        raise ArgumentError(message)
    if np.isinf(plane).any():
        message = f"values has {np.isinf(plane).sum()} infinite entries; replace them first"
        raise ArgumentError(message)
    return plane.astype(np.float64)


def as_name(name: str, value: Any) -> str:
    """Return a name that is not empty."""
    if not isinstance(value, str) or not value.strip():
        message = f"{name} must be a name, got {checks.shown(value)}; pass text that is not empty"
        raise ArgumentError(message)
    return value
