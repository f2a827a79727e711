"""Spots: a partition that looks only where the image differs from the baseline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap import checks
from hshap.arrays import as_pixels, to_numpy
from hshap.baselines import Constant, Fixed, Imageless
from hshap.errors import ArgumentError, require
from hshap.recipes import recipe
from hshap.smoothing import gaussian
from hshap.trees import MergeTree, Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap.regions import Region

    Ints = NDArray[np.intp]

LEAST = 0.02
"""Spots differ from the baseline by at least this share of what the one that differs most does."""


MOST = 4096
"""Cells; merging them takes memory by the square of their number."""


@recipe
class Spots:
    """Put cells of a known size where the image differs most from the baseline.

    What equals the baseline cannot matter: hiding it changes nothing. So if the baseline is a
    picture of the same thing without what is sought (a template, an earlier scan), a few cells
    around the differences are all that need be asked about. `size` is the side of a cell, about
    that of what is sought (a cell has a pixel in its middle, so of an even size, one more).
    `baseline` is what the explainer hides with: an image, a number, one for each channel, or a
    baseline that does not look at the image. What lies outside of all cells is a region too, halved
    by place if it matters.

    >>> template = np.zeros((1, 32, 32))
    >>> image = template.copy()
    >>> image[0, 4, 25] = image[0, 20, 7] = 1.0
    >>> outside, spots = sorted(Spots(5, template)(image).split(), key=lambda part: -part.size)
    >>> [[int(axis.mean()) for axis in part.index] for part in spots.split()]
    [[4, 25], [20, 7]]
    """

    size: int
    baseline: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", checks.integer("size", self.size, minimum=1))
        object.__setattr__(self, "baseline", _baseline(self.baseline))

    @property
    def is_placed(self) -> bool:
        """Whether cells lie where they lie: moving the image would not move the baseline."""
        return True

    def __call__(self, image: Any) -> Region:
        """Return the region of all pixels."""
        tree = self.tree(image)
        most = math.prod(min(2 * self.size, side) for side in tree.labels.shape)
        return Segment(tree, tree.root, min_area=1, max_area=most, parts=2).region()

    def tree(self, image: Any) -> MergeTree:
        """Return the cells and how they merge: those that lie close first, what is outside last."""
        pixels = as_pixels("image", image).astype(np.float64)
        hidden = self.baseline.still(pixels.shape, pixels.dtype).images
        labels, centres = _cells(np.abs(pixels - hidden.mean(axis=0)).mean(axis=0), self.size)
        return MergeTree(labels, _merges(centres, outside=int(labels.max()) == len(centres)))


def _baseline(given: Any) -> Imageless:
    """Return a baseline that does not look at the image, as an explainer would take it."""
    if isinstance(given, Imageless):
        return given
    if callable(given):
        message = (
            f"baseline is {checks.shown(given)}, which looks at the image; "
            "pass an image, a number, or Constant, Fixed or Mean"
        )
        raise ArgumentError(message)
    return Constant(given) if to_numpy("baseline", given).ndim < 2 else Fixed(given)


def _cells(difference: NDArray[np.float64], size: int) -> tuple[Ints, NDArray[np.intp]]:
    """Label the cells around the highest differences from 0 on, and what is outside after them."""
    ndimage = require("scipy.ndimage", extra="trees", what="Spots")
    height = gaussian(difference, size / 5, range(difference.ndim))
    reach = (3 * size) // 4
    peaks = (height == ndimage.maximum_filter(height, 2 * reach + 1)) & (
        height > LEAST * height.max()
    )
    centres = _apart(np.argwhere(peaks), height[peaks], height.shape, reach)
    if not len(centres):
        return np.zeros(height.shape, dtype=np.intp), centres
    numbers = np.zeros(height.shape, dtype=np.intp)
    numbers[tuple(centres.T)] = np.arange(len(centres))
    away = np.ones(height.shape, dtype=bool)
    away[tuple(centres.T)] = False
    distance, nearest = ndimage.distance_transform_cdt(
        away, metric="chessboard", return_indices=True
    )
    return np.where(distance <= size // 2, numbers[tuple(nearest)], len(centres)), centres


def _apart(
    places: NDArray[np.intp], heights: NDArray[np.float64], shape: tuple[int, ...], reach: int
) -> NDArray[np.intp]:
    """Return the places that no higher one is near: of a plateau, one in each reach."""
    taken = np.zeros(shape, dtype=bool)
    kept: list[NDArray[np.intp]] = []
    for place in places[np.argsort(-heights, kind="stable")]:
        if taken[tuple(place)]:
            continue
        kept.append(place)
        if len(kept) > MOST:
            message = (
                f"image differs from the baseline in more than {MOST} places; pass a larger size"
            )
            raise ArgumentError(message)
        taken[tuple(slice(max(i - reach, 0), i + reach + 1) for i in place.tolist())] = True
    return np.array(kept, dtype=np.intp).reshape(-1, len(shape))


def _merges(centres: NDArray[np.intp], *, outside: bool) -> Ints:
    """Return Ward's merges of the centres, and last, if there is one, the outside's."""
    count = len(centres)
    merges = np.zeros((0, 2), dtype=np.intp)
    if count > 1:
        hierarchy = require("scipy.cluster.hierarchy", extra="trees", what="Spots")
        merges = hierarchy.linkage(centres.astype(np.float64), "ward")[:, :2].astype(np.intp)
    if not (outside and count):
        return merges
    # The outside has the number after the cells, which the merges must leave free.
    shifted = merges + (merges >= count)
    return np.concatenate([shifted, [[2 * count - 1 if count > 1 else 0, count]]])
