"""Planes of numbers as pictures: PNG files, and shrinking that keeps single pixels."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from hshap._util.types import Array

GREY, COLOUR = 0, 2
"""Colour types of PNG."""

UP = 2
"""PNG filter: a line is stored as its difference from the line above, which compresses better."""


def png(
    pixels: NDArray[np.uint8], text: Mapping[str, str] | None = None, *, effort: int = -1
) -> bytes:
    r"""Encode bytes `(height, width, 3)`, or `(height, width)` in grey, as a PNG file.

    `text` is stored in the file under Latin-1 keywords. `effort` is zlib's level, 1 to 9.

    >>> png(np.zeros((2, 2), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    height, width = pixels.shape[:2]
    plain = pixels.reshape(height, -1)
    lines = np.full((height, 1 + plain.shape[1]), UP, np.uint8)
    lines[:, 1:] = plain
    lines[1:, 1:] -= plain[:-1]
    colour = COLOUR if pixels.ndim == 3 else GREY
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)),
        *((b"tEXt", f"{key}\0{value}".encode("latin-1")) for key, value in (text or {}).items()),
        (b"IDAT", zlib.compress(lines.tobytes(), effort)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def as_plane(heat: Array) -> Array:
    """Return a map as a plane: a signal as one line, a volume by its largest values."""
    if heat.ndim == 1:
        return heat[None]
    while heat.ndim > 2:
        # By magnitude, so that negative values are not lost behind zeros.
        places = np.abs(heat).argmax(axis=0)[None]
        heat = np.take_along_axis(heat, places, axis=0)[0]
    return heat


def largest_in_blocks(plane: Array, step: int) -> Array:
    """Shrink a map by `step`; each block shows its largest value by magnitude.

    >>> largest_in_blocks(np.array([[0, 0, 5, 0], [0, -1, 0, 0]]), 2)
    array([[-1,  5]])
    """
    if step == 1:
        return plane
    height, width = plane.shape
    padded = np.pad(plane, ((0, -height % step), (0, -width % step)))
    tiles = padded.reshape(padded.shape[0] // step, step, padded.shape[1] // step, step)
    return as_plane(np.moveaxis(tiles, (1, 3), (0, 1)))
