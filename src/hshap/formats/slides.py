"""Whole slides as a scan, if the full resolution fits in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap.formats.large.slides import SlideImage
from hshap.formats.limits import refuse_large
from hshap.formats.ome_zarr import stage_affine
from hshap.formats.scan import STAGE, Scan

if TYPE_CHECKING:
    from pathlib import Path


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
