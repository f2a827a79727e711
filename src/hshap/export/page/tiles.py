"""The tiles of an image: squares at full resolution, and at a half, a quarter and so on.

The page loads only the tiles that are in sight, so an image may be larger than a browser can decode
at once. A volume is stored in slabs of planes.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.raster import png

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from hshap._util.types import Grid
    from hshap.export.page.picture import Shown

    Pixels = NDArray[np.uint8] | NDArray[np.uint16]

TILE = 1024
"""The side of a tile, in pixels."""

SLAB = 2**22
"""The pixels of a slab of planes, at most, if it has more than one."""

THUMB = 256
"""The longest side of the small picture in the gallery."""

LARGE = 2**24
"""Images of more pixels are compressed less, which is five times as fast."""


def levels_of(shown: Shown) -> list[list[int]]:
    """Return height and width of each level, the full one first; one for a volume."""
    if shown.is_volume:
        return [list(shown.pixels.shape)]
    return sizes_of(shown.pixels.shape[:2])


def sizes_of(size: Grid) -> list[list[int]]:
    """Return height and width of each level of a picture, the full one first.

    >>> sizes_of((3000, 1000))
    [[3000, 1000], [1500, 500], [750, 250]]
    """
    sizes = [list(size)]
    while max(sizes[-1]) > TILE:
        sizes.append([-(-side // 2) for side in sizes[-1]])
    return sizes


def tiles(shown: Shown) -> Iterator[tuple[str, bytes]]:
    """Yield the name of each tile, level-row-column, and its bytes; slabs of a volume in order."""
    pixels = shown.pixels
    effort = 1 if pixels.size > LARGE else 6
    if shown.is_volume:
        planes = max(1, SLAB // pixels[0].size)
        for number, start in enumerate(range(0, len(pixels), planes)):
            slab = pixels[start : start + planes]
            yield f"slab-{number}", encoded(slab.reshape(-1, slab.shape[-1]), effort)
        return
    for level in range(len(levels_of(shown))):
        pixels = halved(pixels) if level else pixels
        for row in range(0, pixels.shape[0], TILE):
            for column in range(0, pixels.shape[1], TILE):
                tile = pixels[row : row + TILE, column : column + TILE]
                data = (
                    png(np.ascontiguousarray(cast("NDArray[np.uint8]", tile)), effort=effort)
                    if shown.is_colour
                    else encoded(tile, effort)
                )
                yield f"{level}-{row // TILE}-{column // TILE}", data


def thumb(shown: Shown) -> bytes:
    """Return a small picture as a PNG file; the middle plane of a volume."""
    pixels = shown.pixels
    if shown.is_volume:
        pixels = pixels[len(pixels) // 2]
    # Whole steps first, since the mean of a large image takes long.
    step = max(1, max(pixels.shape[:2]) // (4 * THUMB))
    pixels = pixels[::step, ::step]
    while max(pixels.shape[:2]) > THUMB:
        pixels = halved(pixels)
    small = replace(shown, pixels=pixels)
    return png(np.ascontiguousarray(small.as_bytes()))


def halved(pixels: Pixels) -> Pixels:
    """Return the picture at half its size, the mean of four pixels each.

    >>> halved(np.array([[0, 2, 9], [4, 6, 9]], np.uint8))
    array([[3, 9]], dtype=uint8)
    """
    height, width = pixels.shape[:2]
    out = np.empty((-(-height // 2), -(-width // 2), *pixels.shape[2:]), pixels.dtype)
    # In bands, since the sums need four times the memory.
    for top in range(0, height, TILE):
        band = pixels[top : top + TILE]
        pad = [(0, len(band) % 2), (0, width % 2), *[(0, 0)] * (pixels.ndim - 2)]
        band = np.pad(band, pad, mode="edge").astype(np.uint32)
        total = band[::2, ::2] + band[1::2, ::2] + band[::2, 1::2] + band[1::2, 1::2]
        out[top // 2 : top // 2 + len(total)] = (total + 2) // 4
    return cast("Pixels", out)


def encoded(plane: Pixels, effort: int = 6) -> bytes:
    """Return grey values as compressed differences along each line; high bytes before low ones.

    Browsers cut PNG files of 16 bits to eight.
    """
    steps = plane.copy()
    steps[:, 1:] -= plane[:, :-1]
    if steps.dtype == np.uint8:
        return zlib.compress(steps.tobytes(), effort)
    split = np.stack([steps >> 8, steps & 255]).astype(np.uint8)
    return zlib.compress(split.tobytes(), effort)
