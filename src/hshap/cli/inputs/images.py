"""Images from files: checked before they are unpacked, resized only on request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.image_files.decoders import frame_of, refusing
from hshap.cli.inputs.image_files.pixel_size import pixel_size_of
from hshap.cli.inputs.image_files.planes import UPRIGHT, Wanted, colour_of, planes_of
from hshap.cli.inputs.scans import is_scan, pixel_size, read_slice, shown
from hshap.cli.output import say
from hshap.errors import require
from hshap.formats.large.ome_zarr import GROUP, is_zarr
from hshap.formats.listing import PICTURES, SCANS, elsewhere, is_large, listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray
    from PIL.Image import Image

    from hshap._util.types import Array, Untyped
    from hshap.cli.inputs.formats import Format
    from hshap.cli.inputs.image_files.pixel_size import PixelSize
    from hshap.cli.inputs.image_files.planes import Planes

MAX_PIXELS = 100_000_000


@dataclass(frozen=True)
class Reader:
    """How images are read: the format of the model, and the limits.

    Images are resized if `resize` says so, and those of the size `resize_from` always. `window` has
    the values of black and white in scans, instead of those that each file tells.
    """

    format: Format
    resize: bool = False
    max_pixels: int = MAX_PIXELS
    frame: int | None = None
    resize_from: tuple[int, int] | None = None
    background: str = "white"
    window: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        colour_of(self.background)  # a colour that is none is refused before any image is read


@dataclass(frozen=True)
class Picture:
    """A grey or RGB image `(channels, height, width)` from 0 (black) to 1 (white), upright.

    `resized_from` is the size of the upright image in the file, if it was resized. `notes` tell how
    the pixels differ from those in the file. `orientation` is the EXIF orientation by which it was
    turned upright; 1 if it was upright.
    """

    path: Path
    pixels: NDArray[np.float32]
    resized_from: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    orientation: int = UPRIGHT

    def bytes(self) -> NDArray[np.uint8]:
        """Return the image in 8 bits, for display."""
        return np.rint(np.clip(self.pixels, 0, 1) * 255).astype(np.uint8)


@dataclass(frozen=True)
class Original:
    """An image as its file has it, for display: upright, at its own size and depth.

    `pixels` are bytes in colour, or grey values of up to 16 bits as they are stored. `window` has
    the values of black and white, if they are known. `pixel_size` is None if the file does not tell
    it.
    """

    path: Path
    pixels: Array
    window: tuple[float, float] | None
    pixel_size: PixelSize | None

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.pixels.shape[1], self.pixels.shape[2]


def find(paths: Iterable[Path]) -> list[Path]:
    """Return the given files, and the images in given folders sorted by name.

    Large images of a folder are among them, and refused when they are read. Other files are told.
    """
    found: list[Path] = []
    for path in paths:
        if not is_folder(path):
            found.append(path)
            continue
        inside = _inside(path)
        if not inside and is_zarr(path):
            message = (
                f"{path} is an image in OME-Zarr; pass it to hshap tiles if it is one plane, to "
                "hshap exam if it is a volume"
            )
            raise Refusal(Code.INPUT, message)
        if not inside:
            kinds = ", ".join((*PICTURES, *SCANS))
            message = f"{path} holds no images ({kinds}); pass another folder"
            raise Refusal(Code.INPUT, message)
        found += inside
    return list(dict.fromkeys(found))


def _inside(folder: Path) -> list[Path]:
    """Return the images in a folder, large ones too; say how many entries are none."""
    images: list[Path] = []
    rest: list[str] = []
    for entry in _listed(folder):
        if is_folder(entry):
            rest.append(f"{entry.name}/{GROUP[0] if is_zarr(entry) else ''}")
        # Pipes and broken links too: they are told as problems when they are read.
        elif not entry.name.startswith(".") and is_image(entry):
            images.append(entry)
        else:
            rest.append(entry.name)
    left = listed(() if is_zarr(folder) else rest, ())
    found = sorted([*images, *(folder / name for name in left.large)])
    if found and left.others:
        say(left.told(str(folder)))
    return found


def is_image(file: Path) -> bool:
    """Tell whether a file is a picture or a scan, by its name, or by its content without ending."""
    return file.suffix.lower() in PICTURES or is_scan(file)


def read(path: Path, reader: Reader, *, needed_by: str = "the model takes") -> Picture:
    """Read an image; a refusal names the file, the reason and the fix."""
    if is_large(path.name) or (is_folder(path) and is_zarr(path)):
        raise Refusal(Code.INPUT, elsewhere(str(path)))
    if is_scan(path):
        return _read_scan(path, reader, needed_by)
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    wanted = Wanted(reader.format.channels == "grey", reader.format.white, reader.background)
    size = reader.format.size
    with frame_of(path, reader.frame, reader.max_pixels) as image:
        # Before it is unpacked, unless it may have to be turned upright.
        if image.format != "TIFF" and size != (image.width, image.height):
            _check_size(path, (image.height, image.width), reader, needed_by)
        images, white, notes, orientation = planes_of(image, path, reader.frame or 0, wanted)
    own = images[0].height, images[0].width
    with refusing(path):
        if size is not None and size != own:
            _check_size(path, own, reader, needed_by)
            to = (size[1], size[0]), pillow.Resampling.BILINEAR
            images = tuple(each.resize(*to) for each in images)
        pixels = np.concatenate([_pixels(each, white, path) for each in images])
        if len(pixels) < reader.format.count:
            pixels = np.repeat(pixels, reader.format.count, axis=0)
    return Picture(path, pixels, None if size in (None, own) else own, notes, orientation)


def _read_scan(path: Path, reader: Reader, needed_by: str) -> Picture:
    """Read a slice of a scan, as its window shows it; its values keep their depth."""
    scan = read_slice(path, reader.frame, reader.max_pixels)
    grey = reader.format.channels == "grey"
    pixels, note = shown(scan, reader.format.white, grey=grey, window=reader.window)
    own, size = (pixels.shape[1], pixels.shape[2]), reader.format.size
    pixels = planes_at_size(path, pixels, reader, needed_by)
    if len(pixels) < reader.format.count:
        pixels = np.repeat(pixels, reader.format.count, axis=0)
    return Picture(path, pixels, None if size in (None, own) else own, (note,))


def planes_at_size(
    path: Path, planes: NDArray[np.float32], reader: Reader, needed_by: str = "the model takes"
) -> NDArray[np.float32]:
    """Return planes `(n, height, width)` at the size that is needed; resized only on request."""
    own, size = (planes.shape[1], planes.shape[2]), reader.format.size
    if size is None or size == own:
        return planes
    _check_size(path, own, reader, needed_by)
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="resizing images")
    to = (size[1], size[0]), pillow.Resampling.BILINEAR
    resized = [np.asarray(pillow.fromarray(plane).resize(*to)) for plane in planes]
    return np.clip(np.stack(resized), 0, 1)


def read_original(path: Path, reader: Reader) -> Original:
    """Read an image at its own size and depth, for display; a refusal names the file."""
    if is_scan(path):
        scan = read_slice(path, reader.frame, reader.max_pixels)
        pixels, _ = shown(scan, reader.format.white, grey=False)
        if len(pixels) == 3:
            return Original(path, _bytes(pixels, 1.0), None, pixel_size(scan))
        # 16 bits keep the levels of the window; the page moves it from there.
        deep = np.rint(pixels * 65535).astype(np.uint16)
        return Original(path, deep, (0.0, 65535.0), pixel_size(scan))
    wanted = Wanted(None, reader.format.white, reader.background)
    with frame_of(path, reader.frame, reader.max_pixels) as image:
        made = planes_of(image, path, reader.frame or 0, wanted)
        size = pixel_size_of(image)
    with refusing(path):
        pixels = _displayed(made)
    window = None if reader.format.white is None else (0.0, made.white)
    return Original(path, pixels, window, size.turned if size and made.is_sideways else size)


def _displayed(made: Planes) -> Array:
    """Return grey values as they are stored, or colours in bytes, `(channels, height, width)`."""
    if len(made.images) == 3:
        planes = [_bytes(np.asarray(each), made.white) for each in made.images]
        return np.stack(planes)
    values = np.asarray(made.images[0])
    if values.ndim == 3:
        return np.moveaxis(values if made.white == 255 else _bytes(values, made.white), -1, 0)
    if values.dtype == np.float32:
        deep = values.astype(np.uint16) if values.min() >= 0 and values.max() < 2**16 else None
        values = deep if deep is not None and np.array_equal(deep, values) else values
    return values[None]


def _bytes(values: Array, white: float) -> NDArray[np.uint8]:
    scaled = values * np.float32(255 / white)
    return np.rint(np.clip(scaled, 0, 255, out=scaled), out=scaled).astype(np.uint8)


def _check_size(path: Path, own: tuple[int, int], reader: Reader, needed_by: str) -> None:
    """Refuse an image of another size than is needed, unless it may be resized to that size."""
    size = reader.format.size
    if size is None or size == own:
        return
    if not reader.resize and reader.resize_from != own:
        message = (
            f"{path} is {own[0]} x {own[1]} (height x width), but {needed_by} "
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
