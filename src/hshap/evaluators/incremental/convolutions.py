"""Convolutions of a graph as layers, with paddings before and batch norms after them. Needs torch.

A padding of its own takes a copy, and a batch norm of its own another step.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import fx, nn
from torch.fx.node import map_arg
from torch.nn.utils.fusion import fuse_conv_bn_weights

from hshap.evaluators.incremental.function_rules import CONVOLVE, convolution_layer
from hshap.evaluators.incremental.layer_rules import CONVOLUTIONS, is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.evaluators.incremental.graph import Value

FOLDED = {
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
}
ZERO_PADDINGS = (nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d)


def with_folded_convolutions(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with paddings and batch norms as parts of their convolutions."""
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node.target in CONVOLVE:
            _make_layer(graph_module, node)
        if node.op != "call_module":
            continue
        layer: Value = graph_module.get_submodule(str(node.target))
        before = _only_argument(graph_module, node)
        if before is None or not is_plain(layer):
            continue
        if type(layer) in CONVOLUTIONS:
            _take_padding(graph_module, node, layer, before)
        elif (type(before), type(layer)) in FOLDED and layer.running_mean is not None:
            _take_norm(graph_module, node, layer, before)
    return graph_module


def with_weights_last(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with the weights of convolutions of pictures channels last.

    For inputs with channels last, torch copies other weights at every call: in the last block of a
    ResNet-18, that takes as long as the convolution of two small patches.
    """
    for node in list(graph_module.graph.nodes):
        layer: Value = None
        if node.op == "call_module":
            layer = graph_module.get_submodule(str(node.target))
        if type(layer) is not nn.Conv2d or not is_plain(layer) or _is_last(layer.weight):
            continue
        last = copy.deepcopy(layer, {id(own): own for own in layer.parameters()})
        weight = layer.weight.detach().contiguous(memory_format=torch.channels_last)
        last.weight = nn.Parameter(weight, requires_grad=False)
        _call(graph_module, node, last, node.args)
    return graph_module


def _is_last(weight: torch.Tensor) -> bool:
    return weight.is_contiguous(memory_format=torch.channels_last)


def _only_argument(graph_module: fx.GraphModule, node: fx.Node) -> Value:
    """Return the plain layer whose result a node alone reads, or None."""
    first = node.args[0] if len(node.args) == 1 and not node.kwargs else None
    if not isinstance(first, fx.Node) or first.op != "call_module" or len(first.users) > 1:
        return None
    if len(first.args) != 1 or first.kwargs:
        return None
    layer = graph_module.get_submodule(str(first.target))
    return layer if is_plain(layer) else None


def _make_layer(graph_module: fx.GraphModule, node: fx.Node) -> None:
    """Turn a call with constant weights into that of a layer."""
    given = [*node.args[1:], *node.kwargs.values()]
    nodes: list[fx.Node] = []
    map_arg(given, nodes.append)  # those in tuples, too
    first = node.args[0] if node.args else None
    is_constant = isinstance(first, fx.Node) and first.op == "get_attr"
    if first is None or is_constant or any(one.op != "get_attr" for one in nodes):
        return
    args, options = map_arg(
        (node.args[1:], node.kwargs), lambda one: attribute(graph_module, str(one.target))
    )
    _call(graph_module, node, convolution_layer(node.target, args, options), node.args[:1])
    for one in nodes:
        if not one.users:
            graph_module.graph.erase_node(one)


def _take_padding(graph_module: fx.GraphModule, node: fx.Node, layer: Value, before: Value) -> None:
    """Let a convolution pad by itself, if the padding before it is the same at opposite sides."""
    if type(before) not in ZERO_PADDINGS or layer.padding_mode != "zeros":
        return
    first, last = before.padding[::2][::-1], before.padding[1::2][::-1]
    if first != last or min(first) < 0 or isinstance(layer.padding, str):
        return
    if len(first) != len(layer.padding):
        return
    padded = copy.copy(layer)
    padded.padding = tuple(a + b for a, b in zip(layer.padding, first, strict=True))
    _replace_argument(graph_module, node, padded)


def _take_norm(graph_module: fx.GraphModule, node: fx.Node, layer: Value, before: Value) -> None:
    """Fold a batch norm into the convolution before it."""
    if before.training or layer.training:
        message = "a batch norm in training mode takes the statistics of the batch"
        raise ValueError(message)
    # The copy shares the old weights, which are replaced at once.
    folded = copy.deepcopy(before, {id(own): own for own in before.parameters()})
    folded.weight, folded.bias = fuse_conv_bn_weights(
        *(before.weight, before.bias, layer.running_mean, layer.running_var),
        *(layer.eps, layer.weight, layer.bias),
    )
    _replace_argument(graph_module, node, folded)


def _replace_argument(graph_module: fx.GraphModule, node: fx.Node, layer: nn.Module) -> None:
    """Let a node call a layer on the argument of the node before it, which is left out."""
    before: Value = node.args[0]
    _call(graph_module, node, layer, before.args)
    graph_module.graph.erase_node(before)


def _call(
    graph_module: fx.GraphModule, node: fx.Node, layer: nn.Module, args: Sequence[Value]
) -> None:
    name = f"{node.name}_folded"
    while name in dict(graph_module.named_children()):
        name += "_"
    graph_module.add_submodule(name, layer)
    node.op, node.target, node.args, node.kwargs = "call_module", name, tuple(args), {}


def attribute(root: Value, path: str) -> Value:
    """Return an attribute of a module, or of one of its parts."""
    for name in path.split("."):
        root = getattr(root, name)
    return root
