"""Classifiers in torch with the preparation of their library: transformers, timm, torchvision."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError, require
from hshap.models.configs import check_processor, of_preset, of_processor, of_timm
from hshap.models.facts import class_names, names_in_config
from hshap.models.preparation import Preparation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Model
    from hshap.models.torch_modules import Prepared

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
