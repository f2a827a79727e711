"""The cost policy: limits on the time for setup, and the seconds that a run has spent so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap._util import checks
from hshap._util.recipes import recipe, settle

if TYPE_CHECKING:
    from hshap._util.types import Grid, Shape


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
