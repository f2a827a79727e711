"""An easel: checks the images of a run and makes their canvases."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.arrays import read_image, to_numpy
from hshap._util.axes import check_layout
from hshap._util.cache import BoundedCache, ByIdentity
from hshap.baselines.recipes import Blur, Constant, OwnColour
from hshap.evaluators.canvas import Backdrop, Canvas
from hshap.partitions.grids import Bisection, Dyadic, most_regions
from hshap.partitions.protocol import ComparesWithBaseline, as_region

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Array, Image, Tensor
    from hshap.baselines.protocol import Baseline
    from hshap.partitions.protocol import Partition, Region

MOST_SHARED = 8192
"""Regions of grids that are kept for the next images, up to 600 bytes each."""


class Easel:
    """Makes the canvases of one run; `put` brings arrays to the memory of its session.

    >>> import hshap
    >>> easel = Easel(hshap.Constant(0.0), np.asarray, layout="HWC")
    >>> easel.pixels(np.zeros((4, 6, 3))).shape
    (3, 4, 6)
    """

    def __init__(
        self, baseline: Baseline, put: Callable[[Array], Tensor], layout: str | None = None
    ) -> None:
        check_layout(layout)
        self._baseline, self._put, self._layout = baseline, put, layout
        self._backdrop = Backdrop(baseline, put)
        self._roots = BoundedCache[tuple["Region", int]](MOST_SHARED, itemgetter(1))

    def pixels(self, image: object) -> Image:
        """Return a read-only view of the image, for partitions, baselines and samplers."""
        pixels = read_image("image", image, self._layout).view()
        pixels.flags.writeable = False
        return pixels

    def root(self, partition: Partition, pixels: Image) -> Region:
        """Return the root region of an image; images of one grid share it if pixels do not count.

        A region remembers its parts, so that a tree that is not too large is made once for a run.
        """
        if type(partition) in (Dyadic, Bisection):  # a class derived from them may look at pixels
            return self._grid_root(cast("Dyadic | Bisection", partition), pixels)
        # A look at the name first: to check a protocol takes longer than to split an image.
        if hasattr(partition, "compare") and isinstance(partition, ComparesWithBaseline):
            return as_region(partition.compare(pixels, self.hidden(pixels)))
        return as_region(partition(pixels))

    def _grid_root(self, partition: Dyadic | Bisection, pixels: Image) -> Region:
        key = (ByIdentity(partition), pixels.shape[1:])
        kept = self._roots.get(key)
        if kept is not None:
            return kept[0]
        root, regions = partition(pixels), most_regions(partition, pixels.shape[1:])
        if regions <= MOST_SHARED:
            self._roots.put(key, (root, regions))
        return root

    @property
    def may_be_template(self) -> bool:
        """Whether the baseline may show the scene of an image: no colour and no blur does."""
        return not isinstance(self._baseline, (Blur, Constant, OwnColour))

    def hidden(self, pixels: Image) -> Image:
        """Return an image with every pixel hidden; the mean if the baseline draws several."""
        stand_ins = self._backdrop.behind(pixels)
        every = (stand_ins((), draw) for draw in range(stand_ins.draws))
        # One after the other: hundreds of draws of a large image do not fit into memory together.
        total = np.zeros(pixels.shape)
        for one in every:
            total += to_numpy("baseline's answer", one)
        return total / stand_ins.draws

    def draws(self, pixels: Image) -> int:
        """Return the number of stand-ins that the baseline gives for an image."""
        return self._backdrop.behind(pixels).draws

    def canvas(self, pixels: Image, root: Region, position: int) -> Canvas:
        """Return the canvas of an image."""
        stand_ins = self._backdrop.behind(pixels)
        return Canvas(pixels, stand_ins, root, put=self._put, position=position)
