"""The share of an explanation's time that `Incremental` spends in the network's own operations.

One thread, and CPU time of the process: other work on the machine changes the share little.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

import hshap
from benchmarks.models.zoo import made
from benchmarks.speed import explaining
from benchmarks.speed.cases import Case, scene

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MARKERS = 14
OPERATIONS = {
    *("conv1d", "conv2d", "conv3d", "conv_transpose2d", "linear", "batch_norm", "relu", "relu_"),
    *("hardtanh", "relu6", "hardtanh_", "silu", "gelu", "sigmoid", "leaky_relu", "hardswish"),
    *("max_pool2d", "boolean_dispatch", "avg_pool2d", "adaptive_avg_pool2d", "interpolate"),
    *("add", "mul", "cat", "mean", "amax", "flatten", "logsumexp", "dropout", "fn"),
}
"""Names of the functions that the networks themselves call."""

COPIES = {"__setitem__", "copy_", "clone", "fill_", "contiguous", "empty", "to"}


class Stopwatch(TorchFunctionMode):
    """Adds up the CPU time of every torch function by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        started = time.process_time()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            name = getattr(func, "__name__", None) or str(resolve_name(func))
            self.seconds[name] += time.process_time() - started
            self.calls[name] += 1


def shares(name: str, grid: Sequence[int], *, channels_last: bool = False) -> dict[str, Any]:
    """Explain an image of 14 markers: CPU seconds by kind of operation, and the network's share."""
    torch.set_num_threads(1)
    case = Case(name, (3, *grid), MARKERS)
    drawn, network = scene(case), made(name)
    inner = hshap.Incremental(network, channels_last=channels_last)
    way = explaining.Decided(inner, drawn)
    with hshap.keep_memory():
        explaining.with_hshap(way, case, drawn, "Bisection")
        watch = Stopwatch()
        started = time.process_time()
        with watch:
            found = explaining.with_hshap(way, case, drawn, "Bisection")
        total = time.process_time() - started
    kinds = {"network": 0.0, "copies": 0.0, "other": 0.0}
    for key, seconds in watch.seconds.items():
        kind = "network" if key in OPERATIONS else "copies" if key in COPIES else "other"
        kinds[kind] += seconds
    kinds["python"] = total - sum(kinds.values())
    return {
        "network": name,
        "grid": list(grid),
        "evaluations": found.evaluations,
        "leaves": len(found.leaves),
        "seconds": total,
        "kinds": kinds,
        "share": kinds["network"] / total,
        "functions": dict(sorted(watch.seconds.items(), key=lambda item: -item[1])[:12]),
        "calls": {n: watch.calls[n] for n in sorted(watch.seconds, key=watch.seconds.get)[-12:]},
    }
