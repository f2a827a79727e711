"""Superpixels: the partition that splits along a merge tree, its options and its own labels."""

from __future__ import annotations

import math
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_pixels, to_numpy
from hshap._util.axes import checked_spacing, ratios
from hshap._util.recipes import QUIET, recipe, settle
from hshap.errors import ArgumentError
from hshap.partitions.grids import AUTO
from hshap.partitions.merge_tree import MergeTree, Segment, link
from hshap.partitions.segmentation import segment
from hshap.partitions.templates import difference_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from hshap._util.axes import Spacing
    from hshap._util.types import Array, Heat, Image, Ints, Tensor
    from hshap.partitions.protocol import Region

MIN_AREA = 25
MAX_AREA = 400
POSITION = 10.0
MOST_PARTS = 4
DISTURBANCE = 0.02  # standard deviation of the noise of a seed, as a share of the value range


@recipe
class Superpixels:
    """Split an image along its own edges: coarsely between objects, finely along their outlines.

    A region of at most `min_area` pixels is a leaf. With `"auto"`, the search ends a branch where
    no part is enough alone. An area without inner edges
    is a leaf unless it has more than `max_area` pixels; it is then halved by position. An
    explainer's baseline shows if such a leaf is mostly background: it is then split into the pixels
    that differ from the baseline and the others. A region is split into up to `parts` pieces, 2 to
    4: two cost two new evaluations, four cost 14. `position` weighs position against colour when
    segments are merged; a higher value makes merged regions more compact. A `seed` adds a little
    noise before the image is segmented, for `cycle_spin`. Images may have any number of channels
    and spatial axes. `spacing` is the side of a pixel on each axis; `explain` sets it. Distances
    and the longest axis are then those in its unit; edges and areas are counted in pixels as
    before, because the step of an edge is as high however far its two pixels are apart.

    `labels` is a segmentation to use instead, `merges` the tree over it; see `from_labels` and
    `from_linkage`.

    >>> image = np.zeros((1, 6, 6))
    >>> image[:, 1:5, 2:5] = 1.0
    >>> [part.area for part in Superpixels(min_area=12)(image).split()]
    [24, 12]
    """

    min_area: int | Literal["auto"] = MIN_AREA
    max_area: int = MAX_AREA
    parts: int = 2
    position: float = POSITION
    seed: int | None = None
    labels: Tensor | None = None
    merges: Tensor | None = None
    spacing: Spacing | None = field(default=None, metadata=QUIET)

    def __post_init__(self) -> None:
        if isinstance(self.min_area, str) and self.min_area != AUTO:
            message = (
                f'min_area must be a whole number or "auto", got {self.min_area!r}; '
                'pass 1 or more, or "auto"'
            )
            raise ArgumentError(message)
        if not isinstance(self.min_area, str):
            least = checks.integer("min_area", self.min_area, minimum=1)
            settle(self, min_area=least)
        most = checks.integer("max_area", self.max_area, minimum=1)
        settle(self, max_area=most)
        parts = checks.integer("parts", self.parts, minimum=2)
        if parts > MOST_PARTS:
            message = f"parts must be at most {MOST_PARTS}, got {parts}; pass 2, 3 or 4"
            raise ArgumentError(message)
        settle(self, parts=parts)
        position = checks.number("position", self.position, minimum=0.0)
        settle(self, position=position)
        if self.seed is not None:
            settle(self, seed=checks.integer("seed", self.seed, minimum=0))
        settle(self, spacing=checked_spacing(self.spacing))
        if self.labels is not None:
            settle(self, labels=_numbered(self.labels))
        if self.merges is not None:
            settle(self, merges=_checked(self.merges, self.labels))

    @classmethod
    def from_labels(
        cls,
        labels: ArrayLike,
        *,
        min_area: int | Literal["auto"] = 1,
        parts: int = 2,
        position: float = POSITION,
    ) -> Superpixels:
        """Return the partition over a segmentation of your own: superpixels, tissues, an atlas.

        `labels` has the image's grid and a whole number for each pixel; every number is a segment
        of its own, 0 and negative ones too, and is never split. Segments that touch are merged by
        colour and position.

        >>> halves = np.repeat([[7, 7, 9, 9]], 4, axis=0)
        >>> [part.area for part in Superpixels.from_labels(halves)(np.zeros((3, 4, 4))).split()]
        [8, 8]
        """
        _refuse_none("labels", labels)
        return cls(min_area=min_area, parts=parts, position=position, labels=labels)

    @classmethod
    def from_linkage(
        cls,
        labels: ArrayLike,
        merges: ArrayLike,
        *,
        min_area: int | Literal["auto"] = 1,
        parts: int = 2,
    ) -> Superpixels:
        """Return the partition over a segmentation whose tree is known.

        `merges` has a row for each merge: the numbers of the two nodes that it joins. Segments are
        numbered from 0 in the order of their labels, and merges continue from there, as in
        `scipy.cluster.hierarchy.linkage`, whose result can be passed as it is.

        >>> strips = np.repeat([[0, 1, 2]], 2, axis=0)
        >>> partition = Superpixels.from_linkage(strips, [[0, 2], [1, 3]])
        >>> [part.area for part in partition(np.zeros((1, 2, 3))).split()]
        [2, 4]
        """
        _refuse_none("labels", labels)
        _refuse_none("merges", merges)
        return cls(min_area=min_area, parts=parts, labels=labels, merges=merges)

    @property
    def is_fixed(self) -> bool:
        """Whether segments are fixed to the grid: they do not move with the image."""
        return self.labels is not None

    def spaced(self, spacing: Spacing) -> Superpixels:
        """Return the partition for pixels of these sides."""
        return replace(self, spacing=spacing)

    def __call__(self, image: Image) -> Region:
        """Return the region of all pixels."""
        return self._root(image)

    def compare(self, image: Image, hidden: Image) -> Region:
        """Return the region of all pixels; `hidden` is the image with every pixel hidden.

        A leaf that is mostly like the hidden image is larger than the object in it. It is split
        once more, into the pixels that differ and the others. Labels of yours are never split, and
        no leaf is if hidden pixels are not finite: some models take NaN for a missing pixel.
        """
        if self.labels is not None or not np.isfinite(hidden).all():
            return self._root(image)
        with np.errstate(over="ignore"):
            apart = difference_of(image, hidden).ravel()
        return self._root(image, apart if np.isfinite(apart).all() else None)

    def _root(self, image: Image, apart: Heat | None = None) -> Region:
        tree = self.tree(image)
        least = 1 if isinstance(self.min_area, str) else self.min_area
        return Segment(
            tree,
            tree.root,
            min_area=least,
            max_area=max(self.max_area, least) if self.labels is None else math.inf,
            parts=self.parts,
            adaptive=self.min_area == AUTO,
            apart=apart,
            sides=ratios(self.spacing, tree.labels.ndim),
        ).region()

    def tree(self, image: Image) -> MergeTree:
        """Return the segments of an image and how they merge."""
        pixels = as_pixels("image", image)
        grid = pixels.shape[1:]
        if self.labels is not None and self.labels.shape != grid:
            message = (
                f"labels has shape {self.labels.shape}, but the image has {grid}; "
                "pass a label for each pixel"
            )
            raise ArgumentError(message)
        if self.labels is not None and self.merges is not None:
            return MergeTree(self.labels, self.merges)
        colours = _colours(pixels, self.seed)
        least = MIN_AREA if isinstance(self.min_area, str) else self.min_area
        labels = segment(colours, grid, least) if self.labels is None else self.labels
        sides = ratios(self.spacing, len(grid))
        return MergeTree(labels, link(labels, colours, self.position, sides))


def _refuse_none(name: str, value: object) -> None:
    if value is None:
        message = f"{name} is None; pass an array, or use Superpixels() to let it segment"
        raise ArgumentError(message)


def _colours(image: Array, seed: int | None) -> NDArray[np.float32]:
    """Return the channels of each pixel `(pixels, channels)`, scaled to the range of the image."""
    values = image.reshape(len(image), -1).T.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    if math.isinf(high - low):  # halves of huge values still have a range
        values, low, high = values / 2, low / 2, high / 2
    if high == low:
        return np.zeros(values.shape, dtype=np.float32)
    values -= low  # our own copy: large images need no further ones
    values /= high - low
    if seed is not None:
        values += np.random.default_rng(seed).normal(0.0, DISTURBANCE, values.shape)
    values /= len(image) ** 0.5
    return values.astype(np.float32)


def _numbered(labels: object) -> Ints:
    """Return the labels numbered from 0 on, in their own order."""
    found = to_numpy("labels", labels)
    if found.dtype.kind not in "iub" or not found.size:
        message = (
            f"labels must be whole numbers, one for each pixel, got {checks.shown(found)} "
            f"of {found.dtype}; pass labels.astype(int)"
        )
        raise ArgumentError(message)
    return np.unique(found, return_inverse=True)[1].reshape(found.shape).astype(np.intp)


def _checked(merges: object, labels: Ints | None) -> Ints:
    if labels is None:
        message = "merges is given without labels; pass both, as Superpixels.from_linkage does"
        raise ArgumentError(message)
    segments = int(labels.max()) + 1
    found = to_numpy("merges", merges)
    rows = segments - 1
    if not found.size and not rows:
        found = np.zeros((0, 2))
    if found.dtype.kind not in "iuf" or (found.ndim == 2 and (found[:, :2] % 1).any()):
        message = f"merges must hold whole numbers of nodes, got {found.dtype}; pass such an array"
        raise ArgumentError(message)
    if found.ndim != 2 or found.shape[0] != rows or found.shape[1] < 2:
        message = (
            f"merges has shape {found.shape}, but {segments} segments take {rows} merges; "
            f"pass an array ({rows}, 2)"
        )
        raise ArgumentError(message)
    # scipy's linkage holds numbers of nodes as floats, and heights and counts beside them.
    pairs = found[:, :2].astype(np.intp)
    later = pairs.max(axis=1, initial=-1) >= np.arange(segments, segments + rows)
    if later.any() or not np.array_equal(np.sort(pairs, axis=None), np.arange(2 * rows)):
        message = (
            "merges must join every node but the last once, and only nodes made before; "
            "number segments from 0 and merges on from there, as scipy's linkage does"
        )
        raise ArgumentError(message)
    return pairs
