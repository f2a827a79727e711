"""Decisions: whether the model decides for a target, by the scale of its own outputs.

This is the one place with the rule. Runs and commands explain the images it calls positive, and
an explanation tells when its image is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.games.targets import Output, class_index, measure

if TYPE_CHECKING:
    from hshap._util.types import Heat
    from hshap.games.targets import Target

HALF = 0.5
DECISION = "the model's decision"
CLOSE = 1e-3
"""Probabilities of classes that exclude each other add up to 1, but for this."""


@recipe
class Positives:
    """The images that are explained: the model decides for the target, above the baseline.

    The decision follows the scale of the model's outputs:

    - several outputs, and any softmax: the target's is the highest.
    - outputs from 0 to 1 on image and baseline that do not add up to 1, a single one among them,
      and any sigmoid: the target's is above one half.
    - any other single output is read as a logit: it is above 0.
    - a callable of the user's has no known scale: it need only be above its baseline.

    `min_score` takes the place of this rule: the score is at least this number. In any case, the
    score is above that of the bare baseline: else there is nothing to find.

    >>> Positives().reason(0, np.array([0.03]), np.array([[0.01]]))
    '0.03 is not above one half'
    >>> Positives().reason(0, np.array([1.5, -2.0]), np.array([[0.5, 0.0]]))
    ''
    """

    min_score: float | None = None

    def __post_init__(self) -> None:
        if self.min_score is not None:
            settle(self, min_score=checks.number("min_score", self.min_score, minimum=-np.inf))

    @property
    def rule(self) -> str:
        """The rule in a few words, for the rows of a run.

        >>> Positives().rule, Positives(0.2).rule
        ("the model's decision", 'a score of at least 0.2')
        """
        return DECISION if self.min_score is None else f"a score of at least {self.min_score!r}"

    def reason(self, target: Target, outputs: Heat, hidden: Heat) -> str:
        """Return why the model's decision is negative; empty if it is positive.

        `outputs` `(classes,)` are the model's for the image, `hidden` `(draws, classes)` those for
        the bare baseline. Whether the score is above the baseline's is for `not_above`, once the
        baseline is chosen.
        """
        if self.min_score is None:
            return decided_against(target, outputs, hidden)
        score = float(measure(target, outputs[None])[0])
        return f"{score:.3g} is below {self.min_score:.3g}" * (score < self.min_score)


POSITIVES = Positives()
"""The usual rule."""


def not_above(score: float, bare: float) -> str:
    """Return why a score has nothing to explain over its baseline's; empty if it has.

    >>> not_above(0.9, 0.95), not_above(0.9, 0.1)
    ('0.9 is not above its baseline, which scores 0.95', '')
    """
    if score > bare or not np.isfinite(score - bare):  # other numbers are an error elsewhere
        return ""
    return f"{score:.3g} is not above its baseline, which scores {bare:.3g}"


def decided_against(target: Target, outputs: Heat, hidden: Heat) -> str:
    """Return how the model decides against a target; empty if it does not, or nobody knows.

    The arguments are those of `Positives.reason`.
    """
    index, score = class_index(target), float(measure(target, outputs[None])[0])
    if index is None or not np.isfinite(score):
        return ""
    kind = target.activation if isinstance(target, Output) else "raw"
    every = np.concatenate([outputs[None], hidden])
    apart = bool(((every >= 0) & (every <= 1)).all()) and (
        len(outputs) == 1 or not bool((np.abs(every.sum(axis=1) - 1) <= CLOSE).all())
    )
    if kind == "sigmoid" or (kind == "raw" and apart):
        return f"{score:.3g} is not above one half" * (score <= HALF)
    if len(outputs) == 1:
        return f"{score:.3g} is not above 0" * (kind == "raw" and score <= 0)
    top = int(outputs.argmax())
    return f"output {top} is higher" * bool(outputs[top] > outputs[index])
