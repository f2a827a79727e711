"""A plain vision transformer, small, with the parts that `hshap.Tokens` asks for."""

from __future__ import annotations

import torch
from torch import Tensor, nn

DEPTH, HEADS = 4, 4


class Block(nn.Module):
    """Attention, then a small network for each token; both normalise their input and add to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.think = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, tokens: Tensor, hidden: Tensor | None = None) -> Tensor:
        """`hidden` (n, tokens) marks tokens that nobody attends to."""
        seen = self.norm1(tokens)
        heard, _ = self.attention(seen, seen, seen, key_padding_mask=hidden, need_weights=False)
        tokens = tokens + heard
        return tokens + self.think(self.norm2(tokens))


class ViT(nn.Module):
    """Map images (n, channels, side, side) to logits (n, classes) through one class token."""

    def __init__(self, side: int, patch: int, classes: int, width: int = 64) -> None:
        super().__init__()
        places = (side // patch) ** 2
        self.project = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, places + 1, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, HEADS) for _ in range(DEPTH))
        self.norm, self.score = nn.LayerNorm(width), nn.Linear(width, classes)

    def embed(self, images: Tensor) -> Tensor:
        """Return the class token and one token for each patch, with their positions."""
        patches = self.project(images).flatten(2).transpose(1, 2)
        first = self.class_token.expand(len(images), -1, -1)
        return torch.cat([first, patches], dim=1) + self.positions

    def head(self, tokens: Tensor) -> Tensor:
        """Return the logits that the class token gives."""
        return self.score(self.norm(tokens[:, 0]))

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embed(images)
        for block in self.blocks:
            tokens = block(tokens)
        return self.head(tokens)
