"""Measure one thing in a process of its own, and print what was measured as JSON.

Started by `own_cost` with a JSON object as the only argument. A fresh process makes the peak of
its memory that of one method alone. Linux only: it reads /proc.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import resource
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import hshap
from benchmarks.core.reference import load_reference
from benchmarks.datasets.synthetic import draw, generate
from benchmarks.speed.cases import CASES, METHODS, SHARES, SHOWN, Case, Method, Scene, Share, scene
from hshap.demo.model import ConvNet
from hshap.demo.model import load as load_convnet

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray

THREADS = 2
TARGET = 1
MIN_SIZE = 4
TOLERANCES = (0.0, *(10.0**power for power in range(-6, 3)))
MOST_EVALUATIONS = 1000


@dataclass
class Watch:
    """Adds up the time spent inside a model, and the inputs it was given."""

    seconds: float = 0.0
    evaluations: int = 0

    @contextmanager
    def running(self, inputs: int) -> Generator[None, None, None]:
        started = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - started
        self.evaluations += inputs


class Watched(nn.Module):
    """A torch module around any function of a batch, on a watch."""

    def __init__(self, model: Callable[[torch.Tensor], torch.Tensor], watch: Watch) -> None:
        super().__init__()
        self.model, self.watch = model, watch

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        with self.watch.running(len(batch)):
            return self.model(batch)


def numpy_oracle(drawn: Scene, watch: Watch) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a model that says 1 iff any marker is visible, and looks at nothing else."""

    def oracle(batch: NDArray[Any]) -> NDArray[Any]:
        with watch.running(len(batch)):
            shown = batch[:, 0, drawn.rows, drawn.columns] > SHOWN
            return np.asarray(shown.any(axis=1), dtype=np.float32)

    return oracle


def torch_oracle(drawn: Scene, watch: Watch) -> Watched:
    """Return the same as a torch module, with one class."""
    rows, columns = torch.from_numpy(drawn.rows), torch.from_numpy(drawn.columns)

    def oracle(batch: torch.Tensor) -> torch.Tensor:
        shown = batch[:, 0, rows, columns] > SHOWN
        return shown.any(dim=1, keepdim=True).float()

    return Watched(oracle, watch).eval()


def explain_with_reference(case: Case, method: Method, drawn: Scene, watch: Watch) -> NDArray[Any]:
    """Return the map of the authors' package."""
    explainer = load_reference().Explainer(
        torch_oracle(drawn, watch), torch.from_numpy(drawn.baseline)
    )
    with torch.no_grad():
        # The reference gives the very tensor that it is passed another shape, so pass it a view.
        found = explainer.explain(
            torch.from_numpy(drawn.image)[:],
            label=0,
            s=case.s,
            threshold_mode="absolute",
            threshold=method.threshold,
            softmax_activation=False,
        )
    return found[0].numpy()


def explain_with_hshap(case: Case, method: Method, drawn: Scene, watch: Watch) -> NDArray[Any]:
    """Return our map."""
    explainer = hshap.Explainer(
        (torch_oracle if method.torch else numpy_oracle)(drawn, watch),
        baseline=hshap.Fixed(drawn.baseline),
        partition=getattr(hshap, method.partition)(min_size=case.min_size),
        search=hshap.DepthFirst(tolerance=method.threshold),
    )
    return explainer.explain(drawn.image, target=0).saliency()


def measure_method(case: Case, method: Method, seed: int) -> dict[str, Any]:
    """Explain the image of a case once; the time is that of making the explainer and the map."""
    ways = {"reference": explain_with_reference, "hshap": explain_with_hshap}
    if method.library == "reference":
        load_reference()
    drawn, watch = scene(case, seed), Watch()
    _settle()
    before = _resident()
    started = time.perf_counter()
    found = ways[method.library](case, method, drawn, watch)
    total = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    support = found > 0
    return {
        "total_seconds": total,
        "model_seconds": watch.seconds,
        "outside_seconds": total - watch.seconds,
        "evaluations": watch.evaluations,
        "outside_ms_per_evaluation": 1e3 * (total - watch.seconds) / watch.evaluations,
        "peak_mb": peak / 1e6,
        "peak_above_start_mb": (peak - before) / 1e6,
        "support_pixels": int(support.sum()),
        "support_sha256": hashlib.sha256(np.packbits(support).tobytes()).hexdigest(),
    }


def measure_share(share: Share, seed: int) -> dict[str, Any]:
    """Explain synthetic images with the ConvNet, and take the time inside it.

    The tolerance is the smallest at which one image takes at most a thousand evaluations: with a
    trained model that is 0. Trying it out also warms torch up, whose first calls are slow inside
    the model and would flatter the share.
    """
    rng = np.random.default_rng(seed)
    images = [draw(rng, crosses=3).image for _ in range(share.images)]
    baseline = hshap.Mean(generate(64, seed).images)
    model, weights = _convnet(seed)
    watch = Watch()

    def explainer(tolerance: float, limit: int | None = None) -> hshap.Explainer:
        return hshap.Explainer(
            Watched(model, watch).eval(),
            baseline=baseline,
            partition=getattr(hshap, share.partition)(min_size=MIN_SIZE),
            search=hshap.DepthFirst(tolerance=tolerance, max_evaluations=limit),
        )

    tolerance = _tolerance(explainer, images[0])
    chosen = explainer(tolerance)
    watch.seconds, watch.evaluations = 0.0, 0
    _settle()
    started = time.perf_counter()
    if share.images == 1:
        chosen.explain(images[0], target=TARGET)
    else:
        list(chosen.explain_many((image, TARGET) for image in images))
    total = time.perf_counter() - started
    return {
        "total_seconds": total,
        "model_seconds": watch.seconds,
        "outside_seconds": total - watch.seconds,
        "evaluations": watch.evaluations,
        "outside_ms_per_evaluation": 1e3 * (total - watch.seconds) / watch.evaluations,
        "share_inside_model": watch.seconds / total,
        "tolerance": tolerance,
        "weights": weights,
    }


def _tolerance(explainer: Callable[[float, int], hshap.Explainer], image: NDArray[Any]) -> float:
    for tolerance in TOLERANCES:
        found = explainer(tolerance, MOST_EVALUATIONS).explain(image, target=TARGET)
        if not found.unfinished:
            return tolerance
    message = f"no tolerance up to {TOLERANCES[-1]} ends within {MOST_EVALUATIONS} evaluations"
    raise RuntimeError(message)


def _convnet(seed: int) -> tuple[nn.Module, str]:
    try:
        return load_convnet(), "trained"
    except FileNotFoundError:
        torch.manual_seed(seed)
        return ConvNet().eval(), "random"


def _settle() -> None:
    """Pay the garbage collector for what the imports left.

    Its first full pass goes over all of torch and takes some 80 ms, more than many a run; garbage
    that a method makes itself is still on its own bill.
    """
    gc.collect()


def _resident() -> int:
    """Return the bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _stay_within_memory() -> None:
    """Let an allocation fail rather than the machine run out of memory."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    limit = available * 1024 * 9 // 10
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


class Others:
    """Tells what share of the CPUs other processes took since it was made."""

    def __init__(self) -> None:
        self._wall, self._busy, self._own = self._now()

    def share(self) -> float:
        wall, busy, own = self._now()
        theirs = (busy - self._busy) - (own - self._own)
        # Ticks are coarse, so on an idle machine the difference can fall below nothing.
        return max(theirs, 0.0) / ((wall - self._wall) * (os.cpu_count() or 1))

    @staticmethod
    def _now() -> tuple[float, float, float]:
        user, nice, system, _, _, irq, softirq, steal, *_ = (
            int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        )
        ticks = user + nice + system + irq + softirq + steal
        return time.perf_counter(), ticks / os.sysconf("SC_CLK_TCK"), time.process_time()


def _named(items: tuple[Any, ...], name: str) -> Any:
    return next(item for item in items if item.name == name)


def main() -> None:
    task = json.loads(sys.argv[1])
    torch.set_num_threads(THREADS)
    _stay_within_memory()
    others = Others()
    try:
        if "share" in task:
            measured = measure_share(_named(SHARES, task["share"]), task["seed"])
        else:
            case, method = _named(CASES, task["case"]), _named(METHODS, task["method"])
            measured = measure_method(case, method, task["seed"])
    except (MemoryError, RuntimeError) as error:
        # torch on the CPU has no exception of its own for memory that ran out.
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        measured = {"failed": "out of memory"}
    print(json.dumps({**measured, "others_cpu": others.share()}))


if __name__ == "__main__":
    main()
