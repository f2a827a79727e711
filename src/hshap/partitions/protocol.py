"""The contracts of regions and partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.partitions.regions import Box, Pixels, Rolled

if TYPE_CHECKING:
    from hshap._util.axes import Spacing
    from hshap._util.types import Image, Ints

Index: TypeAlias = "tuple[slice, ...] | tuple[Ints, ...]"
"""One slice or integer array for each spatial axis."""


@runtime_checkable
class Region(Protocol):
    """A hashable set of pixels that can split itself.

    Two regions are equal, and hash alike, if they hold the same pixels. A class needs no base, but
    may inherit from this one to get `adaptive`.

    >>> import hshap
    >>> isinstance(hshap.protocols.Box((0, 0), (2, 3)), Region)
    True
    """

    @property
    def index(self) -> Index:
        """Index of the pixels, for the spatial axes of an array."""
        ...

    @property
    def area(self) -> int:
        """Number of pixels."""
        ...

    @property
    def adaptive(self) -> bool:
        """Whether the search ends a branch by itself, where no part is enough alone.

        Searches ask the root; its answer holds for the whole tree. False: regions are split until
        `split` returns nothing.
        """
        return False

    def split(self) -> tuple[Region, ...]:
        """Return disjoint parts that cover the region, or none if it is a leaf."""
        ...


Coalition: TypeAlias = tuple[Region, ...]
"""The regions that are shown; every other pixel is hidden."""

SplitRule: TypeAlias = Callable[[Any], tuple[Region, ...]]
"""Returns the parts of a region."""


@runtime_checkable
class Partition(Protocol):
    """A recipe from an image to its root region. Any callable will do.

    >>> import hshap
    >>> import numpy as np
    >>> def halves(image):
    ...     return hshap.Bisection(min_size=8)(image)
    >>> isinstance(halves, Partition), halves(np.zeros((3, 16, 16))).area
    (True, 256)
    """

    def __call__(self, image: Image, /) -> Region:
        """Return the region of all pixels of an image `(channels, *grid)`."""
        ...


@runtime_checkable
class ComparesWithBaseline(Protocol):
    """A partition that looks at the baseline as well as at the image, such as `Spots`.

    The explainer then calls `compare` instead of the partition itself.
    """

    def compare(self, image: Image, hidden: Image, /) -> Region:
        """Return the root region; `hidden` is the image with every pixel hidden."""
        ...


@runtime_checkable
class MayBeFixed(Protocol):
    """A partition that can say whether its regions are fixed to the grid, as those of an atlas.

    Fixed regions do not move with the image, so `Shifted` refuses them.
    """

    @property
    def is_fixed(self) -> bool:
        """Whether the regions stay where they are when the image moves."""
        ...


@runtime_checkable
class TakesSpacing(Protocol):
    """A partition whose regions depend on the sides of a pixel, such as `Bisection`."""

    def spaced(self, spacing: Spacing, /) -> Partition:
        """Return the partition for pixels of these sides, one for each spatial axis."""
        ...


def spaced(partition: Partition, spacing: Spacing | None) -> Partition:
    """Return a partition for pixels of these sides; itself if they are unknown or change nothing.

    >>> import hshap
    >>> spaced(hshap.Bisection(8), (5.0, 1.0, 1.0))
    Bisection(min_size=8, spacing=(5.0, 1.0, 1.0))
    """
    if spacing is None or not isinstance(partition, TakesSpacing):
        return partition
    return partition.spaced(spacing)


def as_region(root: object) -> Region:
    """Return the root region that a partition gave, or say why it cannot be used."""
    # The library's own classes first: to check a protocol takes longer than to split an image.
    if isinstance(root, (Box, Rolled, Pixels)):
        return root
    if isinstance(root, Region):
        return root
    message = (
        f"partition returned {checks.shown(root)} for an image; it must return a region, "
        "with index, area, adaptive and split()"
    )
    raise ArgumentError(message)
