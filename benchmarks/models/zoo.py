"""Well-known architectures with random weights, on which `Incremental` must agree with full passes.

Widths are those of the originals, so that times mean something; nothing of them is trained.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as f

from benchmarks.models import efficientnet, modern
from benchmarks.models.resnet import ResNet18

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES = 10


class DenseLayer(nn.Module):
    """Add 32 channels to those that come in."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, 128, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(128), nn.Conv2d(128, 32, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv1(f.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(f.relu(self.norm2(inner)))], 1)


def densenet() -> nn.Module:
    """Return DenseNet-121's stem, four blocks and transitions."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for block, depth in enumerate((6, 12, 24, 16)):
        for _ in range(depth):
            layers.append(DenseLayer(channels))
            channels += 32
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
        if block < 3:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, *_head(channels))


def vgg(channels: int = 64) -> nn.Module:
    """Return VGG-11 with batch norm, ending in a mean instead of three wide layers.

    `channels` are those of the first layer; the others grow with it.
    """
    layers: list[nn.Module] = []
    widths = [times * channels for times in (1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0)]
    channels = 3
    for width in widths:
        if not width:
            layers.append(nn.MaxPool2d(2))
            continue
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width)]
        layers.append(nn.ReLU(inplace=True))
        channels = width
    return nn.Sequential(*layers, *_head(channels))


class Inverted(nn.Module):
    """Widen, filter each channel, narrow, and add the input if shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, widen: int) -> None:
        super().__init__()
        inner = inputs * widen
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(),
            nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU6(),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.adds else self.layers(x)


def mobilenet() -> nn.Module:
    """Return MobileNet-v2."""
    stages = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU6()]
    channels = 32
    for widen, outputs, count, stride in stages:
        for number in range(count):
            layers.append(Inverted(channels, outputs, 1 if number else stride, widen))
            channels = outputs
    return nn.Sequential(*layers, nn.Conv2d(channels, 1280, 1), nn.ReLU6(), *_head(1280))


class UNet(nn.Module):
    """A U-Net of three levels whose map is averaged into one score a class."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        a, b, c = channels, 2 * channels, 4 * channels
        self.first, self.second, self.third = _double(3, a), _double(a, b), _double(b, c)
        self.up2, self.up1 = _double(c + b, b), _double(b + a, a)
        self.last = nn.Conv2d(a, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(f.max_pool2d(first, 2))
        third = self.third(f.max_pool2d(second, 2))
        wide = f.interpolate(third, size=second.shape[-2:], mode="bilinear")
        second = self.up2(torch.cat([wide, second], 1))
        wide = f.interpolate(second, scale_factor=2, mode="nearest")
        return self.last(self.up1(torch.cat([wide, first], 1))).mean((2, 3))


class FCN(nn.Module):
    """Six layers of few channels at the full resolution; the score is that of the surest place."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        widths = (3, *(channels,) * 6)
        self.layers = nn.Sequential(
            *(
                layer
                for a, b in pairwise(widths)
                for layer in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
            ),
            nn.Conv2d(channels, 2, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).amax((2, 3))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "ResNet-18": lambda: ResNet18(CLASSES),
    "DenseNet-121-like": densenet,
    "VGG-like": vgg,
    "U-Net-like": UNet,
    "MobileNet-like": mobilenet,
    "EfficientNet-lite0": efficientnet.published,
    "ConvNeXt-T": lambda: modern.convnext(
        (96, 192, 384, 768), (3, 3, 9, 3), modern.PermutedNorm, CLASSES
    ),
    "RegNetX-400MF-like": lambda: modern.regnet(
        (32, 64, 160, 384), (1, 2, 7, 12), 16, "X", CLASSES
    ),
    "RegNetY-400MF-like": lambda: modern.regnet((48, 104, 208, 440), (1, 3, 6, 6), 8, "Y", CLASSES),
    "MobileNet-v3-like": lambda: modern.mobilenet_v3(1.0, CLASSES),
    "EfficientNet-B0-like": lambda: modern.efficientnet(1.0, CLASSES),
    "ResNet-18-GN": lambda: modern.group_norm_resnet((64, 128, 256, 512), CLASSES),
    "FCN of 16 channels": FCN,
    "U-Net of 16 channels": lambda: UNet(16),
    "VGG of 16 channels": lambda: vgg(16),
}


def made(name: str) -> nn.Module:
    """Return a network of a kind, its batch norms with statistics that are not those of a start."""
    torch.manual_seed(0)
    network = NETWORKS[name]()
    if name != "EfficientNet-lite0":
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, std=0.1)
                nn.init.uniform_(part.running_var, 0.5, 2.0)
    return network.eval()


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def _head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES)]
