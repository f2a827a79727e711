"""What a model wants of an image: given by options, or by a small TOML next to the model."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.cli.faults import Code, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

CHANNELS = {"rgb": 3, "bgr": 3, "grey": 1}
LAYOUTS = ("nchw", "nhwc")
OUTPUTS = ("raw", "softmax", "sigmoid")


@dataclass(frozen=True)
class Format:
    """What a model wants of an image, and what its outputs are.

    Pixels come as 0 (black) to 1 (white); `range` says what the two become, then `mean` is
    subtracted and the rest divided by `std`, one number or one for each channel.

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
    output: str = "raw"

    @property
    def count(self) -> int:
        """The number of channels."""
        return CHANNELS[self.channels or "rgb"]

    def scale(self, pixels: NDArray[Any]) -> NDArray[np.float32]:
        """Return what the model sees of an image `(channels, height, width)` of 0 to 1, in RGB."""
        low, high = self.range
        ordered = pixels[::-1] if self.channels == "bgr" else pixels
        mean, std = (np.reshape(np.array(v), (-1, 1, 1)) for v in (self.mean, self.std))
        return ((low + ordered * (high - low) - mean) / std).astype(np.float32)

    def name(self, index: int) -> str:
        """Return a class's name, or its number where it has none.

        >>> Format(classes=("cat", "dog")).name(1), Format().name(1)
        ('dog', '1')
        """
        return self.classes[index] if index < len(self.classes) else str(index)


def read_format(path: Path | None, given: Mapping[str, Any]) -> Format:
    """Return the format that a TOML file and options ask for; options win.

    >>> read_format(None, {"size": [8, 9], "mean": None}).size
    (8, 9)
    """
    wanted = {} if path is None else _checked(_toml(path), f"{path}: ")
    wanted |= _checked({k: v for k, v in given.items() if v is not None}, "--")
    found = replace(Format(), **wanted)
    for name in ("mean", "std"):
        length = len(getattr(found, name))
        if length not in (1, found.count):
            message = (
                f"{name} has {length} numbers for {found.count} channels "
                f"({found.channels or 'rgb'}); pass one, or {found.count}"
            )
            raise Refusal(Code.USAGE, message)
    return found


def numbers(option: str, text: str | None) -> list[float] | None:
    """Return the numbers of an option such as 0.5,0.5,0.5.

    >>> numbers("--mean", "0.5,1")
    [0.5, 1.0]
    """
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        message = f"{option} {text} is not a list of numbers; pass them as {option} 0.5,0.4,0.4"
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
    try:
        if "," not in text and file.is_file():
            return [line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(Code.INPUT, f"{file} cannot be read as class names ({error})") from error
    if "," not in text and file.suffix:
        raise Refusal(Code.INPUT, f"{file} is not there; pass a file of class names, or a,b,c")
    return [part.strip() for part in text.split(",")]


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror}); pass another --config"
        raise Refusal(Code.INPUT, message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refusal(Code.INPUT, f"{path} is not TOML ({error}); mend it") from error


def _checked(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = [field.name for field in fields(Format)]
    out: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            message = f"{where}{name} is not known; known are {', '.join(known)}"
            raise Refusal(Code.USAGE, message)
        made = _VALUES[name](value)
        if made is None:
            message = f"{where}{name} is {value!r}; {_WANTED[name]}"
            raise Refusal(Code.USAGE, message)
        out[name] = made
    return out


def _floats(value: Any, *, lengths: tuple[int, ...]) -> tuple[float, ...] | None:
    items = value if isinstance(value, list) else [value]
    plain = [item for item in items if isinstance(item, (int, float)) and math.isfinite(item)]
    return tuple(map(float, plain)) if len(plain) == len(items) and len(items) in lengths else None


def _positive(value: Any, *, lengths: tuple[int, ...]) -> tuple[float, ...] | None:
    found = _floats(value, lengths=lengths)
    return found if found and min(found) > 0 else None


def _size(value: Any) -> tuple[int, ...] | None:
    items = value if isinstance(value, list) else [value, value]
    whole = [item for item in items if isinstance(item, int) and item > 0]
    return tuple(whole) if len(whole) == len(items) == 2 else None


def _range(value: Any) -> tuple[float, ...] | None:
    found = _floats(value, lengths=(2,))
    return found if found and found[0] != found[1] else None


def _white(value: Any) -> float | None:
    found = _positive(value, lengths=(1,))
    return found[0] if found else None


def _names(value: Any) -> tuple[str, ...] | None:
    ok = isinstance(value, list) and all(isinstance(item, str) and item for item in value)
    return tuple(value) if ok and value and len(set(value)) == len(value) else None


def _among(known: Any) -> Any:
    return lambda value: value if isinstance(value, str) and value in known else None


_VALUES: dict[str, Any] = {
    "size": _size,
    "channels": _among(CHANNELS),
    "layout": _among(LAYOUTS),
    "range": _range,
    "mean": lambda value: _floats(value, lengths=(1, 3)),
    "std": lambda value: _positive(value, lengths=(1, 3)),
    "white": _white,
    "classes": _names,
    "output": _among(OUTPUTS),
}
_WANTED = {
    "size": "pass height and width in pixels, such as 480x640 or [480, 640]",
    "channels": f"pass one of {', '.join(CHANNELS)}",
    "layout": f"pass one of {', '.join(LAYOUTS)}",
    "range": "pass what black and white become, two different numbers",
    "mean": "pass one number, or one for each channel",
    "std": "pass one number above 0, or one for each channel",
    "white": "pass the value of a white pixel, above 0",
    "classes": "pass different names, one for each output",
    "output": f"pass one of {', '.join(OUTPUTS)}",
}
