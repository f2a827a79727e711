"""The choice of a baseline: of a few candidates, the model takes the one that it scores lowest.

A low score on the bare baseline is necessary, not sufficient, and among low scores the order says
nothing about the map. So a candidate is taken instead of the first one only if it scores clearly
lower. `docs/decisions/0020-the-model-chooses-the-baseline.md` has the trials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hshap.baselines.per_slice import PerSlice
from hshap.baselines.recipes import Blur, Constant, Fixed, Mean, OwnColour
from hshap.evaluators.canvas import Row
from hshap.games.search.budget import first_game
from hshap.games.targets import measure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Grid, Heat
    from hshap.baselines.protocol import Baseline
    from hshap.evaluators.canvas import Canvas
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
    """A baseline, the reason for it in one line, and the evaluations that it took.

    `scores` are those of the image and of the bare baseline, `(2, targets)`; None if nothing was
    compared.
    """

    baseline: Baseline
    reason: str
    evaluations: int
    scores: Heat | None = None


def usual_baselines(grid: Grid) -> tuple[Baseline, ...]:
    """Return the candidates for images of a grid if none is given.

    >>> usual_baselines((64, 80))
    (OwnColour(cells=1), OwnColour(cells=4), Blur(sigma=8.0))
    """
    return OwnColour(), OwnColour(CELLS), Blur(max(1.0, WIDEST_BLUR * min(grid)))


def choose_baseline(
    session: Session,
    targets: Sequence[Target],
    candidates: Sequence[tuple[Baseline, Canvas]],
    budget: int | None = None,
    parts: int = 2,
) -> Choice:
    """Return the candidate on which the model scores lowest; the first one if it is near that.

    `candidates` have their canvases of the image, over its whole grid. With a `budget` of
    evaluations, only the candidates that fit are compared, see `affordable`; `parts` are those of
    the image's root. A single candidate takes no evaluation.
    """
    few = affordable([canvas.draws for _, canvas in candidates], budget, parts)
    baselines, canvases = zip(*(candidates[number] for number in few), strict=True)
    names = [name_of(one) for one in baselines]
    missing = len(candidates) - len(few)
    note = f"; {_count(missing)} not compared: the budget has no room" if missing else ""
    if len(baselines) == 1:
        return Choice(baselines[0], f"hidden pixels show {names[0]}{note}", 0)
    hidden = [[Row(canvas, (), draw) for draw in range(canvas.draws)] for canvas in canvases]
    first = canvases[0]
    groups = [[Row(first, (first.root,), 0)], *hidden]
    rows = [row for group in groups for row in group]
    most = session.capacity(first.shape, first.image.dtype.itemsize)
    scored = [session.score(rows[start : start + most]) for start in range(0, len(rows), most)]
    outputs = np.concatenate(scored)
    values = np.stack([measure(target, outputs) for target in targets], axis=1)
    ends = np.cumsum([len(group) for group in groups])
    of_image, *of_hidden = (group.mean(axis=0) for group in np.split(values, ends[:-1]))
    best = _best(of_image, np.stack(of_hidden))
    both = np.stack([of_image, of_hidden[best]])
    shown = f"hidden pixels show {names[best]}"
    if len(targets) > 1:  # a score of one of them would say little about the others
        reason = f"{shown}, chosen for {len(targets)} targets together{note}"
        return Choice(baselines[best], reason, len(rows), both)
    own, scores = float(of_image[0]), [float(one[0]) for one in of_hidden]
    told = [f"{score:.3g} on {name}" for name, score in zip(names, scores, strict=True)]
    others = ", ".join([f"{own:.3g} on the image", *told[:best], *told[best + 1 :]])
    reason = f"{shown} (score {scores[best]:.3g}; {others}{note})"
    return Choice(baselines[best], reason, len(rows), both)


def affordable(draws: Sequence[int], budget: int | None, parts: int) -> list[int]:
    """Return the numbers of the candidates to compare, of which each takes so many evaluations.

    The comparison takes at most a tenth of the budget, and leaves room for the first game of the
    candidate that is taken. The first candidate is always among them.

    >>> affordable([1, 1, 1], 50, parts=2), affordable([1, 300, 1], 1000, parts=2)
    ([0, 1, 2], [0, 2])
    >>> affordable([1, 1, 1], 20, parts=2)
    [0]
    """
    if budget is None:
        return list(range(len(draws)))
    kept, cost, game = [0], 1 + draws[0], first_game(draws[0], parts)
    for number, own in enumerate(draws[1:], start=1):
        largest = max(game, first_game(own, parts))
        if cost + own <= min(AFFORDED * budget, budget - largest):
            kept.append(number)
            cost, game = cost + own, largest
    return kept


def _count(candidates: int) -> str:
    return "1 candidate was" if candidates == 1 else f"{candidates} candidates were"


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
    if isinstance(baseline, PerSlice):
        return f"{name_of(baseline.baseline)}, slice by slice"
    return "a given image" if isinstance(baseline, Fixed) else type(baseline).__name__
