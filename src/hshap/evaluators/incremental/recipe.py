"""Incremental: scores of full forward passes, computed only where inputs differ from an anchor.

Hidden pixels equal the baseline, so every activation whose receptive field holds no shown pixel
equals the baseline's, which is computed once. Where few pixels are hidden, the image takes the
baseline's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError, require
from hshap.evaluators.batched import Batched
from hshap.evaluators.incremental.cost_policy import CostPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Model
    from hshap.evaluators.incremental.session import IncrementalSession

MAX_MEMORY = 2 * 2**30


@recipe
class Incremental:
    """Give the scores of `Batched`, but recompute only activations that differ from known ones.

    `model` is a torch module in eval mode, best one made of convolutions: layers with a global
    receptive field (group norms, squeeze-and-excitation gates) and all after them run in full. The
    activations of the baseline, and those of the image where little is hidden, are kept up to
    `max_memory` bytes. Where that is not enough, and where patches would be slower, inputs run in
    full; a warning says so if patches are not possible at all. `report` says how each layer runs.
    Batch norms are folded into convolutions. `channels_last` is for pictures: on many CPUs and GPUs
    it is the faster layout. `cost_policy` limits the time spent on setup. Patches pay off on large
    images; for a few evaluations of a small network, `Batched` is faster. An exception of the model
    becomes a `ModelFailedError`.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU()).eval()
    >>> print(Incremental(net).report((1, 64, 64)))
    layer   operation   how     work   why
    _0      Conv2d      patch   0.08
    _1      ReLU        patch   0.08
    <BLANKLINE>
    Patches run to the end. A patch of a quarter of each side needs 8% of the multiplications of a
    full pass.
    """

    model: Model
    batch_size: int | None = None
    max_memory: int = MAX_MEMORY
    channels_last: bool = False
    cost_policy: CostPolicy = CostPolicy()

    def __post_init__(self) -> None:
        torch = require("torch", extra="torch", needed_by="Incremental")
        if not isinstance(self.model, torch.nn.Module):
            message = (
                f"model is {checks.shown(self.model)}, but Incremental takes torch modules; "
                "use Batched for others"
            )
            raise ArgumentError(message)
        _check_policy(self.cost_policy)
        settle(self, max_memory=checks.integer("max_memory", self.max_memory, minimum=0))
        if self.batch_size is not None:  # not "auto", which is for Batched
            settle(self, batch_size=checks.integer("batch_size", self.batch_size, minimum=1))
        self._batched()  # checks the other options

    def open_session(self) -> IncrementalSession:
        """Start a run."""
        # torch is optional, so both are imported here.
        from hshap.evaluators.incremental.activation_cache import ActivationCache  # noqa: PLC0415
        from hshap.evaluators.incremental.session import IncrementalSession  # noqa: PLC0415

        cache = ActivationCache(self.max_memory, channels_last=self.channels_last)
        batched = self._batched().open_session()
        return IncrementalSession(
            self.model, batched, cache, self.cost_policy, batch_size=self.batch_size
        )

    def report(self, shape: Sequence[int]) -> str:
        """Return a table: how each layer runs on images of a shape, and where and why patches end.

        The example is a rectangle of a quarter of each side, in the middle. "patch" is computed in
        the rectangle alone, "change" from the rectangle, "full" everywhere. `work` is the share of
        the outputs that are computed.
        """
        from hshap.evaluators.incremental.report import report  # noqa: PLC0415, torch is optional

        return report(self.model, tuple(shape))

    def _batched(self) -> Batched:
        return Batched(self.model, self.batch_size, channels_last=self.channels_last)


def _check_policy(value: object) -> None:
    if not isinstance(value, CostPolicy):
        message = (
            f"cost_policy is {checks.shown(value)}, which is no CostPolicy; pass one, for example "
            "CostPolicy(allowed_overhead=0.2)"
        )
        raise ArgumentError(message)
