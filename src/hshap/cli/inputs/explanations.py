"""Saved explanations, as `hshap explain` wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from zipfile import BadZipFile, ZipFile

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.files import open_regular, size_of
from hshap.explanation.explanation import Explanation
from hshap.explanation.guarantees.calibration import LARGEST, Calibration
from hshap.explanation.tiled import TiledExplanation

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 8 * 2**30
TILED = "tile_scores.npy"
"""The part of a file that only explanations of large images have."""


def load(path: Path) -> Explanation:
    """Read an explanation; one that would take more than 8 GiB of memory is refused unread."""
    found = load_any(path)
    if isinstance(found, Explanation):
        return found
    message = f"{path} explains a large image by tiles; pass one that hshap explain wrote"
    raise Refusal(Code.INPUT, message)


def load_any(path: Path) -> Explanation | TiledExplanation:
    """Read an explanation, also one of a large image that `hshap tiles` wrote."""
    # Opened once here: a pipe, a device or a missing file is told as for any other input.
    with open_regular(path, most=MAX_BYTES, fix="pass an .npz that hshap wrote") as file:
        if not size_of(file):
            raise Refusal(Code.INPUT, f"{path} is empty; pass an .npz that hshap wrote")
    kind = TiledExplanation if is_tiled(path) else Explanation
    try:
        return kind.load(path, max_bytes=MAX_BYTES)
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror or error}); pass an .npz file"
        raise Refusal(Code.INPUT, message) from error


def is_tiled(path: Path) -> bool:
    """Tell whether a file looks like the explanation of a large image."""
    if not path.is_file():  # a pipe or a device would be read without end
        return False
    try:
        with ZipFile(path) as archive:
            return TILED in archive.namelist()
    except (BadZipFile, OSError, ValueError, NotImplementedError):
        return False


def load_calibration(path: Path) -> Calibration:
    """Read a calibration that `hshap calibrate` wrote."""
    fix = "pass a file that hshap calibrate wrote"
    with open_regular(path, most=LARGEST, fix=fix):
        return Calibration.load(path)


def load_picture(path: Path) -> Explanation:
    """Read the explanation of a picture; signals and volumes are refused."""
    return as_picture(load(path), path)


def as_picture(explanation: Explanation, path: Path) -> Explanation:
    """Return an explanation of two spatial axes; refuse signals and volumes."""
    if len(explanation.grid) != 2:
        message = f"{path} explains a grid of {explanation.grid}, not a picture; use it in Python"
        raise Refusal(Code.INPUT, message)
    return explanation


def source(
    explanation: Explanation, key: Literal["image", "class", "model"], otherwise: str
) -> str:
    """Return the name of the image, class or model that `hshap explain` stored, or another name."""
    return str(explanation.settings.source.get(key, otherwise))
