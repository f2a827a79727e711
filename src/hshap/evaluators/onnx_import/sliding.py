"""Operators of ONNX that slide over the image, or change its size. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import fx, nn
from torch.nn import functional as f

from hshap.evaluators.onnx_import.calls import Call, Converter, UnsupportedError, tensor

if TYPE_CHECKING:
    from hshap._util.types import Untyped

CONVOLUTIONS: dict[int, Untyped] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
MAX_POOLS: dict[int, Untyped] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
MEAN_POOLS: dict[int, Untyped] = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
GLOBAL_MEANS: dict[int, Untyped] = {
    1: nn.AdaptiveAvgPool1d,
    2: nn.AdaptiveAvgPool2d,
    3: nn.AdaptiveAvgPool3d,
}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


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
    layer.weight = nn.Parameter(tensor(weight))
    if bias is not None:
        layer.bias = nn.Parameter(tensor(bias))
    return call.add_module(layer, given)


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


def _global_mean(call: Call) -> fx.Node:
    return call.layer(GLOBAL_MEANS[call.axes](1))


def _global_max(call: Call) -> fx.Node:
    return call.call(torch.amax, call.first, list(range(2, call.axes + 2)), keepdim=True)


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


CONVERTERS: dict[str, Converter] = {
    "Conv": _convolution,
    "MaxPool": _max_pool,
    "AveragePool": _mean_pool,
    "GlobalAveragePool": _global_mean,
    "GlobalMaxPool": _global_max,
    "Pad": _pad,
    "Resize": _resize,
    "Upsample": _resize,
}
