"""Operators of ONNX, each as layers and functions of torch. Needs torch.

Those of convolutional classifiers are here. A converter returns the node of its result, and raises
`UnsupportedError` where options have no counterpart.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional as f

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hshap._util.types import Array, Untyped

CONVOLUTIONS: dict[int, Untyped] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
MAX_POOLS: dict[int, Untyped] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
MEAN_POOLS: dict[int, Untyped] = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
NORMS: dict[int, Untyped] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
GLOBAL_MEANS: dict[int, Untyped] = {
    1: nn.AdaptiveAvgPool1d,
    2: nn.AdaptiveAvgPool2d,
    3: nn.AdaptiveAvgPool3d,
}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class UnsupportedError(Exception):
    """An operator, or an option of it, that has no counterpart here."""


@dataclass(frozen=True, eq=False)
class Call:
    """One node of an ONNX graph, and the graph of torch that it is added to.

    `inputs` are nodes of that graph, constant arrays, or None. `rank` gives the number of axes of
    a node's tensor.
    """

    kind: str
    inputs: Sequence[Untyped]
    options: Mapping[str, Untyped]
    rank: Callable[[fx.Node], int]
    add_module: Callable[[nn.Module, fx.Node], fx.Node]
    graph: fx.Graph
    constant: Callable[[Array], fx.Node]

    @property
    def first(self) -> fx.Node:
        """The first input, which must be a tensor that the network computes."""
        return self.node(0)

    @property
    def axes(self) -> int:
        """Number of spatial axes of the first input."""
        return self.rank(self.first) - 2

    def node(self, number: int) -> fx.Node:
        """Return an input as a node."""
        given = self.inputs[number]
        return given if isinstance(given, fx.Node) else self.constant(given)

    def known(self, number: int, name: str = "") -> Array | None:
        """Return an input that must be a constant, or an option of that name in older versions."""
        given = self.inputs[number] if number < len(self.inputs) else None
        if isinstance(given, fx.Node):
            message = f"{self.kind} with a computed argument {number}"
            raise UnsupportedError(message)
        if given is None and name in self.options:
            return np.asarray(self.options[name])
        return given

    def needed(self, number: int, name: str = "") -> Array:
        """Return a constant input that the operator cannot do without."""
        found = self.known(number, name)
        if found is None:
            message = f"{self.kind} without its input {number}"
            raise UnsupportedError(message)
        return found

    def layer(self, module: nn.Module) -> fx.Node:
        """Add a layer on the first input."""
        return self.add_module(module, self.first)

    def call(self, target: Callable[..., Untyped], *args: Untyped, **options: Untyped) -> fx.Node:
        """Add a function."""
        return self.graph.call_function(target, args, options)

    def refuse_unless(self, holds: bool, option: str) -> None:  # noqa: FBT001, reads as a sentence
        """Raise `UnsupportedError` that names an option."""
        if not holds:
            message = f"{self.kind} with {option}={self.options.get(option)!r}"
            raise UnsupportedError(message)


Converter: TypeAlias = "Callable[[Call], fx.Node]"


def _tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def _padded(call: Call, value: float = 0.0) -> tuple[fx.Node, tuple[int, ...]]:
    """Return the input and the padding of each axis; unequal ones become a padding before."""
    call.refuse_unless(call.options.get("auto_pad", "NOTSET") in {"NOTSET", "VALID"}, "auto_pad")
    axes = call.axes
    pads = list(call.options.get("pads", [0] * 2 * axes))
    before, after = pads[:axes], pads[axes:]
    if before == after:
        return call.first, tuple(before)
    widths = [n for pair in zip(before[::-1], after[::-1], strict=True) for n in pair]
    return call.call(f.pad, call.first, widths, "constant", value), (0,) * axes


def _convolution(call: Call) -> fx.Node:
    weight, bias = call.needed(1), call.known(2)
    given, padding = _padded(call)
    groups, axes = call.options.get("group", 1), weight.ndim - 2
    layer = CONVOLUTIONS[axes](
        weight.shape[1] * groups,
        weight.shape[0],
        tuple(weight.shape[2:]),
        tuple(call.options.get("strides", [1] * axes)),
        padding,
        tuple(call.options.get("dilations", [1] * axes)),
        groups,
        bias=bias is not None,
    )
    layer.weight = nn.Parameter(_tensor(weight))
    if bias is not None:
        layer.bias = nn.Parameter(_tensor(bias))
    return call.add_module(layer, given)


def _batch_norm(call: Call) -> fx.Node:
    call.refuse_unless(not call.options.get("training_mode", 0), "training_mode")
    scale, shift, mean, spread = (call.needed(n) for n in range(1, 5))
    layer = NORMS[max(1, call.axes)](len(scale), eps=call.options.get("epsilon", 1e-5))
    for name, value in (("weight", scale), ("bias", shift)):
        setattr(layer, name, nn.Parameter(_tensor(value)))
    layer.running_mean, layer.running_var = _tensor(mean), _tensor(spread)
    return call.layer(layer)


def _max_pool(call: Call) -> fx.Node:
    given, padding = _padded(call, -torch.inf)
    axes, kernel = call.axes, tuple(call.options["kernel_shape"])
    strides = tuple(call.options.get("strides", [1] * axes))
    dilations = tuple(call.options.get("dilations", [1] * axes))
    ceil = bool(call.options.get("ceil_mode", 0))
    return call.add_module(
        MAX_POOLS[axes](kernel, strides, padding, dilations, ceil_mode=ceil), given
    )


def _mean_pool(call: Call) -> fx.Node:
    counted, ceil = bool(call.options.get("count_include_pad", 0)), call.options.get("ceil_mode", 0)
    given, padding = _padded(call)
    call.refuse_unless(given is call.first or counted, "pads")
    axes, kernel = call.axes, tuple(call.options["kernel_shape"])
    strides = tuple(call.options.get("strides", [1] * axes))
    pool = MEAN_POOLS[axes](kernel, strides, padding, ceil_mode=bool(ceil))
    pool.count_include_pad = counted or not any(padding)
    return call.add_module(pool, given)


def _gemm(call: Call) -> fx.Node:
    call.refuse_unless(not call.options.get("transA", 0), "transA")
    weight, bias = call.needed(1), call.known(2)
    turned = weight if call.options.get("transB", 0) else weight.T
    scaled = None if bias is None else np.broadcast_to(bias, (1, len(turned)))[0]
    return _linear(
        call,
        turned * np.asarray(call.options.get("alpha", 1.0), turned.dtype),
        None if scaled is None else scaled * call.options.get("beta", 1.0),
    )


def _linear(call: Call, weight: Array, bias: Array | None = None) -> fx.Node:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(_tensor(weight))
    if bias is not None:
        layer.bias = nn.Parameter(_tensor(bias.astype(weight.dtype)))
    return call.layer(layer)


def _matmul(call: Call) -> fx.Node:
    right = call.inputs[1]
    if isinstance(right, np.ndarray) and right.ndim == 2 and isinstance(call.inputs[0], fx.Node):
        return _linear(call, right.T)
    return call.call(torch.matmul, call.node(0), call.node(1))


def _layer_norm(call: Call) -> fx.Node:
    scale, shift = call.needed(1), call.known(2)
    axis = call.options.get("axis", -1)
    call.refuse_unless(axis in {-1, call.rank(call.first) - 1}, "axis")
    layer = nn.LayerNorm(len(scale), eps=call.options.get("epsilon", 1e-5), bias=shift is not None)
    layer.weight = nn.Parameter(_tensor(scale))
    if shift is not None:
        layer.bias = nn.Parameter(_tensor(shift))
    return call.layer(layer)


def _group_norm(call: Call) -> fx.Node:
    scale, shift = call.needed(1), call.needed(2)
    groups = len(scale) if call.kind == "InstanceNormalization" else call.options["num_groups"]
    layer = nn.GroupNorm(groups, len(scale), eps=call.options.get("epsilon", 1e-5))
    layer.weight, layer.bias = nn.Parameter(_tensor(scale)), nn.Parameter(_tensor(shift))
    return call.layer(layer)


def _clip(call: Call) -> fx.Node:
    low, high = (call.known(n, name) for n, name in ((1, "min"), (2, "max")))
    bounds = [None if value is None else float(value) for value in (low, high)]
    if bounds == [0.0, 6.0]:
        return call.layer(nn.ReLU6())
    return call.call(torch.clamp, call.first, *bounds)


def _hard_sigmoid(call: Call) -> fx.Node:
    alpha, beta = call.options.get("alpha", 0.2), call.options.get("beta", 0.5)
    scaled = call.call(operator.mul, call.first, float(alpha))
    return call.call(torch.clamp, call.call(operator.add, scaled, float(beta)), 0.0, 1.0)


def _prelu(call: Call) -> fx.Node:
    slope = call.needed(1)
    layer = nn.PReLU(slope.size)
    layer.weight = nn.Parameter(_tensor(slope.reshape(-1)))
    return call.layer(layer)


def _softmax(call: Call) -> fx.Node:
    target = torch.softmax if call.kind == "Softmax" else torch.log_softmax
    return call.call(target, call.first, call.options.get("axis", -1))


def _reduction(call: Call) -> fx.Node:
    axes = call.known(1, "axes")
    over = range(call.rank(call.first)) if axes is None else axes.tolist()
    dims, keep = [int(a) for a in over], bool(call.options.get("keepdims", 1))
    target = {"ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax}[call.kind]
    if call.kind == "ReduceMean":
        dims = [a % call.rank(call.first) for a in dims]
        return call.graph.call_method("mean", (call.first, dims), {"keepdim": True} if keep else {})
    return call.call(target, call.first, dims, keepdim=keep)


def _reshape(call: Call) -> fx.Node:
    shape = call.needed(1, "shape")
    sides = [int(n) for n in shape]
    if 0 in sides[1:] or not sides:
        message = f"Reshape to {sides}"
        raise UnsupportedError(message)
    # The first axis is the batch, whatever its size was in the file.
    if -1 not in sides[1:]:
        return call.call(torch.reshape, call.first, [-1, *sides[1:]])
    flat = call.call(torch.flatten, call.first, 1)
    return flat if len(sides) == 2 else call.call(torch.unflatten, flat, 1, sides[1:])


def _flatten(call: Call) -> fx.Node:
    call.refuse_unless(call.options.get("axis", 1) == 1, "axis")
    return call.layer(nn.Flatten())


def _transpose(call: Call) -> fx.Node:
    order = call.options.get("perm", list(range(call.rank(call.first)))[::-1])
    return call.call(torch.permute, call.first, [int(a) for a in order])


def _squeeze(call: Call) -> fx.Node:
    axes = call.known(1, "axes")
    if axes is None:
        message = f"{call.kind} without axes"
        raise UnsupportedError(message)
    target = torch.squeeze if call.kind == "Squeeze" else torch.unsqueeze
    made = call.first
    dims = [int(a) for a in axes.reshape(-1)]
    for dim in sorted(dims, reverse=call.kind == "Squeeze"):
        made = call.call(target, made, dim)
    return made


def _pad(call: Call) -> fx.Node:
    mode = call.options.get("mode", "constant")
    call.refuse_unless(mode in {"constant", "reflect"}, "mode")
    pads, value = call.needed(1, "pads"), call.known(2, "value")
    rank = len(pads) // 2
    before, after = [int(n) for n in pads[:rank]], [int(n) for n in pads[rank:]]
    widths = [n for pair in zip(before[:1:-1], after[:1:-1], strict=True) for n in pair]
    if any((*before[:2], *after[:2])):
        message = "Pad of rows or channels"
        raise UnsupportedError(message)
    filled = {} if mode != "constant" or value is None else {"value": float(value)}
    return call.call(f.pad, call.first, widths, mode, **filled)


def _resize(call: Call) -> fx.Node:
    mode = call.options.get("mode", "nearest")
    place = call.options.get("coordinate_transformation_mode", "half_pixel")
    scales = call.known(1 if call.kind == "Upsample" else 2, "scales")
    sizes = call.known(3)
    linear = mode == "linear" and place in {"half_pixel", "pytorch_half_pixel"}
    # For whole factors, nearest pixels are the same in all these ways to count.
    nearest = mode == "nearest" and place != "align_corners"
    call.refuse_unless(linear or nearest, "coordinate_transformation_mode")
    kind = LINEAR[call.axes] if linear else "nearest"
    if sizes is not None and sizes.size:
        return call.call(f.interpolate, call.first, [int(n) for n in sizes[2:]], mode=kind)
    if scales is None or not scales.size or np.any(scales[:2] != 1):
        message = f"{call.kind} of rows or channels"
        raise UnsupportedError(message)
    return call.layer(nn.Upsample(scale_factor=tuple(float(n) for n in scales[2:]), mode=kind))


def _concat(call: Call) -> fx.Node:
    nodes = [call.node(n) for n in range(len(call.inputs))]
    return call.call(torch.cat, nodes, call.options["axis"] % call.rank(nodes[0]))


def _binary(target: Callable[..., Untyped]) -> Converter:
    def convert(call: Call) -> fx.Node:
        return call.call(target, *(_operand(call, number) for number in range(2)))

    return convert


def _operand(call: Call, number: int) -> Untyped:
    """Return an input; a constant of one number becomes a number."""
    given = call.inputs[number]
    is_number = isinstance(given, np.ndarray) and given.size == 1 and given.dtype.kind in "fi"
    return given.item() if is_number else call.node(number)


def _function(target: Callable[..., Untyped]) -> Converter:
    return lambda call: call.call(target, call.first)


def _layer(make: Callable[[Mapping[str, Untyped]], nn.Module]) -> Converter:
    return lambda call: call.layer(make(call.options))


def _global_mean(call: Call) -> fx.Node:
    return call.layer(GLOBAL_MEANS[call.axes](1))


def _global_max(call: Call) -> fx.Node:
    return call.call(torch.amax, call.first, list(range(2, call.axes + 2)), keepdim=True)


CONVERTERS: dict[str, Converter] = {
    "Conv": _convolution,
    "BatchNormalization": _batch_norm,
    "MaxPool": _max_pool,
    "AveragePool": _mean_pool,
    "GlobalAveragePool": _global_mean,
    "GlobalMaxPool": _global_max,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _group_norm,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "PRelu": _prelu,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "ReduceMean": _reduction,
    "ReduceSum": _reduction,
    "ReduceMax": _reduction,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
    "Concat": _concat,
    "Add": _binary(operator.add),
    "Sub": _binary(operator.sub),
    "Mul": _binary(operator.mul),
    "Div": _binary(operator.truediv),
    "Pow": _binary(torch.pow),
    "Relu": _layer(lambda _: nn.ReLU()),
    "LeakyRelu": _layer(lambda given: nn.LeakyReLU(given.get("alpha", 0.01))),
    "Elu": _layer(lambda given: nn.ELU(given.get("alpha", 1.0))),
    "Gelu": _layer(lambda given: nn.GELU(given.get("approximate", "none"))),
    "HardSwish": _layer(lambda _: nn.Hardswish()),
    "Identity": _layer(lambda _: nn.Identity()),
    "Dropout": _layer(lambda _: nn.Identity()),
    "Mish": _layer(lambda _: nn.Mish()),
    "Selu": _layer(lambda _: nn.SELU()),
    "Sigmoid": _layer(lambda _: nn.Sigmoid()),
    "Softplus": _layer(lambda _: nn.Softplus()),
    "Softsign": _layer(lambda _: nn.Softsign()),
    "Swish": _layer(lambda _: nn.SiLU()),
    "Tanh": _layer(lambda _: nn.Tanh()),
    "Abs": _function(torch.abs),
    "Erf": _function(torch.erf),
    "Exp": _function(torch.exp),
    "Log": _function(torch.log),
    "Neg": _function(torch.neg),
    "Reciprocal": _function(torch.reciprocal),
    "Sqrt": _function(torch.sqrt),
}
