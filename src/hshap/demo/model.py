"""The paper's ConvNet for the synthetic images, with bundled weights."""

from __future__ import annotations

from importlib.resources import files

import torch
from safetensors.torch import load as decode
from torch import nn


class ConvNet(nn.Module):
    """Score images (n, 3, 100, 120) with values in [0, 1] as logits (n, 2).

    Column 1 is the class "contains a cross".
    """

    def __init__(self, dropout: float = 0.5) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(3, 6, kernel_size=5)
        self.pool_1 = nn.MaxPool2d(2)
        self.conv_2 = nn.Conv2d(6, 16, kernel_size=4)
        self.pool_2 = nn.MaxPool2d(5)
        self.fc_1 = nn.Linear(16 * 9 * 11, 120)
        self.dropout_1 = nn.Dropout(dropout)
        self.fc_2 = nn.Linear(120, 84)
        self.dropout_2 = nn.Dropout(dropout)
        self.fc_3 = nn.Linear(84, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.pool_1(torch.relu(self.conv_1(images)))
        hidden = self.pool_2(torch.relu(self.conv_2(hidden)))
        hidden = self.dropout_1(torch.relu(self.fc_1(hidden.flatten(1))))
        hidden = self.dropout_2(torch.relu(self.fc_2(hidden)))
        return self.fc_3(hidden)


def load() -> ConvNet:
    """Return the trained network in eval mode."""
    weights = files("hshap.demo").joinpath("weights.safetensors").read_bytes()
    model = ConvNet()
    model.load_state_dict(decode(weights))
    return model.eval()
