"""`Incremental` on well-known architectures: its error, its gain, and that of other options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from benchmarks.core.meter import timed
from benchmarks.models.zoo import made
from hshap.demo import load
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network

if TYPE_CHECKING:
    from collections.abc import Callable

GRID = (448, 512)
ROWS = 4
PARTS = (2, 4, 8, 16)


def agreement(name: str) -> dict[str, Any]:
    """Run random rectangles incrementally and in full: largest relative difference, and speed-up.

    `faster` holds the speed-up for rectangles of 1/2, 1/4, 1/8 and 1/16 of each side.
    """
    model = made(name)
    network = Network(model)
    rng = torch.Generator().manual_seed(0)
    anchor = torch.rand(1, 3, *GRID, generator=rng)
    worst, faster = 0.0, {}
    with torch.inference_mode():
        activations, _ = network.activations(anchor.clone())
        for part in PARTS:
            size = tuple(n // part for n in GRID)
            starts = tuple(
                tuple(
                    int(torch.randint(n - m + 1, (), generator=rng))
                    for n, m in zip(GRID, size, strict=True)
                )
                for _ in range(ROWS)
            )
            patch = Patch(torch.rand(ROWS, 3, *size, generator=rng), starts, anchor)
            whole = patch.full()
            found, quick = _warm(lambda patch=patch: network.run(patch, activations))
            expected, slow = _warm(lambda whole=whole: model(whole))
            worst = max(worst, float((found - expected).abs().max() / expected.abs().max()))
            faster[str(part)] = slow / quick
    return {"network": name, "difference": worst, "faster": faster}


def options(name: str) -> dict[str, Any]:
    """Time a batch as it is, with channels last, and compiled: the best of five each."""
    model = load() if name == "ConvNet" else made(name)
    batch = torch.rand(32, 3, 100, 120) if name == "ConvNet" else torch.rand(ROWS, 3, *GRID)
    last = batch.contiguous(memory_format=torch.channels_last)
    found: dict[str, Any] = {"network": name}
    with torch.inference_mode():
        found["plain"] = _best(lambda: model(batch))
        found["channels last"] = _best(lambda: model(last))
        try:
            compiled = torch.compile(model)
            found["compiled"] = _best(lambda: compiled(batch))
        except Exception as error:  # noqa: BLE001, it needs a C++ compiler and may fail in many ways
            found["cannot compile"] = type(error).__name__
    return found


def _best(run: Callable[[], torch.Tensor]) -> float:
    return min(_warm(run)[1] for _ in range(5))


def _warm(run: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    run()
    return timed(run)
