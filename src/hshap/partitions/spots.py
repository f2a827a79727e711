"""Spots: a partition that looks only where the image differs from the baseline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_pixels
from hshap._util.recipes import recipe, settle
from hshap._util.renamed import warn_renamed
from hshap._util.smoothing import gaussian
from hshap.errors import ArgumentError, require
from hshap.partitions.merge_tree import MergeTree, Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hshap._util.types import Image, Ints
    from hshap.partitions.protocol import Region


LEAST = 0.02
"""A cell is placed where the difference is at least this share of the largest difference."""


MOST = 4096
"""Largest number of cells: merging takes memory by the square of it."""


@recipe
class Spots:
    """Put cells of a known size where the image differs most from the baseline.

    Pixels that equal the baseline cannot matter: hiding them changes nothing. So if the baseline is
    a picture of the same scene without the finding (a template, an earlier scan), a few cells
    around the differences are enough. `cell_size` is the side of a cell in pixels, about the size
    of a finding; an even size grows by one, since a cell has a pixel in its middle. The explainer's
    baseline decides where the cells are. The area outside of all cells is a region too; it is
    halved by position if it matters.

    >>> import hshap
    >>> template = np.zeros((1, 32, 32))
    >>> image = template.copy()
    >>> image[0, 4, 25] = image[0, 20, 7] = 1.0
    >>> parts = Spots(5).compare(image, template).split()
    >>> outside, spots = sorted(parts, key=lambda part: -part.area)
    >>> [[int(axis.mean()) for axis in part.index] for part in spots.split()]
    [[4, 25], [20, 7]]
    """

    cell_size: int

    def __init__(
        self, cell_size: int | None = None, baseline: object = None, *, size: int | None = None
    ) -> None:
        """Take the size of a cell; `baseline` and `size` are those of version 0.1."""
        if size is not None:
            warn_renamed("Spots(size=...)", "Spots(cell_size=...)", stacklevel=4)
        if baseline is not None:
            new = "Spots(cell_size), which takes the baseline of the explainer"
            warn_renamed("Spots(size, baseline)", new, stacklevel=4)
        given = size if cell_size is None else cell_size
        settle(self, cell_size=checks.integer("cell_size", given, minimum=1))

    @property
    def is_fixed(self) -> bool:
        """True: cells are fixed to the grid, since the baseline does not move with the image."""
        return True

    def __call__(self, image: Image) -> Region:
        """Refuse to split an image without the baseline; the explainer calls `compare`."""
        del image
        message = (
            f"Spots(cell_size={self.cell_size}) needs the baseline too; use it in an Explainer, or "
            "call Spots.compare(image, hidden)"
        )
        raise ArgumentError(message)

    def compare(self, image: Image, hidden: Image) -> Region:
        """Return the region of all pixels; `hidden` is the image with every pixel hidden."""
        tree = self.tree(image, hidden)
        most = math.prod(min(2 * self.cell_size, side) for side in tree.labels.shape)
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
        labels, centres = _cells(np.abs(pixels - behind).mean(axis=0), self.cell_size)
        return MergeTree(labels, _merges(centres, outside=int(labels.max()) == len(centres)))


def _cells(difference: NDArray[np.float64], size: int) -> tuple[Ints, Ints]:
    """Label the cells around the largest differences from 0 on, and the area outside last."""
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


def _apart(places: Ints, heights: NDArray[np.float64], shape: tuple[int, ...], reach: int) -> Ints:
    """Return the peaks without a higher peak within `reach`; a plateau gives one in each reach."""
    taken = np.zeros(shape, dtype=bool)
    kept: list[Ints] = []
    for place in places[np.argsort(-heights, kind="stable")]:
        if taken[tuple(place)]:
            continue
        kept.append(place)
        if len(kept) > MOST:
            message = (
                f"image differs from the baseline in more than {MOST} places; "
                "pass a larger cell_size"
            )
            raise ArgumentError(message)
        taken[tuple(slice(max(i - reach, 0), i + reach + 1) for i in place.tolist())] = True
    return np.array(kept, dtype=np.intp).reshape(-1, len(shape))


def _merges(centres: Ints, *, outside: bool) -> Ints:
    """Return Ward's merges of the cells; the area outside of them is merged last."""
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
