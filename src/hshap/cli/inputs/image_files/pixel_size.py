"""The size of a pixel, where an image file tells it: resolution tags, OME-XML, pHYs and density.

Densities are often those of a printer and say nothing about the object: the values that programs
write when they know none, and those of photographs, are left out.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

    from hshap._util.types import Untyped

INCH, CENTIMETRE, METRE = 25.4, 10.0, 1000.0
"""Millimetres."""

PLACEHOLDERS = (72, 96)
"""Pixels per inch that programs write if they know none; some write 1 for each unit."""

LONGEST_TEXT = 2**20
"""Characters of a description that are searched."""

# Tags of TIFF and EXIF.
DESCRIPTION, X_RESOLUTION, Y_RESOLUTION, UNIT = 270, 282, 283, 296
UNITS = {2: INCH, 3: CENTIMETRE}
EXIF = 0x8769
EXPOSURE = (33434, 33437, 37386)
"""Exposure time, aperture and focal length: a photograph through a lens."""

LENGTHS = {
    **dict.fromkeys(("m", "meter", "metre"), METRE),
    **dict.fromkeys(("cm", "centimeter"), CENTIMETRE),
    **dict.fromkeys(("mm", "millimeter"), 1.0),
    **dict.fromkeys(("\u00b5m", "\u03bcm", "um", "micron", "microns", r"\u00b5m"), 1e-3),
    **dict.fromkeys(("nm", "nanometer"), 1e-6),
    **dict.fromkeys(("in", "inch"), INCH),
}
"""Millimetres in the units of OME-XML and ImageJ, which writes the Greek letter as a text, too."""

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

        >>> print(PixelSize((0.5, 0.5), "mm", "density"))
        pixels of 0.5 mm
        """
        high, wide = (f"{side:.4g}" for side in self.sides)
        return f"pixels of {high if high == wide else f'{high} x {wide}'} {self.unit}"


def pixel_size_of(image: ImageFile) -> PixelSize | None:
    """Return the size of the pixels as they are stored; None if the file does not tell it."""
    try:
        tags: Untyped = getattr(image, "tag_v2", None)
        if tags is not None:
            return _of_tiff(image, tags)
        return _of_other(image)
    except Exception:  # noqa: BLE001, pillow raises many kinds for damaged tags
        return None


def _of_tiff(image: ImageFile, tags: Untyped) -> PixelSize | None:
    per_unit = _number(tags.get(X_RESOLUTION)), _number(tags.get(Y_RESOLUTION))
    unit = UNITS.get(tags.get(UNIT, 2))
    if image.tell():  # the description of all pages is that of the first
        image.seek(0)
    text = str(getattr(image, "tag_v2", {}).get(DESCRIPTION, ""))[:LONGEST_TEXT]
    ome = PIXELS.search(text)
    if ome:
        return _of_ome(ome[1])
    if text.startswith("ImageJ="):
        named = IMAGEJ_UNIT.search(text)
        length = LENGTHS.get(named[1].lower()) if named else None
        if length is None:
            return None
        return _by_density(per_unit, length, "ImageJ scale", placeholders=())
    if unit is None or _is_photograph(image):
        return None
    return _by_density(per_unit, unit, "TIFF resolution")


def _of_ome(attributes: str) -> PixelSize | None:
    found = {name: one or other for name, one, other in ATTRIBUTE.findall(attributes)}
    sides: list[float] = []
    for axis in "YX":
        length = LENGTHS.get(found.get(f"PhysicalSize{axis}Unit", "um"))
        size = _number(found.get(f"PhysicalSize{axis}"))
        if length is None or size is None:
            return None
        sides.append(size * length)
    return _sized((sides[0], sides[1]), "OME-XML")


def _of_other(image: ImageFile) -> PixelSize | None:
    info = image.info
    if _is_photograph(image):
        return None
    if "jfif_density" in info and info.get("jfif_unit") in (1, 2):
        unit = INCH if info["jfif_unit"] == 1 else CENTIMETRE
        wide, high = info["jfif_density"]
        return _by_density((_number(wide), _number(high)), unit, "JPEG density")
    exif = image.getexif()
    if X_RESOLUTION in exif and exif.get(UNIT, 2) in UNITS:
        per_unit = _number(exif[X_RESOLUTION]), _number(exif.get(Y_RESOLUTION))
        return _by_density(per_unit, UNITS[exif.get(UNIT, 2)], "EXIF resolution")
    # Not of a JPEG: pillow writes 72 there if the file tells nothing.
    if "dpi" in info and image.format not in ("JPEG", "MPO"):
        wide, high = info["dpi"]
        source = "PNG pHYs" if image.format == "PNG" else f"{image.format} resolution"
        return _by_density((_number(wide), _number(high)), INCH, source)
    return None


def _is_photograph(image: ImageFile) -> bool:
    """Tell whether a lens took the image: its density is then that of a print."""
    exposure = image.getexif().get_ifd(EXIF)
    return any(tag in exposure for tag in EXPOSURE)


def _by_density(
    per_unit: tuple[float | None, float | None],
    unit: float,
    source: str,
    placeholders: tuple[int, ...] = PLACEHOLDERS,
) -> PixelSize | None:
    """Return the size for pixels per unit, across and down; the unit is in millimetres."""
    across, down = per_unit
    if across is None or down is None:
        return None
    is_one = across == down == 1 and placeholders
    if is_one or any(abs(across / unit * INCH - usual) < 0.1 for usual in placeholders):
        return None
    return _sized((unit / down, unit / across), source)


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
