"""Metadata of ONNX files: the names of classes, and how pixels are scaled.

Entries are text that the author of a file wrote; here they are read as data alone.
"""

from __future__ import annotations

import ast
import json
import math
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap.errors import ArgumentError
from hshap.models.facts import class_names
from hshap.models.preparation import Preparation

NAMES = ("id2label", "names", "classes", "class_names", "labels")
"""Entries that name the classes; the first one that is there counts."""

MEANS = ("mean", "image_mean")
STDS = ("std", "image_std")
FACTOR = "rescale_factor"
PIXEL_RANGE = "Image.NominalPixelRange"
PIXEL_FORMAT = "Image.BitmapPixelFormat"
KEYS = (*NAMES, *MEANS, *STDS, FACTOR, PIXEL_RANGE, PIXEL_FORMAT)
"""All entries that count."""

RANGES = {
    "NominalRange_0_255": (255.0, 0.0, 1.0),
    "Normalized_0_1": (1.0, 0.0, 1.0),
    "Normalized_1_1": (1.0, 0.5, 0.5),
}
"""Scale, mean and std of the pixel ranges that the ONNX standard names."""

MAX_NUMBERS = 64
BYTES = 255.0

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Entries = Mapping[str, str]


class MetadataError(ValueError):
    """Metadata that cannot be used; the message continues the name of the file."""


def names_in(entries: Entries) -> tuple[str, ...]:
    """Return the names of classes; empty without an entry of them.

    >>> names_in({"names": "{0: 'cat', 1: 'dog'}"}), names_in({"labels": "red, green"})
    (('cat', 'dog'), ('red', 'green'))
    """
    key = next((name for name in NAMES if name in entries), None)
    if key is None:
        return ()
    try:
        found = class_names(key, _value(entries[key]))
    except ArgumentError as error:
        raise _unreadable(key, entries[key]) from error
    if not found or not all(found):
        raise _unreadable(key, entries[key])
    return found


def preparation_in(entries: Entries, channels: int) -> Preparation | None:
    """Return how pixels of 0 to 1 are scaled; None if no entry says it.

    >>> preparation_in({"mean": "[127.5]", "std": "[127.5]"}, 1).scale
    255.0
    """
    mean, std = (_numbers(entries, keys) for keys in (MEANS, STDS))
    factor = _numbers(entries, (FACTOR,))
    if (mean is None) != (std is None):
        raise MetadataError(f"has metadata without {'std' if std is None else 'mean'}")
    if factor is not None and len(factor) != 1:
        raise _unreadable(FACTOR, entries[FACTOR])
    scale = None if factor is None else BYTES * factor[0]
    if mean is None or std is None:
        named = RANGES.get(entries.get(PIXEL_RANGE, ""))
        if named is None and scale is None:
            return None
        scale, middle, spread = named or (scale, 0.0, 1.0)
        mean, std = [middle], [spread]
    elif scale is None:
        scale = BYTES if np.abs([*mean, *std]).max() > 1 else 1.0
    try:
        return Preparation(scale=cast("float", scale), mean=mean, std=std, channels=channels)
    except ArgumentError as error:
        raise MetadataError(f"has metadata that does not fit: {error}") from error


def is_bgr(entries: Entries) -> bool:
    """Tell whether the model takes blue first."""
    return entries.get(PIXEL_FORMAT) == "Bgr8"


def _numbers(entries: Entries, keys: Sequence[str]) -> list[float] | None:
    key = next((name for name in keys if name in entries), None)
    if key is None:
        return None
    found = _value(entries[key])
    items = cast("list[object]", list(found) if isinstance(found, (list, tuple)) else [found])
    try:
        made = [float(cast("float", item)) for item in items]
    except (TypeError, ValueError, OverflowError):
        made = []
    if not 0 < len(made) <= MAX_NUMBERS or not all(map(math.isfinite, made)):
        raise _unreadable(key, entries[key])
    return made


def _value(text: str) -> object:
    """Return the value of an entry: JSON, a literal of Python, or words between commas.

    None if it cannot be read.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
    listed = text.strip().startswith(("[", "{", "("))  # cut short, or of very many levels
    return None if listed else [part.strip() for part in text.split(",")]


def _unreadable(key: str, text: str) -> MetadataError:
    return MetadataError(f"has the metadata {key}={text[:80]!a}, which cannot be read")
