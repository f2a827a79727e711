"""Images from files: checked before they are unpacked, resized only on request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.image_files.decoders import SUFFIXES, frame_of, refusing, unpack
from hshap.errors import require

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

    from hshap._util.types import Untyped
    from hshap.cli.inputs.formats import Format

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
        if not is_folder(path):
            found.append(path)
            continue
        # Pipes and broken links too: they are told as problems when they are read.
        inside = sorted(
            file
            for file in _listed(path)
            if file.suffix.lower() in SUFFIXES
            and not file.name.startswith(".")
            and not is_folder(file)
        )
        if not inside:
            message = f"{path} holds no images ({', '.join(SUFFIXES)}); pass another folder"
            raise Refusal(Code.INPUT, message)
        found += inside
    return list(dict.fromkeys(found))


def read(path: Path, reader: Reader, *, needed_by: str = "the model takes") -> Picture:
    """Read an image; a refusal names the file, the reason and the fix."""
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    with frame_of(path, reader.frame, reader.max_pixels) as image:
        cut = _is_cut(image)
        if cut and reader.format.white is not None:
            message = (
                f"{path} has 16-bit colour, which is read at 8 bits, so white={reader.format.white}"
                " does not apply; convert it to 8 bits first"
            )
            raise Refusal(Code.INPUT, message)
        if image.format != "TIFF":  # some versions of pillow turn it only while it is unpacked
            _check_size(path, image, reader, needed_by)
        unpack(image, path)
        with refusing(path):
            plain, white = _plain(pillow, image, path, reader.format)
    size, height, width = reader.format.size, plain.height, plain.width
    with refusing(path):
        if size is not None and size != (height, width):
            _check_size(path, plain, reader, needed_by)
            plain = plain.resize((size[1], size[0]), pillow.Resampling.BILINEAR)
        pixels = _pixels(plain, white, path)
        if len(pixels) < reader.format.count:
            pixels = np.repeat(pixels, reader.format.count, axis=0)
    resized_from = None if size in (None, (height, width)) else (height, width)
    return Picture(path, pixels, resized_from, "16-bit colour was read at 8 bits" if cut else "")


def _check_size(path: Path, image: Image, reader: Reader, needed_by: str) -> None:
    """Refuse an image of another size than is needed, unless it may be resized to that size."""
    size = reader.format.size
    if size is None or size == (image.height, image.width):
        return
    if not reader.resize:
        message = (
            f"{path} is {image.height} x {image.width} (height x width), but {needed_by} "
            f"{size[0]} x {size[1]}; pass --resize to take it at that size"
        )
        raise Refusal(Code.MODEL, message)
    pixels = size[0] * size[1]
    if pixels > reader.max_pixels:
        message = (
            f"{path} would be resized to {size[0]} x {size[1]} = {pixels} pixels, more than "
            f"{reader.max_pixels}; pass another --size, or --max-pixels {pixels}"
        )
        raise Refusal(Code.INPUT, message)


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder; a name that cannot be one is none."""
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that is too long; told when the file is read
        return False


def _listed(path: Path) -> list[Path]:
    try:
        return list(path.iterdir())
    except OSError as error:
        message = f"{path} cannot be listed ({error.strerror}); pass another folder"
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
    values = np.array(image, dtype=np.float32)
    values /= np.float32(white)
    if not (values.min() >= 0 and values.max() <= 1):  # also if one is not a number
        message = (
            f"{path} has values from {values.min() * white:g} to {values.max() * white:g}, beyond "
            f"0 to {white:g}; pass --white with the value of a white pixel"
        )
        raise Refusal(Code.INPUT, message)
    return np.moveaxis(values, -1, 0).copy() if values.ndim == 3 else values[None]
