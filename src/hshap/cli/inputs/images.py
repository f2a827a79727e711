"""Images from files, with pillow: checked before they are unpacked, never changed unasked."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap.cli.faults import Code, Refusal, brief
from hshap.errors import require

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from numpy.typing import NDArray

    from hshap.cli.inputs.formats import Format

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp"),
    *(".ppm", ".pgm", ".pnm", ".jp2"),
)
MAX_PIXELS = 100_000_000
DEEP = {"I;16": 65535.0, "I;16B": 65535.0, "I;16L": 65535.0, "I;16N": 65535.0}


@dataclass(frozen=True)
class Reader:
    """How images are read: their format, and what is allowed."""

    format: Format
    resize: bool = False
    max_pixels: int = MAX_PIXELS
    frame: int | None = None


@dataclass(frozen=True)
class Picture:
    """An image of 0 (black) to 1 (white), `(channels, height, width)`, grey or RGB."""

    path: Path
    pixels: NDArray[np.float32]
    resized_from: tuple[int, int] | None = None
    note: str = ""

    def bytes(self) -> NDArray[np.uint8]:
        """Return the image in 8 bits, to be shown."""
        return np.rint(np.clip(self.pixels, 0, 1) * 255).astype(np.uint8)


def find(paths: Iterable[Path]) -> list[Path]:
    """Return the image files that are given, and those in folders that are, in order of name."""
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


def read(path: Path, reader: Reader, *, what: str = "the model takes") -> Picture:
    """Read an image, or say why it cannot be."""
    require("PIL", extra="cli", needed_by="reading images")
    from PIL import Image  # noqa: PLC0415, an optional dependency

    with _own_limit(Image), _opened(Image, path) as image:
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
        plain, white = _plain(image, path, reader.format)
        size, resized_from = reader.format.size, None
        if size is not None and size != (height, width):
            if not reader.resize:
                message = (
                    f"{path} is {height} x {width} (height x width), but {what} "
                    f"{size[0]} x {size[1]}; pass --resize to take it at that size"
                )
                raise Refusal(Code.MODEL, message)
            plain = plain.resize(size[::-1], Image.Resampling.BILINEAR)
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
def _own_limit(module: Any) -> Generator[None, None, None]:
    """Let our own limit decide, which the user can move, instead of pillow's."""
    before, module.MAX_IMAGE_PIXELS = module.MAX_IMAGE_PIXELS, None
    try:
        yield
    finally:
        module.MAX_IMAGE_PIXELS = before


@contextmanager
def _opened(module: Any, path: Path) -> Generator[Any, None, None]:
    try:
        image = module.open(path)
    except module.UnidentifiedImageError as error:
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


def _seek(image: Any, path: Path, frame: int | None) -> None:
    with _whole(path):
        # Cameras add previews to their pictures as further frames; those are never meant.
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
    """Say that an image is damaged where pillow cannot read on."""
    try:
        yield
    except Exception as error:
        message = f"{path} is damaged or cut short ({brief(error)}); get a whole copy"
        raise Refusal(Code.INPUT, message) from error


def _is_cut(image: Any) -> bool:
    """Tell whether pillow drops half of each value: it has no mode for 16-bit colour."""
    return image.mode in ("RGB", "RGBA", "LA") and any(";16" in str(tile) for tile in image.tile)


def _plain(image: Any, path: Path, wanted: Format) -> tuple[Any, float]:
    """Return an image of one kind of pixel, and the value of white in it."""
    white = wanted.white
    if image.mode in DEEP or image.mode in ("I", "F"):
        usual = DEEP.get(image.mode, 65535.0 if image.format == "PNG" else None)
        if white is None and usual is None:
            message = (
                f"{path} holds numbers ({'float' if image.mode == 'F' else 'whole'}, 32 bits) "
                "without a known white; pass --white with the value of a white pixel"
            )
            raise Refusal(Code.INPUT, message)
        values = np.asarray(image).astype(np.float32)
        from PIL import Image  # noqa: PLC0415, an optional dependency

        return Image.fromarray(values), float(white or usual or 1.0)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getextrema()[3][0] < 255:
            message = f"{path} has transparent pixels; lay it on a background first"
            raise Refusal(Code.INPUT, message)
    return image.convert("L" if wanted.channels == "grey" else "RGB"), white or 255.0


def _pixels(image: Any, white: float, path: Path) -> NDArray[np.float32]:
    values = np.asarray(image, dtype=np.float32) / np.float32(white)
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
        message = (
            f"{path} has values from {values.min() * white:g} to {values.max() * white:g}, beyond "
            f"0 to {white:g}; pass --white with the value of a white pixel"
        )
        raise Refusal(Code.INPUT, message)
    return np.moveaxis(values, -1, 0).copy() if values.ndim == 3 else values[None]
