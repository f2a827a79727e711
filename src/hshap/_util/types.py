"""Names for the kinds of values that pass through the library.

torch is not imported here, so a tensor has no type of its own at this level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Grid: TypeAlias = tuple[int, ...]
"""Lengths of the spatial axes, in pixels."""

Shape: TypeAlias = tuple[int, ...]
"""Shape of an image: `(channels, *grid)`."""

Array: TypeAlias = NDArray[Any]
"""A NumPy array of any type."""

Image: TypeAlias = NDArray[np.floating[Any]]
"""An image `(channels, *grid)`, in the units that the model takes."""

Heat: TypeAlias = NDArray[np.float64]
"""A map with one number for each pixel of the grid, or any other array of 64-bit floats."""

Mask: TypeAlias = NDArray[np.bool_]
"""True on some pixels of the grid."""

Ints: TypeAlias = NDArray[np.intp]
"""Positions or labels."""

Tensor: TypeAlias = Any
"""A torch tensor, or a NumPy array where the two are used alike: both index and assign the same."""

Model: TypeAlias = Any
"""A torch module, an ONNX session, or a callable from a batch of images to scores."""

Untyped: TypeAlias = Any
"""An object of a library without types, such as a matplotlib figure or an optional module."""

ScoreFunction: TypeAlias = Callable[[Any], Any]
"""Takes a batch and returns an array of scores."""

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A value that JSON can hold."""

JsonObject: TypeAlias = "Mapping[str, Json]"
"""An object of JSON: values by name."""
