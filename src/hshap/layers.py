"""Layers: what each operation of a torch network makes of patches.

A rule takes the patches that an operation reads and the anchor of what it writes, and returns the
patch of the outcome. What has no rule here sees whole tensors. Needs torch.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from hshap.patches import Patch, Reach, joined

Rule = Callable[[Sequence[Any], torch.Tensor], Any]
"""From the arguments, tensors among them as patches, and the outcome's anchor to the outcome."""

POINTWISE = (
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.ELU,
    nn.CELU,
    nn.GELU,
    nn.Hardshrink,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LogSigmoid,
    nn.Mish,
    nn.PReLU,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softshrink,
    nn.Softsign,
    nn.Tanh,
    nn.Tanhshrink,
    nn.Threshold,
)
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
CONVOLUTIONS = {nn.Conv1d: f.conv1d, nn.Conv2d: f.conv2d, nn.Conv3d: f.conv3d}
MAX_POOLS = {nn.MaxPool1d: f.max_pool1d, nn.MaxPool2d: f.max_pool2d, nn.MaxPool3d: f.max_pool3d}
AVERAGE_POOLS = {
    nn.AvgPool1d: f.avg_pool1d,
    nn.AvgPool2d: f.avg_pool2d,
    nn.AvgPool3d: f.avg_pool3d,
}
MEANS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def module_rule(module: nn.Module) -> Rule | None:
    """Return the rule of a layer, if there is one."""
    makers: dict[Any, Callable[[Any], Rule | None]] = {
        **dict.fromkeys(POINTWISE, _pointwise),
        **dict.fromkeys(CONVOLUTIONS, _convolution),
        **dict.fromkeys(MAX_POOLS, _max_pool),
        **dict.fromkeys(AVERAGE_POOLS, _average_pool),
        **dict.fromkeys(MEANS, _global_mean),
        nn.Upsample: _upsampling,
    }
    # By the very type: a subclass may do anything.
    maker = makers.get(type(module))
    return None if maker is None else maker(module)


def function_rule(
    target: Any, args: Sequence[Any], options: Mapping[str, Any], spatial: Sequence[bool]
) -> Rule | None:
    """Return the rule of a function or method call; `spatial` says which arguments are patches."""
    first_only = bool(spatial) and spatial[0] and not any(spatial[1:])
    if target in TOGETHER and len(args) == 2 and not options:
        return _together(TOGETHER[target]) if _elementwise(args, spatial) else None
    if target in {torch.cat, torch.concat} and all(spatial):
        return _concatenation if options.get("dim", 0) == 1 else None
    if not first_only:
        return None
    if target in POINTWISE_FUNCTIONS:
        return _pointwise(lambda data: target(data, *args[1:], **options))
    if target in POINTWISE_METHODS:
        return _pointwise(lambda data: getattr(data, target)(*args[1:], **options))
    return _pooling_rule(target, args, options)


def _pooling_rule(target: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Rule | None:
    """Return the rule of pooling that is called as a function: that of the layer of its options."""
    layers = {
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
    # The order of further options differs between functions and layers.
    if target in layers and len(args) <= 4:
        return module_rule(layers[target](*args[1:], **options))
    return None


def _pointwise(act: Callable[[Any], Any]) -> Rule:
    def rule(args: Sequence[Any], anchor: torch.Tensor) -> Patch:
        # A copy where the layer works in place: others may read the patch too.
        patch = args[0]
        data = patch.data.clone() if getattr(act, "inplace", False) else patch.data
        return Patch(act(data), patch.starts, anchor)

    return rule


def _convolution(module: Any) -> Rule:
    act = CONVOLUTIONS[type(module)]
    reach = Reach(module.kernel_size, module.stride, _padding(module), module.dilation)
    if module.padding_mode != "zeros":
        around = module.padding_mode == "circular"
        return lambda args, anchor: reach.cut(args[0], anchor, module, around=around)

    def slid(window: torch.Tensor) -> torch.Tensor:
        options = {"stride": module.stride, "dilation": module.dilation, "groups": module.groups}
        return act(window, module.weight, module.bias, **options)

    return lambda args, anchor: reach.slide(args[0], anchor, slid, outside=0.0)


def _padding(module: Any) -> tuple[int, ...]:
    """Return the padding before the first pixel of each axis."""
    if module.padding == "valid":
        return (0,) * len(module.kernel_size)
    if module.padding == "same":
        # Of an odd total, torch puts the smaller half first.
        spans = zip(module.kernel_size, module.dilation, strict=True)
        return tuple(d * (k - 1) // 2 for k, d in spans)
    return tuple(module.padding)


def _max_pool(module: Any) -> Rule | None:
    if module.return_indices:
        return None
    axes = int(type(module).__name__[-2])
    kernel, stride, padding, dilation = (
        _several(value, axes)
        for value in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    reach = Reach(kernel, stride, padding, dilation)
    act = MAX_POOLS[type(module)]

    def slid(window: torch.Tensor) -> torch.Tensor:
        return act(window, kernel, stride, 0, dilation)

    return lambda args, anchor: reach.slide(args[0], anchor, slid, outside=-torch.inf)


def _average_pool(module: Any) -> Rule | None:
    axes = int(type(module).__name__[-2])
    kernel, stride, padding = (
        _several(value, axes) for value in (module.kernel_size, module.stride, module.padding)
    )
    divided = getattr(module, "divisor_override", None)
    if module.ceil_mode or divided or (any(padding) and not module.count_include_pad):
        return None
    reach = Reach(kernel, stride, padding, (1,) * axes)
    act = AVERAGE_POOLS[type(module)]

    def slid(window: torch.Tensor) -> torch.Tensor:
        return act(window, kernel, stride)

    return lambda args, anchor: reach.slide(args[0], anchor, slid, outside=0.0)


def _mean(args: Sequence[Any], anchor: torch.Tensor) -> torch.Tensor:
    """Return the anchor's mean, moved by what the patches add to it."""
    patch = args[0]
    axes = tuple(range(2, patch.data.ndim))
    before = Patch(patch.data[:, :, *(slice(0, 0) for _ in axes)], patch.starts, patch.anchor)
    old = before.window(patch.starts, patch.size)
    moved = (patch.data.double() - old.double()).sum(axes, keepdim=True) / prod(patch.grid)
    return (anchor.double() + moved).to(anchor.dtype)


def _global_mean(module: Any) -> Rule | None:
    return _mean if set(_several(module.output_size, 1)) == {1} else None


def _upsampling(module: Any) -> Rule | None:
    """Return the rule of repeating every pixel a whole number of times."""
    factors = _several(module.scale_factor, 1)
    if module.mode != "nearest" or any(n is None or n != int(n) for n in factors):
        return None

    def rule(args: Sequence[Any], anchor: torch.Tensor) -> Patch:
        patch = args[0]
        times = tuple(map(int, _several(module.scale_factor, len(patch.size))))
        data = patch.data
        for axis, n in enumerate(times, start=2):
            data = data.repeat_interleave(n, dim=axis)
        starts = tuple(
            tuple(a * n for a, n in zip(start, times, strict=True)) for start in patch.starts
        )
        return Patch(data, starts, anchor)

    return rule


def _together(act: Callable[[Any, Any], Any]) -> Rule:
    def rule(args: Sequence[Any], anchor: torch.Tensor) -> Patch:
        patches = [arg for arg in args if isinstance(arg, Patch)]
        same = iter(joined(patches))
        placed = [next(same) if isinstance(arg, Patch) else arg for arg in args]
        values = [arg.data if isinstance(arg, Patch) else arg for arg in placed]
        starts = next(arg.starts for arg in placed if isinstance(arg, Patch))
        return Patch(act(*values), starts, anchor)

    return rule


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


def _several(value: Any, axes: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
