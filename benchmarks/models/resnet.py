"""ResNet-18 (He et al. 2016), whose weights carry torchvision's names: published ones load.

Unlike torchvision's, no ReLU works in place and each one is a module of its own that runs once in a
forward pass: DeepLIFT hooks them and would otherwise give wrong values. They hold no weights, so
names stay. Still its values do not quite add up with shap 0.51, whose rule for max pooling is made
for windows that do not overlap, as those of a ResNet do. Images lie in [0, 1] and are normalised
inside, so that methods see plain images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from pathlib import Path

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, by channel
WIDTHS = (64, 128, 256, 512)
SHOWN = 5


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


def resnet18(classes: int) -> ResNet18:
    """Return a network with weights drawn from torch's global seed, as torchvision draws them."""
    model = ResNet18(classes)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


def load_imagenet(model: ResNet18, path: Path) -> None:
    """Fill the model with published weights, a state dict in a .pth or .safetensors file.

    The last layer stays as it was drawn where it answers another number of classes. All else must
    match by name and shape: a part that silently keeps random weights would ruin the transfer.
    """
    own, given = model.state_dict(), read_weights(path)
    if "fc.weight" in given and given["fc.weight"].shape != own["fc.weight"].shape:
        classes = len(given["fc.weight"]), len(own["fc.weight"])
        print(f"{path.name} tells {classes[0]} classes, not {classes[1]}: fc stays as drawn")
        given = {name: value for name, value in given.items() if not name.startswith("fc.")}
        given |= {name: own[name] for name in ("fc.weight", "fc.bias")}
    _refuse_mismatch(own, given, path)
    model.load_state_dict(own | given)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict, without running any code that a file may hold."""
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def _refuse_mismatch(own: dict[str, Tensor], given: dict[str, Tensor], path: Path) -> None:
    # Files from before torch 1.0 do not count batches, and nothing here uses the count.
    needed = {name for name in own if not name.endswith("num_batches_tracked")}
    shared = own.keys() & given.keys()
    problems = {
        "lacks": needed - given.keys(),
        "has unknown": given.keys() - own.keys(),
        "has other shapes of": {name for name in shared if own[name].shape != given[name].shape},
    }
    told = [f"{problem} {_listed(names)}" for problem, names in problems.items() if names]
    if told:
        message = f"{path} {'; '.join(told)}. Pass a state dict of ResNet-18 in torchvision's names"
        raise ValueError(message)


def _listed(names: set[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(sorted(names)[:SHOWN]) + more
