"""A graph is rewritten before its rules are looked up: folded layers, channels first. Needs torch.

A batch norm of its own takes another step, so it becomes a part of the convolution before it.
ConvNeXt and others permute a tensor, run layers on its last axis, and permute it back; patches have
their channels first. So the permutations are left out, and each layer between them runs on the axis
of channels instead. The numbers are the same, whatever the tensor shows.
"""

from __future__ import annotations

import copy
import operator
from typing import TYPE_CHECKING

import torch
from torch import fx, nn
from torch.fx.node import map_arg
from torch.nn import functional as f
from torch.nn.utils.fusion import fuse_conv_bn_weights

from hshap.evaluators.incremental.function_rules import (
    CONVOLVE,
    ELEMENTWISE,
    POINTWISE_FUNCTIONS,
    POINTWISE_METHODS,
    convolution_layer,
)
from hshap.evaluators.incremental.layer_rules import (
    POINTWISE,
    Layer,
    PlaceByPlace,
    is_plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap.evaluators.incremental.steps import Value


ON_LAST_AXIS = {f.linear, f.layer_norm, f.rms_norm}
MEANS = {torch.mean, "mean"}


def channels_first(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Rewrite the parts of a graph that have their channels last, in place."""
    return _Rewriting(graph_module).done()


class _Rewriting:
    """Finds for each tensor with channels last its twin, the same tensor with channels first."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self._module, self._graph = graph_module, graph_module.graph
        self._twins: dict[fx.Node, fx.Node] = {}
        self._axes: dict[fx.Node, int] = {}  # of each tensor with a twin
        self._replaced: list[fx.Node] = []

    def done(self) -> fx.GraphModule:
        for node in list(self._graph.nodes):
            order: tuple[int, ...] | None = _order(node)
            source: Value = node.args[0] if node.args else None
            if order is not None and isinstance(source, fx.Node):
                self._permute(node, source, order)
            elif any(arg in self._twins for arg in node.all_input_nodes):
                self._add_twin(node)
        self._drop()
        return self._module

    def _permute(self, node: fx.Node, source: fx.Node, order: tuple[int, ...]) -> None:
        axes = len(order)
        if order == to_last(axes):
            self._twins[node], self._axes[node] = source, axes
        elif order == to_first(axes) and self._axes.get(source) == axes:
            self._replace(node, self._twins[source])

    def _replace(self, node: fx.Node, by: fx.Node) -> None:
        node.replace_all_uses_with(by)
        self._replaced.append(node)

    def _add_twin(self, node: fx.Node) -> None:
        axes = max(self._axes.get(arg, 0) for arg in node.all_input_nodes)
        with self._graph.inserting_before(node):
            made = self._on_module(node) if node.op == "call_module" else self._on_call(node, axes)
            if made is not None and _is_mean(node):
                self._replace(node, made)
            elif made is not None:
                self._twins[node], self._axes[node] = made, axes

    def _on_module(self, node: fx.Node) -> fx.Node | None:
        layer, first = self._module.get_submodule(str(node.target)), node.args[0]
        if len(node.args) != 1 or node.kwargs or not is_plain(layer):
            return None
        twin = self._twins[first] if isinstance(first, fx.Node) else None
        if twin is not None and _acts_on_last_axis(layer):
            return self._place_by_place(node, layer, twin, ())
        shared = type(layer) in POINTWISE and not isinstance(layer, nn.PReLU)
        if twin is None or not shared or getattr(layer, "inplace", False):
            return None
        return self._graph.call_module(str(node.target), (twin,))

    def _on_call(self, node: fx.Node, axes: int) -> fx.Node | None:
        target: Value = node.target
        if _writes(target) or node.kwargs.get("inplace", False):
            return None
        args: tuple[Value, ...] = node.args
        if target in ELEMENTWISE and not node.kwargs:
            both = tuple(self._operand(arg, axes) for arg in args)
            return None if None in both else self._graph.create_node(node.op, target, both)
        twin = self._twins.get(args[0]) if args and isinstance(args[0], fx.Node) else None
        if twin is None:
            return None
        if target in ON_LAST_AXIS:
            return self._on_last_axis(node, twin)
        return self._mean(node, twin, axes) if _is_mean(node) else self._pointwise(node, twin)

    def _on_last_axis(self, node: fx.Node, twin: fx.Node) -> fx.Node | None:
        target: Value = node.target
        given = [self._constant(value) for value in node.args[1:]]
        options = {name: self._constant(value) for name, value in node.kwargs.items()}
        is_known = not any(isinstance(value, fx.Node) for value in (*given, *options.values()))
        over = () if target is f.linear else options.get("normalized_shape", [*given, ()][0])
        if not is_known or len(over) > 1:
            return None
        return self._place_by_place(node, target, twin, given, options)

    def _pointwise(self, node: fx.Node, twin: fx.Node) -> fx.Node | None:
        target: Value = node.target
        others, options = node.args[1:], dict(node.kwargs)
        known = target in POINTWISE_FUNCTIONS or target in POINTWISE_METHODS
        if not known or any(_is_special(value) for value in (*others, *options.values())):
            return None
        return self._graph.create_node(node.op, target, (twin, *others), options)

    def _place_by_place(
        self,
        node: fx.Node,
        act: Callable[..., Value],
        twin: fx.Node,
        args: Sequence[Value],
        options: dict[str, Value] | None = None,
    ) -> fx.Node:
        name = f"{node.name}_channels_first"
        self._module.add_submodule(name, PlaceByPlace(act, args, options or {}).eval())
        return self._graph.create_node("call_module", name, (twin,), name=node.name)

    def _mean(self, node: fx.Node, twin: fx.Node, axes: int) -> fx.Node | None:
        dims: Value = node.args[1] if len(node.args) == 2 else node.kwargs.get("dim")
        plain = set(node.kwargs) <= {"dim"} and isinstance(dims, (list, tuple))
        over = {dim % axes for dim in dims} if plain else set[int]()
        if over != set(range(1, axes - 1)):
            return None
        return self._graph.create_node(node.op, node.target, (twin, tuple(range(2, axes))))

    def _operand(self, arg: Value, axes: int) -> Value:
        """Return an operand with channels first, or None if that is not known."""
        if isinstance(arg, (int, float)):
            return arg
        if not isinstance(arg, fx.Node):
            return None
        if arg in self._twins:
            return self._twins[arg] if self._axes[arg] == axes else None
        value = self._constant(arg)
        if not isinstance(value, torch.Tensor) or value.ndim > axes:
            return None
        if value.numel() != (value.shape[-1] if value.ndim else 1):
            return None
        name = f"{arg.name}_channels_first"
        shaped = value.detach().reshape(-1, *(1,) * (axes - 2))
        self._module.register_buffer(name, shaped, persistent=False)
        return self._graph.get_attr(name)

    def _constant(self, value: Value) -> Value:
        """Return the tensor that a node reads from the module; other values as they are."""
        if isinstance(value, fx.Node) and value.op == "get_attr":
            return operator.attrgetter(str(value.target))(self._module)
        return value

    def _drop(self) -> None:
        """Leave out tensors with channels last; where one is still read, its twin is permuted."""
        for node in self._replaced:
            self._graph.erase_node(node)
        for node in reversed(self._twins):
            if node.users:
                with self._graph.inserting_after(self._twins[node]):
                    order = to_last(self._axes[node])
                    last = self._graph.call_method("permute", (self._twins[node], *order))
                node.replace_all_uses_with(last)
            self._graph.erase_node(node)


def to_last(axes: int) -> tuple[int, ...]:
    """Return the order of axes that puts channels last."""
    return (0, *range(2, axes), 1)


def to_first(axes: int) -> tuple[int, ...]:
    """Return the order of axes that puts channels first again."""
    return (0, axes - 1, *range(1, axes - 1))


def _order(node: fx.Node) -> tuple[int, ...] | None:
    """Return the order into which a node permutes axes, if it is written out."""
    if node.target not in {torch.permute, "permute"} or node.kwargs:
        return None
    args: tuple[Value, ...] = node.args
    given = args[1] if isinstance(args[1], (list, tuple)) else args[1:]
    if not all(isinstance(axis, int) for axis in given):
        return None
    return tuple(axis % len(given) for axis in given)


def _acts_on_last_axis(layer: Layer) -> bool:
    norms = (nn.LayerNorm, nn.RMSNorm)
    is_norm = type(layer) in norms and len(layer.normalized_shape) == 1
    return is_norm or type(layer) is nn.Linear


def _is_mean(node: fx.Node) -> bool:
    return node.target in MEANS


def _is_special(value: Value) -> bool:
    """Tell whether an argument is a tensor, or True, which is `inplace` if positional."""
    return value is True or isinstance(value, fx.Node)


def _writes(target: Value) -> bool:
    name = target if isinstance(target, str) else target.__name__
    return name.endswith("_") or target in {
        *(operator.iadd, operator.isub, operator.imul, operator.itruediv)
    }


FOLDED = {
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
}


def with_folded_norms(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Return the graph with batch norms as parts of their convolutions."""
    for node in list(graph_module.graph.nodes):
        if node.op == "call_function" and node.target in CONVOLVE:
            _make_layer(graph_module, node)
        if node.op != "call_module":
            continue
        layer: Value = graph_module.get_submodule(str(node.target))
        before = _only_argument(graph_module, node)
        if before is None or not is_plain(layer):
            continue
        if (type(before), type(layer)) in FOLDED and layer.running_mean is not None:
            _take_norm(graph_module, node, layer, before)
    return graph_module


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
