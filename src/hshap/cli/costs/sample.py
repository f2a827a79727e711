"""A sample of the images of a run, explained as the run would do it, to predict its cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hshap.cli.inputs.choices import baseline_of
from hshap.cli.progress import Shown
from hshap.cli.runs.layout import MANY_IMAGES, faster_layout
from hshap.cli.runs.run import refusals
from hshap.evaluators.allocator import keep_memory
from hshap.explainer.predicting import predicted_cost

if TYPE_CHECKING:
    from hshap.cli.runs.plan import Plan
    from hshap.cli.runs.run import Method
    from hshap.explainer.predicting import PredictedCost

SEED = 0


def sampled_cost(plan: Plan, method: Method, images: int | None, most: int) -> PredictedCost:
    """Explain up to `most` images of a plan, drawn by chance, and return the cost of `images`.

    Without a number, all images of the plan count.
    """
    order = np.random.default_rng(SEED).permutation(len(plan.files))[:most]
    few = replace(plan, files=tuple(plan.files[number] for number in order))
    usable = few.check()
    if not usable or few.bad:
        raise refusals(few.bad, len(few.bad) + len(usable), "")
    baseline = baseline_of(method.baseline, few.reader)
    last = method.channels_last
    with keep_memory(), Shown("explaining a sample"):
        if last is None:  # as the run will do
            many = len(plan.files) >= MANY_IMAGES
            last = many and faster_layout(few.loaded, few.pixels(usable[0]))
        outputs = few.outputs(usable[0])
        explainer = method.explainer(few, baseline, channels_last=last)
        pairs = few.pairs(usable, outputs)
        return predicted_cost(explainer, pairs, images=images or len(plan.files), most=most)
