"""ResNet-18 (He et al. 2016), whose weights carry torchvision's names: published ones load.

Unlike torchvision's, no ReLU works in place and each one is a module of its own that runs once in a
forward pass: DeepLIFT hooks them and would otherwise give wrong values. They hold no weights, so
names stay. Still its values do not quite add up with shap 0.51, whose rule for max pooling is made
for windows that do not overlap, as those of a ResNet do. Images lie in [0, 1] and are normalised
inside, so that methods see plain images.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, by channel
WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu2 = nn.ReLU()
        # Without weights where nothing changes shape: no name of it is stored then.
        self.downsample = nn.Identity() if stride == 1 else _shortcut(inputs, outputs, stride)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.relu1(self.bn1(self.conv1(images)))
        return self.relu2(self.bn2(self.conv2(inner)) + self.downsample(images))


class ResNet18(nn.Module):
    """Map images (n, 3, height, width) in [0, 1] of any one size to logits (n, classes)."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        # Not stored with the weights, whose names would else not be torchvision's.
        self.register_buffer("mean", torch.tensor(MEAN).reshape(3, 1, 1), persistent=False)
        self.register_buffer(
            "deviation", torch.tensor(DEVIATION).reshape(3, 1, 1), persistent=False
        )
        self.conv1 = nn.Conv2d(3, WIDTHS[0], 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTHS[0])
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(WIDTHS[0], WIDTHS[0], stride=1)
        self.layer2 = _stage(WIDTHS[0], WIDTHS[1], stride=2)
        self.layer3 = _stage(WIDTHS[1], WIDTHS[2], stride=2)
        self.layer4 = _stage(WIDTHS[2], WIDTHS[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(WIDTHS[3], classes)

    @property
    def last(self) -> nn.Module:
        """Return the last layer whose output still has places, for Grad-CAM."""
        return self.layer4

    def forward(self, images: Tensor) -> Tensor:
        normal = (images - self.mean) / self.deviation
        stem = self.maxpool(self.relu(self.bn1(self.conv1(normal))))
        places = self.layer4(self.layer3(self.layer2(self.layer1(stem))))
        return self.fc(self.avgpool(places).flatten(1))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(Block(inputs, outputs, stride), Block(outputs, outputs, 1))
