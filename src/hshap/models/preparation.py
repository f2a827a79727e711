"""Preparation: the steps between the image of a user and the input of a network.

These steps are part of the model's call. Pixels are hidden in the image of the user, before it is
resized and normalised, and maps have the size of that image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, cast, get_args

import numpy as np

from hshap._util import checks
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError

if TYPE_CHECKING:
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
