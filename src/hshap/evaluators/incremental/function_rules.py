"""How calls of functions and methods run on patches. Needs torch."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import torch
from torch import fx, nn
from torch.nn import functional as f

from hshap.evaluators.incremental.layer_rules import (
    convolution,
    largest,
    layer_rule,
    mean,
    padding,
    per_axis,
    pointwise,
    reduction,
    same_zones,
    smallest,
    total,
    upsampling,
)
from hshap.evaluators.incremental.patches import Patch, align, concatenate
from hshap.evaluators.incremental.steps import Rule, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hshap.evaluators.incremental.layer_rules import ReducedParts
    from hshap.evaluators.incremental.windows import Known

    Options: TypeAlias = Mapping[str, Value]


POINTWISE_FUNCTIONS = {
    *(f.relu, f.relu6, f.leaky_relu, f.elu, f.gelu, f.silu, f.mish, f.hardswish, f.hardsigmoid),
    *(f.hardtanh, f.softplus, f.sigmoid, f.tanh, f.dropout, f.dropout2d, f.dropout3d),
    *(f.celu, f.selu, f.logsigmoid, f.softsign, f.tanhshrink, f.hardshrink, f.softshrink),
    *(torch.relu, torch.sigmoid, torch.tanh, torch.abs, torch.exp, torch.neg, torch.clamp),
    *(torch.sqrt, torch.rsqrt, torch.square, torch.log, torch.log1p, torch.erf, torch.sin),
    *(torch.cos, torch.sign, torch.reciprocal, torch.pow, operator.pow, operator.neg),
}
POINTWISE_METHODS = {
    *("relu", "relu_", "sigmoid", "tanh", "abs", "clamp", "contiguous", "neg", "exp", "sqrt"),
    *("rsqrt", "square", "log", "log1p", "erf", "sin", "cos", "sign", "reciprocal", "pow"),
    *("clamp_min", "clamp_max"),
}
REDUCTIONS = {
    *(torch.mean, torch.sum, torch.amax, torch.amin, torch.var, torch.std, torch.logsumexp),
    *("mean", "sum", "amax", "amin", "var", "std", "norm", "logsumexp"),
}
"""Over the channels of each place, if they keep that axis."""

OVER_CHANNELS = {f.softmax, f.log_softmax, f.glu, f.normalize, torch.softmax, "softmax"}
ELEMENTWISE = {
    operator.add: torch.add,
    operator.iadd: torch.add,
    operator.sub: torch.sub,
    operator.isub: torch.sub,
    operator.mul: torch.mul,
    operator.imul: torch.mul,
    operator.truediv: torch.div,
    operator.itruediv: torch.div,
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
    f.adaptive_max_pool1d: nn.AdaptiveMaxPool1d,
    f.adaptive_max_pool2d: nn.AdaptiveMaxPool2d,
    f.adaptive_max_pool3d: nn.AdaptiveMaxPool3d,
}


def function_rule(
    target: Value, args: Sequence[Value], options: Options, spatial: Sequence[bool]
) -> Rule | None:
    """Return the rule of a function or method call; `spatial` says which arguments are patches."""
    if target in ELEMENTWISE:
        are_known = any(spatial) and _are_numbers_or_constants(args, spatial)
        fits = len(args) == 2 and not options and are_known
        numbers = any(isinstance(arg, (int, float)) for arg in args)
        return _elementwise(ELEMENTWISE[target], alone=numbers) if fits else None
    if target in {torch.cat, torch.concat}:
        fits = all(spatial) and options.get("dim", 0) == 1
        return Rule(concatenate, is_local=True, zones=same_zones) if fits else None
    if not spatial or not spatial[0] or any(spatial[1:]):
        return None
    if target is f.interpolate:
        return _interpolation(*args[1:], **options)
    known = _known([*args[1:], *options.values()])
    return _rule_of_one_patch(target, args[1:], options) if known else None


def _rule_of_one_patch(target: Value, args: Sequence[Value], options: Options) -> Rule | None:
    """Return the rule of a call on one patch; all other arguments are known from the trace."""
    if target in POINTWISE_FUNCTIONS or target in POINTWISE_METHODS:
        return _pointwise(target, args, options)
    if _is_place_by_place(target, args, options):
        return _pointwise(target, args, options)
    if target in CONVOLVE:
        return convolution(convolution_layer(target, args, options))
    # The order of further options differs between functions and layers.
    if target in POOLING and len(args) <= 3:
        return layer_rule(POOLING[target](*args, **options))
    makers: dict[Value, Callable[..., Rule | None]] = {
        f.pad: padding,
        **dict.fromkeys((torch.mean, "mean"), _over_all_places(mean, least=1)),
        **dict.fromkeys((torch.sum, "sum"), _over_all_places(total)),
        **dict.fromkeys((torch.amax, "amax"), _over_all_places(largest)),
        **dict.fromkeys((torch.amin, "amin"), _over_all_places(smallest)),
    }
    return makers[target](*args, **options) if target in makers else None


def _pointwise(target: Value, args: Sequence[Value], options: Options) -> Rule | None:
    """Return the rule of a pointwise call, or None if an argument differs from pixel to pixel."""
    if any(isinstance(value, torch.Tensor) and value.ndim for value in (*args, *options.values())):
        return None
    # A positional True is always `inplace`, as in `f.relu(x, True)`.
    in_place = target == "relu_" or options.get("inplace", False) or any(v is True for v in args)
    if isinstance(target, str):
        return pointwise(lambda d: getattr(d, target)(*args, **options), in_place=in_place)
    return pointwise(lambda data: target(data, *args, **options), in_place=in_place)


def _is_place_by_place(target: Value, args: Sequence[Value], options: Options) -> bool:
    """Tell whether a call reads only the channels of each place."""
    if target in REDUCTIONS:
        return _keeps_channel_axis(target, args, options)
    if target in OVER_CHANNELS:
        return _dim(target, args, options) == 1
    return target is f.local_response_norm or _is_idle_depth(target, args, options)


def _named_dim(args: Sequence[Value]) -> Options:
    return dict(zip(("dim", "keepdim"), args, strict=False))


def _keeps_channel_axis(target: Value, args: Sequence[Value], options: Options) -> bool:
    """Tell whether a reduction runs over the channels alone, and leaves one."""
    if target == "norm" or len(args) > 2:  # whose first argument is no axis
        args = ()
    given = {**options, **_named_dim(args)}
    dim = given.get("dim")
    alone = dim == 1 or (isinstance(dim, (tuple, list)) and tuple(dim) == (1,))
    return alone and type(dim) is not bool and given.get("keepdim") is True


def _dim(target: Value, args: Sequence[Value], options: Options) -> Value:
    place = 1 if target is f.normalize else 0  # after the exponent of the norm
    unset = 1 if target is f.normalize else None
    return options.get("dim", args[place] if len(args) > place else unset)


def _is_idle_depth(target: Value, args: Sequence[Value], options: Options) -> bool:
    """Tell whether a call is torchvision's stochastic depth outside of training."""
    home, name = getattr(target, "__module__", None), getattr(target, "__name__", None)
    known = str(home).startswith("torchvision.ops.") and name == "stochastic_depth"
    return known and options.get("training", args[2] if len(args) > 2 else True) is False


def _interpolation(
    size: Value = None,
    scale_factor: Value = None,
    mode: str = "nearest",
    align_corners: Value = None,
    **more: Value,
) -> Rule | None:
    del size  # the anchor has the size that was asked for
    if any(more.values()) or isinstance(scale_factor, fx.Node):
        return None
    return upsampling(mode, align=align_corners, factor=scale_factor)


def _known(values: Sequence[Value]) -> bool:
    """Tell whether all values are known from the trace."""
    return all(
        _known(value)
        if isinstance(value, (tuple, list))
        else value is None or isinstance(value, (int, float, str, torch.Tensor))
        for value in values
    )


def convolution_layer(target: Value, args: Sequence[Value], options: Options) -> nn.Module:
    """Return the layer that does the same as a call with constant weights."""
    names = ("weight", "bias", "stride", "padding", "dilation", "groups")
    given = dict(zip(names, args, strict=False)) | dict(options)
    weight, bias = given.pop("weight"), given.pop("bias", None)
    groups = given.get("groups", 1)
    # On the meta device, the layer takes no memory for weights that are replaced at once.
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
    return layer.eval()


def _over_all_places(
    act: Callable[[ReducedParts], torch.Tensor], *, least: int = 2
) -> Callable[..., Rule | None]:
    """Return a maker of rules for a reduction that is known over all places.

    Reductions over fewer than `least` axes have no rule: of a picture they leave some places.
    """

    def maker(
        dim: Value = None, keepdim: Value = None, dtype: Value = None, axis: Value = None
    ) -> Rule | None:
        del keepdim  # the anchor has the right axes
        given = axis if dim is None else dim
        over = () if given is None else per_axis(given, 1)
        if dtype or len(over) < least or {0, 1} & {*over}:
            return None
        made = reduction(act)

        def rule(args: Sequence[Value], anchor: Known) -> Patch | torch.Tensor | None:
            axes = len(args[0].grid) + 2
            is_over_all = {axis % axes for axis in over} == set(range(2, axes))
            return made.act(args, anchor) if is_over_all else None

        return replace(made, act=rule)

    return maker


def _elementwise(act: Callable[[Value, Value], torch.Tensor], *, alone: bool) -> Rule:
    """Return the rule of arithmetic on two arguments; `alone` if one of them is a number."""

    def rule(args: Sequence[Value], anchor: Known) -> Patch | None:
        patches = [arg for arg in args if isinstance(arg, Patch)]
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if not all(_is_uniform(tensor, len(patches[0].size)) for tensor in tensors):
            return None
        on_one_rectangle = align(patches)
        data = iter(on_one_rectangle)
        first, second = (next(data).data if isinstance(arg, Patch) else arg for arg in args)
        return Patch(act(first, second), on_one_rectangle[0].starts, anchor)

    # Two patches may have different rectangles, whose difference is read from the anchors.
    return Rule(rule, reads_anchors=not alone, is_local=True, zones=same_zones)


def _are_numbers_or_constants(args: Sequence[Value], spatial: Sequence[bool]) -> bool:
    """Tell whether every argument that is no patch is a number or a constant tensor."""
    return all(
        known or isinstance(arg, (int, float, torch.Tensor))
        for arg, known in zip(args, spatial, strict=True)
    )


def _is_uniform(value: torch.Tensor, axes: int) -> bool:
    """Tell whether a constant is the same for all pixels, as `(1, channels, 1, 1)` is."""
    has_own_rows = value.ndim > axes + 2 or (value.ndim == axes + 2 and len(value) > 1)
    is_flat = value.ndim > axes and set(value.shape[-axes:]) == {1}
    return value.ndim == 0 or (is_flat and not has_own_rows)
