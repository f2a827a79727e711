"""Automatic parts: the baseline, partition and search of a run where the caller gives none.

The baseline is chosen by the model: candidates made of the image itself are scored with nothing
shown, and the one with the lowest score is taken. The partition follows the image where the library
for it is installed. The search drops parts below a share of the score.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.recipes import Blur, OwnColour
from hshap.evaluators.canvas import Row
from hshap.evaluators.easel import Easel
from hshap.games.search.depth_first import DepthFirst
from hshap.games.search.share import Share
from hshap.games.targets import measure
from hshap.partitions.grids import AUTO, Bisection
from hshap.partitions.regions import Box
from hshap.partitions.superpixels import Superpixels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Image
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.protocol import Session
    from hshap.games.search import Search
    from hshap.games.targets import Target
    from hshap.partitions.protocol import Partition

SHARE = 0.05
"""Parts below this share of the score that the image adds are dropped."""

MOST_EVALUATIONS = 1000

WIDEST_BLUR = 1 / 8
"""Standard deviation of the blurred candidate, in lengths of the shortest side."""

BETTER = 0.05
"""A later candidate is taken if it lowers the score by this share more than the first."""


@dataclass(frozen=True)
class Choice:
    """A baseline, the reason for it in one line, and the evaluations that it took."""

    baseline: Baseline
    reason: str
    evaluations: int


def choose_baseline(
    session: Session, image: Image, targets: Sequence[Target], position: int
) -> Choice:
    """Return the candidate on which the model scores lowest; the image's own colour if all tie.

    `position` is the image's number in the run.
    """
    sigma = max(1.0, WIDEST_BLUR * min(image.shape[1:]))
    candidates: dict[str, Baseline] = {
        "the image's own colour": OwnColour(),
        f"a blur of {sigma:.3g} pixels": Blur(sigma),
    }
    whole = Box((0,) * (image.ndim - 1), image.shape[1:])
    canvases = [
        Easel(one, session.put).canvas(image, whole, position) for one in candidates.values()
    ]
    rows = [Row(canvases[0], (whole,), 0), *(Row(canvas, (), 0) for canvas in canvases)]
    most = session.capacity(image.shape, canvases[0].image.dtype.itemsize)
    parts = [session.score(rows[first : first + most]) for first in range(0, len(rows), most)]
    outputs = np.concatenate(parts)
    scores = np.stack([measure(target, outputs) for target in targets], axis=1).mean(axis=1)
    # A candidate without a finite score is never the best.
    drops = np.nan_to_num(scores[0] - scores[1:], nan=-np.inf)
    best = int(np.argmax(drops))
    if drops[best] <= drops[0] + BETTER * abs(drops[0]):
        best = 0
    name = list(candidates)[best]
    told = ", ".join(
        f"{score:.3g} on {one}" for one, score in zip(candidates, scores[1:], strict=True)
    )
    reason = f"hidden pixels show {name} (score {scores[0]:.3g} on the image; {told})"
    return Choice(candidates[name], reason, len(rows))


def usual_partition(axes: int, needed: Sequence[str] = ("higra", "scipy")) -> Partition:
    """Return the partition for images of so many spatial axes.

    >>> usual_partition(axes=1), usual_partition(axes=2, needed=["no such library"])
    (Bisection(min_size='auto'), Bisection(min_size='auto'))
    """
    has_trees = all(find_spec(name) is not None for name in needed)
    return Superpixels() if has_trees and axes > 1 else Bisection(AUTO)


def usual_search(*, partition_is_given: bool) -> Search:
    """Return the paper's search for a partition that is given, else one that drops small shares."""
    if partition_is_given:
        return DepthFirst()
    return Share(SHARE, max_evaluations=MOST_EVALUATIONS)
