"""Stops: why an operation cannot run on patches. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from hshap.evaluators.incremental.function_rules import ELEMENTWISE
from hshap.evaluators.incremental.layer_rules import is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.evaluators.incremental.graph import Step

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
