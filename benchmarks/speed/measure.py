"""Measure one case of the speed table in a process of its own, and print the result as JSON.

Started by `benchmarks.speed.table` with a JSON object as the only argument: the name of a function
below and its arguments. Linux only: it reads /proc.
"""

from __future__ import annotations

import hashlib
import json
import resource
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.models.resnet import ResNet18
from benchmarks.speed.cases import Case, Scene, scene
from benchmarks.speed.worker import Others, Watch, torch_oracle
from hshap.partitions.regions import blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from hshap.evaluators.canvas import Row

THREADS = 2
PHOTO = (3, 1200, 1600)
LARGE = (3, 4096, 4096)
S = 80
SEED = 0


@dataclass(frozen=True, eq=False)
class Decided:
    """An evaluator that lets a network compute all that is asked for, and an oracle decide.

    So the search goes where the markers are, whatever the network, which is not trained, thinks.
    """

    inner: hshap.Incremental | hshap.Batched
    drawn: Scene

    def open_session(self) -> DecidedSession:
        return DecidedSession(self.inner.open_session(), self.drawn)


class DecidedSession:
    """Scores rows twice: by the network, which takes the time, and by the oracle."""

    def __init__(self, inner: Any, drawn: Scene) -> None:
        self._inner, self._drawn = inner, drawn

    def put(self, array: NDArray[Any]) -> Any:
        return self._inner.put(array)

    def capacity(self, shape: tuple[int, ...], itemsize: int) -> int:
        return self._inner.capacity(shape, itemsize)

    def score(self, rows: Sequence[Row]) -> NDArray[np.float64]:
        self._inner.score(rows)
        return np.array([[float(self._shows(row))] for row in rows])

    def _shows(self, row: Row) -> bool:
        points = list(zip(self._drawn.rows, self._drawn.columns, strict=True))
        bounds = [b for region in row.kept for b in blocks(region, row.canvas.grid)]
        return any(
            top <= y < bottom and left <= x < right
            for (top, left), (bottom, right) in bounds
            for y, x in points
        )


def game_of_reference(size: str, channels_last: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002
    """Time the 16 inputs of one game in one forward pass, as the authors' package makes it."""
    shape = LARGE if size == "large" else PHOTO
    layout = torch.channels_last if channels_last else torch.contiguous_format
    batch = torch.rand(16, *shape).contiguous(memory_format=layout)
    network = ResNet18(2).eval().to(memory_format=layout)
    with torch.no_grad():
        started = time.perf_counter()
        network(batch)
    return {"seconds": time.perf_counter() - started}


def own_of_reference(size: str, markers: int) -> dict[str, Any]:
    """Explain with the authors' package and an oracle that costs nothing: games and own time."""
    from benchmarks.speed.cases import Method
    from benchmarks.speed.worker import explain_with_reference

    case = _case(size, markers)
    drawn, watch = scene(case, SEED), Watch()
    started = time.perf_counter()
    found = explain_with_reference(case, Method("", "reference", threshold=1e-6), drawn, watch)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "evaluations": watch.evaluations,
        "games": watch.evaluations // 16,
        "leaves": _support(found),
    }


def reference(size: str, markers: int) -> dict[str, Any]:
    """Explain with the authors' package: a network computes, an oracle decides. Takes minutes."""
    from benchmarks.core.reference import load_reference

    case = _case(size, markers)
    drawn = scene(case, SEED)
    network, oracle = ResNet18(2).eval(), torch_oracle(drawn, Watch())

    class Both(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            network(batch)
            return oracle(batch)

    explainer = load_reference().Explainer(Both().eval(), torch.from_numpy(drawn.baseline))
    started = time.perf_counter()
    with torch.no_grad():
        found = explainer.explain(
            torch.from_numpy(drawn.image)[:],
            label=0,
            s=case.s,
            threshold_mode="absolute",
            threshold=1e-6,
            softmax_activation=False,
        )
    return {"seconds": time.perf_counter() - started, "leaves": _support(found[0].numpy())}


def ours(  # noqa: PLR0913, all are settings of one run
    size: str,
    markers: int,
    *,
    partition: str = "Bisection",
    incremental: bool = True,
    channels_last: bool = False,
    max_memory: int = 2 * 2**30,
) -> dict[str, Any]:
    """Explain the same image with hshap."""
    case = _case(size, markers)
    drawn = scene(case, SEED)
    network = ResNet18(2).eval()
    inner = (
        hshap.Incremental(network, max_memory=max_memory, channels_last=channels_last)
        if incremental
        else hshap.Batched(network, channels_last=channels_last)
    )
    explainer = hshap.Explainer(
        Decided(inner, drawn),
        baseline=hshap.Fixed(drawn.baseline),
        partition=getattr(hshap, partition)(min_size=case.min_size),
        search=hshap.DepthFirst(0.0),
    )
    started = time.perf_counter()
    found = explainer.explain(drawn.image, target=0)
    heat = found.saliency()
    return {
        "seconds": time.perf_counter() - started,
        "evaluations": found.evaluations,
        "leaves": _support(heat),
    }


def forward(size: str) -> dict[str, Any]:
    """Time one input, after one to warm up: the unit that a user knows."""
    batch = torch.rand(1, *(LARGE if size == "large" else PHOTO))
    network = ResNet18(2).eval()
    with torch.inference_mode():
        network(batch)
        started = time.perf_counter()
        network(batch)
    return {"seconds": time.perf_counter() - started}


def tree(size: str) -> dict[str, Any]:
    """Time a tree that follows an image of noise, the worst for it."""
    shape = LARGE if size == "large" else PHOTO
    image = np.random.default_rng(SEED).random(shape, dtype=np.float32)
    hshap.Superpixels()(image[:, :64, :64])
    started = time.perf_counter()
    hshap.Superpixels()(image)
    return {"seconds": time.perf_counter() - started}


def _case(size: str, markers: int) -> Case:
    return Case(size, LARGE if size == "large" else PHOTO, markers, S)


def _support(found: NDArray[Any]) -> str:
    return hashlib.sha256(np.packbits(found > 0).tobytes()).hexdigest()[:12]


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {
    f.__name__: f for f in (game_of_reference, own_of_reference, reference, ours, forward, tree)
}


def main() -> None:
    from benchmarks.speed import agreement, crosses, growth, short

    task = json.loads(sys.argv[1])
    torch.set_num_threads(THREADS)
    torch.manual_seed(SEED)
    others = Others()
    every = MEASURES | crosses.MEASURES | growth.MEASURES | agreement.MEASURES | short.MEASURES
    measure = every[task.pop("measure")]
    found = measure(**task)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**found, "peak_gb": peak / 1e9, "others_cpu": others.share()}))


if __name__ == "__main__":
    main()
