"""Inputs of the model, painted anew or only where they differ from the last ones.

A model may write to its input, also where nothing tells: through `x.data` in torch, or in compiled
code. So after every call, inputs are painted in full. The exception are large inputs of functions
and ONNX sessions, which get read-only arrays, if they take less time than the painting: they do not
even read all pixels. Then only regions that changed are repainted, as long as a random sample of
the pixels is unchanged.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hshap.partitions.regions import copy

if TYPE_CHECKING:
    from hshap._util.types import Array, Shape, Tensor
    from hshap.evaluators.canvas import Row
    from hshap.partitions.protocol import Coalition

ALWAYS_PAINTED = 2**20
"""Bytes: inputs up to here are always painted in full, in some ten microseconds."""

LARGEST_SHARE = 0.5
"""Painting in full may take this share of the model's own time."""

SAMPLED_PIXELS = 256


@dataclass(frozen=True, eq=False)
class Sample:
    """A copy of some pixels of an array, which shows later whether they were written to."""

    array: Array
    places: tuple[Array | slice, ...]
    copy: Array

    @property
    def is_unchanged(self) -> bool:
        """Whether the pixels have the bytes that they had."""
        return self.array[self.places].tobytes() == self.copy.tobytes()


class Inputs:
    """A batch of inputs. Each remembers its painted regions, so that only those are undone."""

    def __init__(self, array: Tensor, shape: Shape, dtype: object, count: int) -> None:
        self.array, self._shape, self._dtype = array, shape, dtype
        self._under: list[Tensor | None] = [None] * count
        self._over: list[Coalition] = [()] * count
        self._seconds = float("inf")  # the fastest painting in full
        self._random = np.random.default_rng(0)

    def fit(self, shape: Shape, dtype: object, count: int) -> bool:
        """Tell whether rows of a shape and type can be painted here."""
        return (shape, dtype) == (self._shape, self._dtype) and count <= len(self._under)

    def paint(self, place: int, row: Row) -> None:
        """Paint one row over the last one at a place of the batch."""
        target, under = self.array[place], row.canvas.stand_ins(row.kept, row.draw)
        if self._under[place] is under:
            for region in self._over[place]:
                copy(region, under, target)
        else:
            started = time.perf_counter()
            target[...] = under
            self._seconds = min(self._seconds, time.perf_counter() - started)
        for region in row.kept:
            copy(region, row.canvas.image, target)
        self._under[place], self._over[place] = under, row.kept

    def pays(self, model_seconds: float) -> bool:
        """Tell whether painting in full is slow next to a model that takes so long per input.

        Only then is it worth while to rely on pixels that the model could have written to.
        """
        is_large = self._bytes > ALWAYS_PAINTED
        return is_large and self._seconds > LARGEST_SHARE * model_seconds

    def sample(self, count: int) -> Sample:
        """Return a sample of the first inputs, empty if they are painted in full anyway."""
        sampled = SAMPLED_PIXELS if self._bytes > ALWAYS_PAINTED else 0
        sides = self._shape[1:]
        pixels = (self._random.integers(side, size=sampled) for side in sides)
        array = self.array[:count] if sampled else np.empty((0, 0, *sides))
        places = (slice(None), slice(None), *pixels)
        return Sample(array, places, array[places].copy())

    @property
    def _bytes(self) -> int:
        """Bytes of one input; 0 for tensors on a device, which paints them fast."""
        is_host = isinstance(self.array, np.ndarray)
        return prod(self._shape) * self.array.dtype.itemsize if is_host else 0

    def forget(self) -> None:
        """Paint every input in full the next time."""
        self._under = [None] * len(self._under)
