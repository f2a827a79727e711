"""Samplers: draw stand-ins for hidden pixels, given the visible ones.

A sampler is any callable of an image, the mask of its visible pixels, a count and a generator; it
returns that many stand-ins `(count, *image.shape)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import as_images, frozen
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from hshap._util.types import Array, Mask, Tensor

Sampler = Callable[["Array", "Mask", int, np.random.Generator], "Array"]


@recipe
class Similar:
    """A sampler that draws reference images by their similarity on the visible pixels.

    The weight of a reference falls off as a Gaussian of its root-mean-square difference. Its width
    is `bandwidth`, in units of pixel values; by default, the median difference over references.

    >>> sampler = Similar(np.stack([np.zeros((1, 4, 4)), np.ones((1, 4, 4))]), bandwidth=0.1)
    >>> visible = np.ones((4, 4), dtype=bool)
    >>> sampler(np.ones((1, 4, 4)), visible, 3, np.random.default_rng(0)).min().item()
    1.0
    """

    images: Tensor
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        settle(self, images=frozen(as_images("images", self.images)))
        if self.bandwidth is not None:
            checks.number("bandwidth", self.bandwidth, minimum=1e-12)

    def __call__(
        self,
        image: Array,
        visible: Mask,
        draws: int,
        rng: np.random.Generator,
    ) -> Array:
        """Return `draws` reference images, the likely ones more often."""
        check_shape(self.images.shape[1:], image.shape)
        squares = np.zeros(len(self.images))
        if visible.any():
            seen = image[:, visible].astype(np.float64)
            squares[:] = [np.square(other[:, visible] - seen).mean() for other in self.images]
        width = self.bandwidth or float(np.sqrt(np.median(squares))) or 1.0
        # The nearest has weight 1, so that the weights cannot all vanish.
        weights = np.exp((squares.min() - squares) / (2 * width**2))
        return self.images[rng.choice(len(self.images), draws, p=weights / weights.sum())]


def check_shape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse references of another shape than the image's."""
    if shape != wanted:
        message = (
            f"baseline has shape {shape}, but the image has {wanted}; "
            "pass references of the image's own shape"
        )
        raise ArgumentError(message)
