"""Pictures: PNG, JPEG, BMP, GIF, TIFF, WebP, PPM and JPEG 2000, upright and without transparency.

pillow reads them, but for colour of 16 bits, which is read by imagecodecs. A picture keeps its
depth. Nothing here limits the memory or time that a decoder takes for a file made to attack: the
command line reads pictures of strangers in a sandbox.
"""

from __future__ import annotations

import importlib
import io
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.errors import ArgumentError, FormatError, HshapError, require
from hshap.formats.lengths import described_sizes
from hshap.formats.listing import PICTURES
from hshap.formats.scan import UPRIGHT, Scan

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

    from hshap._util.types import Array, Untyped

PLUGINS = {
    "PNG": "Png",
    "JPEG": "Jpeg",
    "BMP": "Bmp",
    "GIF": "Gif",
    "TIFF": "Tiff",
    "WEBP": "WebP",
    "PPM": "Ppm",
    "JPEG2000": "Jpeg2K",
}
"""The formats that are read, and the modules of pillow that read them; no other sees a file."""

KINDS = frozenset([*(name.lower() for name in PLUGINS), "mpo"])
"""The format of a `Scan` that is a picture; MPO are JPEG of cameras."""

MOST_PIXELS = 2**28
ORIENTATION = 0x0112
LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in grey, as pillow has them."""

TURNED = "turned upright, as the EXIF orientation says; boxes and maps are in upright pixels"
CUT = "16-bit colour was read at 8 bits"
GREY_MODES = ("1", "L", "LA", "La")
COLOUR_MODES = ("RGB", "RGBA", "RGBX", "RGBa", "LA", "CMYK")
WHITE = 65535.0
"""White of 16 bits."""

CODESTREAM, FIRST_DEPTH = b"\xff\x4f\xff\x51", 42
"""The start of a codestream of JPEG 2000, and the bytes from there to its first depth."""

PNG_END = b"IEND\xaeB`\x82"

# Tags of TIFF.
BITS, PHOTOMETRIC, DESCRIPTION, SAMPLES, EXTRA, FORMAT = 258, 262, 270, 277, 338, 339
RESOLUTIONS = {"X": 282, "Y": 283}
RGB, PREMULTIPLIED, STRAIGHT = 2, 1, 2


@dataclass(frozen=True)
class PictureOptions:
    """How pictures are read: the frame, the largest size, and what has no place in a picture.

    Transparent pixels are laid on the `background`. `white` is the value of a white pixel, instead
    of that of the depth; numbers of 32 bits have no other.
    """

    frame: int | None = None
    max_pixels: int = MOST_PIXELS
    white: float | None = None
    background: str = "white"

    @property
    def behind(self) -> tuple[int, int, int]:
        """Red, green and blue of the background."""
        return colour_of(self.background)

    @property
    def is_on_grey(self) -> bool:
        """Tell whether the background is a grey."""
        return len(set(self.behind)) == 1

    @property
    def note(self) -> str:
        """A note on an image with transparent pixels."""
        return (
            f"transparent pixels are laid on {self.background}; --background takes another colour"
        )


class Decoded(NamedTuple):
    """Values `(channels, height, width)`, grey or RGB, the value of white if known, and notes."""

    values: Array
    white: float | None
    notes: tuple[str, ...] = ()


def read_picture(data: bytes, name: str, options: PictureOptions) -> Scan:
    """Read the content of an image file; `name` is that of the file, for messages.

    Faults of the file are a `FormatError`. Numbers of 32 bits have no window without a white.
    """
    if not data:
        raise FormatError(f"{name} is empty; get a whole copy of the image")
    with _reporting(name), _open(data) as image:
        if image.format != "TIFF":  # its pages have sizes of their own
            _check_pixels(name, image, options.max_pixels)
        description = _description(image)
        _seek(name, image, options)
        tags: Untyped = getattr(image, "tag_v2", {})
        sizes = described_sizes(description, {a: tags.get(tag) for a, tag in RESOLUTIONS.items()})
        is_tiff, is_turned = image.format == "TIFF", False
        orientation = _orientation(image) if is_tiff else UPRIGHT
        if _is_deep(image):
            made = _decode_deep(image, data, options)
        else:
            made = _decode(image, data, name, options)
            is_turned = is_tiff  # by pillow
        if not is_tiff:  # a PNG may tell its orientation behind its pixels
            orientation = _orientation(image)
        spacing = (sizes["Y"], sizes["X"]) if {"X", "Y"} <= sizes.keys() else None
        scan = Scan(
            made.values,
            axes="CYX",
            name=PurePath(name).name,
            format=str(image.format).lower(),
            spacing=spacing,
            window=None if made.white is None else (0.0, made.white),
            notes=made.notes,
        )
    return _turn_upright(scan, orientation, is_turned=is_turned)


def colour_of(text: str) -> tuple[int, int, int]:
    """Return red, green and blue of a colour such as white, #808080 or rgb(0,0,0)."""
    colours: Untyped = require("PIL.ImageColor", extra="cli", needed_by="reading images")
    found = ()
    with suppress(ValueError):
        found = colours.getrgb(text)
    if len(found) != 3:
        message = f"background {text} is not a colour; pass one such as white, black or #808080"
        raise ArgumentError(message)
    return found


def to_grey(values: Array) -> Array:
    """Return the luma `(1, ...)` of colours `(3, ...)`; bytes stay bytes, rounded as by pillow.

    >>> to_grey(np.array([[255], [0], [0]], np.uint8)).tolist()
    [[76]]
    """
    if len(values) != 3:
        return values
    if values.dtype == np.uint8:
        red, green, blue = values.astype(np.uint32)
        mixed = red * 19595 + green * 38470 + blue * 7471 + 0x8000
        return (mixed >> 16).astype(np.uint8)[None]
    return np.tensordot(np.array(LUMINANCE, np.float32), values.astype(np.float32), 1)[None]


@contextmanager
def _reporting(name: str) -> Generator[None]:
    """Turn every exception of a decoder into one line that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except HshapError:
        raise
    except MemoryError:
        message = f"{name} takes more memory than there is; pass a smaller image"
        raise FormatError(message) from None
    # Any: the decoders raise a dozen classes for a damaged file.
    except Exception as error:
        if type(error).__name__ == "UnidentifiedImageError":
            message = f"{name} is not an image that can be read; pass {', '.join(PICTURES)}"
            raise FormatError(message) from None
        text = " ".join(str(error).split())[:300]
        reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
        message = f"{name} is damaged or cut short ({reason}); get a whole copy"
        raise FormatError(message) from error


def _open(data: bytes) -> ImageFile:
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    for module in PLUGINS.values():  # else pillow would import those of all formats
        importlib.import_module(f"PIL.{module}ImagePlugin")
    return pillow.open(io.BytesIO(data), formats=tuple(PLUGINS))


def _check_pixels(name: str, image: Image, most: int) -> None:
    width, height = image.size
    if width * height > most:
        message = (
            f"{name} has {width} x {height} = {width * height} pixels, more than {most}; if you "
            f"trust it, pass --max-pixels {width * height}, or use hshap tiles (open_image)"
        )
        raise FormatError(message)


def _seek(name: str, image: ImageFile, options: PictureOptions) -> None:
    frame = options.frame
    # Cameras store previews of a picture as further frames.
    several = image.format != "MPO" and getattr(image, "is_animated", False)
    if frame is None and several:
        raise FormatError(f"{name} has {_count(image)} to take one")
    if frame and not several:
        raise FormatError(f"{name} has no frame {frame}; pass --frame 0")
    # Counted before a page that is not there is looked for, which pillow would count, too.
    count = _count(image) if frame else ""
    # Pages of a TIFF are read by themselves; other frames are painted one over the other.
    steps = [frame or 0] if image.format == "TIFF" else range(1, (frame or 0) + 1)
    for step in steps:
        try:
            image.seek(step)
        except EOFError:
            raise FormatError(f"{name} has no frame {frame}: it has {count}") from None
        _check_pixels(name, image, options.max_pixels)
    if not steps:
        _check_pixels(name, image, options.max_pixels)


def _count(image: ImageFile) -> str:
    """Return the number of frames, and how to take one."""
    count = int(getattr(image, "n_frames", 1))
    return f"{count} frames; pass --frame 0 to {count - 1} (frame in Python)"


def _description(image: ImageFile) -> str:
    """Return the description of a TIFF: that of its first page."""
    text = str(getattr(image, "tag_v2", {}).get(DESCRIPTION, ""))
    with suppress(UnicodeError):  # OME-XML is UTF-8, and pillow reads all texts as Latin-1
        text = text.encode("latin-1").decode("utf-8")
    return text


def _orientation(image: ImageFile) -> int:
    """Return the EXIF orientation; 1, upright, if it cannot be read."""
    try:
        found = image.getexif().get(ORIENTATION, UPRIGHT)
    except Exception:  # noqa: BLE001, pillow raises many kinds for damaged tags
        return UPRIGHT
    return found if found in range(1, 9) else UPRIGHT


def _turn_upright(scan: Scan, orientation: int, *, is_turned: bool) -> Scan:
    """Return a picture turned by its EXIF orientation, unless its pixels are turned already."""
    if orientation == UPRIGHT:
        return scan
    array, spacing = scan.array, scan.spacing
    if orientation >= 5:
        spacing = None if spacing is None else spacing[::-1]
    if not is_turned:
        if orientation >= 5:
            array = array.swapaxes(1, 2)
        if orientation in {3, 4, 7, 8}:
            array = array[:, ::-1]
        if orientation in {2, 3, 6, 7}:
            array = array[:, :, ::-1]
    return replace(
        scan,
        array=np.ascontiguousarray(array),
        spacing=spacing,
        notes=(TURNED, *scan.notes),
        orientation=orientation,
    )


def _decode(image: ImageFile, data: bytes, name: str, options: PictureOptions) -> Decoded:
    """Decode a picture by pillow."""
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    is_cut = _is_cut(image, data)
    if is_cut and options.white is not None:
        message = (
            f"{name} has 16-bit colour, which is read at 8 bits, so white={options.white} does not "
            "apply; convert it to 16-bit PNG first"
        )
        raise FormatError(message)
    image.load()
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return _decode_numbers(image, options)
    notes = (CUT,) if is_cut else ()
    stays_grey = image.mode in GREY_MODES and options.is_on_grey
    flat: Image = image
    if image.has_transparency_data:
        flat = image.convert("RGBA")
        if np.asarray(flat)[..., 3].min() < 255:
            colour = pillow.new("RGBA", flat.size, (*options.behind, 255))
            flat = pillow.alpha_composite(colour, flat)
            notes = (*notes, options.note)
    pixels = np.array(flat.convert("L" if stays_grey else "RGB"))
    values = pixels[None] if stays_grey else np.ascontiguousarray(np.moveaxis(pixels, -1, 0))
    return Decoded(values, options.white or 255.0, notes)


def _decode_numbers(image: ImageFile, options: PictureOptions) -> Decoded:
    """Return grey values of 16 or 32 bits; those of the transparent value are the background's."""
    stored = np.asarray(image)
    values = stored.astype(stored.dtype.newbyteorder("="), copy=False)[None]
    has_white = image.mode.startswith("I;16") or image.format == "PNG"
    white = options.white or (WHITE if has_white else None)
    key = image.info.get("transparency")
    if not isinstance(key, int) or not (values == key).any():
        return Decoded(values, white)
    lit = np.float32(np.dot(options.behind, LUMINANCE) / 255 * (white or 1.0))
    mixed = np.where(values == key, lit, values.astype(np.float32))
    return Decoded(mixed, white, (options.note,))


def _is_deep(image: ImageFile) -> bool:
    """Tell whether a file has colour of 16 bits, for which pillow has no mode."""
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
    )


def _is_cut(image: ImageFile, data: bytes) -> bool:
    """Tell whether pillow reads colour of more than 8 bits at 8 bits."""
    if image.mode not in COLOUR_MODES:
        return False
    if image.format == "PPM":  # the decoder is told the largest value
        arguments = image.tile[0][3] if image.tile else ()
        return image.mode == "RGB" and isinstance(arguments, tuple) and max(arguments[1:]) > 255
    if image.format == "JPEG2000":
        at = data.find(CODESTREAM) + FIRST_DEPTH
        return data[at] % 128 + 1 > 8 if at < len(data) else False
    bits: tuple[int, ...] = getattr(image, "tag_v2", {}).get(BITS, ())
    return _has_deep_tile(image) or max(bits, default=8) > 8


def _has_deep_tile(image: ImageFile) -> bool:
    return image.mode in COLOUR_MODES and any(";16" in str(tile) for tile in image.tile)


def _decode_deep(image: ImageFile, data: bytes, options: PictureOptions) -> Decoded:
    """Decode 16-bit colour of PNG and TIFF by imagecodecs."""
    codecs: Untyped = require("imagecodecs", extra="cli", needed_by="reading 16-bit colour")
    tags: Untyped = getattr(image, "tag_v2", None)
    if tags is None:
        if PNG_END not in data:  # imagecodecs does without the last bytes
            raise ValueError("it has no end")
        samples, extra = codecs.png_decode(data), STRAIGHT
    else:
        samples = codecs.tiff_decode(data, index=options.frame or 0)
        extra, count = next(iter(tags.get(EXTRA, (0,))), 0), tags.get(SAMPLES)
        if samples.ndim == 3 and samples.shape[0] == count and samples.shape[2] != count:
            samples = np.moveaxis(samples, 0, -1)  # one plane after another
    if samples.dtype != np.uint16 or samples.ndim != 3:
        raise ValueError("its samples are not of 16 bits")
    count, white = samples.shape[2], options.white or WHITE
    colour: Array = np.moveaxis(samples[..., : 1 if count < 3 else 3], 2, 0)
    opacity = _opacity(samples, colour, extra, image.info.get("transparency"))
    if opacity is None or opacity.min() >= 1:
        return Decoded(np.ascontiguousarray(colour), white)
    behind = np.array(options.behind, np.float32) * np.float32(white / 255)
    if len(colour) == 1 and options.is_on_grey:
        behind = behind[:1]
    shown = 1 if extra == PREMULTIPLIED else opacity
    mixed = colour.astype(np.float32) * shown + behind[:, None, None] * (1 - opacity)
    return Decoded(mixed, white, (options.note,))


def _opacity(samples: Array, colour: Array, extra: int, key: object) -> NDArray[np.float32] | None:
    """Return the opacity from 0 to 1, if there is any; pixels of the colour `key` have none."""
    if samples.shape[2] in (2, 4) and extra in (PREMULTIPLIED, STRAIGHT):
        return samples[..., -1].astype(np.float32) / np.float32(WHITE)
    if isinstance(key, tuple):
        apart = colour != np.array(key, np.uint16)[:, None, None]
        return apart.any(axis=0).astype(np.float32)
    return None
