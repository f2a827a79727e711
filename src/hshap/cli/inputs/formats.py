"""The format of a model's inputs and outputs: from options, or from a TOML next to the model."""

from __future__ import annotations

import os
import tomllib
from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.checks import shown
from hshap._util.visible import visible
from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.files import text_of
from hshap.games.targets import ACTIVATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Untyped
    from hshap.explanation.placement import Position
    from hshap.games.targets import Activation

CHANNELS = {"rgb": 3, "bgr": 3, "grey": 1}
LAYOUTS = ("nchw", "nhwc")
FITS = ("stretch", "crop", "letterbox")
MAX_TOML = 2**18
MAX_DOTS = 5000
"""The time to read a key such as a.b.c grows with the square of its dots."""
MAX_SIDE = 2**16
LARGEST = 1e30


@dataclass(frozen=True)
class Format:
    """How a model takes images, and how its outputs are explained.

    An image of another size is stretched to `size`, or its middle is cropped, or it is padded to
    the shape of `size` (letterbox). Before a crop, its shorter side gets `shorter` pixels, or as
    few as the size allows. Pixels come as 0 (black) to 1 (white) and are mapped to `range`. Then
    `mean` is subtracted and the rest divided by `std`: one number, or one for each channel.

    >>> Format(range=(0.0, 255.0)).scale(np.ones((3, 1, 1)))[0, 0, 0].item()
    255.0
    """

    size: tuple[int, int] | None = None
    channels: str | None = None
    layout: str = "nchw"
    range: tuple[float, float] = (0.0, 1.0)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    white: float | None = None
    classes: tuple[str, ...] = ()
    output: Activation = "raw"
    fit: str = "stretch"
    shorter: int | None = None

    @property
    def count(self) -> int:
        """The number of channels."""
        return CHANNELS[self.channels or "rgb"]

    def scale(self, pixels: Array) -> NDArray[np.float32]:
        """Return the model's input for an RGB or grey image `(channels, *grid)`."""
        low, high = self.range
        ordered = pixels[::-1] if self.channels == "bgr" else pixels
        column = (-1, *(1,) * (pixels.ndim - 1))
        mean, std = (np.reshape(np.array(v), column) for v in (self.mean, self.std))
        return ((low + ordered * (high - low) - mean) / std).astype(np.float32)

    def seen(self, own: Grid) -> tuple[Position, Position]:
        """Return the corners of the part that the model sees of an image of some height and width.

        They lie beyond the image where it is padded.

        >>> Format(size=(8, 8), fit="crop").seen((16, 32)), Format().seen((16, 32))
        (((0.0, 8.0), (16.0, 24.0)), ((0, 0), (16, 32)))
        >>> Format(size=(8, 8), fit="letterbox").seen((16, 32))
        ((-8.0, 0.0), (24.0, 32.0))
        """
        if self.size is None or self.fit == "stretch" or own == self.size:
            return (0, 0), own
        if self.fit == "letterbox":
            sides = self.letterboxed(own)
            steps = [side / new for side, new in zip(own, sides, strict=True)]
            pads = [(side - new) // 2 for side, new in zip(self.size, sides, strict=True)]
            start = tuple(-pad * step for pad, step in zip(pads, steps, strict=True))
            ends = zip(start, self.size, steps, strict=True)
            return start, tuple(a + side * step for a, side, step in ends)
        ratios = [side / given for side, given in zip(self.size, own, strict=True)]
        scale = max(*ratios, (self.shorter or 0) / min(own))
        lengths = [side / scale for side in self.size]
        start = tuple((side - part) / 2 for side, part in zip(own, lengths, strict=True))
        return start, tuple(a + part for a, part in zip(start, lengths, strict=True))

    def letterboxed(self, own: Grid) -> Grid:
        """Return the height and width to which an image is resized before it is padded."""
        size = self.size or own
        scale = min(side / given for side, given in zip(size, own, strict=True))
        return tuple(max(1, round(given * scale)) for given in own)

    def name(self, index: int) -> str:
        """Return the name of a class, or its number if it has none.

        >>> Format(classes=("cat", "dog")).name(1), Format().name(1)
        ('dog', '1')
        """
        return self.classes[index] if index < len(self.classes) else str(index)


def given_fields(path: Path | None, given: Mapping[str, object]) -> dict[str, Untyped]:
    """Return the fields of a format that a TOML file and options give, checked; options win.

    >>> given_fields(None, {"size": [8, 9], "mean": None})
    {'size': (8, 9)}
    """
    wanted = {} if path is None else _checked(_toml(path), f"{path}: ")
    return wanted | _checked({k: v for k, v in given.items() if v is not None}, "--")


def format_of(
    given: Mapping[str, Untyped], told: Mapping[str, object] | None = None, file: str = ""
) -> Format:
    """Return the format of given fields, and of those that a model's file tells beside them.

    >>> format_of({"mean": (0.5,)}, {"classes": ["cat", "dog"]}, "model.onnx").classes
    ('cat', 'dog')
    """
    found = Format(**{**_checked(told or {}, f"{file} tells that "), **given})
    for name, length in (("mean", len(found.mean)), ("std", len(found.std))):
        if length not in (1, found.count):
            message = (
                f"{name} has {length} numbers for {found.count} channels "
                f"({found.channels or 'rgb'}); pass one, or {found.count}"
            )
            raise Refusal(Code.USAGE, message)
    return found


def numbers(option: str, text: str | None, *, example: str) -> list[float] | None:
    """Return the numbers of an option; None if it was not given.

    >>> numbers("--mean", "0.5,1", example="0.5,0.4,0.4")
    [0.5, 1.0]
    """
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        message = f"{option} {text} is not a list of numbers; pass for example {example}"
        raise Refusal(Code.USAGE, message) from None


def sides(option: str, text: str | None) -> list[int] | None:
    """Return height and width of an option such as 480x640, or 224 for a square.

    >>> sides("--size", "480x640")
    [480, 640]
    """
    if text is None:
        return None
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        message = f"{option} {text} is not a size; pass height x width, such as {option} 480x640"
        raise Refusal(Code.USAGE, message)
    return [int(parts[0]), int(parts[-1])]


def names(text: str | None, folder: Path) -> list[str] | None:
    """Return class names from an option: a file with one in each line, or a,b,c."""
    if text is None:
        return None
    file = folder / text
    if "," not in text and (file.suffix or os.path.lexists(file)):
        lines = text_of(file, fix="pass a file of class names, or a,b,c").split("\n")
        return [line.strip() for line in lines if line.strip()]
    return [part.strip() for part in text.split(",")]


def _toml(path: Path) -> Mapping[str, object]:
    text = text_of(path, most=MAX_TOML, fix="correct it, or pass another --config")
    try:
        if text.count(".") > MAX_DOTS:
            message = f"{path} has more than {MAX_DOTS} dots; pass class names with --classes FILE"
            raise Refusal(Code.INPUT, message)
        return tomllib.loads(text)
    # A number of thousands of digits is a ValueError, thousands of brackets are a RecursionError.
    except (ValueError, RecursionError) as error:
        raise Refusal(Code.INPUT, f"{path} is not TOML ({brief(error)}); correct it") from error


def _checked(values: Mapping[str, object], where: str) -> dict[str, Untyped]:
    """Return the checked fields of a `Format`."""
    known = [field.name for field in fields(Format)]
    out: dict[str, Untyped] = {}
    for name, value in values.items():
        if name not in known:
            message = f"{where}{visible(name[:80])} is not known; known are {', '.join(known)}"
            raise Refusal(Code.USAGE, message)
        made = _READERS[name](value)
        if made is None:
            message = f"{where}{name} is {_shown(value)}; {_ADVICE[name]}"
            raise Refusal(Code.USAGE, message)
        out[name] = made
    return out


def _shown(value: object) -> str:
    try:
        return shown(value)
    except (ValueError, RecursionError):  # a number of very many digits, or a table of many levels
        return "too large"


def _items(value: object) -> Sequence[object] | None:
    """Return the items of a list; None for any other value."""
    return cast("Sequence[object]", value) if isinstance(value, list) else None


def _floats(value: object, lengths: Collection[int]) -> tuple[float, ...] | None:
    found = _items(value)
    items = [value] if found is None else found
    # A bool is an int to Python. Numbers beyond the limit would overflow in 32 bits.
    plain = [
        float(item)
        for item in items
        if isinstance(item, (int, float)) and not isinstance(item, bool) and abs(item) <= LARGEST
    ]
    return tuple(plain) if len(plain) == len(items) and len(items) in lengths else None


def _mean(value: object) -> tuple[float, ...] | None:
    return _floats(value, (1, 3))


def _std(value: object) -> tuple[float, ...] | None:
    found = _floats(value, (1, 3))
    return found if found and min(found) >= 1 / LARGEST else None


def _size(value: object) -> tuple[int, ...] | None:
    items = _items(value) or [value, value]
    plain = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
    whole = [item for item in plain if 0 < item <= MAX_SIDE]
    return tuple(whole) if len(whole) == len(items) == 2 else None


def _range(value: object) -> tuple[float, ...] | None:
    found = _floats(value, (2,))
    return found if found and found[0] != found[1] else None


def _white(value: object) -> float | None:
    found = _floats(value, (1,))
    return found[0] if found and found[0] > 0 else None


def _names(value: object) -> tuple[str, ...] | None:
    items = _items(value) or ()
    named = [item for item in items if isinstance(item, str) and item]
    return numbered(named) if named and len(named) == len(items) else None


def numbered(classes: Sequence[str]) -> tuple[str, ...]:
    """Return names of classes that differ: those that are there twice get their numbers.

    >>> numbered(["crane", "owl", "crane"])
    ('crane (0)', 'owl', 'crane (2)')
    """
    times = Counter(classes)
    return tuple(f"{name} ({n})" if times[name] > 1 else name for n, name in enumerate(classes))


def _side(value: object) -> int | None:
    found = _size(value)
    return found[0] if found and isinstance(value, int) else None


def _one_of(known: Collection[str]) -> Callable[[object], str | None]:
    def read(value: object) -> str | None:
        return value if isinstance(value, str) and value in known else None

    return read


_READERS: dict[str, Callable[[object], object]] = {
    "size": _size,
    "channels": _one_of(CHANNELS),
    "layout": _one_of(LAYOUTS),
    "range": _range,
    "mean": _mean,
    "std": _std,
    "white": _white,
    "classes": _names,
    "output": _one_of(ACTIVATIONS),
    "fit": _one_of(FITS),
    "shorter": _side,
}
"""Each returns the checked value of a field, or None."""

_ADVICE = {
    "size": "pass height and width in pixels, such as 480x640 or [480, 640]",
    "channels": f"pass one of {', '.join(CHANNELS)}",
    "layout": f"pass one of {', '.join(LAYOUTS)}",
    "range": "pass two different numbers, the values of black and white",
    "mean": "pass one number, or one for each channel",
    "std": "pass one number above 0, or one for each channel",
    "white": "pass the value of a white pixel, above 0",
    "classes": "pass a name for each output",
    "output": f"pass one of {', '.join(ACTIVATIONS)}",
    "fit": f"pass one of {', '.join(FITS)}",
    "shorter": "pass a number of pixels, such as 256",
}
