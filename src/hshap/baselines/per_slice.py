"""A baseline for single slices, applied to each slice of a volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe
from hshap.baselines.protocol import Baseline, Still
from hshap.errors import ArgumentError
from hshap.partitions.by_slices import check_axis

if TYPE_CHECKING:
    from hshap._util.types import Array


@recipe
class PerSlice:
    """Hide the pixels of each slice as another baseline does for a picture.

    `axis` is the number of the spatial axis that the slices lie along. The baseline must not look
    at the pixels that are shown, as `Conditional` does.

    >>> import hshap
    >>> mean_slice = hshap.Mean(np.full((5, 1, 4, 4), 0.5))
    >>> PerSlice(mean_slice)(np.zeros((1, 3, 4, 4)))(()).shape
    (1, 1, 3, 4, 4)
    """

    baseline: Baseline
    axis: int = 0

    def __call__(self, image: Array) -> Still:
        """Return the fill for one volume."""
        check_axis(self.axis, image.shape[1:])
        slices = np.moveaxis(image, self.axis + 1, 0)
        fills = [self.baseline(one) for one in slices]
        moving = next((fill for fill in fills if not isinstance(fill, Still)), None)
        if moving is not None:
            message = (
                f"baseline={checks.shown(self.baseline)} depends on the shown pixels, so slices "
                "cannot be scored one by one; pass one such as Constant, Mean or Blur"
            )
            raise ArgumentError(message)
        # One array for all slices that share it: hidden slices that look alike are scored once.
        stand_ins = [np.asarray(fill(())) for fill in fills]
        return Still(np.stack(stand_ins, axis=self.axis + 2))
