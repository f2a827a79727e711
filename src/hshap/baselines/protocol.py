"""The contract of a baseline.

A baseline is a callable from an image to a *fill*. A fill is a callable from the regions that are
shown to stand-ins `(draws, *image.shape)` for the pixels that are not. The value of a coalition is
the mean of the model's score over the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np

    from hshap._util.types import Array, Image, Shape
    from hshap.partitions.protocol import Coalition


class Fill(Protocol):
    """Gives the stand-ins for one image."""

    def __call__(self, kept: Coalition, /) -> Array:
        """Return stand-ins `(draws, *image.shape)` for the pixels outside of `kept`."""
        ...


@runtime_checkable
class Baseline(Protocol):
    """A recipe for the pixels that a model sees in place of hidden ones. Any callable will do.

    >>> import hshap
    >>> import numpy as np
    >>> def median_colour(image):
    ...     colours = np.median(image, axis=(1, 2), keepdims=True)
    ...     return hshap.protocols.Still(np.broadcast_to(colours, image.shape)[None])
    >>> isinstance(median_colour, Baseline), median_colour(np.zeros((3, 4, 4)))(()).shape
    (True, (1, 3, 4, 4))
    """

    def __call__(self, image: Image, /) -> Fill:
        """Return the fill for one image."""
        ...


@dataclass(frozen=True, eq=False)
class Still:
    """Stand-ins that are the same whichever regions are shown; evaluators rely on that.

    >>> import numpy as np
    >>> Still(np.zeros((1, 3, 4, 4)))(()).shape
    (1, 3, 4, 4)
    """

    images: Array

    def __call__(self, kept: Coalition) -> Array:
        """Return the stand-ins `(draws, *image.shape)`."""
        del kept
        return self.images


@runtime_checkable
class IgnoresImage(Protocol):
    """A baseline that does not look at the image, so that all images of a shape share it."""

    def still(self, shape: Shape, dtype: np.dtype) -> Still:
        """Return the fill for every image of a shape and type."""
        ...
