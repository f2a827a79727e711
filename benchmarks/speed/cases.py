"""The images and methods that are measured.

Importing this costs next to nothing, for the reason that `process` gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 0
SHOWN = 0.5
"""A marker pixel is brighter than this; every other pixel and the baseline are darker."""

PartitionName = Literal["Dyadic", "Bisection"]
SHAPES = {"photo": (3, 1200, 1600), "large": (3, 4096, 4096)}
"""Shapes of the images of `measurements.photographs`."""


@dataclass(frozen=True)
class Case:
    """Images of one shape with some marker pixels, explained down to sides of about `s`."""

    name: str
    shape: tuple[int, int, int]
    markers: int
    s: int = 80

    @property
    def min_size(self) -> tuple[int, int]:
        """Return the sides at which our partitions end at the leaves of the reference.

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
    partition: PartitionName = "Dyadic"
    torch: bool = True


@dataclass(frozen=True)
class Share:
    """Explanations of a real model, of whose time the share inside the model is measured."""

    name: str
    partition: PartitionName
    images: int


CASES = (Case("A", SHAPES["photo"], 10), Case("B", (3, 4000, 4000), 10))

# At threshold 0 the float32 weights of the reference give null players about 1e-8, so it visits
# regions without effect; above that noise it is the fairer rival.
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
    """An image `(channels, height, width)`, a baseline of its shape, and the markers' places."""

    image: NDArray[Any]
    baseline: NDArray[Any]
    rows: NDArray[Any]
    columns: NDArray[Any]


def scene(case: Case, seed: int = SEED) -> Scene:
    """Draw the image of a case; every page of it and of the baseline is really in memory."""
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
