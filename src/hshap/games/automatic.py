"""Automatic parts: the partition and search of a run where the caller gives none.

If the baseline is a template, the partition follows the differences from it. Else it follows the
image where the library for it is installed. The search drops parts below
a share of the score. `baseline_choice` chooses the baseline.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from hshap.games.search.depth_first import DepthFirst
from hshap.games.search.share import Share
from hshap.partitions.grids import AUTO, Bisection
from hshap.partitions.spots import Spots
from hshap.partitions.superpixels import Superpixels
from hshap.partitions.templates import is_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Image
    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition

SHARE = 0.2
"""Parts below this share of the strongest finding are dropped."""

SHARE_OF_CELLS = 0.05
"""The same for cells around differences: these are few, and weak findings are among them."""

MOST_EVALUATIONS = 1000


def usual_partition(
    axes: int, needed: Sequence[str] = ("higra", "scipy"), *, guided: bool = False
) -> Partition:
    """Return the partition for images of so many spatial axes, with or without evidence.

    Evidence tells more about the inside of an object than games that cut it, so leaves stay uncut.

    >>> usual_partition(axes=1), usual_partition(axes=2, needed=["no such library"])
    (Bisection(min_size='auto'), Bisection(min_size='auto'))
    """
    has_trees = all(find_spec(name) is not None for name in needed)
    if not has_trees or axes == 1:
        return Bisection(AUTO)
    return Superpixels("uncut") if guided else Superpixels()


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


def usual_search(*, partition_is_given: bool, by_template: bool = False) -> Search:
    """Return the paper's search for a partition that is given, else one that drops small shares."""
    if partition_is_given:
        return DepthFirst()
    share = SHARE_OF_CELLS if by_template else SHARE
    return Share(share, max_evaluations=MOST_EVALUATIONS, of="finding")
