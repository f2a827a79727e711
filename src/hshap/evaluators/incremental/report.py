"""A table of a network's layers: how each runs, and the share of its work that a patch needs."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network

if TYPE_CHECKING:
    from hshap._util.types import Shape
    from hshap.evaluators.incremental.graph import Value

HEAD = ("layer", "operation", "how", "work for a quarter of the side")


def report(module: torch.nn.Module, shape: Shape) -> str:
    """Return the table for images of a shape, or a line that says why no patches can run."""
    network = Network(module)
    if network.reason:
        return f"every input runs in full: {network.reason}"
    grid = shape[1:]
    size = tuple(max(1, n // 4) for n in grid)
    start = tuple((n - m) // 2 for n, m in zip(grid, size, strict=True))
    kind = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    with torch.inference_mode():
        image = torch.zeros((1, *shape), dtype=kind.dtype, device=kind.device)
        activations, _ = network.activations(image)
        data = image[(slice(None), slice(None), *(slice(0, m) for m in size))]
        results = network.results(Patch(data, (start,), image), activations)
    steps = [step for step in network.steps if step.kind != "constant"]
    lines = [HEAD, *((s.name, s.kind, *_how(results[s.name])) for s in steps)]
    widths = [max(len(line[i]) for line in lines) + 3 for i in range(3)]
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)) + line[3]
        for line in lines
    )


def _how(result: Value) -> tuple[str, str]:
    """Return how a step ran, and the share of its output that it computed."""
    if isinstance(result, Patch):
        return "patch", f"{prod(result.size) / prod(result.grid):.2f}"
    return "full", "1.00"
