"""Automatic parts: the partition and search of a run where the caller gives none.

The partition follows the image where the library for it is installed. The search drops parts below
a share of the score. `baseline_choice` chooses the baseline.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from hshap.games.search.depth_first import DepthFirst
from hshap.games.search.share import Share
from hshap.partitions.grids import AUTO, Bisection
from hshap.partitions.superpixels import Superpixels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition

SHARE = 0.2
"""Parts below this share of the strongest finding are dropped."""

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


def usual_search(*, partition_is_given: bool) -> Search:
    """Return the paper's search for a partition that is given, else one that drops small shares."""
    if partition_is_given:
        return DepthFirst()
    return Share(SHARE, max_evaluations=MOST_EVALUATIONS, of="finding")
