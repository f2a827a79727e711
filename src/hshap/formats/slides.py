"""Whole slides of microscopes, through OpenSlide: region by region, or as a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hshap.errors import FormatError, require
from hshap.formats.large_images import checked_box
from hshap.formats.refusals import refuse_large
from hshap.formats.scan import STAGE, Scan, stage_affine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hshap._util.types import Array, Grid, Shape, Untyped

SUFFIXES = (".svs", ".svslide", ".ndpi", ".mrxs", ".scn", ".vms", ".vmu", ".bif", ".czi")
"""Endings of the files that OpenSlide reads, and no other reader here."""

WHITE = 255


class SlideImage:
    """A whole slide in colour, on white where nothing was scanned."""

    def __init__(self, path: Path) -> None:
        openslide: Untyped = require("openslide", extra="slides", needed_by="reading whole slides")
        self._path, self.name = path, path.name
        self._errors = (openslide.OpenSlideError, openslide.OpenSlideUnsupportedFormatError)
        try:
            self._slide: Untyped = openslide.OpenSlide(str(path))
        except self._errors as error:
            message = f"{path} is no slide that OpenSlide can read ({error}); pass another file"
            raise FormatError(message) from error
        self.levels: tuple[Grid, ...] = tuple(
            (height, width) for width, height in self._slide.level_dimensions
        )
        self.shape: Shape = (3, *self.levels[0])
        self.dtype = np.dtype(np.uint8)
        known = [self._slide.properties.get(f"openslide.mpp-{axis}") for axis in "yx"]
        # Of a plain TIFF file, OpenSlide takes the resolution of a print for that of the scanner.
        is_plain = self._slide.properties.get("openslide.vendor") == "generic-tiff"
        self.pixel_size = tuple(map(float, known)) if all(known) and not is_plain else None

    def read(self, start: Sequence[int], stop: Sequence[int], level: int = 0) -> Array:
        """Return the colours of a region `(3, rows, columns)`."""
        top, left, bottom, right = checked_box(self, start, stop, level)
        # OpenSlide takes the corner in pixels at full resolution.
        factor = self._slide.level_downsamples[level]
        corner = round(left * factor), round(top * factor)
        try:
            region = self._slide.read_region(corner, level, (right - left, bottom - top))
        except self._errors as error:
            message = f"{self._path} cannot be read ({error}); copy it again"
            raise FormatError(message) from error
        pixels = np.asarray(region)
        alpha = pixels[..., 3:].astype(np.uint16)
        if alpha.min() == WHITE:
            return np.moveaxis(pixels[..., :3], -1, 0).copy()
        mixed = (pixels[..., :3] * alpha + WHITE * (WHITE - alpha) + WHITE // 2) // WHITE
        return np.moveaxis(mixed, -1, 0).astype(np.uint8)

    def close(self) -> None:
        """Close the file."""
        self._slide.close()


def read_slide(path: Path) -> Scan:
    """Read a whole slide at full resolution; `open_image` reads larger ones region by region."""
    slide = SlideImage(path)
    try:
        refuse_large(str(path), slide.shape, slide.dtype.itemsize)
        pixels = slide.read((0, 0), slide.shape[1:])
        size = slide.pixel_size
    finally:
        slide.close()
    spacing = None if size is None else tuple(each / 1000 for each in size)
    place = None if spacing is None else stage_affine(dict(zip("YX", spacing, strict=True)), {})
    return Scan(
        pixels,
        axes="CYX",
        name=path.name,
        format="slide",
        spacing=spacing,
        affine=place,
        world=STAGE if place is not None else "",
        files=(path,),
    )
