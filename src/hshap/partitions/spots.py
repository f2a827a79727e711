"""Spots: a partition that looks only where the image differs from the baseline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_pixels, to_numpy
from hshap._util.recipes import recipe, settle
from hshap._util.renamed import warn_renamed
from hshap._util.smoothing import gaussian
from hshap.errors import ArgumentError, require
from hshap.partitions.merge_tree import MergeTree, Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.types import Image
    from hshap.partitions.protocol import Region

    Ints = NDArray[np.intp]

LEAST = 0.02
"""Spots differ from the baseline by at least this share of what the one that differs most does."""


MOST = 4096
"""Cells; merging them takes memory by the square of their number."""


@recipe
class Spots:
    """Put cells of a known size where the image differs most from the baseline.

    Pixels that equal the baseline cannot matter: hiding them changes nothing. So if the baseline is
    a picture of the same thing without the finding (a template, an earlier scan), a few cells
    around the differences are enough. `size` is the side of a cell in pixels, about that of a
    finding (a cell has a pixel in its middle, so an even size grows by one). The cells are placed
    by the baseline of the explainer. The area outside of all cells is a region too, halved by place
    if it matters.

    >>> import hshap
    >>> template = np.zeros((1, 32, 32))
    >>> image = template.copy()
    >>> image[0, 4, 25] = image[0, 20, 7] = 1.0
    >>> parts = Spots(5).compare(image, template).split()
    >>> outside, spots = sorted(parts, key=lambda part: -part.area)
    >>> [[int(axis.mean()) for axis in part.index] for part in spots.split()]
    [[4, 25], [20, 7]]
    """

    size: int
    baseline: Any = None

    def __post_init__(self) -> None:
        settle(self, size=checks.integer("size", self.size, minimum=1))
        if self.baseline is not None:
            new = "Spots(size), which takes the baseline of the explainer"
            warn_renamed("Spots(size, baseline)", new, stacklevel=5)

    @property
    def is_fixed(self) -> bool:
        """True: cells are fixed to the grid, since the baseline does not move with the image."""
        return True

    def __call__(self, image: Image) -> Region:
        """Refuse to split an image without the baseline; the explainer calls `compare`."""
        if self.baseline is not None:  # given as in version 0.1
            return self.compare(image, _hidden(self.baseline, image))
        message = (
            f"Spots(size={self.size}) needs the baseline too; use it in an Explainer, or call "
            "Spots.compare(image, hidden)"
        )
        raise ArgumentError(message)

    def compare(self, image: Image, hidden: Image) -> Region:
        """Return the region of all pixels; `hidden` is the image with every pixel hidden."""
        tree = self.tree(image, hidden)
        most = math.prod(min(2 * self.size, side) for side in tree.labels.shape)
        return Segment(tree, tree.root, min_area=1, max_area=most, parts=2).region()

    def tree(self, image: Image, hidden: Image) -> MergeTree:
        """Return the cells and their merges: close ones first, the area outside of them last."""
        pixels = as_pixels("image", image).astype(np.float64)
        behind = as_pixels("hidden", hidden)
        if behind.shape != pixels.shape:
            message = (
                f"hidden has shape {behind.shape}, but the image has {pixels.shape}; "
                "pass the image with every pixel hidden"
            )
            raise ArgumentError(message)
        labels, centres = _cells(np.abs(pixels - behind).mean(axis=0), self.size)
        return MergeTree(labels, _merges(centres, outside=int(labels.max()) == len(centres)))


def _hidden(baseline: Any, image: Image) -> Image:
    """Return an image, a number, or a baseline that ignores the image, as a hidden image."""
    if hasattr(baseline, "still"):
        return baseline.still(image.shape, image.dtype).images.mean(axis=0)
    values = to_numpy("baseline", baseline)
    column = values.reshape(-1, *(1,) * (image.ndim - 1)) if values.ndim < 2 else values
    return np.broadcast_to(column, image.shape)


def _cells(difference: NDArray[np.float64], size: int) -> tuple[Ints, NDArray[np.intp]]:
    """Label the cells around the highest differences from 0 on, and what is outside after them."""
    ndimage = require("scipy.ndimage", extra="trees", needed_by="Spots")
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
        hierarchy = require("scipy.cluster.hierarchy", extra="trees", needed_by="Spots")
        merges = hierarchy.linkage(centres.astype(np.float64), "ward")[:, :2].astype(np.intp)
    if not (outside and count):
        return merges
    # The outside has the number after the cells, which the merges must leave free.
    shifted = merges + (merges >= count)
    return np.concatenate([shifted, [[2 * count - 1 if count > 1 else 0, count]]])
