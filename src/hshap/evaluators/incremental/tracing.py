"""From a torch module to the steps of its trace, each with its rule for patches. Needs torch.

`Tracer` knows nothing of shapes, so that its record holds for images of every size. `ShapedTracer`
answers questions about shapes for images of one size. Networks that check their input, or compute
a padding from its size, need it.
"""

from __future__ import annotations

import copy
import operator
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import fx, nn
from torch.fx.node import map_arg
from torch.nn import functional as f

from hshap.evaluators.incremental.function_rules import (
    SHAPES,
    function_rule,
)
from hshap.evaluators.incremental.layer_rules import (
    PlaceByPlace,
    is_plain,
    layer_rule,
)
from hshap.evaluators.incremental.rewriting import (
    attribute,
    channels_first,
    with_folded_norms,
)
from hshap.evaluators.incremental.steps import Rule, Step, Value
from hshap.evaluators.outputs import scores_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Shape
    from hshap.evaluators.incremental.steps import Value


ROWS = 2
"""Inputs of a batch of which a shaped tracer knows; no record depends on it."""


class Proxy(fx.Proxy):
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


class Tracer(fx.Tracer):
    """Records the calls of its own thread; those of others, which torch catches too, just run."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return the stand-in of a node."""
        return Proxy(node, self)

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Value],
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> Value:
        """Record the call of a module."""
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Value, parameter_proxy_cache: dict[str, Value]) -> Value:
        """Record that a module's tensor is read."""
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


class OneInput(nn.Module):
    """A module called with one input; other inputs keep their defaults. Returns its scores."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Value) -> Value:
        """Return the module's scores."""
        made = self.module(x)
        return made if isinstance(made, fx.Proxy) else scores_in(made)


class ShapedProxy(Proxy):
    """Stands for a tensor of known shape; only its number of rows is left open.

    For any other value, such as a number of rows, it is an ordinary proxy.
    """

    @property
    def _known(self) -> Value:
        tracer: Value = self.tracer
        return tracer.known[self.node]

    @property
    def shape(self) -> Value:
        """Sides of the tensor, as numbers but for the first."""
        sides: Value = self.__getattr__("shape")
        if not isinstance(self._known, torch.Tensor):
            return sides
        return (sides[0], *(int(n) for n in self._known.shape[1:])) if self._known.ndim else ()

    @property
    def ndim(self) -> Value:
        """Number of axes."""
        return len(self.shape)

    def size(self, dim: int | None = None) -> Value:
        """Return the sides, or one of them."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> Value:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the numbers."""
        return self._known.dtype

    @property
    def device(self) -> torch.device:
        """Place of the numbers."""
        return self._known.device


class ShapedTracer(Tracer):
    """Knows the shape of every tensor for images of one shape.

    Each call also runs on tensors without numbers. A branch that hangs on a number in a tensor, or
    on the number of rows, still ends the tracing.
    """

    def __init__(self, image: torch.Tensor) -> None:
        super().__init__()
        # Slow to import, and needed by few networks.
        from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415

        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._image = self._mode.from_tensor(image.expand(ROWS, *image.shape))
        self.known: dict[fx.Node, Value] = {}
        self._knows = False  # whether a call runs on tensors without numbers, to be left alone

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Value],
        args: tuple[Value, ...],
        kwargs: dict[str, Value],
    ) -> Value:
        """Record the call of a module."""
        if self._knows:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Value, parameter_proxy_cache: dict[str, Value]) -> Value:
        """Record that a module's tensor is read."""
        return attr_val if self._knows else super().getattr(attr, attr_val, parameter_proxy_cache)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """Return the stand-in of a node, after its call on tensors without numbers."""
        self.known[node] = self._known(node)
        return ShapedProxy(node, self)

    def _known(self, node: fx.Node) -> Value:
        if node.op == "placeholder":
            return self._image
        args, options = map_arg((node.args, node.kwargs), self._argument)
        self._knows = True
        try:
            return self._called(node, args, options)
        finally:
            self._knows = False

    def _argument(self, node: fx.Node) -> Value:
        """Return the value of an argument; torch records buffers without a stand-in."""
        if node not in self.known:
            self.known[node] = self._known(node)
        return self.known[node]

    def _called(self, node: fx.Node, args: Value, options: Value) -> Value:
        target: Value = node.target
        if node.op == "get_attr":
            return operator.attrgetter(str(target))(self.root)
        with self._mode, torch.no_grad():
            if node.op == "call_module":
                return self.root.get_submodule(str(target)).forward(*args, **options)
            if node.op == "call_method":
                return getattr(args[0], target)(*args[1:], **options)
            return target(*args, **options)


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
    """The steps of a module, the name of its input and the arguments of its output.

    `shape` is the only shape of images for which it holds, or None if it holds for all.
    """

    steps: list[Step]
    input: str
    output: Value
    shape: Shape | None = None


def trace_module(module: nn.Module, shape: Shape | None = None) -> Trace:
    """Return the trace of a module, or raise `UntraceableError`.

    If tracing fails for images of any shape, it is tried again for images of the given one.
    """
    if not is_plain(module):
        message = "it has hooks, or a forward of its own, which tracing does not see"
        raise UntraceableError(message)
    try:
        return _trace_with(module, Tracer())
    except UntraceableError:
        if shape is None:
            raise
    kind = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
    image = torch.empty(shape, dtype=kind.dtype, device=kind.device)
    trace = _trace_with(OneInput(module).eval(), ShapedTracer(image))
    return replace(trace, shape=shape)


def _trace_with(module: nn.Module, tracer: Tracer) -> Trace:
    try:
        with TRACING:
            graph = _without_idle_reads(tracer.trace(_shared_copy(module)))
        graph_module = with_folded_norms(fx.GraphModule(tracer.root, graph))
        return _Builder(channels_first(graph_module)).trace()
    except UntraceableError:
        raise
    except Exception as error:  # tracing runs the user's code, which may do anything
        message = f"it cannot be traced ({type(error).__name__}: {error})"
        raise UntraceableError(message) from error


def _without_idle_reads(graph: fx.Graph) -> fx.Graph:
    """Drop attributes and items that are read and never used, such as the shape of a tensor."""
    for node in reversed(list(graph.nodes)):
        if node.target in {getattr, operator.getitem} and not node.users:
            graph.erase_node(node)
    return graph


def _shared_copy(module: nn.Module) -> nn.Module:
    """Return a copy that shares the parameters.

    Tracing runs the user's code, which may set attributes and write to buffers.
    """
    return copy.deepcopy(module, {id(own): own for own in module.parameters()})


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
            self._add_constant(node, attribute(self._module, str(node.target)))
        elif node.op == "output":
            self._output = node.args[0]
        elif not self._folded_constant(node):
            self._add_operation(node)

    def _add_operation(self, node: fx.Node) -> None:
        is_module = node.op == "call_module"
        act, rule = self._module_call(node) if is_module else self._call(node)
        kind = _kind(act) if is_module else _name(node)
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

    def _folded_constant(self, node: fx.Node) -> bool:
        """Compute an operation on constants once, as in `self.weight[:, None, None]`."""
        inputs = node.all_input_nodes
        is_call = node.op in {"call_function", "call_method"}
        known = is_call and inputs and all(one in self._constants for one in inputs)
        if not known or _writes_in_place(node, None):
            return False
        args, options = map_arg((node.args, node.kwargs), lambda one: self._constants[one])
        target: Value = node.target
        act = _method(target) if node.op == "call_method" else target
        with torch.no_grad():
            self._add_constant(node, act(*args, **options))
        return True

    def _add_constant(self, node: fx.Node, value: Value) -> None:
        self._constants[node], self._spatial[node] = value, False
        self._steps.append(Step(node.name, "constant", lambda: value, (), {}, None))

    def _module_call(self, node: fx.Node) -> tuple[nn.Module, Rule | None]:
        layer = self._module.get_submodule(str(node.target))
        only = node.args[0] if len(node.args) == 1 and not node.kwargs else None
        if not self._is_spatial(only):
            return layer, None
        return layer, layer_rule(layer)

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


def _method(name: str) -> Callable[..., Value]:
    def act(first: Value, *args: Value, **options: Value) -> Value:
        return getattr(first, name)(*args, **options)

    return act


def _kind(layer: Value) -> str:
    return layer.kind if isinstance(layer, PlaceByPlace) else type(layer).__name__


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
