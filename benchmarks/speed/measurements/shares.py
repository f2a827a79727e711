"""The share of an explanation's time that `Incremental` spends in the network's own operations.

Seconds are CPU time of one thread: other work on the machine changes shares and ratios little.
"""

from __future__ import annotations

import time
from collections import defaultdict
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

import hshap
from benchmarks.core.meter import Watch
from benchmarks.models.zoo import made
from benchmarks.speed import explaining
from benchmarks.speed.cases import RIVAL, Case, scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MARKERS = 14
TURNS, SECONDS = 3, 8  # turns, and no further one after so many seconds
OPERATIONS = {
    *("conv2d", "linear", "batch_norm", "relu", "relu_", "relu6", "hardtanh", "hardtanh_"),
    *("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "boolean_dispatch", "fn"),
    *("interpolate", "add", "cat", "mean", "amax", "flatten", "dropout"),
    *("silu", "sigmoid", "hardswish", "hardsigmoid", "group_norm"),
}
"""Names of the functions that the networks of the table call."""

SHARED = {"mul": torch.Tensor, "sum": tuple}
"""Functions that the package calls for itself too, and the network's second argument.

A gate multiplies two tensors, the package a tensor by a number. Means over all places run as sums
of parts over several axes.
"""

COPIES = {"__setitem__", "copy_", "clone", "fill_", "contiguous", "empty", "to"}


class Stopwatch(TorchFunctionMode):
    """Adds up the CPU time of every torch function by its name, and by its kind."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self.kinds = {"network": 0.0, "copies": 0.0, "other": 0.0}

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
            seconds = time.process_time() - started
            name = getattr(func, "__name__", str(func))
            self.seconds[name] += seconds
            self.calls[name] += 1
            self.kinds[kind(name, args)] += seconds


def kind(name: str, args: Sequence[Any]) -> str:
    """Return "network" for a call of the network's own operations, "copies" or "other"."""
    is_own = len(args) > 1 and isinstance(args[1], SHARED.get(name, ()))
    if is_own or name in OPERATIONS:
        return "network"
    return "copies" if name in COPIES else "other"


def shares(name: str, grid: Sequence[int], *, channels_last: bool = False) -> dict[str, Any]:
    """Explain an image of 14 markers: CPU seconds by kind of operation, and the network's share.

    Operations are timed in runs of their own, because a stopwatch slows down everything else. The
    share is the median of up to three pairs of runs.
    """
    torch.set_num_threads(1)
    case = Case(name, (3, *grid), MARKERS)
    drawn, network = scene(case), made(name)
    inner = hshap.Incremental(network, channels_last=channels_last)
    way = explaining.Decided(inner, drawn)

    def explain() -> hshap.Explanation:
        return explaining.with_hshap(way, case, drawn, "Bisection")

    found = explain()
    pairs: list[dict[str, float]] = []
    for _ in _turns():
        total, watch = _seconds(explain), Stopwatch()
        with watch:
            explain()
        pairs.append({"total": total, **watch.kinds})
    pairs.sort(key=lambda one: one["network"] / one["total"])
    middle = pairs[len(pairs) // 2]
    return {
        "network": name,
        "grid": list(grid),
        "evaluations": found.evaluations,
        "seconds": middle["total"],
        "kinds": middle,
        "share": middle["network"] / middle["total"],
    }


def against_full_passes(
    name: str, grid: Sequence[int], *, keep_memory: bool = False
) -> dict[str, Any]:
    """Explain the same image with `Incremental` and with full passes, in turns, one thread.

    The reference's way is the CPU time of a batch of 16 inputs for each of its games.
    `keep_memory` sets the allocator as the commands of hshap do.
    """
    if keep_memory:
        hshap.keep_memory()
    torch.set_num_threads(1)
    case = Case(name, (3, *grid), MARKERS)
    drawn, network = scene(case), made(name)
    ways = {"incremental": hshap.Incremental(network), "dense": hshap.Batched(network)}
    seconds: dict[str, list[float]] = defaultdict(list)
    games = torch.from_numpy(drawn.image).expand(16, *case.shape).contiguous()
    evaluations = 0

    def play() -> None:
        with torch.no_grad():
            network(games)

    for _ in _turns():
        for key, inner in ways.items():
            way = explaining.Decided(inner, drawn)
            seconds[key].append(
                _seconds(lambda way=way: explaining.with_hshap(way, case, drawn, "Bisection"))
            )
        seconds["game"].append(_seconds(play))
    watch = Watch()
    oracle = explaining.torch_oracle(drawn, watch)
    explaining.with_reference(oracle, case, drawn, RIVAL.threshold)
    found = explaining.with_hshap(explaining.torch_oracle(drawn), case, drawn, "Bisection")
    evaluations, middle = found.evaluations, {k: median(v) for k, v in seconds.items()}
    return {
        "network": name,
        "grid": list(grid),
        "evaluations": evaluations,
        "leaves": len(found.leaves),
        "games": watch.evaluations // 16,
        "seconds": middle,
        "dense_ratio": middle["dense"] / middle["incremental"],
        "reference_ratio": watch.evaluations // 16 * middle["game"] / middle["incremental"],
    }


def _turns() -> Iterator[int]:
    """Yield up to three turns: no further one once enough time has passed."""
    started = time.perf_counter()
    for turn in range(TURNS):
        if turn and time.perf_counter() - started > SECONDS:
            return
        yield turn


def _seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started
