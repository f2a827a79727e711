"""Heads over torch modules: boxes, regions and sentences become outputs. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch.nn import functional

from hshap.models.detectors import Detection, candidates_in, similarity
from hshap.models.segmenters import check_region, logits_in
from hshap.models.torch_modules import Prepared, Wrapper, moved

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from hshap._util.types import Mask
    from hshap.models.facts import Facts
    from hshap.models.segmenters import Scores


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
