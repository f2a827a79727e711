"""Models of images and texts: the score is the similarity of the image to a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError, require
from hshap.models.classifiers import transformers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap._util.types import Model, Tensor, Untyped
    from hshap.models.torch_outputs import SentenceScores

CLOSE = 1e-3
"""Largest difference from the model's own similarities, relative to the largest of them."""


def image_text(
    model: Model, processor: object, sentences: str | Sequence[str], *, resize: bool = True
) -> SentenceScores:
    """Return a model such as CLIP of transformers with one output for each sentence.

    An output is the entry of `logits_per_image`: the cosine of image and sentence, times the
    model's scale. Sentences are encoded once. `target` is the number of a sentence, or the sentence
    itself. `processor` prepares images and texts; `resize` is as in `hshap.models.transformers`.

    A sentence is about the whole scene: parts of it may need each other, which the paper's
    assumption does not allow. `explanation.audit` says how far the model is from it.

    >>> import transformers as library
    >>> small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
    ...          "intermediate_size": 8}
    >>> config = library.CLIPConfig(
    ...     text_config={**small, "vocab_size": 4, "bos_token_id": 0, "eos_token_id": 1},
    ...     vision_config={**small, "image_size": 16, "patch_size": 8},
    ...     projection_dim=4,
    ... )
    >>> words = {"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2, "b</w>": 3}
    >>> processor = library.CLIPProcessor(
    ...     library.CLIPImageProcessorPil(
    ...         size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}
    ...     ),
    ...     library.CLIPTokenizer(vocab=words, merges=[]),
    ... )
    >>> model = image_text(library.CLIPModel(config).eval(), processor, ["a b", "b"])
    >>> model.facts.classes
    ('a b', 'b')
    """
    torch = require("torch", extra="torch", needed_by="hshap.models.image_text")
    several = (sentences,) if isinstance(sentences, str) else tuple(sentences)
    for sentence in several:
        if not isinstance(cast("object", sentence), str) or not sentence.strip():
            message = f"sentences has {sentence!r}, which is empty; pass one or more sentences"
            raise ArgumentError(message)
    if not several:
        message = "sentences is empty; pass one or more sentences"
        raise ArgumentError(message)
    for name in ("get_image_features", "get_text_features"):
        if not callable(getattr(model, name, None)):
            message = (
                f"model is a {type(model).__name__} without {name}; pass one of images and texts, "
                "such as CLIPModel"
            )
            raise ArgumentError(message)
    ready = transformers(model, processor, resize=resize)
    tokens = _tokens(model, processor, several)
    with torch.no_grad():
        found = model.get_text_features(**tokens)
        texts = getattr(found, "pooler_output", found)
        texts = texts / texts.norm(dim=-1, keepdim=True)
    from hshap.models.torch_outputs import SentenceScores  # noqa: PLC0415

    made = SentenceScores(ready, texts, several)
    _compare(torch, made, tokens)
    return made


def _tokens(model: Model, processor: object, sentences: Sequence[str]) -> dict[str, Tensor]:
    encode = getattr(processor, "tokenizer", None)
    if encode is None:
        message = (
            f"processor is a {type(processor).__name__} without a tokenizer; pass the one of "
            "images and texts, such as CLIPProcessor"
        )
        raise ArgumentError(message)
    kind = str(getattr(getattr(model, "config", None), "model_type", ""))
    padding = "max_length" if kind.startswith("siglip") else True
    made: Untyped = encode(list(sentences), padding=padding, truncation=True, return_tensors="pt")
    return {name: value.to(model.device) for name, value in made.items()}


def _compare(torch: Untyped, made: SentenceScores, tokens: dict[str, Tensor]) -> None:
    """Refuse a model whose own similarities to the sentences differ from the ones made here."""
    model: Untyped = made.model
    height, width = made.preparation.steps((64, 64)).cropped
    noise = np.random.default_rng(0).random((1, made.preparation.channels, height, width))
    with torch.no_grad():
        plain = made.like(noise, *noise.shape)
        inputs = (plain - made.mean) / made.std
        own = model(pixel_values=inputs, **tokens).logits_per_image
        apart = float((made.behind(plain) - own).abs().max())
    if apart > CLOSE * max(1.0, float(own.abs().max())):
        message = (
            f"model is a {type(model).__name__}, whose logits_per_image differ by {apart:.3g} from "
            f"scaled cosines; {checks.shown(model.__class__.__name__)} needs a function of its own"
        )
        raise ArgumentError(message)
