"""Images from files: read once in a sandbox, resized only on request, prepared for the model."""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, TYPE_CHECKING

import numpy as np

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.files import open_regular, size_of
from hshap.cli.inputs.sandbox import ProcessEndedError, Sandbox
from hshap.cli.inputs.scans import LARGEST_SCAN, is_scan, levels_of, read_slice
from hshap.cli.output import say
from hshap.errors import ArgumentError, FormatError, require
from hshap.formats.dicom.headers import starts_as_dicom
from hshap.formats.lengths import PixelSize, pixel_size
from hshap.formats.listing import PICTURES, SCANS, elsewhere, is_large, listed
from hshap.formats.ome_zarr import GROUP, is_zarr
from hshap.formats.pictures import KINDS, PictureOptions, colour_of, read_picture, to_grey
from hshap.formats.scan import UPRIGHT, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from hshap._util.types import Array, Grid, Untyped
    from hshap.cli.inputs.formats import Format
    from hshap.explanation.placement import Position

MAX_PIXELS = 100_000_000
SMALL_FILE = 64 * 2**20
BYTES_PER_PIXEL = 16
"""No format takes more for a pixel in a file, so that a limit on pixels is one on bytes too."""

MEMORY, MEMORY_PER_PIXEL = 2**28, 40
"""Bytes that reading a picture may take, and those for each pixel of the largest one."""

SECONDS, PIXELS_A_SECOND = 10.0, 10**6
"""Time limit to read a picture, and the pixels of the largest one that add a second to it."""

PADDING = 114
"""The grey of 0 to 255 around a letterboxed image, as detectors were trained with it."""

CROPPED = "the model sees the middle alone, cropped to its shape; --fit letterbox shows it all"


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
        try:  # a colour that is none is refused before any image is read
            colour_of(self.background)
        except ArgumentError as error:
            raise Refusal(Code.USAGE, f"--{error}") from error


@dataclass(frozen=True)
class Picture:
    """A grey or RGB image `(channels, height, width)` from 0 (black) to 1 (white), upright.

    `resized_from` is the size of the upright image in the file, if it was resized, and `seen` the
    positions from which to which the pixels reach there. `notes` tell how the pixels differ from
    those in the file. `orientation` is the EXIF orientation by which it was
    turned upright; 1 if it was upright.
    """

    path: Path
    pixels: NDArray[np.float32]
    resized_from: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    orientation: int = UPRIGHT
    seen: tuple[Position, Position] = ((), ())

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
    """Read an image as the model takes it; a refusal names the file, the reason and the fix."""
    return prepare(path, decode(path, reader), reader, needed_by=needed_by)


def read_original(path: Path, reader: Reader) -> Original:
    """Read an image at its own size and depth, for display; a refusal names the file."""
    return original_of(path, decode(path, reader), reader)


def decode(path: Path, reader: Reader) -> Scan:
    """Read a file once: a picture, or the slice of a scan that the reader names."""
    if is_large(path.name) or (is_folder(path) and is_zarr(path)):
        raise Refusal(Code.INPUT, elsewhere(str(path)))
    if is_scan(path):
        return read_slice(path, reader.frame, reader.max_pixels)
    with open_image(path, reader) as file:
        data = file.read(size_of(file))
    return decode_picture(data, str(path), reader)


def open_image(path: Path, reader: Reader) -> IO[bytes]:
    """Open the file of a picture or a scan; a refusal names it, also if it is too large to read."""
    fix = "pass an image or a folder"
    if is_scan(path):
        return open_regular(path, most=LARGEST_SCAN, fix=fix)
    most = SMALL_FILE + BYTES_PER_PIXEL * reader.max_pixels
    larger = "if you trust it, pass a larger --max-pixels"
    return open_regular(path, most=most, fix=fix, larger=larger)


def decode_bytes(data: bytes, name: str, reader: Reader) -> Scan:
    """Read the content of a file, as `decode` reads the file; a refusal begins with the name."""
    ending = next((one for one in SCANS if name.lower().endswith(one)), None)
    if ending is None and (PurePath(name).suffix or not starts_as_dicom(data)):
        return decode_picture(data, name, reader)
    with tempfile.TemporaryDirectory(prefix="hshap-") as folder:
        path = Path(folder, f"scan{ending or ''}")  # the libraries of scans want a file
        path.write_bytes(data)
        try:
            return read_slice(path, reader.frame, reader.max_pixels)
        except (Refusal, FormatError) as error:
            code = error.code if isinstance(error, Refusal) else Code.INPUT
            raise Refusal(code, str(error).replace(str(path), name)) from error


def decode_picture(data: bytes, name: str, reader: Reader) -> Scan:
    """Read the content of a picture in a sandbox; a refusal begins with the name."""
    most = reader.max_pixels
    options = PictureOptions(reader.frame, most, reader.format.white, reader.background)
    sandbox = _sandbox(MEMORY + MEMORY_PER_PIXEL * most)
    try:
        return sandbox.ask((data, name, options), seconds=SECONDS + most / PIXELS_A_SECOND)
    except ProcessEndedError as error:
        fix = "convert it to PNG, or pass a larger --max-pixels if you trust it"
        raise Refusal(Code.INPUT, f"{name} is refused: reading it {error}; {fix}") from error


def prepare(
    path: Path, scan: Scan, reader: Reader, *, needed_by: str = "the model takes"
) -> Picture:
    """Return an image that was read as the model takes it: its colours, and its size."""
    values, white, notes = scan.array, 1.0, scan.notes
    if scan.format in KINDS:
        white = _white(path, scan)
    else:
        values, note = levels_of(scan, reader.format.white, window=reader.window)
        notes = (note,)
    if reader.format.channels == "grey":
        values = to_grey(values)
    own, size = (values.shape[1], values.shape[2]), reader.format.size
    before = None if size in (None, own) else own
    values = planes_at_size(path, values, reader, needed_by, white)
    if before is not None and reader.format.fit == "crop":
        notes = (*notes, CROPPED)
    pixels = _scaled(path, values, white)
    if len(pixels) < reader.format.count:
        pixels = np.repeat(pixels, reader.format.count, axis=0)
    seen = ((), ()) if before is None else reader.format.seen(own)
    return Picture(path, pixels, before, notes, scan.orientation, seen)


def planes_at_size(
    path: Path,
    planes: Array,
    reader: Reader,
    needed_by: str = "the model takes",
    white: float = 1.0,
) -> Array:
    """Return planes `(n, height, width)` at the size that is needed; resized only on request.

    They are stretched, cropped or padded as the format says; `Format.seen` has the place of the
    result. Bytes stay bytes, as in the usual preparation of images.
    """
    own, size = (planes.shape[1], planes.shape[2]), reader.format.size
    if size is None or size == own:
        return planes
    _check_size(path, own, reader, needed_by)
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="resizing images")
    kept = planes if planes.dtype == np.uint8 else planes.astype(np.float32, copy=False)

    def resized(to: Grid, box: tuple[float, ...] | None = None) -> Array:
        way = pillow.Resampling.BILINEAR
        made = [pillow.fromarray(plane).resize(to[::-1], way, box=box) for plane in kept]
        # Rounding of floats may reach beyond the values.
        return np.clip(np.stack([np.asarray(plane) for plane in made]), kept.min(), kept.max())

    if reader.format.fit == "letterbox":
        inner = resized(reader.format.letterboxed(own))
        out = np.full((len(kept), *size), PADDING * white / 255, kept.dtype)
        top, left = ((a - b) // 2 for a, b in zip(size, inner.shape[1:], strict=True))
        out[:, top : top + inner.shape[1], left : left + inner.shape[2]] = inner
        return out
    (top, left), (bottom, right) = reader.format.seen(own)
    return resized(size, (left, top, right, bottom))


def original_of(path: Path, scan: Scan, reader: Reader) -> Original:
    """Return an image that was read at its own size and depth, for display."""
    size, white = pixel_size(scan.spacing), reader.format.white
    if scan.format not in KINDS:
        pixels, _ = levels_of(scan, white)
        if len(pixels) == 3:
            return Original(path, _bytes(pixels, 1.0), None, size)
        # 16 bits keep the levels of the window; the page moves it from there.
        deep = np.rint(pixels * 65535).astype(np.uint16)
        return Original(path, deep, (0.0, 65535.0), size)
    values, most = scan.array, _white(path, scan)
    window = None if white is None else (0.0, most)
    if len(values) == 3 and (values.dtype != np.uint8 or most != 255):
        values = _bytes(values.astype(np.float32), most)
    elif values.dtype.kind in "fi":
        values = values.astype(np.float32)
        deep = values.astype(np.uint16) if values.min() >= 0 and values.max() < 2**16 else None
        values = deep if deep is not None and np.array_equal(deep, values) else values
    return Original(path, values, window, size)


def _sandbox(memory: int) -> Sandbox:
    """Return the sandbox of this thread that reads pictures, with a limit on its memory."""
    # Not one of the process that this one was forked from: both would read its answers.
    kept: tuple[int, int, Sandbox] | None = getattr(_OWN, "sandbox", None)
    if kept is not None and kept[:2] == (os.getpid(), memory) and kept[2].is_open:
        return kept[2]
    made = Sandbox(serve_pictures, needs=["PIL.Image"], memory=memory)
    _OWN.sandbox = (os.getpid(), memory, made)
    return made


_OWN = threading.local()


def serve_pictures() -> Callable[[tuple[bytes, str, PictureOptions]], Scan]:
    """Return the function that reads pictures in a sandbox."""
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    pillow.MAX_IMAGE_PIXELS = None  # sizes are checked against --max-pixels

    return lambda request: read_picture(*request)


def _white(path: Path, scan: Scan) -> float:
    """Return the value of white in a picture; refuse numbers without one."""
    if scan.window is None:
        kind = "float" if scan.array.dtype.kind == "f" else "whole"
        message = (
            f"{path} holds numbers ({kind}, 32 bits) without a known white; pass --white with the "
            "value of a white pixel"
        )
        raise Refusal(Code.INPUT, message)
    return scan.window[1]


def _scaled(path: Path, values: Array, white: float) -> NDArray[np.float32]:
    pixels = values.astype(np.float32)
    pixels /= np.float32(white)
    if not (pixels.min() >= 0 and pixels.max() <= 1):  # also if one is not a number
        message = (
            f"{path} has values from {pixels.min() * white:g} to {pixels.max() * white:g}, beyond "
            f"0 to {white:g}; pass --white with the value of a white pixel"
        )
        raise Refusal(Code.INPUT, message)
    return pixels


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
