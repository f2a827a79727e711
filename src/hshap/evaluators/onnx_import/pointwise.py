"""Operators of ONNX on each number, and on pairs of them. Needs torch."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import fx, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hshap._util.types import Untyped
    from hshap.evaluators.onnx_import.calls import Call, Converter


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


def _softmax(call: Call) -> fx.Node:
    target = torch.softmax if call.kind == "Softmax" else torch.log_softmax
    return call.call(target, call.first, call.options.get("axis", -1))


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


CONVERTERS: dict[str, Converter] = {
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
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
