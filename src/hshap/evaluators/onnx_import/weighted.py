"""Operators of ONNX with weights for each channel: norms and matrix products. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import fx, nn

from hshap.evaluators.onnx_import.calls import Call, Converter, tensor

if TYPE_CHECKING:
    from hshap._util.types import Array, Untyped

NORMS: dict[int, Untyped] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


def _batch_norm(call: Call) -> fx.Node:
    call.refuse_unless(not call.options.get("training_mode", 0), "training_mode")
    scale, shift, mean, spread = (call.needed(n) for n in range(1, 5))
    layer = NORMS[max(1, call.axes)](len(scale), eps=call.options.get("epsilon", 1e-5))
    for name, value in (("weight", scale), ("bias", shift)):
        setattr(layer, name, nn.Parameter(tensor(value)))
    layer.running_mean, layer.running_var = tensor(mean), tensor(spread)
    return call.layer(layer)


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
    layer.weight = nn.Parameter(tensor(weight))
    if bias is not None:
        layer.bias = nn.Parameter(tensor(bias.astype(weight.dtype)))
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
    layer.weight = nn.Parameter(tensor(scale))
    if shift is not None:
        layer.bias = nn.Parameter(tensor(shift))
    return call.layer(layer)


def _group_norm(call: Call) -> fx.Node:
    scale, shift = call.needed(1), call.needed(2)
    groups = len(scale) if call.kind == "InstanceNormalization" else call.options["num_groups"]
    layer = nn.GroupNorm(groups, len(scale), eps=call.options.get("epsilon", 1e-5))
    layer.weight, layer.bias = nn.Parameter(tensor(scale)), nn.Parameter(tensor(shift))
    return call.layer(layer)


def _prelu(call: Call) -> fx.Node:
    slope = call.needed(1)
    layer = nn.PReLU(slope.size)
    layer.weight = nn.Parameter(tensor(slope.reshape(-1)))
    return call.layer(layer)


CONVERTERS: dict[str, Converter] = {
    "BatchNormalization": _batch_norm,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _group_norm,
    "PRelu": _prelu,
}
