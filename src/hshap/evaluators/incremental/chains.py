"""Chains: convolutions and pools that run one after another on one window. Needs torch.

A layer that reads its surroundings takes them from the anchor: a copy of every channel. As part of
a chain it takes them from the layer before it, which runs on a wider rim. Where few multiplications
make a number, that takes less time; and nothing between the layers is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import fx, nn

from hshap.evaluators.incremental.chain_costs import Link, Reach, cheapest, reach_after
from hshap.evaluators.incremental.function_rules import POOLING, in_place
from hshap.evaluators.incremental.layer_rules import (
    AVERAGE_POOLS,
    CONVOLUTIONS,
    MAX_POOLS,
    is_plain,
    slide_of,
    sliding,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from hshap.evaluators.incremental.drawing import Sides
    from hshap.evaluators.incremental.layer_rules import Layer
    from hshap.evaluators.incremental.patches import Operation, Slide
    from hshap.evaluators.incremental.steps import Rule, Value

    Acts = Sequence[tuple[fx.Node, Operation]]

POOLS: dict[Value, Value] = {
    call: layer for call, layer in POOLING.items() if layer in {*MAX_POOLS, *AVERAGE_POOLS}
}
"""Layers that do the same as functions."""

INPUT = Reach(1.0, 1.0)
"""A strip along the side of a box is one pixel wide at first."""


class Chain(nn.Module):
    """Layers, each with activation functions that overwrite its result."""

    def __init__(self, layers: Sequence[Layer], acts: Sequence[Sequence[Operation]]) -> None:
        super().__init__()
        self._layers, self._acts = nn.ModuleList(layers), [tuple(each) for each in acts]

    @property
    def kind(self) -> str:
        """Name of the layers."""
        names = [type(layer).__name__ for layer in self._layers]
        kinds = list(dict.fromkeys(names))
        counts = [names.count(name) for name in kinds]
        shown = (f"{k} x {n}" if n > 1 else k for k, n in zip(kinds, counts, strict=True))
        return ", ".join(shown)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the last layer."""
        for layer, acts in zip(self._layers, self._acts, strict=True):
            x = layer(x)
            for act in acts:
                x = act(x)
        return x

    def rule(self) -> Rule:
        """Return the rule of all layers."""
        slides = [slide_of(layer) for layer in self._layers]
        return sliding(
            [
                _with_acts(slide, acts)
                for slide, acts in zip(slides, self._acts, strict=True)
                if slide is not None
            ]
        )


def _with_acts(slide: Slide, acts: Sequence[Operation]) -> Slide:
    def act(window: torch.Tensor, padding: Sides) -> torch.Tensor:
        made = slide.act(window, padding)
        for each in acts:
            made = each(made)
        return made

    return slide._replace(act=act) if acts else slide


class _Found(NamedTuple):
    """A layer that may be part of a chain, and the activation functions that follow it."""

    node: fx.Node
    layer: Layer
    link: Link
    acts: Acts


def with_joined_chains(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with layers joined into chains, where that costs less."""
    reaches: dict[fx.Node, Reach] = {}
    found: dict[fx.Node, _Found] = {}
    for node in graph_module.graph.nodes:
        before = [reaches[one] for one in node.all_input_nodes]
        reach = max(before, default=INPUT)
        link = _link(graph_module, node, found)
        if link is not None:
            layer, own = link
            found[node] = _Found(node, layer, own, _acts(graph_module, node))
            reach = reach_after(own, reach)
        reaches[node] = reach
    for run in _runs(found):
        start: Value = run[0].node.args[0]
        for first, last in cheapest([each.link for each in run], reaches[start]):
            if last - first > 1:
                _join(graph_module, run[first:last])
    return graph_module


def _runs(found: dict[fx.Node, _Found]) -> list[list[_Found]]:
    """Return layers each of which alone reads the result of the one before it."""
    runs: list[list[_Found]] = []
    used: set[fx.Node] = set()
    for node in found:
        run: list[_Found] = []
        following: fx.Node | None = node
        while following in found and following not in used:
            run.append(found[following])
            used.add(following)
            acts = run[-1].acts
            following = _only_user(acts[-1][0] if acts else following)
        if run:
            runs.append(run)
    return runs


def _only_user(node: fx.Node) -> fx.Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _link(
    graph_module: fx.GraphModule, node: fx.Node, found: dict[fx.Node, _Found]
) -> tuple[Layer, Link] | None:
    """Return a layer that may be part of a chain, and its costs."""
    first = node.args[0] if node.args else None
    layer = _layer(graph_module, node)
    slide = None if layer is None else slide_of(layer)
    if not isinstance(first, fx.Node) or slide is None or getattr(layer, "ceil_mode", False):
        return None
    if type(layer) in CONVOLUTIONS:
        return layer, Link.of_convolution(layer, slide.field)
    before = _before(first, found)
    return None if before is None else (layer, Link.of_pool(before.link.channels, slide.field))


def _before(node: fx.Node, found: dict[fx.Node, _Found]) -> _Found | None:
    """Return the layer whose result, after its activation functions, a node is."""
    return next((f for f in found.values() if node is (f.acts[-1][0] if f.acts else f.node)), None)


def _layer(graph_module: fx.GraphModule, node: fx.Node) -> Layer:
    """Return the layer that a node calls on one argument, or None; calls of pools are layers."""
    if node.op == "call_module" and len(node.args) == 1 and not node.kwargs:
        layer = graph_module.get_submodule(str(node.target))
        return layer if is_plain(layer) else None
    pool = POOLS.get(node.target) if node.op == "call_function" else None
    options = [*node.args[1:], *node.kwargs.values()]
    are_known = all(isinstance(value, (int, tuple, list, type(None))) for value in options)
    # The order of further options differs between functions and layers.
    if pool is None or not are_known or len(node.args) > 3 or len(node.all_input_nodes) > 1:
        return None
    return pool(*node.args[1:], **node.kwargs).eval()


def _acts(graph_module: fx.GraphModule, node: fx.Node) -> Acts:
    """Return the activation functions after a layer, each of which alone reads the one before."""
    found: list[tuple[fx.Node, Operation]] = []
    following = _only_user(node)
    while following is not None:
        act = _act(graph_module, following)
        if act is None:
            break
        found.append((following, act))
        following = _only_user(following)
    return found


def _act(graph_module: fx.GraphModule, node: fx.Node) -> Operation | None:
    if len(node.args) != 1 or not {*node.kwargs} <= {"inplace"}:
        return None
    if node.op == "call_function":
        return in_place(node.target)
    layer = graph_module.get_submodule(str(node.target)) if node.op == "call_module" else None
    return in_place(layer) if layer is not None and is_plain(layer) else None


def _join(graph_module: fx.GraphModule, part: Sequence[_Found]) -> None:
    """Let the last node of a part of a run call all of its layers."""
    acts = [[act for _, act in each.acts] for each in part[:-1]]
    chain = Chain([each.layer for each in part], [*acts, ()]).eval()
    last = part[-1].node
    name = f"{last.name}_chain"
    while name in dict(graph_module.named_children()):
        name += "_"
    graph_module.add_submodule(name, chain)
    last.op, last.target = "call_module", name
    last.args, last.kwargs = (part[0].node.args[0],), {}
    for each in reversed(part[:-1]):
        for node, _ in reversed(each.acts):
            graph_module.graph.erase_node(node)
        graph_module.graph.erase_node(each.node)
