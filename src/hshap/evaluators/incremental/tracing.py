"""From a torch module to the steps of its trace, each with its rule for patches. Needs torch."""

from __future__ import annotations

import copy
import operator
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import fx, nn
from torch.nn import functional as f
from torch.nn.utils.fusion import fuse_conv_bn_eval

from hshap.evaluators.incremental.function_rules import SHAPES, function_rule
from hshap.evaluators.incremental.graph import Rule, Step, Value
from hshap.evaluators.incremental.layer_rules import is_plain, layer_rule, relu_of_last_reader

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDED = {
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
}

DROPOUTS = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d),
    *(nn.AlphaDropout, nn.FeatureAlphaDropout),
)
TRACING = threading.Lock()
"""Held while tracing, for which torch replaces methods of all modules of the process."""

IN_PLACE_OPERATORS = {"iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"}


class UntraceableError(Exception):
    """A module cannot be run step by step; the message says why."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The steps of a module, the name of its input and the arguments of its output."""

    steps: list[Step]
    input: str
    output: Value


def traced(module: nn.Module) -> Trace:
    """Return the trace of a module, or raise `UntraceableError`."""
    if not is_plain(module):
        message = "it has hooks, or a forward of its own, which tracing does not see"
        raise UntraceableError(message)
    try:
        with TRACING:
            tracer = _Tracer()
            graph = tracer.trace(_shared_copy(module))
        return _Builder(_folded(fx.GraphModule(tracer.root, graph))).trace()
    except UntraceableError:
        raise
    except Exception as error:  # tracing runs the user's code, which may do anything
        message = f"it cannot be traced ({type(error).__name__}: {error})"
        raise UntraceableError(message) from error


class _Proxy(fx.Proxy):
    """Stands for a tensor while tracing; unlike torch's own, it records `x += y` as such.

    Torch's proxy takes it for `x = x + y`, and so misses that other names of `x` change too.
    """

    def __iadd__(self, other: object) -> fx.Proxy:
        return self._in_place(operator.iadd, other)

    def __isub__(self, other: object) -> fx.Proxy:
        return self._in_place(operator.isub, other)

    def __imul__(self, other: object) -> fx.Proxy:
        return self._in_place(operator.imul, other)

    def __itruediv__(self, other: object) -> fx.Proxy:
        return self._in_place(operator.itruediv, other)

    def __ifloordiv__(self, other: object) -> fx.Proxy:
        return self._in_place(operator.ifloordiv, other)

    def __imod__(self, other: object) -> fx.Proxy:
        return self._in_place(operator.imod, other)

    def __ipow__(self, other: object) -> fx.Proxy:
        return self._in_place(operator.ipow, other)

    def _in_place(self, act: Callable[..., object], other: object) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", act, (self, other), {})


class _Tracer(fx.Tracer):
    """Records the calls of its own thread; those of others, which torch catches too, just run."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Value],
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> Value:
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Value, parameter_proxy_cache: dict[str, Value]) -> Value:
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def _shared_copy(module: nn.Module) -> nn.Module:
    """Return a copy that shares the parameters.

    Tracing runs the user's code, which may set attributes and write to buffers.
    """
    return copy.deepcopy(module, {id(own): own for own in module.parameters()})


def _folded(graph_module: fx.GraphModule) -> fx.GraphModule:
    """Fold every batch norm that directly follows a convolution into that convolution."""
    modules: dict[str, Value] = dict(graph_module.named_modules())
    for node in list(graph_module.graph.nodes):
        before = node.args[0] if node.op == "call_module" and len(node.args) == 1 else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        first, norm = modules[str(before.target)], modules[str(node.target)]
        known = (type(first), type(norm)) in FOLDED and norm.running_mean is not None
        if known and is_plain(first) and is_plain(norm):
            name = f"{before.target}_folded_{node.name}"
            modules[name] = fuse_conv_bn_eval(first, norm)
            graph_module.add_submodule(name, modules[name])
            before.target = name
            node.replace_all_uses_with(before)
            graph_module.graph.erase_node(node)
    return graph_module


class _Builder:
    """Turns the nodes of a graph into steps, one after another."""

    def __init__(self, graph_module: fx.GraphModule) -> None:
        self._module = graph_module
        self._steps: list[Step] = []
        self._input, self._output = "", None
        self._spatial: dict[fx.Node, bool] = {}  # whether the result has spatial axes
        self._constants: dict[fx.Node, Value] = {}

    def trace(self) -> Trace:
        for node in self._module.graph.nodes:
            self._add(node)
        return Trace(self._steps, self._input, self._output)

    def _add(self, node: fx.Node) -> None:
        if node.op == "placeholder":
            if self._input:
                message = "it takes more than one input"
                raise UntraceableError(message)
            self._input, self._spatial[node] = node.name, True
        elif node.op == "get_attr":
            value = self._constants[node] = _attribute(self._module, str(node.target))
            self._steps.append(Step(node.name, "constant", lambda: value, (), {}, None))
            self._spatial[node] = False
        elif node.op == "output":
            self._output = node.args[0]
        else:
            self._add_operation(node)

    def _add_operation(self, node: fx.Node) -> None:
        is_module = node.op == "call_module"
        act, rule = self._module_call(node) if is_module else self._call(node)
        rule = self._reusing_memory(act, node, rule)
        kind = type(act).__name__ if is_module else _name(node)
        step = Step(
            node.name,
            kind,
            act,
            node.args,
            dict(node.kwargs),
            rule,
            in_place=_writes_in_place(node, act),
            reads_shape=(str(node.args[1]) if kind == "getattr" else kind) in SHAPES,
            patch_args=tuple(n.name for n in node.all_input_nodes if self._spatial.get(n)),
        )
        self._steps.append(step)
        self._spatial[node] = rule is not None and not rule.drops_space

    def _module_call(self, node: fx.Node) -> tuple[nn.Module, Rule | None]:
        layer = self._module.get_submodule(str(node.target))
        only = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        return layer, layer_rule(layer) if self._is_spatial(only) else None

    def _call(self, node: fx.Node) -> tuple[Callable[..., Value], Rule | None]:
        target: Value = node.target
        flat = node.args[0] if node.args and isinstance(node.args[0], (list, tuple)) else node.args
        options = dict(node.kwargs)
        if target in {torch.cat, torch.concat} and len(node.args) > 1:
            options["dim"] = node.args[1]
        # The size of an interpolation may be read from another tensor.
        supported = target is f.interpolate or not any(
            isinstance(value, fx.Node) for value in node.kwargs.values()
        )
        known = [self._constants.get(arg, arg) if isinstance(arg, fx.Node) else arg for arg in flat]
        spatial = [self._is_spatial(arg) for arg in flat]
        rule = function_rule(target, known, options, spatial) if supported else None
        return _method(target) if node.op == "call_method" else target, rule

    def _is_spatial(self, arg: Value) -> bool:
        return isinstance(arg, fx.Node) and self._spatial.get(arg, False)

    def _reusing_memory(self, act: Value, node: fx.Node, rule: Rule | None) -> Rule | None:
        """Let a ReLU write into its argument, if no other step reads that."""
        first: Value = node.args[0] if node.args else None
        is_relu = type(act) is nn.ReLU or act in {f.relu, torch.relu}
        is_only_reader = isinstance(first, fx.Node) and len(first.users) == 1
        return relu_of_last_reader() if rule is not None and is_relu and is_only_reader else rule


def _method(name: str) -> Callable[..., Value]:
    def act(first: Value, *args: Value, **options: Value) -> Value:
        return getattr(first, name)(*args, **options)

    return act


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _writes_in_place(node: fx.Node, act: Value) -> bool:
    """Tell whether a node's operation overwrites its argument."""
    if node.op == "call_module":
        # In eval mode, a dropout returns its argument as it is.
        return bool(getattr(act, "inplace", False)) and not isinstance(act, DROPOUTS)
    name = _name(node)
    named_so = name.endswith("_") and not name.endswith("__")
    return named_so or name in IN_PLACE_OPERATORS or bool(node.kwargs.get("inplace", False))


def _attribute(root: Value, path: str) -> Value:
    for name in path.split("."):
        root = getattr(root, name)
    return root
