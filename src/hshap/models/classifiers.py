"""Torch models with the preparation of their library: transformers, timm and torchvision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError, require
from hshap.models.model_description import class_names, names_in_config
from hshap.models.preparation import (
    Preparation,
    check_processor,
    of_preset,
    of_processor,
    of_timm,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Model, Tensor, Untyped
    from hshap.models.torch_modules import Prepared, SentenceScores

TRIED = ((67, 93), (120, 41))
"""Heights and widths of the images on which a processor is tried."""


def prepared(
    model: Model,
    preparation: Preparation,
    *,
    names: Sequence[str] | Mapping[int, str] | None = None,
) -> Prepared:
    """Return a torch module that takes plain images, which it resizes and normalises itself.

    A plain image has bytes, or floats from 0 to 1, with channels first or last. `names` are those
    of the outputs. Weights are shared with `model`. Fails if `model` is no torch module.

    >>> import torch
    >>> import hshap
    >>> net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    >>> halved = prepared(net, Preparation(mean=0.5, std=0.5), names=["red", "green", "blue"])
    >>> halved(torch.ones(1, 3, 8, 8)).tolist()
    [[1.0, 1.0, 1.0]]
    """
    torch = require("torch", extra="torch", needed_by="hshap.models.prepared")
    if not isinstance(model, torch.nn.Module):
        message = f"model is {checks.shown(model)}, which is no torch module; pass one"
        raise ArgumentError(message)
    if not isinstance(cast("object", preparation), Preparation):
        message = (
            f"preparation is {checks.shown(preparation)}; pass hshap.models.Preparation(...), or "
            "use the function of the model's library"
        )
        raise ArgumentError(message)
    from hshap.models.torch_modules import Prepared  # noqa: PLC0415, torch is optional

    return Prepared(model, preparation, class_names("names", names))


def transformers(model: Model, processor: object, *, resize: bool = True) -> Prepared:
    """Return an image model of transformers that takes plain images.

    Mean, std, size, crop and interpolation come from the config of `processor`, the names of
    classes from `model.config.id2label`. The processor is tried on one image: if its own result
    differs from the config, it is refused. `resize=False` leaves resizing and cropping out, for
    images that have the model's size already.

    The model may be a classifier, or the inner model of `detector` and `segmenter`.

    >>> import hshap
    >>> import transformers as library
    >>> config = library.ViTConfig(
    ...     hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    ...     image_size=16, patch_size=8, id2label={0: "cat", 1: "dog"}
    ... )
    >>> model = library.ViTForImageClassification(config).eval()
    >>> processor = library.ViTImageProcessorPil(size={"height": 16, "width": 16})
    >>> ready = transformers(model, processor)
    >>> ready.facts.classes, ready.facts.preparation
    (('cat', 'dog'), 'resized to 16 x 16 (bilinear), mean 0.5,0.5,0.5 and std 0.5,0.5,0.5')
    """
    checks.flag("resize", resize)
    preparation = of_processor(processor, resize=resize)
    ready = prepared(model, preparation)
    names = names_in_config(getattr(model, "config", None))
    ready.facts = replace(ready.facts, classes=names)
    for size in TRIED:
        _try_out(processor, ready, size, resize=resize)
    return ready


def timm(
    model: Model,
    *,
    config: Mapping[str, object] | None = None,
    names: Sequence[str] | None = None,
    resize: bool = True,
) -> Prepared:
    """Return a model of timm that takes plain images; timm itself is not needed.

    `config` is by default the model's `pretrained_cfg`, or its `default_cfg`. The fields
    `input_size`, `mean`, `std`, `interpolation`, `crop_pct`, `crop_mode` and `label_names` count,
    as in timm's evaluation transform. `resize=False` leaves resizing and cropping out.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    >>> net.pretrained_cfg = {
    ...     "input_size": (3, 32, 32), "mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5),
    ...     "interpolation": "bicubic", "crop_pct": 0.8,
    ... }
    >>> timm(net).facts.preparation[:60]
    'shorter side resized to 40 (bicubic), middle 32 x 32 cropped'
    """
    checks.flag("resize", resize)
    given = config
    for attribute in ("pretrained_cfg", "default_cfg"):
        given = getattr(model, attribute, None) if given is None else given
    if given is None:
        message = (
            f"model is a {type(model).__name__} without pretrained_cfg or default_cfg; pass "
            "config= with input_size, mean and std"
        )
        raise ArgumentError(message)
    made = of_timm(given)
    made = made if resize else replace(made, resize=None, crop=None)
    listed = given.get("label_names") if hasattr(given, "get") else None
    return prepared(model, made, names=names or cast("Sequence[str] | None", listed))


def torchvision(model: Model, weights: object, *, resize: bool = True) -> Prepared:
    """Return a model of torchvision that takes plain images; torchvision is not imported.

    `weights` are those of the model, such as `ResNet50_Weights.DEFAULT`, or the result of their
    `transforms()`. Names of classes are those of `weights.meta["categories"]`.
    `resize=False` leaves resizing and cropping out.

    >>> import torch
    >>> from types import SimpleNamespace
    >>> preset = SimpleNamespace(
    ...     resize_size=[40], crop_size=[32], mean=[0.5] * 3, std=[0.5] * 3,
    ...     interpolation="bilinear"
    ... )
    >>> net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    >>> torchvision(net, preset)(torch.ones(1, 3, 50, 60)).shape
    torch.Size([1, 3])
    """
    checks.flag("resize", resize)
    transforms = getattr(weights, "transforms", None)
    made = of_preset(transforms() if callable(transforms) else weights)
    made = made if resize else replace(made, resize=None, crop=None)
    meta = cast("Mapping[str, list[str]]", getattr(weights, "meta", None) or {})
    return prepared(model, made, names=meta.get("categories"))


def _try_out(processor: object, ready: Prepared, size: tuple[int, int], *, resize: bool) -> None:
    """Compare the preparation with the processor's own, on an image of a size."""
    from hshap.models.torch_modules import inputs_of  # noqa: PLC0415, torch is optional

    channels = ready.preparation.channels
    rows, columns = np.mgrid[: size[0], : size[1]]
    waves = [np.sin(rows / (5 + n) + columns / (9 + n)) for n in range(channels)]
    noise = np.random.default_rng(0).normal(0, 8, (*size, channels))
    image = np.clip(128 + 90 * np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)
    check_processor(processor, inputs_of(ready, image), image, resize=resize)


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
    from hshap.models.torch_modules import SentenceScores  # noqa: PLC0415

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
