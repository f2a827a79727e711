"""How layers run on patches: one rule for each class of `torch.nn`. Needs torch.

Layers without a rule run on full tensors. A rule for another layer belongs into the table of
`layer_rule`. Reductions over all places read a tensor in the pieces that it is known in.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch import nn
from torch.nn import functional as f

from hshap.evaluators.incremental.patches import (
    Patch,
    ReceptiveField,
    Slide,
    Zone,
    shift,
    slide_over,
    upsample,
)
from hshap.evaluators.incremental.steps import Rule, Value
from hshap.evaluators.incremental.windows import Tiled, parts_of, tiles_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap.evaluators.incremental.boxes import Borders
    from hshap.evaluators.incremental.steps import Zones
    from hshap.evaluators.incremental.windows import Known, Sides

    Times: TypeAlias = tuple[Sides, ...]


SMALL_ROW = 2**17
"""Numbers in a row: up to here, one call for all rows is faster than pieces."""


class ReducedPart(NamedTuple):
    """Numbers `(rows, channels, *size)` of a tensor.

    `times` tells how often each place counts, by axis; once if it is empty.
    """

    numbers: torch.Tensor
    times: Times = ()


ReducedParts: TypeAlias = Sequence[ReducedPart]


def reduction(act: Callable[[ReducedParts], torch.Tensor]) -> Rule:
    """Return the rule of a reduction. `act` gets parts that cover the tensors of some rows.

    Full tensors of all rows would take much memory where places are many.
    """

    def rule(args: Sequence[Value], anchor: Known) -> torch.Tensor:
        value: Patch | Borders = args[0]
        count = len(value.starts)
        if prod(value.anchor.shape) <= SMALL_ROW:
            made = act([ReducedPart(value.full())])
        else:
            made = torch.cat([act(_parts(value, row)) for row in range(count)])
        return made.reshape(count, *anchor.shape[1:]).to(anchor.dtype)

    return Rule(rule, drops_space=True)


def mean(parts: ReducedParts) -> torch.Tensor:
    """Return the mean of each channel."""
    sides = (map(sum, times) if times else numbers.shape[2:] for numbers, times in parts)
    return total(parts) / sum(map(prod, sides))


def total(parts: ReducedParts) -> torch.Tensor:
    """Return the sum of each channel, in double precision."""

    def one(part: torch.Tensor, times: Times) -> torch.Tensor:
        # In single precision at least, as in a full pass; their sums in double precision.
        wide, widest = (
            torch.promote_types(part.dtype, kind) for kind in (torch.float32, torch.float64)
        )
        if not times:
            return part.sum(_places(part), dtype=wide).to(widest)
        made = part.to(widest)
        for each in reversed(times):
            made = made @ torch.tensor(each, dtype=widest, device=part.device)
        return made

    return torch.stack([one(*part) for part in parts]).sum(0)


def largest(parts: ReducedParts) -> torch.Tensor:
    """Return the largest number of each channel."""
    return torch.stack([part.amax(_places(part)) for part, _ in parts]).amax(0)


def smallest(parts: ReducedParts) -> torch.Tensor:
    """Return the smallest number of each channel."""
    return torch.stack([part.amin(_places(part)) for part, _ in parts]).amin(0)


def _parts(value: Patch | Borders, row: int) -> list[ReducedPart]:
    """Return parts that cover all places of a row, each place once."""
    shown, hidden = parts_of(((0,) * len(value.grid), value.grid), value.pieces(row))
    found = [ReducedPart(source.cut(corners)) for corners, source in shown]
    if isinstance(value.anchor, Tiled):
        for each in hidden:
            corners, times = value.anchor.without_repeats(each)
            found.append(ReducedPart(value.anchor.small.cut(corners), times))
        return found
    (anchor,) = tiles_of(value.anchor)
    return found + [ReducedPart(anchor.cut(corners)) for corners in hidden]


def _places(part: torch.Tensor) -> tuple[int, ...]:
    return tuple(range(2, part.ndim))


Layer: TypeAlias = Any
"""A layer of `torch.nn`; its class says which attributes it has."""

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
SOFTMAXES = (nn.Softmax, nn.LogSoftmax, nn.GLU)
GLOBAL_MEANS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
GLOBAL_MAXIMA = (nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)


def is_plain(module: nn.Module) -> bool:
    """Tell whether a module runs as its class says: no hooks, no forward of its own."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return "forward" not in vars(module) and not any(getattr(module, name) for name in hooks)


class PlaceByPlace(nn.Module):
    """Runs a layer or a function of the last axis on the channels, which are the second axis."""

    def __init__(
        self, act: Callable[..., torch.Tensor], args: Sequence[Value], options: dict[str, Value]
    ) -> None:
        super().__init__()
        self.act, self._args, self._options = act, tuple(args), options

    @property
    def kind(self) -> str:
        """Name of the layer or function."""
        return type(self.act).__name__ if isinstance(self.act, nn.Module) else self.act.__name__

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output, channels first."""
        return self.act(x.movedim(1, -1), *self._args, **self._options).movedim(-1, 1)


def layer_rule(layer: nn.Module) -> Rule | None:
    """Return the rule of a layer, or None if it runs on full tensors."""
    makers: dict[type[nn.Module], Callable[[Layer], Rule | None]] = {
        **dict.fromkeys((*NORMS, *POINTWISE), _pointwise),
        **dict.fromkeys(CONVOLUTIONS, convolution),
        **dict.fromkeys((*MAX_POOLS, *AVERAGE_POOLS), _sliding_layer),
        **dict.fromkeys((*GLOBAL_MEANS, *GLOBAL_MAXIMA), _reduction),
        **dict.fromkeys(PADDINGS, _padding),
        **dict.fromkeys(SOFTMAXES, _softmax),
        **dict.fromkeys((PlaceByPlace, nn.LocalResponseNorm, nn.Softmax2d), pointwise),
        nn.ChannelShuffle: pointwise,
        nn.Upsample: _upsampling,
        nn.UpsamplingNearest2d: lambda _: upsampling("nearest"),
    }
    # By the exact class: a subclass may do anything.
    maker = makers.get(type(layer)) if is_plain(layer) else None
    return None if maker is None else maker(layer)


def _pointwise(layer: Layer) -> Rule | None:
    # Without running statistics, a batch norm takes those of all pixels.
    if isinstance(layer, NORMS) and layer.running_mean is None:
        return None
    return pointwise(layer, in_place=getattr(layer, "inplace", False))


def pointwise(act: Callable[[torch.Tensor], torch.Tensor], *, in_place: bool = False) -> Rule:
    """Return the rule of an operation on each number, or on the channels of each place."""

    def rule(args: Sequence[Value], anchor: Known) -> Patch:
        # In place, it gets a copy: other steps may read the patch too.
        patch: Patch = args[0]
        made = act(patch.data.clone() if in_place else patch.data)
        return Patch(made, patch.starts, anchor)

    return Rule(rule, reads_anchors=False, zones=same_zones)


def same_zones(zones: Sequence[Zones]) -> Zones | None:
    """Return where outputs agree that read all arguments at their own place alone."""
    found: list[Zone] = []
    for several in zip(*zones, strict=True):
        lows, highs, more = zip(*several, strict=True)
        if len(set(more)) > 1:
            return None
        found.append(Zone(max(lows), min(highs), more[0]))
    return found


def _softmax(layer: Layer) -> Rule | None:
    return pointwise(layer) if layer.dim == 1 else None


def convolution(layer: Layer) -> Rule | None:
    """Return the rule of a convolution; none if it pads with pixels of the image."""
    slide = slide_of(layer)
    return None if slide is None else sliding(slide)


def slide_of(layer: Layer) -> Slide | None:
    """Return a convolution or a pool as an operation on windows, or None if it is none."""
    makers: dict[type[nn.Module], Callable[[Layer], Slide | None]] = {
        **dict.fromkeys(CONVOLUTIONS, _convolution),
        **dict.fromkeys(MAX_POOLS, _max_pool),
        **dict.fromkeys(AVERAGE_POOLS, _average_pool),
    }
    maker = makers.get(type(layer)) if isinstance(layer, nn.Module) and is_plain(layer) else None
    return None if maker is None else maker(layer)


def sliding(slide: Slide) -> Rule:
    """Return the rule of an operation on windows."""
    return Rule(
        lambda args, anchor: slide_over(slide, args[0], anchor),
        reads_anchors=not slide.field.is_one_place,
        is_local=True,
        zones=lambda zones: slide.field.zones(zones[0]),
    )


def _sliding_layer(layer: Layer) -> Rule | None:
    slide = slide_of(layer)
    return None if slide is None else sliding(slide)


def _convolution(layer: Layer) -> Slide | None:
    act = CONVOLUTIONS[type(layer)]

    def slide(window: torch.Tensor, padding: Sides) -> torch.Tensor:
        return act(
            window, layer.weight, layer.bias, layer.stride, padding, layer.dilation, layer.groups
        )

    return Slide(_field(layer), slide, 0.0) if layer.padding_mode == "zeros" else None


def _field(layer: Layer) -> ReceptiveField:
    """Return the inputs of one output of a convolution."""
    before, after = _paddings(layer)
    return ReceptiveField(layer.kernel_size, layer.stride, before, layer.dilation, after)


def _paddings(layer: Layer) -> tuple[Sides, Sides]:
    """Return the padding before the first and after the last pixel of each axis."""
    if layer.padding == "valid":
        none = (0,) * len(layer.kernel_size)
        return none, none
    if layer.padding == "same":
        # Of an odd total, torch puts the smaller half first.
        totals = [d * (k - 1) for k, d in zip(layer.kernel_size, layer.dilation, strict=True)]
        return tuple(n // 2 for n in totals), tuple(n - n // 2 for n in totals)
    return tuple(layer.padding), tuple(layer.padding)


def _padding(layer: Layer) -> Rule | None:
    return padding(layer.padding)


def padding(
    widths: Sequence[int], mode: str = "constant", value: float | None = None
) -> Rule | None:
    """Return the rule of padding with a constant, which only shifts the patch."""
    del value
    if mode != "constant" or min(widths) < 0:
        return None
    before = tuple(widths[::2])[::-1]

    def rule(args: Sequence[Value], anchor: Known) -> Patch | None:
        patch: Patch = args[0]
        axes = len(patch.size)
        if len(before) > axes:
            return None
        return shift(patch, (0,) * (axes - len(before)) + before, anchor)

    def zones(zones: Sequence[Zones]) -> Zones | None:
        by = (0,) * (len(zones[0]) - len(before)) + before
        if len(by) > len(zones[0]):
            return None
        return [Zone(a + n, b + n, more) for (a, b, more), n in zip(zones[0], by, strict=True)]

    return Rule(rule, is_local=True, zones=zones)


def _max_pool(layer: Layer) -> Slide | None:
    if layer.return_indices:
        return None
    axes = int(type(layer).__name__[-2])
    kernel, stride, padding, dilation = (
        per_axis(value, axes)
        for value in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
    )
    field = ReceptiveField(kernel, stride, padding, dilation)
    act = MAX_POOLS[type(layer)]

    def slide(window: torch.Tensor, padding: Sides) -> torch.Tensor:
        return act(window, kernel, stride, padding, dilation)

    return Slide(field, slide, -torch.inf)


def _average_pool(layer: Layer) -> Slide | None:
    axes = int(type(layer).__name__[-2])
    kernel, stride, padding = (
        per_axis(value, axes) for value in (layer.kernel_size, layer.stride, layer.padding)
    )
    divided = getattr(layer, "divisor_override", None)
    if layer.ceil_mode or divided or (any(padding) and not layer.count_include_pad):
        return None
    field = ReceptiveField(kernel, stride, padding, (1,) * axes)
    act = AVERAGE_POOLS[type(layer)]

    def slide(window: torch.Tensor, padding: Sides) -> torch.Tensor:
        return act(window, kernel, stride, padding)

    return Slide(field, slide, 0.0)


def _reduction(layer: Layer) -> Rule | None:
    is_single = set(per_axis(layer.output_size, 1)) == {1}
    if not is_single or getattr(layer, "return_indices", False):
        return None
    return reduction(mean if isinstance(layer, GLOBAL_MEANS) else largest)


def _upsampling(layer: Layer) -> Rule | None:
    return upsampling(layer.mode, align=layer.align_corners, factor=layer.scale_factor)


def upsampling(mode: str, *, align: bool | None = None, factor: Value = None) -> Rule | None:
    """Return the rule of enlarging every pixel by a whole factor."""
    linear = mode in {"linear", "bilinear", "trilinear"} and not align
    # torch computes with the factor itself, 2.1, even if the output is as large as with 2.
    is_whole = factor is None or all(float(times).is_integer() for times in per_axis(factor, 1))
    if (mode != "nearest" and not linear) or not is_whole:
        return None

    def rule(args: Sequence[Value], anchor: Known) -> Patch | None:
        patch: Patch = args[0]
        sides = list(zip(anchor.shape[2:], patch.grid, strict=True))
        if any(new % old for new, old in sides):
            return None
        times = tuple(new // old for new, old in sides)
        return upsample(patch, times, anchor, mode)

    def zones(zones: Sequence[Zones]) -> Zones | None:
        margin = 0 if mode == "nearest" else 1
        times = [] if factor is None else per_axis(factor, len(zones[0]))
        if len(times) != len(zones[0]):  # a size is given, which need not follow the image's
            return None
        return [
            Zone((a + margin) * int(n), (b - margin) * int(n), more * int(n))
            for (a, b, more), n in zip(zones[0], times, strict=True)
        ]

    return Rule(rule, is_local=True, zones=zones)


def per_axis(value: Value, axes: int) -> tuple[Value, ...]:
    """Return one value for each axis, given one or several."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
