"""The choice of a baseline: of a few candidates, the model takes the one that it scores lowest.

A low score on the bare baseline is necessary, not sufficient, and among low scores the order says
nothing about the map. So a candidate is taken instead of the first one only if it scores clearly
lower. `docs/decisions/0020-the-model-chooses-the-baseline.md` has the trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.recipes import Blur, Constant, Fixed, Mean, OwnColour
from hshap.evaluators.canvas import Row
from hshap.evaluators.easel import Easel
from hshap.games.targets import measure
from hshap.partitions.regions import Box

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Grid, Heat, Image
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.protocol import Session
    from hshap.games.targets import Target

CELLS = 4
"""Windows a side of the candidate that follows light and shade."""

WIDEST_BLUR = 1 / 8
"""Standard deviation of the blurred candidate, in lengths of the shortest side."""

BETTER = 0.05
"""A later candidate is taken if it lowers the score by this share more than the first."""

ROUNDING = 1e-4
"""Scores that differ by a smaller share are the same but for rounding."""

AFFORDED = 0.1
"""The share of a budget that the comparison may take."""


@dataclass(frozen=True)
class Choice:
    """A baseline, the reason for it in one line, and the evaluations that it took."""

    baseline: Baseline
    reason: str
    evaluations: int


def usual_baselines(grid: Grid) -> tuple[Baseline, ...]:
    """Return the candidates for images of a grid if none is given.

    >>> usual_baselines((64, 80))
    (OwnColour(cells=1), OwnColour(cells=4), Blur(sigma=8.0))
    """
    return OwnColour(), OwnColour(CELLS), Blur(max(1.0, WIDEST_BLUR * min(grid)))


def choose_baseline(
    session: Session,
    image: Image,
    targets: Sequence[Target],
    position: int,
    candidates: Sequence[Baseline],
) -> Choice:
    """Return the candidate on which the model scores lowest; the first one if it is near that.

    `position` is the image's number in the run. A single candidate takes no evaluation.
    """
    if len(candidates) == 1:
        return Choice(candidates[0], f"hidden pixels show {name_of(candidates[0])}", 0)
    whole = Box((0,) * (image.ndim - 1), image.shape[1:])
    canvases = [Easel(one, session.put).canvas(image, whole, position) for one in candidates]
    hidden = [[Row(canvas, (), draw) for draw in range(canvas.draws)] for canvas in canvases]
    groups = [[Row(canvases[0], (whole,), 0)], *hidden]
    rows = [row for group in groups for row in group]
    most = session.capacity(image.shape, canvases[0].image.dtype.itemsize)
    parts = [session.score(rows[first : first + most]) for first in range(0, len(rows), most)]
    outputs = np.concatenate(parts)
    values = np.stack([measure(target, outputs) for target in targets], axis=1)
    ends = np.cumsum([len(group) for group in groups])
    of_image, *of_hidden = (group.mean(axis=0) for group in np.split(values, ends[:-1]))
    best = _best(of_image, np.stack(of_hidden))
    names = [name_of(one) for one in candidates]
    if len(targets) > 1:  # a score of one of them would say little about the others
        reason = f"hidden pixels show {names[best]}, chosen for {len(targets)} targets together"
        return Choice(candidates[best], reason, len(rows))
    own, scores = float(of_image[0]), [float(one[0]) for one in of_hidden]
    told = [f"{score:.3g} on {name}" for name, score in zip(names, scores, strict=True)]
    others = ", ".join([f"{own:.3g} on the image", *told[:best], *told[best + 1 :]])
    reason = f"hidden pixels show {names[best]} (score {scores[best]:.3g}; {others})"
    return Choice(candidates[best], reason, len(rows))


def affordable(candidates: Sequence[Baseline], budget: int | None) -> Sequence[Baseline]:
    """Return the first candidates that can be compared for a tenth of a budget; at least one.

    >>> len(affordable([OwnColour(), Blur(8.0)], 50)), len(affordable([OwnColour(), Blur(8.0)], 20))
    (2, 1)
    """
    return candidates if budget is None else candidates[: max(1, int(AFFORDED * budget) - 1)]


def _best(own: Heat, scores: Heat) -> int:
    """Return the number of the candidate to take.

    `own` are the scores of the image `(targets,)`, `scores` those of the candidates `(n, targets)`.
    A drop counts as a share of the target's largest one, so that targets do not cancel.
    """
    with np.errstate(invalid="ignore"):
        drops = np.where(np.isfinite(scores), own - scores, -np.inf)
    # A candidate without a finite score is never the best.
    if not np.isfinite(drops[0]).all():
        usable = np.flatnonzero(np.isfinite(drops).all(axis=1))
        return int(usable[0]) if len(usable) else 0
    finite = np.where(np.isfinite(drops), drops, 0.0)
    largest = np.abs(finite).max(axis=0)
    shares = (drops / np.where(largest > 0, largest, 1.0)).mean(axis=1)
    best = int(np.argmax(shares))
    beyond = finite[best] - finite[0] > ROUNDING * np.maximum(np.abs(own), np.abs(scores[0]))
    better = shares[best] > shares[0] + BETTER * abs(shares[0])
    return best if better and beyond.any() else 0


def name_of(baseline: Baseline) -> str:
    """Return a baseline in words.

    >>> name_of(Blur(8.0)), name_of(OwnColour())
    ('a blur of 8 pixels', "the image's own colour")
    """
    if isinstance(baseline, OwnColour):
        near = "" if baseline.cells == 1 else "s nearby"
        return f"the image's own colour{near}"
    if isinstance(baseline, Blur):
        return f"a blur of {baseline.sigma:.3g} pixels"
    if isinstance(baseline, Mean):
        return f"the mean of {baseline.count} images"
    if isinstance(baseline, Constant):
        return f"the colour {baseline.value}"
    return "a given image" if isinstance(baseline, Fixed) else type(baseline).__name__
