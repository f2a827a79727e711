"""Configs of libraries: the preparation that a processor, a timm config or a preset describes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util import checks
from hshap.errors import ArgumentError
from hshap.models.preparation import INTERPOLATIONS, Interpolation, Preparation

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Array

PILLOW = {0: "nearest", 2: "bilinear", 3: "bicubic"}
"""The numbers of pillow for interpolations, which transformers use."""

TIMM_CROP = 0.875
BYTES = 255.0
ALLOWED = 2.5
"""By how many steps of a byte a processor's own result may differ: it rounds to bytes, twice."""


def of_processor(processor: object, *, resize: bool) -> Preparation:
    """Return the preparation that an image processor of transformers describes."""
    inner = getattr(processor, "image_processor", processor)  # of a processor of text and images
    config = _config("processor", inner)
    kind = type(inner).__name__
    scale, mean, std = 1.0, 0.0, 1.0
    if config.get("do_rescale", True):
        scale = float(cast("float", config.get("rescale_factor") or 1 / BYTES)) * BYTES
    else:
        scale = BYTES
    if config.get("do_normalize", False):
        for name in ("image_mean", "image_std"):
            if config.get(name) is None:
                message = (
                    f"processor {kind} normalises images, but has no {name}; set "
                    f"processor.{name} to one number for each channel"
                )
                raise ArgumentError(message)
        mean, std = config["image_mean"], config["image_std"]
    size, crop, longest = None, None, None
    if resize and config.get("do_resize", False):
        size, crop, longest = _size_of_processor(kind, config)
    if resize and config.get("do_center_crop", False):
        crop = _sides("crop_size", config.get("crop_size"), kind)
    return Preparation(
        resize=size,
        crop=crop,
        interpolation=_interpolation("resample", config.get("resample", 2)) if size else "bilinear",
        mean=cast("float", mean),
        std=cast("float", std),
        scale=scale,
        channels=len(mean) if isinstance(mean, Sequence) else 3,
        rounding="down",
        longest=longest,
    )


def check_processor(processor: object, prepared: Array, image: Array, *, resize: bool) -> None:
    """Refuse a processor whose own result differs from the preparation that was read from it.

    `prepared` is the result for `image`, bytes `(height, width, channels)`.
    """
    inner = getattr(processor, "image_processor", processor)
    left_out = {} if resize else {"do_resize": False, "do_center_crop": False}
    try:
        process = cast("Callable[..., Mapping[str, object]]", inner)
        made = process(images=image, return_tensors="np", **left_out)
    except Exception as error:
        message = (
            f"processor {type(inner).__name__} failed on an image ({type(error).__name__}: "
            f"{error}); pass one that works, or hshap.models.prepared(model, Preparation(...))"
        )
        raise ArgumentError(" ".join(message.split())) from error
    own = np.asarray(made["pixel_values"])[0]
    config = _config("processor", inner)
    spread = np.min(cast("Sequence[float]", config.get("image_std") or [1.0]))
    scaled = config.get("rescale_factor") or 1 / BYTES if config.get("do_rescale", True) else 1.0
    spread = spread if config.get("do_normalize", False) else 1.0
    step = float(cast("float", scaled)) / float(spread)
    apart = math.inf if own.shape != prepared.shape else float(np.abs(own - prepared).max())
    if apart > ALLOWED * step:
        told = f"by up to {apart:.3g}" if apart < math.inf else f"{own.shape}, not {prepared.shape}"
        message = (
            f"processor {type(inner).__name__} gives other inputs than its config tells ({told}), "
            "so it has steps of its own; pass hshap.models.prepared(model, Preparation(...)) with "
            "these steps"
        )
        raise ArgumentError(message)


def of_timm(config: object) -> Preparation:
    """Return the preparation of timm's evaluation transform for a `pretrained_cfg`."""
    held = _config("pretrained_cfg", config)
    for name in ("input_size", "mean", "std"):
        if held.get(name) is None:
            message = (
                f"pretrained_cfg has no {name}, it is {checks.shown(config)}; pass one with it"
            )
            raise ArgumentError(message)
    channels, height, width = cast("tuple[int, int, int]", held["input_size"])
    share = float(cast("float", held.get("crop_pct") or TIMM_CROP))
    mode = held.get("crop_mode") or "center"
    scaled = math.floor(height / share), math.floor(width / share)
    if mode not in ("center", "squash") or (mode == "center" and height != width):
        message = (
            f"pretrained_cfg has crop_mode={mode!r} for {height} x {width} pixels, which is not "
            "known here; resize images before, and pass resize=False"
        )
        raise ArgumentError(message)
    return Preparation(
        resize=scaled[0] if mode == "center" else scaled,
        crop=(height, width),
        interpolation=_interpolation("interpolation", held.get("interpolation") or "bilinear"),
        mean=cast("Sequence[float]", held["mean"]),
        std=cast("Sequence[float]", held["std"]),
        channels=channels,
    )


def of_preset(preset: object) -> Preparation:
    """Return the preparation of a preset of torchvision, as `weights.transforms()` returns it."""
    mean, std = getattr(preset, "mean", None), getattr(preset, "std", None)
    if mean is None or std is None:
        message = (
            f"weights give the transforms {checks.shown(preset)} without mean and std; pass those "
            "of a classifier or a segmenter, or hshap.models.prepared(model, Preparation(...))"
        )
        raise ArgumentError(message)
    crop, size = getattr(preset, "crop_size", None), getattr(preset, "resize_size", None)
    way = getattr(preset, "interpolation", "bilinear")
    if size is not None and getattr(preset, "antialias", True) is False:
        message = "weights give transforms with antialias=False; resize images before with them"
        raise ArgumentError(message)
    return Preparation(
        resize=None if size is None else _one_or_two(size),
        crop=None if crop is None else _one_or_two(crop),
        interpolation=_interpolation("interpolation", getattr(way, "value", way)),
        mean=tuple(mean),
        std=tuple(std),
        channels=len(mean),
    )


def _one_or_two(sides: object) -> int | tuple[int, ...]:
    several = tuple(cast("Sequence[int]", sides)) if isinstance(sides, Sequence) else (sides,)
    return cast("int", several[0]) if len(several) == 1 else several


def _size_of_processor(
    kind: str, config: Mapping[str, object]
) -> tuple[int | tuple[int, ...], tuple[int, ...] | None, int | None]:
    """Return the size that a processor resizes to, its crop after that, and the longest side."""
    size = config.get("size")
    held = cast("Mapping[str, int]", size) if isinstance(size, Mapping) else {}
    shorter = held.get("shortest_edge")
    share = config.get("crop_pct")
    known = {name for name, value in held.items() if value is not None}
    if known == {"shortest_edge", "longest_edge"} and shorter:
        return shorter, None, held["longest_edge"]
    if known == {"shortest_edge"} and shorter:
        if share is None:
            return shorter, None, None
        # The classes with a crop_pct cut the middle out of smaller images, and squash larger ones.
        if shorter < 384:
            return int(shorter / cast("float", share)), (shorter, shorter), None
        return (shorter, shorter), None, None
    return _sides("size", size, kind), None, None


def _sides(name: str, given: object, kind: str) -> tuple[int, int]:
    held = cast("Mapping[str, int]", given) if isinstance(given, Mapping) else {}
    height, width = held.get("height"), held.get("width")
    if height is None or width is None:
        message = (
            f"processor {kind} has {name}={checks.shown(given)}, which is not known here; resize "
            "images before, and pass resize=False"
        )
        raise ArgumentError(message)
    return height, width


def _config(name: str, given: object) -> Mapping[str, object]:
    """Return the fields of a config, given as a mapping or as an object."""
    told = getattr(given, "to_dict", None)
    found = told() if callable(told) else given
    if isinstance(found, Mapping):
        return cast("Mapping[str, object]", found)
    try:
        return dict(vars(found))
    except TypeError:
        message = f"{name} is {checks.shown(given)}, which has no fields; pass the library's own"
        raise ArgumentError(message) from None


def _interpolation(name: str, given: object) -> Interpolation:
    found = given if isinstance(given, str) else PILLOW.get(int(cast("int", given)), str(given))
    if found not in INTERPOLATIONS:
        message = (
            f"{name} is {checks.shown(given)}, of which only {', '.join(INTERPOLATIONS)} are known "
            "here; resize images before, and pass resize=False"
        )
        raise ArgumentError(message)
    return found
