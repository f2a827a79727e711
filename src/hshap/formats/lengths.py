"""Units of length, and the size of pixels that a TIFF describes: by OME-XML, or ImageJ's scale.

Densities and resolutions of JPEG, PNG, BMP, EXIF and plain TIFF are those of a print or a screen.
They say nothing about the object, so they are not read.
"""

from __future__ import annotations

import re
from html import unescape
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hshap._util.types import Untyped

MILLIMETRES = {
    **dict.fromkeys(("km", "kilometer"), 1e6),
    **dict.fromkeys(("m", "meter", "metre"), 1000.0),
    **dict.fromkeys(("cm", "centimeter"), 10.0),
    **dict.fromkeys(("mm", "millimeter"), 1.0),
    **dict.fromkeys(("\u00b5m", "\u03bcm", "um", "micrometer", "micron", "microns"), 1e-3),
    **dict.fromkeys(("nm", "nanometer"), 1e-6),
    **dict.fromkeys(("pm", "picometer"), 1e-9),
    **dict.fromkeys(("\u00c5", "angstrom"), 1e-7),
    **dict.fromkeys(("in", "inch"), 25.4),
}
"""Units of OME-XML, OME-Zarr and ImageJ."""

PRINTED = ("cm", "in", "inch")
"""Units that ImageJ writes for the density of any picture that it opened."""

LONGEST_TEXT = 2**20
"""Characters of a description that are searched."""

PIXELS = re.compile(r"<(?:\w+:)?Pixels\s([^<>]{0,20000})>")
ATTRIBUTE = re.compile(r"\b(PhysicalSize[XYZ](?:Unit)?)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
IMAGEJ_ENTRY = re.compile(r"^(unit|spacing)=(.+?)\s*$", re.MULTILINE)


class PixelSize(NamedTuple):
    """Height and width of a pixel in a unit of which they have few decimals."""

    sides: tuple[float, float]
    unit: str

    def __str__(self) -> str:
        """Return the size in words.

        >>> print(pixel_size((0.5, 0.5)))
        pixels of 0.5 mm
        """
        high, wide = (f"{side:.4g}" for side in self.sides)
        return f"pixels of {high if high == wide else f'{high} x {wide}'} {self.unit}"


def pixel_size(spacing: Sequence[float] | None) -> PixelSize | None:
    """Return the size of a pixel of so many millimetres; None if it is not known.

    >>> pixel_size((3.0, 0.00025, 0.0005))
    PixelSize(sides=(0.25, 0.5), unit='µm')
    """
    if spacing is None:
        return None
    factor, unit = (1.0, "mm") if max(spacing[-2:]) >= 0.01 else (1e3, "\u00b5m")
    high, wide = (float(f"{side * factor:.9g}") for side in spacing[-2:])
    return PixelSize((high, wide), unit)


def described_sizes(description: str, per_unit: Mapping[str, Untyped]) -> dict[str, float]:
    r"""Return the millimetres between pixels by axis, as the description of a TIFF tells them.

    `per_unit` has the resolution tags of the axes X and Y, which ImageJ uses for its own unit.

    >>> described_sizes("ImageJ=1.53\nunit=micron\nspacing=2", {"X": (4, 1), "Y": 2.0})
    {'X': 0.00025, 'Y': 0.0005, 'Z': 0.002}
    """
    text = description[:LONGEST_TEXT]
    pixels = PIXELS.search(text)
    sizes: dict[str, float] = {}
    if pixels:
        facts = {name: unescape(one or other) for name, one, other in ATTRIBUTE.findall(pixels[1])}
        for axis in "XYZ":
            unit = MILLIMETRES.get(facts.get(f"PhysicalSize{axis}Unit", "um"), 0.0)
            sizes[axis] = unit * _number(facts.get(f"PhysicalSize{axis}"))
    elif text.startswith("ImageJ="):
        facts = dict(IMAGEJ_ENTRY.findall(text))
        # ImageJ writes the Greek letter as a text, too.
        name = facts.get("unit", "").replace("\\u00B5", "\u00b5").lower()
        unit = 0.0 if name in PRINTED else MILLIMETRES.get(name, 0.0)
        for axis in "XY":
            density = _number(per_unit.get(axis))
            sizes[axis] = unit / density if density else 0.0
        sizes["Z"] = unit * _number(facts.get("spacing"))
    return {axis: size for axis, size in sizes.items() if 1e-9 < size < 1e6}


def _number(value: Untyped) -> float:
    """Return a positive number, or the quotient of two; 0 for anything else."""
    try:
        found = value[0] / value[1] if isinstance(value, tuple) else float(value)
    except (TypeError, ValueError, ArithmeticError, IndexError):
        return 0.0
    return float(found) if isfinite(found) and found > 0 else 0.0
