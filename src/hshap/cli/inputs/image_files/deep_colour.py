"""16-bit colour, for which pillow has no mode: the decoders of imagecodecs, for PNG and TIFF.

The sizes that a file announces were checked before; both decoders take memory for these alone.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hshap.cli.inputs.files import LimitedFile
from hshap.cli.inputs.image_files import jpeg2000
from hshap.cli.inputs.image_files.announced import expect
from hshap.errors import require

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.ImageFile import ImageFile

    from hshap._util.types import Untyped

WHITE = 65535
NEEDED_BY = "reading 16-bit colour"
COLOUR_MODES = ("RGB", "RGBA", "RGBX", "RGBa", "LA", "CMYK")

# Tags of TIFF.
BITS, PHOTOMETRIC, SAMPLES, EXTRA, FORMAT, DEPTH = 258, 262, 277, 338, 339, 32997
RGB, PREMULTIPLIED, STRAIGHT = 2, 1, 2


class Deep(NamedTuple):
    """Samples `(height, width, 1 or 3)` as they are stored, and the opacity from 0 to 1, if any."""

    samples: NDArray[np.float32]
    alpha: NDArray[np.float32] | None
    premultiplied: bool = False


def is_deep(image: ImageFile) -> bool:
    """Tell whether a file has colour of 16 bits that `read_deep` can read."""
    if image.format == "PNG":
        return _has_deep_tile(image)
    tags: Untyped = getattr(image, "tag_v2", None)
    if tags is None:
        return False
    return (
        tags.get(PHOTOMETRIC) == RGB
        and tags.get(SAMPLES) in (3, 4)
        and set(tags.get(BITS, ())) == {16}
        and set(tags.get(FORMAT, (1,))) == {1}
        and tags.get(DEPTH, 1) == 1
    )


def is_cut(image: ImageFile) -> bool:
    """Tell whether pillow reads colour of more than 8 bits at 8 bits."""
    if image.format == "PPM":  # the decoder is told the largest value
        arguments = image.tile[0][3] if image.tile else ()
        return image.mode == "RGB" and isinstance(arguments, tuple) and max(arguments[1:]) > 255
    if image.format == "JPEG2000" and image.fp is not None:
        place = image.fp.tell()
        depth = jpeg2000.bits(image.fp)
        image.fp.seek(place)
        return image.mode in COLOUR_MODES and depth > 8
    bits: tuple[int, ...] = getattr(image, "tag_v2", {}).get(BITS, ())
    return image.mode in COLOUR_MODES and (_has_deep_tile(image) or max(bits, default=8) > 8)


def read_deep(image: ImageFile, frame: int) -> Deep:
    """Read 16-bit colour; any fault of the file is an exception."""
    codecs = require("imagecodecs", extra="cli", needed_by=NEEDED_BY)
    file = cast("LimitedFile", image.fp)
    file.allow()
    file.seek(0)
    tags: Untyped = getattr(image, "tag_v2", None)
    if tags is None:
        samples = codecs.png_decode(_png(file.read(), image.size))
        return _split(samples, STRAIGHT, image.info.get("transparency"))
    samples = codecs.tiff_decode(file.read(), index=frame)
    count = tags.get(SAMPLES)
    if samples.ndim == 3 and samples.shape[0] == count and samples.shape[2] != count:
        samples = np.moveaxis(samples, 0, -1)  # one plane after another
    return _split(samples, next(iter(tags.get(EXTRA, (0,))), 0), None)


def _has_deep_tile(image: ImageFile) -> bool:
    return image.mode in COLOUR_MODES and any(";16" in str(tile) for tile in image.tile)


def _png(data: bytes, size: tuple[int, int]) -> bytes:
    """Return a PNG with its pixels alone: texts, profiles and others reach no second decoder."""
    kept, at = [data[:8]], 8
    while at + 12 <= len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        end = at + 12 + length
        expect(end <= len(data), "it is cut short")
        if kind == b"IHDR":
            expect(struct.unpack(">II", data[at + 8 : at + 16]) == size, "it has two sizes")
        if kind in (b"IHDR", b"IDAT", b"IEND"):
            kept.append(data[at:end])
        if kind == b"IEND":
            return b"".join(kept)
        at = end
    expect(condition=False, fault="it is cut short")
    return b""


def _split(samples: NDArray[np.uint16], extra: int, key: object) -> Deep:
    """Separate colour and opacity; pixels of the colour `key` are transparent."""
    expect(samples.dtype == np.uint16 and samples.ndim == 3, "its samples are not of 16 bits")
    count = samples.shape[2]
    colour = samples[..., : 1 if count < 3 else 3]
    alpha = None
    if count in (2, 4) and extra in (PREMULTIPLIED, STRAIGHT):
        alpha = samples[..., -1].astype(np.float32) / np.float32(WHITE)
    elif isinstance(key, tuple):
        alpha = (colour != np.array(key, dtype=np.uint16)).any(axis=-1).astype(np.float32)
    return Deep(colour.astype(np.float32), alpha, extra == PREMULTIPLIED)
