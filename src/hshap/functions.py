"""Functions and methods: what calls in a traced network make of patches. Needs torch."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as f

from hshap.layers import (
    Rule,
    convolution,
    mean,
    module_rule,
    padding,
    pointwise,
    several,
    upsampling,
)
from hshap.patches import Patch, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

POINTWISE_FUNCTIONS = {
    *(f.relu, f.relu6, f.leaky_relu, f.elu, f.gelu, f.silu, f.mish, f.hardswish, f.hardsigmoid),
    *(f.hardtanh, f.softplus, f.sigmoid, f.tanh, f.dropout, f.dropout2d, f.dropout3d),
    *(torch.relu, torch.sigmoid, torch.tanh, torch.abs, torch.exp, torch.neg, torch.clamp),
}
POINTWISE_METHODS = {"relu", "relu_", "sigmoid", "tanh", "abs", "clamp", "contiguous", "neg"}
TOGETHER = {
    operator.add: torch.add,
    operator.iadd: torch.add,
    operator.sub: torch.sub,
    operator.mul: torch.mul,
    operator.imul: torch.mul,
    operator.truediv: torch.div,
    torch.add: torch.add,
    torch.div: torch.div,
    torch.sub: torch.sub,
    torch.mul: torch.mul,
    "add": torch.add,
    "add_": torch.add,
    "sub": torch.sub,
    "div": torch.div,
    "mul": torch.mul,
    "mul_": torch.mul,
}
SHAPES = {"size", "dim", "shape", "ndim"}
CONVOLVE = {f.conv1d: nn.Conv1d, f.conv2d: nn.Conv2d, f.conv3d: nn.Conv3d}
POOLING = {
    f.max_pool1d: nn.MaxPool1d,
    f.max_pool2d: nn.MaxPool2d,
    f.max_pool3d: nn.MaxPool3d,
    f.avg_pool1d: nn.AvgPool1d,
    f.avg_pool2d: nn.AvgPool2d,
    f.avg_pool3d: nn.AvgPool3d,
    f.adaptive_avg_pool1d: nn.AdaptiveAvgPool1d,
    f.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
    f.adaptive_avg_pool3d: nn.AdaptiveAvgPool3d,
}


def function_rule(
    target: Any, args: Sequence[Any], options: Mapping[str, Any], spatial: Sequence[bool]
) -> Rule | None:
    """Return the rule of a function or method call; `spatial` says which arguments are patches."""
    if target in TOGETHER:
        fits = len(args) == 2 and not options and _elementwise(args, spatial)
        return _together(TOGETHER[target], alone=sum(spatial) == 1) if fits else None
    if target in {torch.cat, torch.concat}:
        fits = all(spatial) and options.get("dim", 0) == 1
        return Rule(_concatenation) if fits else None
    if not spatial or not spatial[0] or any(spatial[1:]):
        return None
    if target is f.interpolate:
        return _interpolation(*args[1:], **options)
    known = _known([*args[1:], *options.values()])
    return _rule_of_one(target, args[1:], options) if known else None


def _rule_of_one(target: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Rule | None:
    """Return the rule of a call whose other arguments are all known before the network runs."""
    if target in POINTWISE_FUNCTIONS:
        return pointwise(lambda data: target(data, *args, **options))
    if target in POINTWISE_METHODS:
        return pointwise(lambda data: getattr(data, target)(*args, **options))
    if target in CONVOLVE:
        return _functional_convolution(target, args, options)
    # The order of further options differs between functions and layers.
    if target in POOLING and len(args) <= 3:
        return module_rule(POOLING[target](*args, **options))
    makers: dict[Any, Callable[..., Rule | None]] = {
        f.pad: padding,
        torch.mean: _functional_mean,
        "mean": _functional_mean,
    }
    return makers[target](*args, **options) if target in makers else None


def _interpolation(
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    **more: Any,
) -> Rule | None:
    del size, scale_factor  # whatever is asked for, the anchor has it
    return None if any(more.values()) else upsampling(mode, align=align_corners)


def _known(values: Sequence[Any]) -> bool:
    """Tell whether all are known before the network runs."""
    return all(
        value is None or isinstance(value, (int, float, str, tuple, list, torch.Tensor))
        for value in values
    )


def _functional_convolution(
    target: Any, args: Sequence[Any], options: Mapping[str, Any]
) -> Rule | None:
    """Return the rule of a convolution whose weights are constants: that of such a layer."""
    names = ("weight", "bias", "stride", "padding", "dilation", "groups")
    given = dict(zip(names, args, strict=False)) | dict(options)
    weight, bias = given.pop("weight"), given.pop("bias", None)
    groups = given.get("groups", 1)
    # No memory for weights that are put in place anyway.
    layer = CONVOLVE[target](
        weight.shape[1] * groups,
        weight.shape[0],
        tuple(weight.shape[2:]),
        **given,
        bias=bias is not None,
        device="meta",
    )
    layer.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = nn.Parameter(bias, requires_grad=False)
    return convolution(layer)


def _functional_mean(
    dim: Any = None,
    keepdim: Any = None,
    dtype: Any = None,
) -> Rule | None:
    del keepdim  # the anchor has the axes that are kept
    if dtype or dim is None:
        return None
    over = several(dim, 1)

    def rule(args: Sequence[Any], anchor: torch.Tensor) -> torch.Tensor | None:
        axes = args[0].data.ndim
        places = {axis % axes for axis in over} == set(range(2, axes))
        return mean(args, anchor) if places else None

    return Rule(rule, ends_space=True)


def _together(act: Callable[[Any, Any], Any], *, alone: bool) -> Rule:
    def rule(args: Sequence[Any], anchor: torch.Tensor) -> Patch:
        patches = [arg for arg in args if isinstance(arg, Patch)]
        same = iter(joined(patches))
        placed = [next(same) if isinstance(arg, Patch) else arg for arg in args]
        values = [arg.data if isinstance(arg, Patch) else arg for arg in placed]
        starts = next(arg.starts for arg in placed if isinstance(arg, Patch))
        return Patch(act(*values), starts, anchor)

    # With a number there is no other patch that may reach further.
    return Rule(rule, looks_around=not alone)


def _elementwise(args: Sequence[Any], spatial: Sequence[bool]) -> bool:
    """Tell whether everything but patches is the same at every place."""
    return all(known or _everywhere(arg) for arg, known in zip(args, spatial, strict=True))


def _everywhere(value: Any) -> bool:
    """Tell whether a value is a number, or one for each channel as in `(1, channels, 1, 1)`."""
    if isinstance(value, torch.Tensor):
        return value.ndim == 0 or (value.ndim > 2 and set(value.shape[-(value.ndim - 2) :]) == {1})
    return isinstance(value, (int, float))


def _concatenation(args: Sequence[Any], anchor: torch.Tensor) -> Patch:
    placed = joined(args)
    data = torch.cat([patch.data for patch in placed], dim=1)
    return Patch(data, placed[0].starts, anchor)
