"""Expansions: a widening convolution of 1 x 1 and the one after it as one layer. Needs torch.

The second one reads surroundings. Taken from the narrow tensor before both, these are several times
fewer numbers to copy and to keep than those between both; the first convolution runs on them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx, nn

from hshap.evaluators.incremental.drawing import clear_beyond
from hshap.evaluators.incremental.graph import Rule, Value
from hshap.evaluators.incremental.in_place import LAYERS, in_place
from hshap.evaluators.incremental.layer_rules import (
    CONVOLUTIONS,
    Layer,
    convolution_field,
    is_plain,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.evaluators.incremental.drawing import Known, Sides
    from hshap.evaluators.incremental.patches import Operation, Patch

LEAST_GROWTH = 2
"""Times by which the first convolution widens: below, more is computed again than is saved."""


class Expansion(nn.Module):
    """A convolution of 1 x 1, activation functions that overwrite its result, a convolution."""

    def __init__(self, first: Layer, acts: Sequence[Operation], last: Layer) -> None:
        super().__init__()
        self.first, self.last, self._acts = first, last, tuple(acts)

    @property
    def kind(self) -> str:
        """Name of both convolutions."""
        return f"{type(self.first).__name__} x 2"

    def expand(self, narrow: torch.Tensor) -> torch.Tensor:
        """Return the argument of the last convolution, in memory of its own."""
        wide = self.first(narrow)
        for act in self._acts:
            wide = act(wide)
        return wide

    def forward(self, narrow: torch.Tensor) -> torch.Tensor:
        """Return the output of the last convolution."""
        return self.last(self.expand(narrow))


def expansion_rule(layer: Expansion) -> Rule:
    """Return the rule of both convolutions."""
    last: Layer = layer.last
    act, field = CONVOLUTIONS[type(last)], convolution_field(last)

    def rule(args: Sequence[Value], anchor: Known) -> Patch:
        patch: Patch = args[0]

        def slid(window: torch.Tensor, padding: Sides, places: Sequence[Sides]) -> torch.Tensor:
            wide = layer.expand(window)
            # The last convolution pads with zeros; the first one makes others of its padding.
            clear_beyond(wide, places, patch.grid)
            return act(
                wide, last.weight, last.bias, last.stride, padding, last.dilation, last.groups
            )

        return field.slide(patch, anchor, slid, outside=0.0)

    return Rule(rule, is_local=True, zones=lambda zones: field.zones(zones[0]))


def with_joined_expansions(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with each widening convolution and the one after it as one layer."""
    for node in list(graph_module.graph.nodes):
        last = _layer(graph_module, node)
        if type(last) not in CONVOLUTIONS or last.padding_mode != "zeros":
            continue
        if set(last.kernel_size) == {1}:
            continue
        found = _before(graph_module, node)
        if found is None:
            continue
        between, first = found
        layers = [_layer(graph_module, one) for one in between]
        acts = [act for act in map(in_place, layers) if act is not None]
        name = f"{node.name}_expanded"
        while name in dict(graph_module.named_children()):
            name += "_"
        graph_module.add_submodule(name, Expansion(_layer(graph_module, first), acts, last).eval())
        node.target, node.args = name, first.args
        for one in (*reversed(between), first):
            graph_module.graph.erase_node(one)
    return graph_module


def _before(graph_module: fx.GraphModule, node: fx.Node) -> tuple[list[fx.Node], fx.Node] | None:
    """Return the activation functions before a convolution, and the widening one before them."""
    between: list[fx.Node] = []
    while True:
        before = node.args[0]
        if not isinstance(before, fx.Node) or len(before.users) > 1:
            return None
        layer = _layer(graph_module, before)
        if _widens(layer):
            return between[::-1], before
        if type(layer) not in LAYERS:
            return None
        between.append(before)
        node = before


def _widens(layer: Layer) -> bool:
    """Tell whether a layer is a convolution of 1 x 1 with several times as many outputs."""
    return (
        type(layer) in CONVOLUTIONS
        and convolution_field(layer).is_one_place
        and layer.out_channels >= LEAST_GROWTH * layer.in_channels
    )


def _layer(graph_module: fx.GraphModule, node: fx.Node) -> Layer:
    """Return the plain layer that a node calls with one argument, or None."""
    if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return None
    layer = graph_module.get_submodule(str(node.target))
    return layer if is_plain(layer) else None
