"""PartitionExplainer of shap: Owen values over axis-aligned halves, the paper's closest rival.

It explains the softmax of column 1. Every other setting is that of the authors' experiments: the
mean image for hidden pixels, and `fixed_context=0`, which scores a part with the rest of the
image hidden and so goes twice as deep for the same evaluations. "default" leaves that to the
package, which scores both ways. A batch is the package's default of 10: larger ones split more
regions before it knows which are worth it.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.protocol import Method
from benchmarks.methods.common import (
    PRESENT,
    channels_first,
    channels_last,
    package,
    scores,
    seeded,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from benchmarks.core.protocol import Image, Map, Subject

BUDGETS = (500, 64, 32, 16)


def _explain(subject: Subject, image: Image, budget: int, context: int | None = 0) -> Map:
    pixels = channels_last(image)
    explainer, masker, current = _prepared(pixels.shape)
    masker.mask_value = channels_last(subject.baseline).ravel()
    current.append(subject.model)
    try:
        with seeded(subject.seed):  # it breaks ties between regions at random
            found = explainer(pixels[None], max_evals=budget, fixed_context=context, silent=True)
    finally:
        current.clear()
    return found.values[0].sum(axis=-1)


@lru_cache(maxsize=1)
def _prepared(shape: tuple[int, int, int]) -> tuple[Any, Any, list[nn.Module]]:
    """Return the explainer, its masker, and a list for the one model to be explained.

    Its tree of regions depends on the shape alone and takes seconds to build for photographs. Users
    build it once for all their images, and so do we.
    """
    shap = package("shap")
    current: list[nn.Module] = []

    def score(batch: NDArray[Any]) -> NDArray[Any]:
        return scores(current[0], channels_first(batch, shape[-1]))[:, PRESENT]

    masker = shap.maskers.Image(np.zeros(shape, dtype=np.float32))
    masker.fixed_background = False  # else it would keep the score of the first baseline
    return shap.PartitionExplainer(score, masker), masker, current


def at(budget: int) -> Method:
    """Return PartitionExplainer with that many evaluations, called as the paper's authors did."""
    return Method(f"{FAMILY} {budget}", FAMILY, partial(_explain, budget=budget), package="shap")


def default_at(budget: int) -> Method:
    """Return PartitionExplainer with that many evaluations and its own defaults."""
    explain = partial(_explain, budget=budget, context=None)
    return Method(f"{FAMILY} {budget} default", FAMILY, explain, package="shap")


FAMILY = "PartitionExplainer"
METHODS = (*map(at, BUDGETS), default_at(500))
