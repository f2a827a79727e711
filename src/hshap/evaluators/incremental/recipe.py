"""Incremental: score as the model does, computing only what differs from what is known.

All that is hidden equals the baseline, so every activation beyond the reach of what is shown equals
the baseline's, which is computed once. Where little is hidden, the whole image takes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError, require
from hshap.evaluators.batched import Batched
from hshap.evaluators.incremental.session import IncrementalSession

if TYPE_CHECKING:
    from collections.abc import Sequence

MEMORY = 2 * 2**30


@recipe
class Incremental:
    """Give the numbers of `Batched`, but compute only what differs from the baseline.

    `model` is a torch module in eval mode, best one made of convolutions: what sees all places at
    once runs on whole tensors, and everything after it. The baseline's activations, and the
    image's where little is hidden, are kept, up to `max_memory` bytes; where that is not enough,
    and where it would be slower, inputs are run as a whole; a warning says so where none can be run
    in part. `report` tells layer by layer. Batch norms are folded into convolutions.
    `channels_last` is for pictures: on many CPUs and GPUs it is the faster layout. All this pays on
    large images; for a few evaluations of a small network, `Batched` is quicker.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU()).eval()
    >>> print(Incremental(net).report((1, 64, 64)))
    layer   operation   how     work for a quarter of the side
    _0      Conv2d      patch   0.08
    _1      ReLU        patch   0.08
    """

    model: Any
    batch_size: int | None = None
    max_memory: int = MEMORY
    channels_last: bool = False

    def __post_init__(self) -> None:
        torch = require("torch", extra="torch", needed_by="Incremental")
        if not isinstance(self.model, torch.nn.Module):
            message = (
                f"model is {checks.shown(self.model)}, but Incremental takes torch modules; "
                "use Batched for others"
            )
            raise ArgumentError(message)
        most = checks.integer("max_memory", self.max_memory, minimum=0)
        settle(self, max_memory=most)
        self._dense()  # checks the others

    def open_session(self) -> IncrementalSession:
        """Start a run."""
        return IncrementalSession(self, self.model, self._dense().open_session())

    def report(self, shape: Sequence[int]) -> str:
        """Say how each layer runs on images of a shape, and how much of its work is left.

        The example shows a rectangle of a quarter of each side, in the middle.
        """
        from hshap.evaluators.incremental.traced_network import Network, reported  # noqa: PLC0415, torch is optional

        return reported(Network(self.model), tuple(shape))

    def _dense(self) -> Batched:
        return Batched(self.model, self.batch_size, channels_last=self.channels_last)
