"""A small network that looks for local signs and adds up their odds over the image.

It is made for explanations that evaluate it thousands of times for each image: most of its work
happens at an eighth of the resolution, and images of any size go through.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from benchmarks.core.folders import WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

STRIDE = 8
RARE = -6.0  # the first logit of every place: a sign is rare, and many places add up
KERNELS, CHANNELS, STRIDES = (5, 3, 3, 3, 3, 3), (12, 32, 32, 48, 48, 48), (2, 2, 1, 2, 1, 1)


class Local(nn.Module):
    """Map images (n, 1, height, width) to two logits each, (absent, present).

    Every place has one logit of its own, from the 57 pixels a side around it. Their odds add up to
    those of the image: it is positive as soon as one place is, and places without signs
    change nothing, however many there are.

    With `normalised`, batch normalisation follows each convolution, as training needs it;
    `fused` gives the same network without.
    """

    def __init__(self, *, normalised: bool = False) -> None:
        super().__init__()
        inputs = (1, *CHANNELS[:-1])
        steps = zip(inputs, CHANNELS, KERNELS, STRIDES, strict=True)
        blocks = [_block(*step, normalised=normalised) for step in steps]
        self.early = nn.Sequential(*blocks[:-1])
        self.last = blocks[-1]  # the layer for Grad-CAM
        self.score = nn.Conv2d(CHANNELS[-1], 1, 1)
        nn.init.constant_(self.score.bias, RARE)

    def places(self, images: Tensor) -> Tensor:
        """Return the logit of each place (n, rows, columns)."""
        return self.score(self.last(self.early(images)))[:, 0]

    def forward(self, images: Tensor) -> Tensor:
        logit = pooled(self.places(images)).unsqueeze(1)
        return torch.cat((-logit, logit), dim=1) / 2


def pooled(places: Tensor) -> Tensor:
    """Return the logit whose odds are the sum of the odds of all places, for each image."""
    return places.flatten(1).logsumexp(dim=1)


def _block(inputs: int, outputs: int, kernel: int, stride: int, *, normalised: bool) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2)
    between = (nn.BatchNorm2d(outputs),) if normalised else ()
    return nn.Sequential(convolution, *between, nn.ReLU())


def fused(model: Local) -> Local:
    """Return the network with its batch normalisation folded into the convolutions."""
    plain = Local().eval()
    targets = (*plain.early, plain.last)
    for source, target in zip((*model.early, model.last), targets, strict=True):
        target[0].load_state_dict(fuse_conv_bn_eval(source[0], source[1]).state_dict())
    plain.score.load_state_dict(model.score.state_dict())
    return plain


def load(name: str = "boards") -> Local:
    """Return the trained network of a data set, in evaluation mode."""
    from safetensors.torch import load_file

    model = Local()
    model.load_state_dict(load_file(WEIGHTS / f"{name}.safetensors"))
    return model.eval()
