"""A sample of the images of a run, explained as the run would do it, to predict its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hshap.cli.faults import few
from hshap.cli.output import say
from hshap.cli.progress import Shown
from hshap.cli.runs.run import first_outputs, refusals
from hshap.evaluators.allocator import keep_memory
from hshap.explainer.predicting import predicted_cost

if TYPE_CHECKING:
    from hshap.cli.options import MethodOptions
    from hshap.cli.runs.plan import Plan
    from hshap.explainer.predicting import PredictedCost

SEED = 0


def sampled_cost(
    plan: Plan, method: MethodOptions, images: int | None, most: int, *, skip_bad: bool = False
) -> tuple[PredictedCost, tuple[int, int]]:
    """Explain up to `most` images of a plan, drawn by chance, and return the cost of `images`.

    Without a number, all images of the plan count. The size of an explained image is returned too.
    Bad images in the sample are refused, or with `skip_bad` left out and noted in `plan.bad`.
    """
    order = np.random.default_rng(SEED).permutation(len(plan.files))[:most]
    drawn = replace(plan, files=tuple(plan.files[number] for number in order))
    usable = drawn.check()
    if not usable or (drawn.bad and not skip_bad):
        end = "pass --skip-bad to leave them out" if usable else ""
        raise refusals(drawn.bad, len(drawn.bad) + len(usable), end)
    count = images or len(plan.files) - (len(drawn.files) - len(usable))
    with keep_memory(), Shown("explaining a sample"):
        outputs = first_outputs(drawn, usable, skip_bad=skip_bad)
        explainer = method.explainer(drawn.loaded, drawn.reader)
        pairs = drawn.pairs(usable, outputs)
        found = predicted_cost(
            explainer, pairs, images=count, most=most, positives=method.positives
        )
    for line in few([f"left out of the sample: {one.line}" for one in drawn.bad]):
        say(line)
    return found, drawn.asked[0].size
