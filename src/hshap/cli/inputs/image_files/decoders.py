"""The decoders of pillow that a file may reach: those of the advertised formats and no others."""

from __future__ import annotations

import ctypes
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from hshap.cli.faults import Code, Refusal, brief
from hshap.cli.inputs.files import LimitedFile, TooMuchReadError, opened
from hshap.cli.inputs.image_files import announced, jpeg2000
from hshap.errors import require
from hshap.formats.listing import PICTURES

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from PIL.ImageFile import ImageFile

    from hshap._util.types import Untyped

FIX = "pass an image or a folder"
BYTES_PER_PIXEL = 16
"""No format takes more for a pixel, so that a limit on pixels is one on bytes too."""

SMALL_FILE = 64 * 2**20
READS = 100_000
"""A decoder reads a header in fewer steps; one that takes more is led through a maze."""

MOST_PASSES = 10
"""All frames before the one that is taken, or all scans of a JPEG, may have this many times the
pixels of the largest image that is allowed."""


class Decoder(NamedTuple):
    """The class of pillow that reads a format, and the first bytes of its files."""

    module: str
    name: str
    starts: tuple[bytes, ...]


# Not by `PIL.Image.open`: it would import and try every decoder, among them one that runs
# Ghostscript. Its check of the size comes after a decoder has taken memory.
DECODERS = {
    "PNG": Decoder("PngImagePlugin", "PngImageFile", (b"\x89PNG\r\n\x1a\n",)),
    "JPEG": Decoder("JpegImagePlugin", "jpeg_factory", (b"\xff\xd8\xff",)),
    "BMP": Decoder("BmpImagePlugin", "BmpImageFile", (b"BM",)),
    "GIF": Decoder("GifImagePlugin", "GifImageFile", (b"GIF87a", b"GIF89a")),
    "TIFF": Decoder("TiffImagePlugin", "TiffImageFile", (b"II*\0", b"MM\0*", b"II+\0")),
    "WEBP": Decoder("WebPImagePlugin", "WebPImageFile", (b"RIFF",)),
    "PPM": Decoder("PpmImagePlugin", "PpmImageFile", tuple(b"P%d" % kind for kind in range(1, 7))),
    "JPEG2000": Decoder(
        "Jpeg2KImagePlugin",
        "Jpeg2KImageFile",
        (b"\0\0\0\x0cjP  \r\n\x87\n", b"\xff\x4f\xff\x51"),
    ),
}
IN_PYTHON = ("PPM", "BMP")
"""Formats whose pixels pillow reads one by one, in time that grows with the file alone."""

PILLOW = Lock()


@contextmanager
def frame_of(path: Path, frame: int | None, max_pixels: int) -> Generator[ImageFile, None, None]:
    """Give the image in a file, at a frame, not unpacked yet and of at most `max_pixels` pixels.

    Every fault of the file is a refusal. Unpack the image with `unpack`, within the context.
    """
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    most = SMALL_FILE + BYTES_PER_PIXEL * max_pixels
    larger = "if you trust it, pass a larger --max-pixels"
    with opened(path, most=most, fix=FIX, larger=larger) as file, ExitStack() as stack:
        kind = _kind(file.read(16))
        if not file.size:
            raise Refusal(Code.INPUT, f"{path} is empty; get a whole copy of the image")
        if kind is None:
            message = f"{path} is not an image that can be read; pass {', '.join(PICTURES)}"
            raise Refusal(Code.INPUT, message)
        with refusing(path):
            file.allow(reads=READS + 10 * announced.MOST_PAGES, size=4 * file.size + 2**20)
            size = _announced_size(kind, file, frame or 0)
            _check_pixels(path, *size, max_pixels)
            _check_announced(kind, file, frame or 0, max_pixels)
            stack.enter_context(_limit_of_pillow(pillow, size[0] * size[1]))
            file.allow(reads=READS, size=4 * file.size + 2**20)
            file.seek(0)
            decoder = DECODERS[kind]
            module: Untyped = require(f"PIL.{decoder.module}", extra="cli", needed_by=kind)
            # Without the file's name, by which pillow would open it a second time.
            image: ImageFile = stack.enter_context(getattr(module, decoder.name)(file, ""))
            if kind != "TIFF":  # its pages have sizes of their own, and one alone is unpacked
                _check_pixels(path, *image.size, max_pixels)
            _seek(image, path, frame, max_pixels)
            _check_pixels(path, *image.size, max_pixels)
            if kind == "JPEG":
                _check_passes(announced.scans(file), image.size, max_pixels)
        yield image


def unpack(image: ImageFile, path: Path) -> None:
    """Unpack the pixels of an image that `frame_of` gave."""
    with refusing(path):
        if isinstance(image.fp, LimitedFile) and image.format not in IN_PYTHON:
            size = image.fp.size
            image.fp.allow(reads=READS + size // 1000, size=4 * size + SMALL_FILE)
        image.load()


@contextmanager
def refusing(path: Path) -> Generator[None, None, None]:
    """Turn every exception of a decoder into a refusal that names the file."""
    try:
        yield
    except Refusal:
        raise
    except announced.ImplausibleError as error:
        message = f"{path} is refused: {error}; convert it to PNG"
        raise Refusal(Code.INPUT, message) from error
    except TooMuchReadError as error:
        message = f"{path} is refused: it has far more parts than usual; convert it to PNG"
        raise Refusal(Code.INPUT, message) from error
    except MemoryError:
        message = f"{path} takes more memory than there is; pass a smaller image"
        raise Refusal(Code.INPUT, message) from None
    except Exception as error:
        message = f"{path} is damaged or cut short ({brief(error)}); get a whole copy"
        raise Refusal(Code.INPUT, message) from error


def _kind(start: bytes) -> str | None:
    """Return the format of a file by its first bytes; None if it is none that is advertised.

    >>> _kind(b"GIF89a..."), _kind(b"%!PS-Adobe-3.0 EPSF-3.0")
    ('GIF', None)
    """
    for kind, decoder in DECODERS.items():
        if start.startswith(decoder.starts) and (kind != "WEBP" or start[8:12] == b"WEBP"):
            return kind
    return None


def _announced_size(kind: str, file: LimitedFile, frame: int) -> tuple[int, int]:
    """Return the size of a frame, or 0 where the decoder tells it before it takes memory."""
    if kind == "WEBP":
        return announced.webp_size(file)
    return announced.tiff_page(file, frame).size if kind == "TIFF" else (0, 0)


def _check_announced(kind: str, file: LimitedFile, frame: int, max_pixels: int) -> None:
    if kind == "JPEG2000":
        jpeg2000.check(file)
    if kind == "TIFF":
        _silence_libtiff()
        announced.tiff_page(file, 0)  # pillow reads its tags before those of any other page
        page = announced.tiff_page(file, frame)
        wide, high = page.unit
        announced.expect(wide * high <= max_pixels, f"it has tiles of {wide} x {high} pixels")
        if announced.COMPRESSIONS[page.compression] == "JPEG":
            _check_passes(announced.scans(file), page.unit, max_pixels)


@cache
def _silence_libtiff() -> None:
    """Let libtiff not write to the terminal by itself: a refusal tells that a file is damaged."""
    core = require("PIL._imaging", extra="cli", needed_by="reading images")
    # Its name and place differ between systems; where it is not found, it writes a second line.
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(core.__file__).TIFFSetErrorHandler(None)


def _check_pixels(path: Path, width: int, height: int, max_pixels: int) -> None:
    if height * width > max_pixels:
        message = (
            f"{path} has {width} x {height} = {width * height} pixels, more than "
            f"{max_pixels}; if you trust it, pass --max-pixels {width * height}, or use hshap tiles"
        )
        raise Refusal(Code.INPUT, message)


def _check_passes(count: int, size: tuple[int, int], max_pixels: int) -> None:
    announced.expect(
        count * size[0] * size[1] <= MOST_PASSES * max_pixels,
        f"its {size[0]} x {size[1]} pixels are painted {count} times",
    )


@contextmanager
def _limit_of_pillow(pillow: Untyped, pixels: int) -> Generator[None, None, None]:
    """Let pillow read an image of this size, which is not beyond --max-pixels.

    Its limit is a global variable. It is raised, never removed, only for an image that needs it,
    and by one thread at a time.
    """
    with PILLOW:  # else another thread's raised limit could be seen, and be gone a moment later
        before = pillow.MAX_IMAGE_PIXELS
        if before is not None and pixels > before:
            pillow.MAX_IMAGE_PIXELS = pixels
            try:
                yield
            finally:
                pillow.MAX_IMAGE_PIXELS = before
            return
    yield


def _seek(image: ImageFile, path: Path, frame: int | None, max_pixels: int) -> None:
    # Cameras store previews of a picture as further frames.
    several = image.format != "MPO" and getattr(image, "is_animated", False)
    if frame is None:
        if several:
            message = f"{path} has {_told_frames(image)} to take one"
            raise Refusal(Code.INPUT, message)
        return
    if frame and not several:
        raise Refusal(Code.INPUT, f"{path} has no frame {frame}; pass --frame 0")
    if image.format == "TIFF":  # its frames are read by themselves
        steps = [frame]
    else:  # these are painted one over the other, and may grow
        _check_passes(frame + 1, image.size, max_pixels)
        steps = range(1, frame + 1)
    try:
        for step in steps:
            if isinstance(image.fp, LimitedFile):
                image.fp.allow(reads=READS + 200 * step)
            image.seek(step)
            _check_pixels(path, *image.size, max_pixels)
    except EOFError as error:
        message = f"{path} has no frame {frame}: it has {_told_frames(image)}"
        raise Refusal(Code.INPUT, message) from error


def _told_frames(image: ImageFile) -> str:
    """Return the number of frames, and how to take one; a file may have too many to count."""
    try:
        if image.format == "TIFF" and image.fp is not None:
            count = announced.tiff_count(image.fp)
        else:
            count = int(getattr(image, "n_frames", 1))
    except (announced.ImplausibleError, TooMuchReadError):
        return "very many frames; pass --frame 0"
    return f"{count} frames; pass --frame 0 to {count - 1}"
