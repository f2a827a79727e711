"""Later architectures with random weights: ConvNeXt, RegNet, MobileNet-v3, EfficientNet.

Each takes its widths, so that a test can have a narrow one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as f

Norm = Callable[[int], nn.Module]


class PlaceNorm(nn.Module):
    """Normalise the channels of each place: written out, as in ConvNeXt's own code."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.rand(channels)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(spread + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class PermutedNorm(nn.LayerNorm):
    """Normalise the channels of each place: permuted, as in later copies of ConvNeXt."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002, torch's name
        last = input.permute(0, 2, 3, 1)
        return f.layer_norm(last, self.normalized_shape, self.weight, self.bias, self.eps).permute(
            0, 3, 1, 2
        )


class DropPath(nn.Module):
    """Stochastic depth: in eval mode, nothing is dropped."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        kept = torch.rand(len(x), *(1,) * (x.ndim - 1), device=x.device) < 0.9
        return x * kept / 0.9


class ConvNeXtBlock(nn.Module):
    """Filter each channel, then mix channels with two linear layers on the last axis."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.filter = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.act, self.scale = nn.GELU(), nn.Parameter(0.1 + torch.rand(width))
        self.drop = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        inner = self.filter(x).permute(0, 2, 3, 1)
        inner = self.scale * self.narrow(self.act(self.widen(self.norm(inner))))
        return x + self.drop(inner.permute(0, 3, 1, 2))


def convnext(widths: Sequence[int], depths: Sequence[int], norm: Norm, classes: int) -> nn.Module:
    """Return a ConvNeXt."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), norm(widths[0])]
    for number, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if number:
            before = widths[number - 1]
            layers += [norm(before), nn.Conv2d(before, width, 2, 2)]
        layers += [ConvNeXtBlock(width) for _ in range(depth)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(widths[-1])]
    return nn.Sequential(*layers, *head, nn.Linear(widths[-1], classes))


class Squeeze(nn.Module):
    """Squeeze and excitation: a gate for each channel from the mean over all places."""

    def __init__(self, width: int, inner: int, gate: nn.Module) -> None:
        super().__init__()
        self.pool, self.gate = nn.AdaptiveAvgPool2d(1), gate
        self.narrow, self.widen = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.widen(f.relu(self.narrow(self.pool(x)))))


def _unit(  # noqa: PLR0913, PLR0917, one for each option of a convolution
    inputs: int, outputs: int, kernel: int, stride: int, groups: int, act: nn.Module | None
) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs), *([act] if act else [])]


class RegNetBlock(nn.Module):
    """A bottleneck with grouped filters; Y has squeeze and excitation, X has not."""

    def __init__(self, inputs: int, width: int, stride: int, group: int, kind: str) -> None:
        super().__init__()
        relu = nn.ReLU(inplace=True)
        layers = _unit(inputs, width, 1, 1, 1, relu)
        layers += _unit(width, width, 3, stride, width // group, relu)
        if kind == "Y":
            layers.append(Squeeze(width, max(1, inputs // 4), nn.Sigmoid()))
        self.layers = nn.Sequential(*layers, *_unit(width, width, 1, 1, 1, None))
        same = stride == 1 and inputs == width
        self.short = nn.Sequential(*([] if same else _unit(inputs, width, 1, stride, 1, None)))
        self.act = relu

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(x)
        out += self.short(x)
        return self.act(out)


def regnet(
    widths: Sequence[int], depths: Sequence[int], group: int, kind: Literal["X", "Y"], classes: int
) -> nn.Module:
    """Return a RegNet."""
    layers, before = _unit(3, 32, 3, 2, 1, nn.ReLU(inplace=True)), 32
    for width, depth in zip(widths, depths, strict=True):
        for number in range(depth):
            layers.append(RegNetBlock(before, width, 1 if number else 2, group, kind))
            before = width
    return nn.Sequential(*layers, *_head(before, classes))


class InvertedWithGate(nn.Module):
    """An inverted bottleneck of MobileNet-v3 or EfficientNet, perhaps with a gate."""

    def __init__(  # noqa: PLR0913, PLR0917, the columns of the papers' tables
        self, inputs: int, inner: int, outputs: int, kernel: int, stride: int, kind: str
    ) -> None:
        super().__init__()
        hard = kind in {"HS", "HS gate"}
        act: nn.Module = nn.Hardswish() if hard else nn.SiLU() if kind == "SiLU" else nn.ReLU()
        layers = _unit(inputs, inner, 1, 1, 1, act) if inner != inputs else []
        layers += _unit(inner, inner, kernel, stride, inner, act)
        if "gate" in kind:
            layers.append(Squeeze(inner, max(1, inner // 4), nn.Hardsigmoid()))
        elif kind == "SiLU":
            layers.append(Squeeze(inner, max(1, inputs // 4), nn.Sigmoid()))
        self.layers = nn.Sequential(*layers, *_unit(inner, outputs, 1, 1, 1, None))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(x)
        return x + out if self.adds else out


MOBILENET_V3 = (
    *((16, 16, 3, 1, "RE"), (64, 24, 3, 2, "RE"), (72, 24, 3, 1, "RE"), (72, 40, 5, 2, "RE gate")),
    *((120, 40, 5, 1, "RE gate"), (120, 40, 5, 1, "RE gate"), (240, 80, 3, 2, "HS")),
    *((200, 80, 3, 1, "HS"), (184, 80, 3, 1, "HS"), (184, 80, 3, 1, "HS")),
    *((480, 112, 3, 1, "HS gate"), (672, 112, 3, 1, "HS gate"), (672, 160, 5, 2, "HS gate")),
    *((960, 160, 5, 1, "HS gate"), (960, 160, 5, 1, "HS gate")),
)
"""Inner width, width, kernel, stride and kind of each block of the large network."""


def mobilenet_v3(share: float, classes: int) -> nn.Module:
    """Return MobileNet-v3 large, its widths times a share."""
    layers, before = _unit(3, 16, 3, 2, 1, nn.Hardswish()), 16
    for inner, width, kernel, stride, kind in MOBILENET_V3:
        outputs, middle = max(4, int(width * share)), max(4, int(inner * share))
        layers.append(InvertedWithGate(before, middle, outputs, kernel, stride, kind))
        before = outputs
    layers += _unit(before, 6 * before, 1, 1, 1, nn.Hardswish())
    return nn.Sequential(*layers, *_head(6 * before, classes))


EFFICIENTNET = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
    *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
)
"""Widening, width, depth, stride and kernel of each stage of B0."""


def efficientnet(share: float, classes: int) -> nn.Module:
    """Return EfficientNet-B0 with its gates, its widths times a share."""
    layers, before = _unit(3, 32, 3, 2, 1, nn.SiLU()), 32
    for widen, width, depth, stride, kernel in EFFICIENTNET:
        outputs = max(4, int(width * share))
        for number in range(depth):
            first = stride if number == 0 else 1
            layers.append(InvertedWithGate(before, widen * before, outputs, kernel, first, "SiLU"))
            before = outputs
    layers += _unit(before, 4 * before, 1, 1, 1, nn.SiLU())
    return nn.Sequential(*layers, *_head(4 * before, classes))


class GroupNormBlock(nn.Module):
    """A residual block with group norms."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
            nn.GroupNorm(width // 4, width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
            nn.GroupNorm(width // 4, width),
        )
        same = stride == 1 and inputs == width
        self.short = nn.Sequential(*([] if same else [nn.Conv2d(inputs, width, 1, stride)]))

    def forward(self, x: Tensor) -> Tensor:
        return f.relu(self.layers(x) + self.short(x))


def group_norm_resnet(widths: Sequence[int], classes: int) -> nn.Module:
    """Return a ResNet-18 with group norms."""
    layers: list[nn.Module] = [
        *(nn.Conv2d(3, widths[0], 7, 2, 3, bias=False), nn.GroupNorm(widths[0] // 4, widths[0])),
        *(nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
    ]
    before = widths[0]
    for number, width in enumerate(widths):
        layers += [GroupNormBlock(before, width, 2 if number else 1)]
        layers += [GroupNormBlock(width, width, 1)]
        before = width
    return nn.Sequential(*layers, *_head(before, classes))


def _head(width: int, classes: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]
