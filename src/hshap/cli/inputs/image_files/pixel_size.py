"""The size of a pixel, where an image file tells it: by OME-XML, or by the scale of ImageJ.

Densities and resolutions of JPEG, PNG, BMP, EXIF and plain TIFF are those of a print or a screen.
They say nothing about the object, so they are not read.
"""

from __future__ import annotations

import re
from contextlib import suppress
from html import unescape
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

    from hshap._util.types import Untyped

LONGEST_TEXT = 2**20
"""Characters of a description that are searched."""

DESCRIPTION, X_RESOLUTION, Y_RESOLUTION = 270, 282, 283
"""Tags of TIFF."""

LENGTHS = {
    **dict.fromkeys(("m", "meter", "metre"), 1000.0),
    **dict.fromkeys(("cm", "centimeter"), 10.0),
    **dict.fromkeys(("mm", "millimeter"), 1.0),
    **dict.fromkeys(("\u00b5m", "\u03bcm", "um", "micron", "microns", r"\u00b5m"), 1e-3),
    **dict.fromkeys(("nm", "nanometer"), 1e-6),
    **dict.fromkeys(("in", "inch"), 25.4),
}
"""Millimetres in the units of OME-XML and ImageJ, which writes the Greek letter as a text, too."""

PRINTED = ("cm", "in", "inch")
"""Units that ImageJ writes for the density of any picture that it opened."""

PIXELS = re.compile(r"<(?:\w+:)?Pixels\s([^<>]{0,20000})>")
ATTRIBUTE = re.compile(r"\b(PhysicalSize[XY](?:Unit)?)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
IMAGEJ_UNIT = re.compile(r"^unit=(.+?)\s*$", re.MULTILINE)


class PixelSize(NamedTuple):
    """Height and width of a pixel in a unit, and the part of the file that tells them."""

    sides: tuple[float, float]
    unit: str
    source: str

    @property
    def turned(self) -> PixelSize:
        """The same for an image whose axes are exchanged."""
        return self._replace(sides=self.sides[::-1])

    def __str__(self) -> str:
        """Return the size in words.

        >>> print(PixelSize((0.5, 0.5), "mm", "OME-XML"))
        pixels of 0.5 mm
        """
        high, wide = (f"{side:.4g}" for side in self.sides)
        return f"pixels of {high if high == wide else f'{high} x {wide}'} {self.unit}"


def pixel_size_of(image: ImageFile) -> PixelSize | None:
    """Return the size of the pixels as they are stored; None if the file does not tell it."""
    try:
        tags: Untyped = getattr(image, "tag_v2", None)
        return None if tags is None else _of_tiff(image, tags)
    except Exception:  # noqa: BLE001, pillow raises many kinds for damaged tags
        return None


def _of_tiff(image: ImageFile, tags: Untyped) -> PixelSize | None:
    per_unit = _number(tags.get(X_RESOLUTION)), _number(tags.get(Y_RESOLUTION))
    if image.tell():  # the description of all pages is that of the first
        image.seek(0)
    text = str(getattr(image, "tag_v2", {}).get(DESCRIPTION, ""))[:LONGEST_TEXT]
    with suppress(UnicodeError):  # OME-XML is UTF-8, and pillow reads all texts as Latin-1
        text = text.encode("latin-1").decode("utf-8")
    ome = PIXELS.search(text)
    if ome:
        return _of_ome(ome[1])
    named = IMAGEJ_UNIT.search(text) if text.startswith("ImageJ=") else None
    length = LENGTHS.get(named[1].lower()) if named and named[1].lower() not in PRINTED else None
    across, down = per_unit
    if length is None or across is None or down is None:
        return None
    return _sized((length / down, length / across), "ImageJ scale")


def _of_ome(attributes: str) -> PixelSize | None:
    found = {name: unescape(one or other) for name, one, other in ATTRIBUTE.findall(attributes)}
    sides: list[float] = []
    for axis in "YX":
        length = LENGTHS.get(found.get(f"PhysicalSize{axis}Unit", "um"))
        size = _number(found.get(f"PhysicalSize{axis}"))
        if length is None or size is None:
            return None
        sides.append(size * length)
    return _sized((sides[0], sides[1]), "OME-XML")


def _sized(sides: tuple[float, float], source: str) -> PixelSize | None:
    """Return sides of so many millimetres in a unit of which they have few decimals."""
    if not all(isfinite(side) and 1e-9 < side < 1e6 for side in sides):
        return None
    factor, unit = (1.0, "mm") if max(sides) >= 0.01 else (1e3, "\u00b5m")
    high, wide = (float(f"{side * factor:.9g}") for side in sides)
    return PixelSize((high, wide), unit, source)


def _number(value: object) -> float | None:
    """Return a positive number; None for anything else."""
    try:
        found = float(value)  # pyright: ignore[reportArgumentType], any fault is the same
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return found if isfinite(found) and found > 0 else None
