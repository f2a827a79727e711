"""A compact fully convolutional network that looks for cells: cheap, local, for images of any size.

An explanation runs a network many times, on images most of which is hidden. Both decide its form.
Each place answers from the 73 x 73 pixels around it, about two cells a side, and an image is as
positive as its most positive places: hiding a cell does not change the answer for others further
away. Whole convolutions with few channels take less than half the time of the first separable
ones of EfficientNet-Lite0: a CPU waits for memory more than for arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

STRIDE = 8  # pixels a side from one place to the next


class Layer(nn.Module):
    """Convolve, normalise if asked to, and cut off below zero; add the input where shapes allow it.

    Each ReLU is a module of its own: shap's DeepExplainer stores the inputs of a module, so no
    module may be used twice.
    """

    def __init__(self, channels: tuple[int, int], kernel: int, stride: int, *, norm: bool) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(*channels, kernel, stride, kernel // 2)
        self.norm = nn.BatchNorm2d(channels[1]) if norm else nn.Identity()
        self.cut = nn.ReLU()
        self.adds = channels[0] == channels[1] and stride == 1

    def forward(self, features: Tensor) -> Tensor:
        new = self.cut(self.norm(self.convolution(features)))
        return features + new if self.adds else new


class Compact(nn.Module):
    """Map images (n, 3, height, width) in [0, 1] to logits (n, concepts).

    The score of a concept is the smooth maximum over places, log(sum(exp(s * x))) / s with
    s = `sharpness`: unlike the maximum, it gives gradients to two equal cells alike. `norm` is for
    training; `folded` gives the same function without it.
    """

    def __init__(self, concepts: int = 2, *, norm: bool = False, sharpness: float = 4.0) -> None:
        super().__init__()
        self.sharpness = sharpness
        self.features = nn.Sequential(
            Layer((3, 16), 5, 2, norm=norm),
            Layer((16, 48), 3, 2, norm=norm),
            Layer((48, 48), 3, 1, norm=norm),
            Layer((48, 96), 3, 2, norm=norm),
            Layer((96, 96), 3, 1, norm=norm),
            Layer((96, 96), 3, 1, norm=norm),
            Layer((96, 96), 3, 1, norm=norm),
        )
        self.last = Layer((96, 128), 1, 1, norm=norm)
        self.head = nn.Conv2d(128, concepts, 1)
        # Of about 2,000 places in an image next to none shows a parasite.
        nn.init.constant_(self.head.bias, -4.0)
        # Half the time of the usual order of axes, and the same numbers.
        self.to(memory_format=torch.channels_last)

    def places(self, images: Tensor) -> Tensor:
        """Return the logits of each place (n, concepts, height / 8, width / 8), rounded up."""
        centred = (2 * images - 1).contiguous(memory_format=torch.channels_last)
        return self.head(self.last(self.features(centred)))

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.places(images))

    def pool(self, places: Tensor) -> Tensor:
        """Return the smooth maximum over places (n, concepts)."""
        return torch.logsumexp(self.sharpness * places.flatten(2), 2) / self.sharpness


def folded(model: Compact) -> Compact:
    """Return a network in evaluation mode whose convolutions have taken in the normalisation."""
    plain = Compact(model.head.out_channels, sharpness=model.sharpness).eval()
    model.eval()
    for old, new in zip(_layers(model), _layers(plain), strict=True):
        fused = fuse_conv_bn_eval(old.convolution, old.norm)
        new.convolution.load_state_dict(fused.state_dict())
    plain.head.load_state_dict(model.head.state_dict())
    return plain


def _layers(model: Compact) -> list[Layer]:
    return [*model.features, model.last]
