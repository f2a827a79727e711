"""Automatic parts: the baseline, partition and search of a run where the caller gives none.

If the baseline is a template, the partition follows the differences from it. Else it follows the
image where the library for it is installed.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.recipes import OwnColour
from hshap.games.search.best_first import BestFirst
from hshap.games.search.paper import DepthFirst
from hshap.partitions.grids import AUTO, Bisection
from hshap.partitions.spots import Spots
from hshap.partitions.superpixels import Superpixels
from hshap.partitions.templates import is_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Image
    from hshap.baselines.protocol import Baseline
    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition


def usual_baseline() -> Baseline:
    """Return the baseline of an explainer without one: the image's own colour."""
    return OwnColour()


def usual_partition(axes: int, needed: Sequence[str] = ("higra", "scipy")) -> Partition:
    """Return the partition for images of so many spatial axes.

    >>> usual_partition(axes=1), usual_partition(axes=2, needed=["no such library"])
    (Bisection(min_size=1), Bisection(min_size=1))
    """
    has_trees = all(find_spec(name) is not None for name in needed)
    return Superpixels() if has_trees and axes > 1 else Bisection(1)


def partition_by_template(
    image: Image, hidden: Image, needed: Sequence[str] = ("scipy",)
) -> Partition | None:
    """Return cells around the differences if the hidden image is a template, else None.

    >>> import numpy as np
    >>> flat = np.zeros((1, 8, 8))
    >>> partition_by_template(np.eye(8)[None], flat) is None
    True
    """
    has_spots = all(find_spec(name) is not None for name in needed)
    usable = has_spots and bool(np.isfinite(hidden).all())
    return Spots(AUTO) if usable and is_template(image, hidden) else None


def usual_search(*, partition_is_given: bool) -> Search:
    """Return the paper's search for a partition that is given, else games in several contexts."""
    return DepthFirst() if partition_is_given else BestFirst()
