"""Layers: what each operation of a torch network makes of patches.

A rule takes the patches that an operation reads and the anchor of what it writes, and returns the
patch of the outcome. What has no rule here sees whole tensors. Needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional as f

from hshap.evaluators.incremental.graph import is_plain
from hshap.evaluators.incremental.patches import Patch, Reach, enlarged, moved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, eq=False)
class Rule:
    """What an operation makes of patches.

    `act` goes from the arguments, tensors among them as patches, and the outcome's anchor to the
    outcome; None says that it cannot be done here. `looks_around` if it reads the anchors of its
    arguments, `ends_space` if its outcome has no places any more.
    """

    act: Callable[[Sequence[Any], torch.Tensor], Any]
    looks_around: bool = True
    ends_space: bool = False


NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
POINTWISE = (
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
CONVOLUTIONS = {nn.Conv1d: f.conv1d, nn.Conv2d: f.conv2d, nn.Conv3d: f.conv3d}
MAX_POOLS = {nn.MaxPool1d: f.max_pool1d, nn.MaxPool2d: f.max_pool2d, nn.MaxPool3d: f.max_pool3d}
AVERAGE_POOLS = {
    nn.AvgPool1d: f.avg_pool1d,
    nn.AvgPool2d: f.avg_pool2d,
    nn.AvgPool3d: f.avg_pool3d,
}
PADDINGS = (
    *(nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
    *(nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d),
)
MEANS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def module_rule(module: nn.Module) -> Rule | None:
    """Return the rule of a layer, if there is one."""
    makers: dict[Any, Callable[[Any], Rule | None]] = {
        **dict.fromkeys((*NORMS, *POINTWISE), _pointwise),
        **dict.fromkeys(CONVOLUTIONS, convolution),
        **dict.fromkeys(MAX_POOLS, _max_pool),
        **dict.fromkeys(AVERAGE_POOLS, _average_pool),
        **dict.fromkeys(MEANS, _global_mean),
        **dict.fromkeys(PADDINGS, _padded),
        nn.Upsample: lambda module: upsampling(
            module.mode, align=module.align_corners, factor=module.scale_factor
        ),
        nn.UpsamplingNearest2d: lambda _: upsampling("nearest"),
    }
    # By the very type: a subclass may do anything.
    maker = makers.get(type(module)) if is_plain(module) else None
    return None if maker is None else maker(module)


def _pointwise(module: Any) -> Rule | None:
    # Without statistics of its own, a batch norm takes those of all places.
    if isinstance(module, NORMS) and module.running_mean is None:
        return None
    return pointwise(module, in_place=getattr(module, "inplace", False))


def pointwise(act: Callable[[Any], Any], *, in_place: bool = False) -> Rule:
    """Return the rule of what is done to each number by itself."""

    def rule(args: Sequence[Any], anchor: torch.Tensor) -> Patch:
        # A copy where it works in place: others may read the patch too.
        patch = args[0]
        return Patch(act(patch.data.clone() if in_place else patch.data), patch.starts, anchor)

    return Rule(rule, looks_around=False)


def convolution(module: Any) -> Rule:
    """Return the rule of a layer that convolves."""
    act = CONVOLUTIONS[type(module)]
    reach = Reach(module.kernel_size, module.stride, _padding(module), module.dilation)
    if module.padding_mode != "zeros":
        around = module.padding_mode == "circular"
        return Rule(lambda args, anchor: reach.cut(args[0], anchor, module, around=around))

    def slid(window: torch.Tensor) -> torch.Tensor:
        options = {"stride": module.stride, "dilation": module.dilation, "groups": module.groups}
        return act(window, module.weight, module.bias, **options)

    return Rule(lambda args, anchor: reach.slide(args[0], anchor, slid, outside=0.0))


def _padded(module: Any) -> Rule | None:
    return padding(module.padding)


def padding(
    widths: Sequence[int], mode: str = "constant", value: float | None = None
) -> Rule | None:
    """Return the rule of padding with a constant, which only moves what is there."""
    del value
    if mode != "constant" or min(widths) < 0:
        return None
    before = tuple(widths[::2])[::-1]

    def rule(args: Sequence[Any], anchor: torch.Tensor) -> Patch | None:
        patch = args[0]
        axes = len(patch.size)
        if len(before) > axes:
            return None
        return moved(patch, (0,) * (axes - len(before)) + before, anchor)

    return Rule(rule)


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
        several(value, axes)
        for value in (module.kernel_size, module.stride, module.padding, module.dilation)
    )
    reach = Reach(kernel, stride, padding, dilation)
    act = MAX_POOLS[type(module)]

    def slid(window: torch.Tensor) -> torch.Tensor:
        return act(window, kernel, stride, 0, dilation)

    return Rule(lambda args, anchor: reach.slide(args[0], anchor, slid, outside=-torch.inf))


def _average_pool(module: Any) -> Rule | None:
    axes = int(type(module).__name__[-2])
    kernel, stride, padding = (
        several(value, axes) for value in (module.kernel_size, module.stride, module.padding)
    )
    divided = getattr(module, "divisor_override", None)
    if module.ceil_mode or divided or (any(padding) and not module.count_include_pad):
        return None
    reach = Reach(kernel, stride, padding, (1,) * axes)
    act = AVERAGE_POOLS[type(module)]

    def slid(window: torch.Tensor) -> torch.Tensor:
        return act(window, kernel, stride)

    return Rule(lambda args, anchor: reach.slide(args[0], anchor, slid, outside=0.0))


def mean(args: Sequence[Any], anchor: torch.Tensor) -> torch.Tensor:
    """Return the anchor's mean, moved by what the patches add to it: in double, for they cancel."""
    patch = args[0]
    axes = tuple(range(2, patch.data.ndim))
    before = Patch(patch.data[:, :, *(slice(0, 0) for _ in axes)], patch.starts, patch.anchor)
    old = before.window(patch.starts, patch.size)
    by = (patch.data.double() - old.double()).sum(axes)
    total = (patch.anchor.double().sum(axes) + by) / prod(patch.grid)
    return total.reshape(len(by), *anchor.shape[1:]).to(anchor.dtype)


def _global_mean(module: Any) -> Rule | None:
    single = set(several(module.output_size, 1)) == {1}
    return Rule(mean, ends_space=True) if single else None


def upsampling(mode: str, *, align: bool | None = None, factor: Any = None) -> Rule | None:
    """Return the rule of making every pixel a whole number of pixels."""
    linear = mode in {"linear", "bilinear", "trilinear"} and not align
    # Of 2.1, torch takes the very factor, even where sizes come out as with 2.
    whole = factor is None or all(float(times).is_integer() for times in several(factor, 1))
    if (mode != "nearest" and not linear) or not whole:
        return None

    def rule(args: Sequence[Any], anchor: torch.Tensor) -> Patch | None:
        patch = args[0]
        sides = list(zip(anchor.shape[2:], patch.grid, strict=True))
        if any(new % old for new, old in sides):
            return None
        times = tuple(new // old for new, old in sides)
        return enlarged(patch, times, anchor, mode)

    return Rule(rule)


def several(value: Any, axes: int) -> tuple[Any, ...]:
    """Return one value for each axis, whether one or several are given."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
