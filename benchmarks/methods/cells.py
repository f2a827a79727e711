"""Methods of captum over a grid of square cells, which hide with the baseline.

Both explain the softmax of column 1. The cells have the size of the smallest thing to be found, so
that these methods know as much of it as ours. A cell's number stands at all its pixels.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from benchmarks.core.protocol import Method
from benchmarks.methods.common import BATCH, PRESENT, as_batch, package, seeded

if TYPE_CHECKING:
    from benchmarks.core.protocol import Image, Map, Subject

SAMPLES = 500


def cells(height: int, width: int, size: int) -> torch.Tensor:
    """Return the number of each pixel's cell (1, 1, height, width)."""
    rows, columns = np.arange(height) // size, np.arange(width) // size
    return torch.from_numpy(rows[:, None] * (columns[-1] + 1) + columns)[None, None]


def explain(subject: Subject, image: Image, kind: str, **settings: Any) -> Map:
    """Explain squares with a method of captum's, by its name and settings."""

    def score(batch: torch.Tensor) -> torch.Tensor:
        return torch.softmax(subject.model(batch), 1)[:, PRESENT]

    method = getattr(package("captum.attr"), kind)(score)
    with torch.no_grad(), seeded(subject.seed):
        found = method.attribute(
            as_batch(image),
            baselines=as_batch(subject.baseline),
            feature_mask=cells(*image.shape[1:], subject.size),
            perturbations_per_eval=BATCH,
            **settings,
        )
    # Every channel holds the same numbers, since a cell covers them all.
    return found[0, 0].double().numpy()


METHODS = (
    Method(
        "captum FeatureAblation",
        "captum",
        partial(explain, kind="FeatureAblation"),
        package="captum",
    ),
    Method(
        "captum KernelShap",
        "captum",
        partial(explain, kind="KernelShap", n_samples=SAMPLES),
        package="captum",
    ),
)
