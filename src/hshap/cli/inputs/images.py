"""Images from files, read by pillow: checked before they are unpacked, resized only on request."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap.cli.faults import Code, Refusal, brief
from hshap.errors import require

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from numpy.typing import NDArray
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

    from hshap._util.types import Untyped
    from hshap.cli.inputs.formats import Format

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"),
    *(".ppm", ".pgm", ".pnm", ".jp2"),
)
MAX_PIXELS = 100_000_000
DEEP = {"I;16": 65535.0, "I;16B": 65535.0, "I;16L": 65535.0, "I;16N": 65535.0}


@dataclass(frozen=True)
class Reader:
    """How images are read: the format of the model, and the limits."""

    format: Format
    resize: bool = False
    max_pixels: int = MAX_PIXELS
    frame: int | None = None


@dataclass(frozen=True)
class Picture:
    """A grey or RGB image `(channels, height, width)` from 0 (black) to 1 (white)."""

    path: Path
    pixels: NDArray[np.float32]
    resized_from: tuple[int, int] | None = None
    note: str = ""

    def bytes(self) -> NDArray[np.uint8]:
        """Return the image in 8 bits, for display."""
        return np.rint(np.clip(self.pixels, 0, 1) * 255).astype(np.uint8)


def find(paths: Iterable[Path]) -> list[Path]:
    """Return the given files, and the images in given folders sorted by name."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            found.append(path)
            continue
        inside = sorted(
            file
            for file in _listed(path)
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
        )
        if not inside:
            message = f"{path} holds no images ({', '.join(SUFFIXES)}); pass another folder"
            raise Refusal(Code.INPUT, message)
        found += inside
    return list(dict.fromkeys(found))


def read(path: Path, reader: Reader, *, needed_by: str = "the model takes") -> Picture:
    """Read an image; a refusal names the file, the reason and the fix."""
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    with _own_limit(pillow), _opened(pillow, path) as image:
        height, width = image.height, image.width
        if height * width > reader.max_pixels:
            message = (
                f"{path} has {width} x {height} = {width * height} pixels, more than "
                f"{reader.max_pixels}; if you trust it, pass --max-pixels {width * height}"
            )
            raise Refusal(Code.INPUT, message)
        _seek(image, path, reader.frame)
        cut = _is_cut(image)
        if cut and reader.format.white is not None:
            message = (
                f"{path} has 16-bit colour, which is read at 8 bits, so white={reader.format.white}"
                " does not apply; convert it to 8 bits first"
            )
            raise Refusal(Code.INPUT, message)
        with _whole(path):
            image.load()
        plain, white = _plain(pillow, image, path, reader.format)
        size, resized_from = reader.format.size, None
        if size is not None and size != (height, width):
            if not reader.resize:
                message = (
                    f"{path} is {height} x {width} (height x width), but {needed_by} "
                    f"{size[0]} x {size[1]}; pass --resize to take it at that size"
                )
                raise Refusal(Code.MODEL, message)
            plain = plain.resize((size[1], size[0]), pillow.Resampling.BILINEAR)
            resized_from = (height, width)
    note = "16-bit colour was read at 8 bits" if cut else ""
    pixels = _pixels(plain, white, path)
    if len(pixels) < reader.format.count:
        pixels = np.repeat(pixels, reader.format.count, axis=0)
    return Picture(path, pixels, resized_from, note)


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError as error:
        message = f"{path} cannot be listed ({error.strerror}); pass another folder"
        raise Refusal(Code.INPUT, message) from error


@contextmanager
def _own_limit(pillow: Untyped) -> Generator[None, None, None]:
    """Switch off the limit of pillow: --max-pixels decides instead."""
    before, pillow.MAX_IMAGE_PIXELS = pillow.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        pillow.MAX_IMAGE_PIXELS = before


@contextmanager
def _opened(pillow: Untyped, path: Path) -> Generator[ImageFile, None, None]:
    try:
        image: ImageFile = pillow.open(path)
    except pillow.UnidentifiedImageError as error:
        message = f"{path} is not an image that can be read; pass {', '.join(SUFFIXES)}"
        raise Refusal(Code.INPUT, message) from error
    except OSError as error:
        message = f"{path} cannot be opened ({error.strerror or error}); pass an image or a folder"
        raise Refusal(Code.INPUT, message) from error
    except Exception as error:
        message = f"{path} is damaged ({brief(error)}); get a whole copy"
        raise Refusal(Code.INPUT, message) from error
    with image:
        yield image


def _seek(image: Image, path: Path, frame: int | None) -> None:
    with _whole(path):
        # Cameras store previews of a picture as further frames.
        frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    if frames > 1 and frame is None:
        message = f"{path} has {frames} frames; pass --frame 0 to {frames - 1} to take one"
        raise Refusal(Code.INPUT, message)
    if frame is not None and frame >= frames:
        message = f"{path} has no frame {frame}; pass --frame 0 to {frames - 1}"
        raise Refusal(Code.INPUT, message)
    if frame:
        with _whole(path):
            image.seek(frame)


@contextmanager
def _whole(path: Path) -> Generator[None, None, None]:
    """Turn any error of pillow into a refusal: the image is damaged."""
    try:
        yield
    except Exception as error:
        message = f"{path} is damaged or cut short ({brief(error)}); get a whole copy"
        raise Refusal(Code.INPUT, message) from error


def _is_cut(image: ImageFile) -> bool:
    """Tell whether pillow reads 16-bit colour at 8 bits: it has no mode for it."""
    return image.mode in ("RGB", "RGBA", "LA") and any(";16" in str(tile) for tile in image.tile)


def _plain(pillow: Untyped, image: Image, path: Path, wanted: Format) -> tuple[Image, float]:
    """Return an image in mode F, L or RGB, and its value of white."""
    white = wanted.white
    if image.mode in DEEP or image.mode in ("I", "F"):
        usual = DEEP.get(image.mode, 65535.0 if image.format == "PNG" else None)
        if white is None and usual is None:
            message = (
                f"{path} holds numbers ({'float' if image.mode == 'F' else 'whole'}, 32 bits) "
                "without a known white; pass --white with the value of a white pixel"
            )
            raise Refusal(Code.INPUT, message)
        # By way of an array: pillow cannot convert every mode of whole numbers to floats.
        values = np.asarray(image).astype(np.float32)
        return pillow.fromarray(values), float(white or usual or 1.0)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if np.asarray(image)[..., 3].min() < 255:
            message = f"{path} has transparent pixels; lay it on a background first"
            raise Refusal(Code.INPUT, message)
    return image.convert("L" if wanted.channels == "grey" else "RGB"), white or 255.0


def _pixels(image: Image, white: float, path: Path) -> NDArray[np.float32]:
    values = np.asarray(image, dtype=np.float32) / np.float32(white)
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
        message = (
            f"{path} has values from {values.min() * white:g} to {values.max() * white:g}, beyond "
            f"0 to {white:g}; pass --white with the value of a white pixel"
        )
        raise Refusal(Code.INPUT, message)
    return np.moveaxis(values, -1, 0).copy() if values.ndim == 3 else values[None]
