"""What is measured: the images, the oracle that decides on them, and the methods.

Importing this costs next to nothing, so that the process that starts the others stays small: a
child's peak memory, as the kernel counts it, begins with that of the process that started it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 0
SHOWN = 0.5
"""A marker pixel shows more than this, every other pixel and the baseline less."""


@dataclass(frozen=True)
class Case:
    """Images of one shape with some marker pixels, explained down to sides of about `s`."""

    name: str
    shape: tuple[int, int, int]
    markers: int
    s: int

    @property
    def min_size(self) -> tuple[int, int]:
        """Return the sides that our partitions need to end at the leaves of the reference.

        The reference halves both axes together, as often as the shorter one allows.
        """
        height, width = self.shape[1:]
        halvings = int(math.log2(min(height, width) / self.s)) + 1
        return math.ceil(height / 2**halvings), math.ceil(width / 2**halvings)


@dataclass(frozen=True)
class Method:
    """One way to explain an image of a case."""

    name: str
    library: Literal["reference", "hshap"]
    threshold: float = 0.0
    partition: Literal["Dyadic", "Bisection"] = "Dyadic"
    torch: bool = True


@dataclass(frozen=True)
class Share:
    """A run of a real model, of whose time the model's share is measured."""

    name: str
    partition: Literal["Dyadic", "Bisection"]
    images: int


CASES = (Case("A", (3, 1200, 1600), 10, 80), Case("B", (3, 4000, 4000), 10, 80))

# At threshold 0 the float32 weights of the reference let null players pass with about 1e-8, so it
# visits what it need not; above that noise it is the fairer rival.
NOISY = Method("reference, threshold 0", "reference")
RIVAL = Method("reference, threshold 1e-6", "reference", threshold=1e-6)
OURS = (
    Method("hshap, Dyadic, NumPy", "hshap", torch=False),
    Method("hshap, Bisection, NumPy", "hshap", partition="Bisection", torch=False),
    Method("hshap, Dyadic, torch", "hshap"),
)
METHODS = (NOISY, RIVAL, *OURS)

SHARES = (
    Share("Dyadic, one image", "Dyadic", 1),
    Share("Bisection, one image", "Bisection", 1),
    Share("Dyadic, 16 images", "Dyadic", 16),
    Share("Bisection, 16 images", "Bisection", 16),
)


@dataclass(frozen=True, eq=False)
class Scene:
    """An image `(channels, height, width)`, a baseline of its shape, and where the markers are."""

    image: NDArray[Any]
    baseline: NDArray[Any]
    rows: NDArray[Any]
    columns: NDArray[Any]


def scene(case: Case, seed: int) -> Scene:
    """Draw the image of a case; all its pages and those of the baseline are really in memory."""
    import numpy as np

    rng = np.random.default_rng(seed)
    height, width = case.shape[1:]
    places = rng.choice(height * width, size=case.markers, replace=False)
    rows, columns = np.unravel_index(places, (height, width))
    image = rng.random(case.shape, dtype=np.float32)
    image *= SHOWN / 2
    image[:, rows, columns] = 1.0
    baseline = np.full(case.shape, SHOWN / 4, dtype=np.float32)
    return Scene(image, baseline, rows, columns)
