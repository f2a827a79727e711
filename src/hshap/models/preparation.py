"""Preparation: the steps between the image of a user and the input of a network.

These steps are part of the model's call. Pixels are hidden in the image of the user, before it is
resized and normalised, and maps have the size of that image. The steps are read from the configs of
transformers, timm and torchvision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Array, Grid

Interpolation = Literal["nearest", "bilinear", "bicubic"]
INTERPOLATIONS: tuple[Interpolation, ...] = get_args(Interpolation)


class Steps(NamedTuple):
    """The size of an image after resizing, and the corner and the size of the crop."""

    resized: tuple[int, int]
    start: tuple[int, int]
    cropped: tuple[int, int]


@recipe
class Preparation:
    """The steps from a plain image, of numbers from 0 to 1, to the input of a network.

    First the image is resized: to `(height, width)`, or so that its shorter side has `resize`
    pixels, and the longer one at most `longest`. Then `crop`, a height and a width, is cut from its
    middle. Last, each channel becomes `(value * scale - mean) / std`. Steps that are None are left
    out. `rounding` says where the middle is if the crop leaves an odd number of pixels: "down" as
    in transformers, "nearest" as in torchvision and timm.

    >>> Preparation(resize=256, crop=224).steps((480, 640))
    Steps(resized=(256, 341), start=(16, 58), cropped=(224, 224))
    """

    resize: int | Sequence[int] | None = None
    crop: int | Sequence[int] | None = None
    interpolation: Interpolation = "bilinear"
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    scale: float = 1.0
    channels: int = 3
    rounding: Literal["down", "nearest"] = "nearest"
    longest: int | None = None

    def __post_init__(self) -> None:
        count = checks.integer("channels", self.channels, minimum=1)
        settle(self, channels=count)
        if self.resize is not None:
            settle(self, resize=_sides("resize", self.resize, one=True))
        if self.crop is not None:
            settle(self, crop=_sides("crop", self.crop, one=False))
        if self.longest is not None:
            settle(self, longest=checks.integer("longest", self.longest, minimum=1))
        if self.interpolation not in INTERPOLATIONS:
            message = (
                f"interpolation must be one of {', '.join(INTERPOLATIONS)}, got "
                f"{checks.shown(self.interpolation)}; resize images before, and pass resize=None"
            )
            raise ArgumentError(message)
        if self.rounding not in ("down", "nearest"):
            message = f'rounding must be "down" or "nearest", got {checks.shown(self.rounding)}'
            raise ArgumentError(f"{message}; pass one of the two")
        settle(self, mean=_per_channel("mean", self.mean, count))
        settle(self, std=_per_channel("std", self.std, count))
        settle(self, scale=checks.number("scale", self.scale, minimum=1e-9))
        if min(cast("Sequence[float]", self.std)) <= 0:
            message = f"std must be above 0, got {self.std}; pass the spread of each channel"
            raise ArgumentError(message)

    @property
    def moves_pixels(self) -> bool:
        """Whether images are resized or cropped."""
        return self.resize is not None or self.crop is not None

    @property
    def normalises(self) -> bool:
        """Whether the values of pixels change."""
        return (set(self._means), set(self._stds), self.scale) != ({0.0}, {1.0}, 1.0)

    @property
    def sentence(self) -> str:
        """The steps in words."""
        size = self.resize
        said: list[str] = []
        if isinstance(size, int):
            most = "" if self.longest is None else f", the longer to {self.longest} at most"
            said.append(f"shorter side resized to {size}{most} ({self.interpolation})")
        elif size is not None:
            said.append(f"resized to {size[0]} x {size[1]} ({self.interpolation})")
        if self.crop is not None:
            height, width = cast("Sequence[int]", self.crop)
            said.append(f"middle {height} x {width} cropped")
        if self.normalises:
            numbers = (",".join(f"{v:.4g}" for v in part) for part in (self._means, self._stds))
            said.append("mean {} and std {}".format(*numbers))
        return ", ".join(said) or "none"

    def steps(self, grid: Grid) -> Steps:
        """Return the sizes that an image of a height and a width takes on."""
        height, width = grid
        size = (height, width) if self.resize is None else self._resized(height, width)
        if self.crop is None:
            return Steps(size, (0, 0), size)
        crop = cast("tuple[int, int]", self.crop)
        if any(part > whole for part, whole in zip(crop, size, strict=True)):
            message = (
                f"image is {size[0]} x {size[1]} after it is resized, smaller than the crop of "
                f"{crop[0]} x {crop[1]}; resize it before"
            )
            raise ArgumentError(message)
        rounded = int if self.rounding == "down" else round
        first, second = (rounded((a - b) / 2) for a, b in zip(size, crop, strict=True))
        return Steps(size, (first, second), crop)

    def normalised(self, batch: Array) -> Array:
        """Return a batch `(n, channels, *grid)` with normalised values, of its own type."""
        shape = (1, -1, *(1,) * (batch.ndim - 2))
        mean, std = (_column(part, batch, shape) for part in (self._means, self._stds))
        return (batch * batch.dtype.type(self.scale) - mean) / std

    @property
    def _means(self) -> tuple[float, ...]:
        return cast("tuple[float, ...]", self.mean)

    @property
    def _stds(self) -> tuple[float, ...]:
        return cast("tuple[float, ...]", self.std)

    def _resized(self, height: int, width: int) -> tuple[int, int]:
        size = self.resize
        if not isinstance(size, int):
            return cast("tuple[int, int]", size)
        short, long = sorted((height, width))
        exact = float(size)
        if self.longest is not None and long / short * size > self.longest:
            exact = self.longest * short / long
        shorter, longer = round(exact), int(exact * long / short)
        if short == shorter:
            return height, width
        return (shorter, longer) if height <= width else (longer, shorter)


def _column(values: Sequence[float], batch: Array, shape: tuple[int, ...]) -> Array:
    return np.array(values, batch.dtype).reshape(shape)


def _sides(name: str, value: object, *, one: bool) -> int | tuple[int, ...]:
    """Return a height and a width; one number is the shorter side if `one`, else both."""
    found = checks.sides(name, value)
    if isinstance(found, int):
        return found if one else (found, found)
    if len(found) != 2:
        message = f"{name} has {len(found)} entries, {checks.shown(value)}; pass height and width"
        raise ArgumentError(message)
    return found


def _per_channel(name: str, value: object, count: int) -> tuple[float, ...]:
    """Return one finite number for each channel."""
    several = isinstance(value, Sequence) and not isinstance(value, str)
    items = cast("Sequence[object]", value) if several else [value]
    if len(items) not in (1, count):
        message = (
            f"{name} has {len(items)} numbers, but images have {count} channels; "
            f"pass one number, or {count}"
        )
        raise ArgumentError(message)
    found = tuple(checks.number(name, item, minimum=-1e9, maximum=1e9) for item in items)
    return found if len(found) == count else found * count


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
        crop = _named_sides("crop_size", config.get("crop_size"), kind)
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
    return _named_sides("size", size, kind), None, None


def _named_sides(name: str, given: object, kind: str) -> tuple[int, int]:
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
