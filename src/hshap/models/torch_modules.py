"""Torch modules around a model, which `Incremental` traces with it: its preparation, and its heads.

Nothing of the module of the user is changed. Needs torch.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from hshap.models.boxes_and_regions import (
    Detection,
    candidates_in,
    check_region,
    logits_in,
    similarity,
)
from hshap.models.model_description import Facts, Intake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap._util.types import Array, Heat, Mask
    from hshap.models.boxes_and_regions import Scores
    from hshap.models.preparation import Preparation


def moved(images: torch.Tensor, preparation: Preparation) -> torch.Tensor:
    """Return images `(n, channels, height, width)` resized and cropped.

    The result of a resize is that of pillow, up to its rounding to bytes: pixels are averaged
    where an image shrinks, and values stay between 0 and 1.
    """
    grid = tuple(images.shape[-2:])
    resized, (top, left), (height, width) = preparation.steps(grid)
    if resized != grid:
        mode = preparation.interpolation
        if mode == "nearest":
            images = functional.interpolate(images, resized, mode="nearest-exact")
        elif mode == "bilinear":
            images = functional.interpolate(images, resized, mode=mode, antialias=True)
        else:  # Overshoots, which pillow cuts off after each direction; their order is its own.
            for size in ((grid[0], resized[1]), resized):
                images = functional.interpolate(images, size, mode=mode, antialias=True)
                images = images.clamp(0, 1)
    return images[..., top : top + height, left : left + width]


# A trace of torch.fx keeps this call as one step: the sizes in it are those of the actual input.
torch.fx.wrap("moved")


class Wrapper(nn.Module):
    """A module around another one, in eval mode by itself and with the facts about the model."""

    def __init__(self, model: nn.Module, facts: Facts) -> None:
        super().__init__()
        self.model, self.facts = model, facts
        self.training = False  # this one alone: the mode of the user's module is its own

    def like(self, values: Sequence[float] | Heat, *shape: int) -> torch.Tensor:
        """Return numbers as a tensor of the type and on the device of the model."""
        tensors = chain(self.model.parameters(), self.model.buffers())
        first = next((one for one in tensors if one.is_floating_point()), torch.empty(0))
        return torch.as_tensor(np.asarray(values)).to(first).reshape(shape)


class Prepared(Wrapper):
    """A module that takes plain images, numbers from 0 to 1, and prepares them by itself."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, model: nn.Module, preparation: Preparation, names: tuple[str, ...]) -> None:
        facts = Facts(names, Intake(preparation.channels), preparation.sentence)
        super().__init__(model, facts)
        self.preparation = preparation
        self._moves, self._normalises = preparation.moves_pixels, preparation.normalises
        scaled = [
            np.asarray(part) / preparation.scale for part in (preparation.mean, preparation.std)
        ]
        self.register_buffer("mean", self.like(scaled[0], 1, -1, 1, 1))
        self.register_buffer("std", self.like(scaled[1], 1, -1, 1, 1))

    def forward(self, images: torch.Tensor) -> object:
        """Return the outputs of the module, as they are, for plain images."""
        if self._moves:
            images = moved(images, self.preparation)
        return self.behind(images)

    def behind(self, images: torch.Tensor) -> object:
        """Return the outputs for images that are resized and cropped already."""
        if self._normalises:
            images = (images - self.mean) / self.std
        raw = self.model(images)
        scores: object = getattr(raw, "logits", raw)
        if isinstance(scores, torch.Tensor) and scores.ndim == 2:  # no detector, nor a segmenter
            self.facts.check_count(scores.shape[1])
        return raw


def inputs_of(module: Prepared, image: Array) -> Heat:
    """Return the input of the network for bytes `(height, width, channels)`."""
    plain = torch.as_tensor(np.moveaxis(image, -1, 0).copy()).double()[None] / 255
    made = moved(plain, module.preparation) if module.preparation.moves_pixels else plain
    return module.preparation.normalised(made[0].numpy()[None])[0]


class Similarities(Wrapper):
    """A detector with one output for each wanted box."""

    def __init__(self, model: nn.Module, wanted: tuple[Detection, ...], facts: Facts) -> None:
        super().__init__(model, facts)
        self.wanted = wanted

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the similarity of each wanted box `(n, boxes)`."""
        every = candidates_in(self.model(images), self.model, tuple(images.shape[2:]))
        rows = [torch.stack([similarity(one, box) for box in self.wanted]) for one in every]
        return torch.stack(rows)


class RegionScores(Wrapper):
    """A segmenter with one output for each class: the mean of its scores in a region."""

    region: torch.Tensor

    def __init__(self, model: nn.Module, region: Mask, scores: Scores, facts: Facts) -> None:
        super().__init__(model, facts)
        self._scores: Scores = scores
        self.register_buffer("region", self.like(region.astype(float), 1, 1, *region.shape))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the mean score of each class `(n, classes)`."""
        weights = self.region
        check_region(tuple(weights.shape[2:]), tuple(images.shape[2:]))
        if isinstance(self.model, Prepared) and self.model.preparation.moves_pixels:
            weights = moved(weights, self.model.preparation)
        logits = logits_in(self.model(images))
        size = tuple(weights.shape[2:])
        if tuple(logits.shape[2:]) != size:
            logits = functional.interpolate(logits, size, mode="bilinear")
        maps = logits
        if self._scores == "softmax":
            maps = logits.softmax(1)
        elif self._scores == "sigmoid":
            maps = logits.sigmoid()
        return (maps * weights).sum((2, 3)) / weights.sum().clamp(min=1e-9)


class SentenceScores(Prepared):
    """A model of images and texts with one output for each sentence."""

    texts: torch.Tensor

    def __init__(self, model: Prepared, texts: torch.Tensor, sentences: tuple[str, ...]) -> None:
        super().__init__(model.model, model.preparation, sentences)
        self.register_buffer("texts", texts)

    def behind(self, images: torch.Tensor) -> torch.Tensor:
        """Return the similarity of images to each sentence `(n, sentences)`."""
        inner = self.model
        images = (images - self.mean) / self.std
        encode = cast("Callable[..., torch.Tensor]", inner.get_image_features)
        found = encode(pixel_values=images)
        features: torch.Tensor = getattr(found, "pooler_output", found)
        features = features / features.norm(dim=-1, keepdim=True)
        scores = features @ self.texts.t()
        scale, bias = getattr(inner, "logit_scale", None), getattr(inner, "logit_bias", None)
        scores = scores if scale is None else scores * scale.exp()
        return scores if bias is None else scores + bias
