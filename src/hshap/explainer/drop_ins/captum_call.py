"""The call of captum: `attribute(inputs, baselines, target)` returns a tensor like the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap._util import checks
from hshap._util.arrays import is_tensor, to_numpy
from hshap._util.recipes import recipe
from hshap.baselines.recipes import Constant, Fixed
from hshap.errors import ArgumentError, require
from hshap.explainer import Explainer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Array, Model, Tensor
    from hshap.baselines.protocol import Baseline
    from hshap.games.search import Search
    from hshap.partitions.protocol import Partition


@recipe
class Attribution:
    """h-Shap with the call of captum's `FeatureAblation` and `ShapleyValues`.

    `attribute` returns a tensor of the shape of `inputs`. It adds up, over all elements of one
    input, to the score of the input minus that of its baseline, but for the share of regions that
    were dropped: `return_convergence_delta=True` returns that difference, too. Channels of a pixel
    have equal values. captum instead repeats the value of a group in each of its elements.

    >>> import torch
    >>> import hshap
    >>> inputs = torch.zeros(1, 1, 8, 8)
    >>> inputs[0, 0, 2, 5] = 1.0
    >>> method = Attribution(lambda batch: batch.max(axis=(2, 3)), partition=hshap.Dyadic(1))
    >>> method.attribute(inputs, target=0)[0, 0, 2].tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    """

    forward_func: Model
    partition: Partition | None = None
    search: Search | None = None

    def __post_init__(self) -> None:
        Explainer(self.forward_func, Constant(0.0), self.partition, self.search)

    def attribute(
        self,
        inputs: Tensor,
        baselines: Tensor | float | None = None,
        target: Tensor | Sequence[int] | int | None = None,
        *,
        return_convergence_delta: bool = False,
    ) -> Tensor:
        """Return attributions like `inputs` `(n, channels, *grid)`, a tensor.

        `baselines` is 0 by default, or a number, or a tensor of one input or of all. `target` is
        one class, or one for each input; None if the model has one output.
        """
        torch = require("torch", extra="torch", needed_by="Attribution.attribute")
        if not is_tensor(inputs) or inputs.ndim < 3:
            message = f"inputs is {checks.shown(inputs)}; pass one tensor (n, channels, *grid)"
            raise ArgumentError(message)
        images = to_numpy("inputs", inputs)
        targets = _targets(target, len(images))
        behind = _baselines(baselines, images)
        explainer = Explainer(self.forward_func, behind[0], self.partition, self.search)
        out, deltas = np.zeros(images.shape), np.zeros(len(images))
        pairs = zip(images, targets, behind, strict=True)
        for found in explainer.explain_many(pairs):
            heat = found.attribution()
            out[found.position] = heat / images.shape[1]
            deltas[found.position] = heat.sum() - (found.score - found.baseline_score)
        made = torch.as_tensor(out).to(inputs)
        return (made, torch.as_tensor(deltas).to(inputs)) if return_convergence_delta else made


def _targets(target: object, count: int) -> list[int]:
    if target is None:
        return [0] * count
    given = np.atleast_1d(to_numpy("target", target))
    if given.ndim != 1 or given.dtype.kind not in "iu" or len(given) not in (1, count):
        message = (
            f"target is {checks.shown(target)} for {count} inputs; pass one class, or one for each"
        )
        raise ArgumentError(message)
    every = [int(one) for one in given]
    return every if len(every) == count else every * count


def _baselines(baselines: object, images: Array) -> list[Baseline]:
    """Return the baseline of each image."""
    if baselines is None or isinstance(baselines, (int, float)):
        return [Constant(float(baselines or 0.0))] * len(images)
    given = to_numpy("baselines", baselines)
    if given.shape[1:] != images.shape[1:] or len(given) not in (1, len(images)):
        message = (
            f"baselines has shape {given.shape} for inputs {images.shape}; pass a number, or one "
            "for all or for each input"
        )
        raise ArgumentError(message)
    every: list[Baseline] = [Fixed(one) for one in given]
    return every if len(every) == len(images) else every * len(images)
