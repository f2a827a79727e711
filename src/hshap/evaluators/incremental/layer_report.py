"""A table of a network's layers: how each runs, why patches end, and the work that they leave."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch
from torch import nn

from hshap.evaluators.incremental.function_rules import ELEMENTWISE
from hshap.evaluators.incremental.layer_rules import is_plain
from hshap.evaluators.incremental.network import Network
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.steps import Step, Values, names_in
from hshap.evaluators.incremental.windows import put_together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Shape
    from hshap.evaluators.incremental.network import Activations
    from hshap.evaluators.incremental.steps import Step


HEAD = ("layer", "operation", "how", "work", "why")
"""`work` is the share of the outputs that a step computes."""


def report(module: torch.nn.Module, shape: Shape) -> str:
    """Return the table for images of a shape, or a line that says why no patches can run.

    The rectangle has a quarter of each side, and lies in the middle.
    """
    network = Network(module, shape)
    if network.reason:
        return f"every input runs in full: {network.reason}"
    grid = shape[1:]
    size = tuple(max(1, n // 4) for n in grid)
    start = tuple((n - m) // 2 for n, m in zip(grid, size, strict=True))
    kind = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    with torch.no_grad():
        image = torch.zeros((1, *shape), dtype=kind.dtype, device=kind.device)
        activations, _ = network.activations(image)
        data = image[(slice(None), slice(None), *(slice(0, m) for m in size))]
        patch = Patch(data, (start,), image)
        results = network.results(patch, activations)
        left = _work_left(network, patch, activations)
    steps = [step for step in network.steps if step.kind != "constant"]
    lines = [(s.name, s.kind, *_how(s, steps, results)) for s in steps]
    return f"{_aligned([HEAD, *lines])}\n\n{_summary(lines, left)}"


def _work_left(network: Network, patch: Patch, activations: Activations) -> float | None:
    """Return the share of the multiplications of a full pass that a patch needs, if there are any.

    Multiplications in convolutions and matrix products are counted.
    """
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415, slow to import

    counts: list[int] = []
    for run in (
        lambda: network.run(patch, activations),
        lambda: network.module(put_together(patch.anchor)),
    ):
        with FlopCounterMode(display=False) as counter:
            run()
        counts.append(counter.get_total_flops())
    return counts[0] / counts[1] if counts[1] else None


def _how(step: Step, steps: Sequence[Step], results: Values) -> tuple[str, str, str]:
    """Return how a step ran, the share of its output that it computed, and why not less."""
    result = results[step.name]
    if isinstance(result, Patch):
        return "patch", f"{prod(result.size) / prod(result.grid):.2f}", ""
    if step.reads_shape:
        return "shape", "", ""
    read = [results[name] for name in sorted(names_in((step.args, step.options)) & results.keys())]
    patch = next((value for value in read if isinstance(value, Patch)), None)
    if patch is None:
        return "full", "1.00", ""
    if step.rule is not None and step.rule.drops_space:
        share = prod(patch.size) / prod(patch.grid)
        return "change", f"{share:.2f}", "from the patch, and from the anchor around it"
    readers = [other for other in steps if step.name in names_in((other.args, other.options))]
    return "full", "1.00", reason(step, readers)


def _summary(lines: Sequence[tuple[str, ...]], left: float | None) -> str:
    """Return where patches end, and the work that they leave."""
    ended = next((name for name, _, how, _, why in lines if how == "full" and why), None)
    told = "Patches run to the end." if ended is None else f"Patches end at {ended}."
    if left is None:
        return told
    return (
        f"{told} A patch of a quarter of each side needs {left:.0%} of the multiplications of a\n"
        "full pass."
    )


def _aligned(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(line[i]) for line in lines) + 3 for i in range(len(HEAD) - 1)]
    return "\n".join(
        "".join(
            [*(cell.ljust(n) for cell, n in zip(line, widths, strict=False)), line[-1]]
        ).rstrip()
        for line in lines
    )


STATISTICS = "its statistics are those of all places, so that every output changes"
ALL_PLACES = "every output reads all places"
NOT_ALL_PLACES = "it does not run over all places of each channel"
GATE = "its other argument changes with the input, and so every place does"
UNKNOWN = "no rule for it"
LAYERS: dict[type[nn.Module], str] = {
    nn.GroupNorm: STATISTICS,
    nn.InstanceNorm1d: STATISTICS,
    nn.InstanceNorm2d: STATISTICS,
    nn.InstanceNorm3d: STATISTICS,
    nn.LayerNorm: "it runs over the last axis, which is one of places",
    nn.RMSNorm: "it runs over the last axis, which is one of places",
    nn.Linear: "it runs over the last axis, which is one of places",
    nn.BatchNorm1d: "it has no running statistics, and takes those of all places",
    nn.BatchNorm2d: "it has no running statistics, and takes those of all places",
    nn.BatchNorm3d: "it has no running statistics, and takes those of all places",
    nn.Flatten: ALL_PLACES,
    nn.MultiheadAttention: ALL_PLACES,
}
FUNCTIONS = {
    "flatten": ALL_PLACES,
    "amax": NOT_ALL_PLACES,
    "amin": NOT_ALL_PLACES,
    "max": ALL_PLACES,
    "norm": ALL_PLACES,
    "vector_norm": ALL_PLACES,
    "var": ALL_PLACES,
    "std": ALL_PLACES,
    "sum": NOT_ALL_PLACES,
    "mean": NOT_ALL_PLACES,
    "group_norm": STATISTICS,
    "instance_norm": STATISTICS,
    "layer_norm": STATISTICS,
    "matmul": ALL_PLACES,
    "scaled_dot_product_attention": ALL_PLACES,
}


def reason(step: Step, readers: Sequence[Step] = ()) -> str:
    """Return why a step that gets patches runs in full; `readers` are steps that read its result.

    Tensors are permuted only for readers that have no rule.
    """
    if step.kind == "permute" and readers:
        return f"{readers[0].kind}: {FUNCTIONS.get(readers[0].kind, UNKNOWN)}"
    if step.rule is not None:
        return "its rule does not cover these shapes or options"
    layer = step.act
    if isinstance(layer, nn.Module):
        return _of_layer(layer)
    if layer in ELEMENTWISE or step.kind in ELEMENTWISE:
        return GATE if _reads_a_tensor(step) else "a constant differs from place to place"
    return FUNCTIONS.get(step.kind, UNKNOWN)


def _of_layer(layer: nn.Module) -> str:
    if not is_plain(layer):
        return "it has hooks or a forward of its own"
    known = LAYERS.get(type(layer))
    if known is None and type(layer).__module__.startswith("torch."):
        return "no rule for it, or not with these options"
    return known or "no rule for it: a class of its own may do anything"


def _reads_a_tensor(step: Step) -> bool:
    """Tell whether an argument is computed, and is no patch."""
    nodes = [arg for arg in step.args if isinstance(arg, torch.fx.Node)]
    return any(n.name not in step.patch_args and n.op != "get_attr" for n in nodes)
