"""ResNet-18 on large images with marker pixels: the authors' package against hshap.

The network computes and an oracle decides, see `explaining.Decided`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import hshap
from benchmarks.core.meter import Watch, timed
from benchmarks.models.resnet import ResNet18
from benchmarks.speed import explaining
from benchmarks.speed.cases import RIVAL, SEED, SHAPES, Case, scene

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.speed.cases import PartitionName


def forward_pass(size: str) -> dict[str, Any]:
    """Time one input, after one to warm up: the unit that a user knows."""
    batch = torch.rand(1, *SHAPES[size])
    network = ResNet18(2).eval()
    with torch.inference_mode():
        network(batch)
        return {"seconds": timed(lambda: network(batch))[1]}


def superpixel_tree(size: str) -> dict[str, Any]:
    """Time a tree that follows an image of noise, which takes the longest."""
    image = np.random.default_rng(SEED).random(SHAPES[size], dtype=np.float32)
    hshap.Superpixels()(image[:, :64, :64])
    return {"seconds": timed(lambda: hshap.Superpixels()(image))[1]}


def reference_game(size: str, channels_last: bool = False) -> dict[str, Any]:  # noqa: FBT001, FBT002
    """Time the 16 inputs of one game in one forward pass, as the authors' package does."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    batch = torch.rand(16, *SHAPES[size]).contiguous(memory_format=layout)
    network = ResNet18(2).eval().to(memory_format=layout)
    with torch.no_grad():
        return {"seconds": timed(lambda: network(batch))[1]}


def reference_own_time(size: str, markers: int) -> dict[str, Any]:
    """Explain with the authors' package by the oracle alone: its games and its own time."""
    case = Case(size, SHAPES[size], markers)
    drawn, watch = scene(case), Watch()
    heat, seconds = timed(
        lambda: explaining.with_reference(
            explaining.torch_oracle(drawn, watch), case, drawn, RIVAL.threshold
        )
    )
    return {
        "seconds": seconds,
        "evaluations": watch.evaluations,
        "games": watch.evaluations // 16,
        "leaves": _leaves(heat),
    }


def reference_in_full(size: str, markers: int) -> dict[str, Any]:
    """Explain with the authors' package and the network, which takes minutes."""
    case = Case(size, SHAPES[size], markers)
    drawn = scene(case)
    network, oracle = ResNet18(2).eval(), explaining.torch_oracle(drawn)

    class Both(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            network(batch)
            return oracle(batch)

    heat, seconds = timed(
        lambda: explaining.with_reference(Both().eval(), case, drawn, RIVAL.threshold)
    )
    return {"seconds": seconds, "leaves": _leaves(heat)}


def ours(  # noqa: PLR0913, all are settings of one run
    size: str,
    markers: int,
    *,
    partition: PartitionName = "Bisection",
    incremental: bool = True,
    channels_last: bool = False,
    max_memory: int = 2 * 2**30,
    keep_memory: bool = False,
) -> dict[str, Any]:
    """Explain the same image with hshap and the network.

    `keep_memory` sets the allocator as the commands of hshap do.
    """
    if keep_memory:
        hshap.keep_memory()
    case = Case(size, SHAPES[size], markers)
    drawn = scene(case)
    network = ResNet18(2).eval()
    inner = (
        hshap.Incremental(network, max_memory=max_memory, channels_last=channels_last)
        if incremental
        else hshap.Batched(network, channels_last=channels_last)
    )

    def explain() -> tuple[int, NDArray[Any]]:
        found = explaining.with_hshap(explaining.Decided(inner, drawn), case, drawn, partition)
        return found.evaluations, found.saliency()

    (evaluations, heat), seconds = timed(explain)
    return {"seconds": seconds, "evaluations": evaluations, "leaves": _leaves(heat)}


def _leaves(heat: NDArray[Any]) -> str:
    return explaining.support_digest(heat)[:12]
