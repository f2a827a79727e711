"""Spots: a partition that looks only where the image differs from the baseline."""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from hshap._util import checks
from hshap._util.axes import checked_spacing, ratios
from hshap._util.recipes import QUIET, recipe, settle
from hshap._util.smoothing import gaussian
from hshap.errors import ArgumentError, require
from hshap.partitions.grids import AUTO
from hshap.partitions.merge_tree import MergeTree, Segment
from hshap.partitions.templates import difference_of

if TYPE_CHECKING:
    from hshap._util.axes import Spacing
    from hshap._util.types import Grid, Heat, Image, Ints
    from hshap.partitions.protocol import Region


LEAST = 0.02
"""A cell is placed where the difference is at least this share of the largest difference."""

NOISE = 3.0
"""And where it stands out from the median difference by so many standard deviations."""

MOST_NOISE = 0.5
"""The largest limit that noise can set, as a share of the largest difference."""

MARGIN = 5
"""Pixels around a typical difference that an automatic cell has on each side."""

SMOOTHING = 2.0
"""Standard deviation, in pixels, at which the size of differences is measured."""

MOST = 4096
"""Largest number of cells: merging takes memory by the square of it."""


@recipe
class Spots:
    """Put cells where the image differs most from the baseline.

    Pixels that equal the baseline cannot matter: hiding them changes nothing. So if the baseline is
    a picture of the same scene without the finding (a template, an earlier scan), a few cells
    around the differences are enough. `cell_size` is the side of a cell in pixels, about the size
    of a finding; an even size grows by one, since a cell has a pixel in its middle. "auto", the
    default, is the side of a typical difference of this image and 5 pixels more on each side. The
    explainer's baseline decides where the cells are. The area outside of all cells is a region too;
    it is halved by position if it matters. `spacing` is the side of a pixel on each axis; `explain`
    sets it. `cell_size` then counts pixels of the finest axis.

    >>> import hshap
    >>> template = np.zeros((1, 32, 32))
    >>> image = template.copy()
    >>> image[0, 4, 25] = image[0, 20, 7] = 1.0
    >>> parts = Spots(5).compare(image, template).split()
    >>> outside, spots = sorted(parts, key=lambda part: -part.area)
    >>> [[int(axis.mean()) for axis in part.index] for part in spots.split()]
    [[4, 25], [20, 7]]
    """

    cell_size: int | Literal["auto"]
    spacing: Spacing | None = field(default=None, metadata=QUIET)

    def __init__(
        self,
        cell_size: int | Literal["auto"] = AUTO,
        *,
        spacing: Spacing | None = None,
    ) -> None:
        """Take the size of a cell in pixels of the finest axis."""
        settle(self, cell_size=AUTO if cell_size == AUTO else _checked(cell_size))
        settle(self, spacing=checked_spacing(spacing))

    @property
    def is_fixed(self) -> bool:
        """True: cells are fixed to the grid, since the baseline does not move with the image."""
        return True

    def spaced(self, spacing: Spacing) -> Spots:
        """Return the partition for pixels of these sides."""
        return Spots(self.cell_size, spacing=spacing)

    def __call__(self, image: Image) -> Region:
        """Refuse to split an image without the baseline; the explainer calls `compare`."""
        del image
        message = (
            f"{self!r} needs the baseline too; use it in an Explainer, or "
            "call Spots.compare(image, hidden)"
        )
        raise ArgumentError(message)

    def compare(self, image: Image, hidden: Image) -> Region:
        """Return the region of all pixels; `hidden` is the image with every pixel hidden."""
        whole, _ = self._whole(image, hidden)
        return whole.region()

    def cells(self, image: Image, hidden: Image) -> tuple[Region, ...]:
        """Return the cells, those around the largest differences first.

        >>> image = np.zeros((1, 32, 32))
        >>> image[0, 4, 25], image[0, 20, 7] = 1.0, 2.0
        >>> [float(cell.index[0].mean()) for cell in Spots(5).cells(image, np.zeros((1, 32, 32)))]
        [20.0, 4.0]
        """
        whole, count = self._whole(image, hidden)
        return tuple(replace(whole, node=cell).region() for cell in range(count))

    def _whole(self, image: Image, hidden: Image) -> tuple[Segment, int]:
        """Return the rule of the root, and the number of cells, which are its first nodes."""
        size, labels, centres = self._cells(difference_of(image, hidden))
        sides = ratios(self.spacing, labels.ndim)
        tree = _tree(labels, centres, sides)
        lengths = zip(per_side(2 * size, sides), labels.shape, strict=True)
        most = math.prod(min(pair) for pair in lengths)
        return Segment(tree, tree.root, 1, most, parts=2, sides=sides), len(centres)

    def tree(self, image: Image, hidden: Image) -> MergeTree:
        """Return the cells and their merges: close ones first, the area outside of them last."""
        _, labels, centres = self._cells(difference_of(image, hidden))
        return _tree(labels, centres, ratios(self.spacing, labels.ndim))

    def _cells(self, difference: Heat) -> tuple[int, Ints, Ints]:
        """Return the size of the cells, their labels, and the pixels in their middle."""
        sides = ratios(self.spacing, difference.ndim)
        size = usual_size(difference, sides) if isinstance(self.cell_size, str) else self.cell_size
        while True:
            centres = _centres(difference, size, sides)
            if len(centres) <= MOST:
                return size, _labels(difference.shape, centres, size, sides), centres
            if not isinstance(self.cell_size, str):
                message = (
                    f"image differs from the baseline in more than {MOST} places; "
                    'pass a larger cell_size, or "auto"'
                )
                raise ArgumentError(message)
            size *= 2


def per_side(length: float, sides: Spacing) -> tuple[int, ...]:
    """Return a length in pixels of each axis, at least one; it is given in those of the finest.

    >>> per_side(11, (5.0, 1.0, 1.0))
    (2, 11, 11)
    """
    return tuple(max(1, math.floor(length / side + 0.5)) for side in sides)


def usual_size(difference: Heat, sides: Spacing = ()) -> int:
    """Return the side of a cell for a typical difference of an image.

    A difference is an area above half of the largest value, after slight smoothing. Its side is the
    root of its area, in pixels of the finest axis. Half of all sides, added up, belong to
    differences of at most the typical one.

    >>> marks = np.zeros((60, 60))
    >>> marks[10:18, 10:18] = marks[40:48, 40:48] = 1.0
    >>> usual_size(marks)
    18
    """
    ndimage = require("scipy.ndimage", extra="trees", needed_by="Spots")
    own = sides or (1.0,) * difference.ndim
    height = _smoothed(difference, SMOOTHING, own)
    labels, count = ndimage.label(height > height.max() / 2)
    if not count:
        return 2 * MARGIN
    areas = np.bincount(labels.ravel())[1:]
    lengths = np.sort((areas * math.prod(own)) ** (1 / difference.ndim))
    total = np.cumsum(lengths)
    return round(float(lengths[np.searchsorted(total, total[-1] / 2)])) + 2 * MARGIN


def _smoothed(difference: Heat, width: float, sides: Spacing) -> Heat:
    """Return the differences, smoothed alike on all axes in the unit of their sides."""
    if len(set(sides)) == 1:
        return gaussian(difference, width, range(difference.ndim))
    for axis, side in enumerate(sides):
        difference = gaussian(difference, width / side, [axis])
    return difference


def _checked(size: object) -> int:
    if isinstance(size, str):
        message = f'cell_size={checks.shown(size)} is not a size; pass pixels, or "auto"'
        raise ArgumentError(message)
    return checks.integer("cell_size", size, minimum=1)


def _centres(difference: Heat, size: int, sides: Spacing) -> Ints:
    """Return the pixels around which cells lie: the largest differences, the largest first.

    At most one more than `MOST` are returned.
    """
    ndimage = require("scipy.ndimage", extra="trees", needed_by="Spots")
    height = _smoothed(difference, size / 5, sides)
    middle, largest = float(np.median(height)), float(height.max())
    spread = 1.4826 * float(np.median(np.abs(height - middle)))  # that of normal noise
    noise = min(middle + NOISE * spread, MOST_NOISE * largest)
    reach = _reaches((3 * size) // 4, sides)
    window = [2 * far + 1 for far in reach]
    peaks = (height == ndimage.maximum_filter(height, window)) & (
        height > max(LEAST * largest, noise)
    )
    return _apart(np.argwhere(peaks), height[peaks], height.shape, reach)


def _reaches(length: int, sides: Spacing) -> tuple[int, ...]:
    """Return how many pixels of each axis a length reaches from a pixel, to either side."""
    return tuple(math.floor(length / side + 0.5) for side in sides)


def _labels(grid: Grid, centres: Ints, size: int, sides: Spacing) -> Ints:
    """Label the cells from 0 on, and the area outside last."""
    if not len(centres):
        return np.zeros(grid, dtype=np.intp)
    if len(set(sides)) > 1:
        return _long_cells(grid, centres, size, sides)
    ndimage = require("scipy.ndimage", extra="trees", needed_by="Spots")
    numbers = np.zeros(grid, dtype=np.intp)
    numbers[tuple(centres.T)] = np.arange(len(centres))
    away = np.ones(grid, dtype=bool)
    away[tuple(centres.T)] = False
    distance, nearest = ndimage.distance_transform_cdt(
        away, metric="chessboard", return_indices=True
    )
    return np.where(distance <= size // 2, numbers[tuple(nearest)], len(centres))


def _long_cells(grid: Grid, centres: Ints, size: int, sides: Spacing) -> Ints:
    """Label cells whose pixels are longer on one axis: each pixel by the centre nearest to it."""
    labels = np.full(grid, len(centres), dtype=np.intp)
    nearest = np.full(grid, np.inf)
    reach = _reaches(size // 2, sides)
    for number, centre in enumerate(centres.tolist()):
        spans = [
            range(max(at - far, 0), min(at + far + 1, length))
            for at, far, length in zip(centre, reach, grid, strict=True)
        ]
        away = [
            np.abs(np.array(span) - at) * side
            for span, at, side in zip(spans, centre, sides, strict=True)
        ]
        distance = np.max(np.meshgrid(*away, indexing="ij"), axis=0)
        box = tuple(slice(span.start, span.stop) for span in spans)
        closer = distance < nearest[box]
        nearest[box][closer], labels[box][closer] = distance[closer], number
    return labels


def _apart(places: Ints, heights: Heat, shape: Grid, reach: Grid) -> Ints:
    """Return the peaks without a higher peak within `reach`; a plateau gives one in each reach."""
    taken = np.zeros(shape, dtype=bool)
    kept: list[Ints] = []
    for place in places[np.argsort(-heights, kind="stable")]:
        if taken[tuple(place)]:
            continue
        kept.append(place)
        if len(kept) > MOST:
            break
        spans = zip(place.tolist(), reach, strict=True)
        taken[tuple(slice(max(i - far, 0), i + far + 1) for i, far in spans)] = True
    return np.array(kept, dtype=np.intp).reshape(-1, len(shape))


def _tree(labels: Ints, centres: Ints, sides: Spacing) -> MergeTree:
    places = centres.astype(np.float64) * np.array(sides)
    return MergeTree(labels, _merges(places, outside=int(labels.max()) == len(centres)))


def _merges(centres: Heat, *, outside: bool) -> Ints:
    """Return Ward's merges of the cells; the area outside of them is merged last."""
    count = len(centres)
    merges = np.zeros((0, 2), dtype=np.intp)
    if count > 1:
        hierarchy = require("scipy.cluster.hierarchy", extra="trees", needed_by="Spots")
        merges = hierarchy.linkage(centres, "ward")[:, :2].astype(np.intp)
    if not (outside and count):
        return merges
    # The outside has the number after the cells, which the merges must leave free.
    shifted = merges + (merges >= count)
    return np.concatenate([shifted, [[2 * count - 1 if count > 1 else 0, count]]])
