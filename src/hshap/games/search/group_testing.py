"""Group testing: as few questions as the number of possible answers allows, and a certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.games.search.answers import Answers
from hshap.games.search.budget import Budget, checked_limits
from hshap.games.search.hunt import Hunt
from hshap.games.search.order import Row

if TYPE_CHECKING:
    from hshap.games.search.protocol import Asking
    from hshap.partitions.protocol import Region


@recipe
class GroupTesting:
    """Find the relevant leaves with about as few questions as possible, and certify the answer.

    A question shows the union of some leaves. They are asked about in the order of the tree, in
    groups whose size follows the relevant leaves found so far (Hwang's generalised binary
    splitting). A group is relevant if it adds more than `tolerance` to the baseline, in units of
    the target, and more than `share` of the score that the image adds.

    Under the paper's assumption the result is that of `DepthFirst` on the same partition, with
    about two thirds of the evaluations. The games on the way to the leaves are then inferred by the
    OR rule, not played. `explanation.certificate` says what was measured: every leaf has
    the score by itself, all leaves together keep it, the image without them has lost it, and no
    answer contradicts the rule. They support the inferred values and prove them only for models
    that never score less for showing more. If a check fails, the search continues until the leaves
    keep the score and the rest has lost it, and plays all games on the way, so that no value is
    inferred.

    `checks` measures so many of the values that would be inferred, drawn at random. It finds a
    model that breaks the rule in a share `p` of them with a chance of `1 - (1 - p) ** checks`. With
    as many checks as values, all are measured.

    With `min_size="auto"`, a leaf that does not add to the score by itself is replaced by the
    smallest region around it that does. Up to `width` questions are asked at once. With
    `max_evaluations` or `max_seconds`, regions that are still unsplit at the end are leaves.

    >>> import hshap
    >>> import numpy as np
    >>> image = np.zeros((1, 64, 64))
    >>> image[0, 20, 50] = 1.0
    >>> explanation = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Bisection(min_size=1),
    ...     search=GroupTesting(),
    ... ).explain(image, target=0)
    >>> explanation.leaves, explanation.certificate.word
    ((Box(start=(20, 50), stop=(21, 51)),), 'supported')
    """

    tolerance: float = 0.0
    share: float = 0.0
    max_evaluations: int | None = None
    max_seconds: float | None = None
    width: int = 64
    checks: int = 0

    def __post_init__(self) -> None:
        settle(self, tolerance=checks.number("tolerance", self.tolerance, minimum=0.0))
        settle(self, share=checks.number("share", self.share, minimum=0.0, maximum=1.0))
        settle(self, checks=checks.integer("checks", self.checks, minimum=0))
        settle(self, **checked_limits(self.max_evaluations, self.max_seconds, self.width))

    def __call__(self, root: Region, draws: int = 1) -> Asking:
        """Ask about coalitions, receive their scores and return the leaves."""
        budget = Budget(self.max_evaluations, self.max_seconds, draws)
        answers = Answers(Row(root), budget, draws)
        yield from answers.begin()
        tolerance = max(self.tolerance, self.share * max(answers.total, 0.0))
        hunt = Hunt(answers, tolerance, self.width, self.checks)
        yield from hunt.run()
        equal_to = replace(self, tolerance=tolerance, share=0.0) if self.share else None
        return replace(hunt.result(), equal_to=equal_to)
