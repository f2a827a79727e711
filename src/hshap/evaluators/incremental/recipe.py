"""Incremental: scores of full forward passes, computed only where inputs differ from an anchor.

Hidden pixels equal the baseline, so every activation whose receptive field holds no shown pixel
equals the baseline's, which is computed once. Where few pixels are hidden, the image takes the
baseline's place. The cost policy limits the time that this may take beyond full passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError, require
from hshap.evaluators.batched import Batched

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Grid, Model, Shape
    from hshap.evaluators.incremental.session import IncrementalSession


@recipe
class CostPolicy:
    """How much time `Incremental` may spend on other work than full forward passes.

    Tracing a network, computing the activations of an anchor and trying patches are overhead, which
    a short run of a fast network never earns back. `allowed_overhead` limits it to a share of the
    seconds that full passes would have taken so far, 10 % by default; None sets no limit, and
    patches then run wherever they can. `setup_seconds` is the expected time to trace one module of
    the network. Where a full pass takes `quick_seconds` or more, anchors and patches are tried
    without a look at the overhead: one patch may save more than all of it.

    >>> CostPolicy(allowed_overhead=0.2)
    CostPolicy(allowed_overhead=0.2, setup_seconds=0.0005, quick_seconds=0.05)
    >>> CostPolicy.always().allowed_overhead is None
    True
    """

    allowed_overhead: float | None = 0.1
    setup_seconds: float = 5e-4
    quick_seconds: float = 0.05

    def __post_init__(self) -> None:
        names = ("setup_seconds", "quick_seconds")
        limited = () if self.allowed_overhead is None else ("allowed_overhead",)
        for name in (*names, *limited):
            settle(self, **{name: checks.number(name, getattr(self, name), minimum=0)})

    @classmethod
    def always(cls) -> CostPolicy:
        """Return the policy that runs patches at any price, for tests and for debugging."""
        return cls(allowed_overhead=None)


class CostLedger:
    """The seconds that one run has spent, and the decisions that follow from them.

    Patches are compared with full passes by the shape of images and the size of their rectangles.
    """

    def __init__(self, policy: CostPolicy, *, modules: int) -> None:
        self._policy = policy
        self._setup = policy.setup_seconds * modules
        self._full = 0.0  # seconds that full passes took, or would have taken
        self._overhead = 0.0  # seconds spent beyond that
        self._per_input: dict[Shape, float] = {}  # the fastest full pass of several inputs
        self._slow: set[tuple[Shape, Grid]] = set()
        self._measured: set[tuple[Shape, Grid]] = set()

    def allows(self, seconds: float) -> bool:
        """Tell whether so many more seconds of overhead are allowed."""
        share = self._policy.allowed_overhead
        return share is None or self._overhead + seconds <= share * self._full

    def allows_setup(self, shape: Shape, passes: int) -> bool:
        """Tell whether tracing, and so many extra full passes, are allowed."""
        return self.allows(self._setup + passes * self._per_input.get(shape, 0.0))

    def allows_anchor(self, shape: Shape) -> bool:
        """Tell whether the activations of one more input may be computed."""
        seconds = self._per_input.get(shape, self._policy.quick_seconds)
        return seconds >= self._policy.quick_seconds or self.allows(seconds)

    def allows_patches(self, shape: Shape, size: Grid, *, count: int, alone: float) -> bool:
        """Tell whether rectangles of a size are faster than full passes, or may be tried.

        `count` is the number of inputs, and `alone` the seconds of a full pass of one input.
        """
        if self._policy.allowed_overhead is None:
            return True
        key, quick = (shape, size), self._policy.quick_seconds
        is_quick = self.seconds_per_input(shape, alone) < quick
        barred = is_quick and key not in self._measured and not self.allows(0.0)
        # One full batch runs first: it shows how fast several inputs at a time are.
        unknown = alone < quick and count > 1 and shape not in self._per_input
        return key not in self._slow and not barred and not unknown

    def seconds_per_input(self, shape: Shape, alone: float) -> float:
        """Return the seconds of one input in a full batch; `alone` is used until one has run."""
        return self._per_input.get(shape) or alone

    def add_overhead(self, seconds: float) -> None:
        """Note seconds spent on work that full passes do not need."""
        self._overhead += seconds

    def add_saved(self, full_seconds: float) -> None:
        """Note full passes that were not needed at all."""
        self._full += full_seconds
        self._overhead -= full_seconds

    def add_full(self, shape: Shape, count: int, seconds: float) -> None:
        """Note a full pass of so many inputs."""
        self._full += seconds
        if count > 1:
            each = seconds / count
            self._per_input[shape] = min(each, self._per_input.get(shape, each))

    def add_patches(self, shape: Shape, size: Grid, full_seconds: float, seconds: float) -> None:
        """Note the seconds of rectangles, and the seconds of the full passes that they replaced."""
        self._full += full_seconds
        self._overhead += seconds - full_seconds
        # Not the first time, which includes one-time work such as memory allocation.
        if (shape, size) in self._measured and seconds > full_seconds:
            self._slow.add((shape, size))
        self._measured.add((shape, size))


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
        from hshap.evaluators.incremental.layer_report import report  # noqa: PLC0415, needs torch

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
