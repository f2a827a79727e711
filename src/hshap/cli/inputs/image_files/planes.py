"""From a file to planes of numbers: upright, on a background, in grey or colour, at full depth."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.image_files.decoders import refusing, unpack
from hshap.cli.inputs.image_files.deep_colour import WHITE, is_cut, is_deep, read_deep
from hshap.errors import require

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

    from hshap._util.types import Untyped

DEEP_GREY = {"I;16": 65535.0, "I;16B": 65535.0, "I;16L": 65535.0, "I;16N": 65535.0}
GREY = ("1", "L", "LA", "La")
ORIENTATION = 0x0112
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""The transposition that turns an image upright, by its EXIF orientation."""

LUMINANCE = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in grey, as pillow has them."""

UPRIGHT = 1
SIDEWAYS = {5, 6, 7, 8}
"""Orientations that exchange height and width."""

TURNED = "turned upright, as the EXIF orientation says; boxes and maps are in upright pixels"
CUT = "16-bit colour was read at 8 bits"


class Wanted(NamedTuple):
    """How an image is wanted: in grey or colour, its value of white, and the background.

    If `is_grey` is None, the image stays in grey or colour as it is stored.
    """

    is_grey: bool | None
    white: float | None
    background: str


class Planes(NamedTuple):
    """An upright image without transparency: one in mode F, L or RGB, or three in mode F.

    `orientation` is the EXIF orientation of the file that was applied; 1 if it was upright.
    """

    images: tuple[Image, ...]
    white: float
    notes: tuple[str, ...]
    orientation: int = UPRIGHT

    @property
    def is_sideways(self) -> bool:
        """Tell whether height and width are exchanged against the file."""
        return self.orientation in SIDEWAYS


def colour_of(text: str) -> tuple[int, int, int]:
    """Return red, green and blue of a colour such as white, #808080 or rgb(0,0,0)."""
    colours = require("PIL.ImageColor", extra="cli", needed_by="reading images")
    try:
        found = colours.getrgb(text)
    except ValueError:
        found = ()
    if len(found) != 3:
        message = f"--background {text} is not a colour; pass one such as white, black or #808080"
        raise Refusal(Code.USAGE, message)
    return found


def _is_grey(text: str) -> bool:
    return len(set(colour_of(text))) == 1


def planes_of(image: ImageFile, path: Path, frame: int, wanted: Wanted) -> Planes:
    """Unpack an image that `frame_of` gave; a refusal names the file."""
    with refusing(path):
        orientation = _orientation(image) if image.format == "TIFF" else 1
        is_turned = False
        if is_deep(image):
            made = _deep_planes(image, frame, wanted)
        else:
            cut = is_cut(image)
            unpack(image, path)
            is_turned = image.format == "TIFF"  # by pillow
            made = _planes(image, path, wanted, cut=cut)
        if image.format != "TIFF":  # a PNG may tell its orientation behind its pixels
            orientation = _orientation(image)
        turn = TURNS.get(orientation)
        if turn is None:
            return made
        images = made.images if is_turned else _turned(made.images, turn)
        return Planes(images, made.white, (TURNED, *made.notes), orientation)


def _orientation(image: ImageFile) -> int:
    """Return the EXIF orientation; 1, upright, if it cannot be read."""
    try:
        found = image.getexif().get(ORIENTATION, 1)
    except Exception:  # noqa: BLE001, pillow raises many kinds for damaged tags
        return 1
    return found if isinstance(found, int) else 1


def _turned(images: tuple[Image, ...], turn: str) -> tuple[Image, ...]:
    method = getattr(require("PIL.Image", needed_by="reading images").Transpose, turn)
    return tuple(each.transpose(method) for each in images)


def _laid(wanted: Wanted) -> str:
    return f"transparent pixels are laid on {wanted.background}; --background takes another colour"


def _deep_planes(image: ImageFile, frame: int, wanted: Wanted) -> Planes:
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    colour, alpha, premultiplied = read_deep(image, frame)
    white, notes = float(wanted.white or WHITE), ()
    if alpha is not None and alpha.min() < 1:
        behind = np.array(colour_of(wanted.background), np.float32) * np.float32(white / 255)
        if colour.shape[2] == 1 and _is_grey(wanted.background):
            behind = behind[:1]
        shown = alpha[..., None]
        colour = colour * (1 if premultiplied else shown) + behind * (1 - shown)
        notes = (_laid(wanted),)
    if wanted.is_grey and colour.shape[2] == 3:
        colour = (colour @ np.array(LUMINANCE, np.float32))[..., None]
    planes = (np.ascontiguousarray(colour[..., i]) for i in range(colour.shape[2]))
    return Planes(tuple(pillow.fromarray(plane) for plane in planes), white, notes)


def _planes(image: Image, path: Path, wanted: Wanted, *, cut: bool) -> Planes:
    pillow: Untyped = require("PIL.Image", extra="cli", needed_by="reading images")
    if image.mode in DEEP_GREY or image.mode in ("I", "F"):
        usual = DEEP_GREY.get(image.mode, 65535.0 if image.format == "PNG" else None)
        if wanted.white is None and usual is None:
            message = (
                f"{path} holds numbers ({'float' if image.mode == 'F' else 'whole'}, 32 bits) "
                "without a known white; pass --white with the value of a white pixel"
            )
            raise Refusal(Code.INPUT, message)
        white = float(wanted.white or usual or 1.0)
        # By way of an array: pillow cannot convert every mode of whole numbers to floats.
        values = np.asarray(image).astype(np.float32)
        values, notes = _without_key(values, image.info.get("transparency"), white, wanted)
        return Planes((pillow.fromarray(values),), white, notes)
    if cut and wanted.white is not None:
        message = (
            f"{path} has 16-bit colour, which is read at 8 bits, so white={wanted.white} does not "
            "apply; convert it to 16-bit PNG first"
        )
        raise Refusal(Code.INPUT, message)
    notes = (CUT,) if cut else ()
    stays_grey = image.mode in GREY and _is_grey(wanted.background)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if np.asarray(image)[..., 3].min() < 255:
            behind = pillow.new("RGBA", image.size, (*colour_of(wanted.background), 255))
            image = pillow.alpha_composite(behind, image)
            notes = (*notes, _laid(wanted))
    is_grey = stays_grey if wanted.is_grey is None else wanted.is_grey
    return Planes((image.convert("L" if is_grey else "RGB"),), wanted.white or 255.0, notes)


def _without_key(
    values: NDArray[np.float32], key: object, white: float, wanted: Wanted
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Return grey values in which those of the transparent value are that of the background."""
    if not isinstance(key, int) or not (values == key).any():
        return values, ()
    behind = np.dot(colour_of(wanted.background), LUMINANCE) / 255 * white
    return np.where(values == key, np.float32(behind), values), (_laid(wanted),)
