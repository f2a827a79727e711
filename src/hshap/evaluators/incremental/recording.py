"""Recording: the calls of a network while it runs on stand-ins for tensors. Needs torch.

`Tracer` knows nothing of shapes, so that its record holds for images of every size. `ShapedTracer`
answers questions about shapes for images of one size. Networks that check their input, or compute
a padding from its size, need it.
"""

from __future__ import annotations

import operator
import threading
from typing import TYPE_CHECKING

import torch
from torch import fx, nn
from torch.fx.node import map_arg

from hshap.evaluators.outputs import scores_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap.evaluators.incremental.graph import Value

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
