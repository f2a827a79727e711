"""A small network that looks for shapes of 6 to 40 pixels, and is as sure as its surest place."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from benchmarks.core.folders import WEIGHTS
from benchmarks.models.compact import Layer

STRIDE = 8  # pixels a side from one place to the next
SHARPNESS = 4.0
FORM = (  # channels in and out, side of the kernel, stride
    *((3, 20, 5, 2), (20, 24, 3, 1), (24, 40, 3, 2), (40, 40, 3, 1)),
    *((40, 64, 3, 2), (64, 64, 3, 1), (64, 64, 3, 1)),
)


class Finder(nn.Module):
    """Map images (n, 3, height, width) in [0, 1] to one logit for each kind of shape.

    Each place answers from the 61 x 61 pixels around it. The score of a kind is the smooth maximum
    over places, so evidence is local: hiding one shape changes nothing for another.
    """

    def __init__(self, kinds: int = 5, *, norm: bool = False) -> None:
        super().__init__()
        layers = [Layer((a, b), kernel, stride, norm=norm) for a, b, kernel, stride in FORM]
        self.features = nn.Sequential(*layers)
        self.head = nn.Conv2d(FORM[-1][1], kinds, 1)
        nn.init.constant_(self.head.bias, -4.0)  # shapes are rare
        self.to(memory_format=torch.channels_last)

    def places(self, images: Tensor) -> Tensor:
        """Return the logits of each place (n, kinds, height / 8, width / 8), rounded up."""
        centred = (2 * images - 1).contiguous(memory_format=torch.channels_last)
        return self.head(self.features(centred))

    def pool(self, places: Tensor) -> Tensor:
        """Return the smooth maximum over places (n, kinds)."""
        return torch.logsumexp(SHARPNESS * places.flatten(2), 2) / SHARPNESS

    def forward(self, images: Tensor) -> Tensor:
        return self.pool(self.places(images))


def folded(model: Finder) -> Finder:
    """Return a network in evaluation mode whose convolutions have taken in the normalisation."""
    plain = Finder(model.head.out_channels).eval()
    model.eval()
    for old, new in zip(model.features, plain.features, strict=True):
        fused = fuse_conv_bn_eval(old.convolution, old.norm)
        new.convolution.load_state_dict(fused.state_dict())
    plain.head.load_state_dict(model.head.state_dict())
    return plain


def save(model: Finder) -> None:
    """Write the weights in half precision, which halves the file."""
    from safetensors.torch import save_file

    weights = {name: value.contiguous().half() for name, value in model.state_dict().items()}
    save_file(weights, WEIGHTS / "families.safetensors")


def load() -> Finder:
    """Return the trained network in evaluation mode."""
    from safetensors.torch import load_file

    model = Finder()
    stored = load_file(WEIGHTS / "families.safetensors")
    model.load_state_dict({name: value.float() for name, value in stored.items()})
    return model.eval()
