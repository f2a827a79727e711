"""Saved explanations, as `hshap explain` wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hshap.cli.faults import Code, Refusal
from hshap.cli.inputs.files import opened
from hshap.explanation.explanation import Explanation
from hshap.explanation.guarantees.calibration import LARGEST, Calibration

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 8 * 2**30


def load(path: Path) -> Explanation:
    """Read an explanation; one that would take more than 8 GiB of memory is refused unread."""
    # Opened once here: a pipe, a device or a missing file is told as for any other input.
    with opened(path, most=MAX_BYTES, fix="pass an .npz that hshap wrote") as file:
        if not file.size:
            raise Refusal(Code.INPUT, f"{path} is empty; pass an .npz that hshap wrote")
    try:
        return Explanation.load(path, max_bytes=MAX_BYTES)
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror or error}); pass an .npz file"
        raise Refusal(Code.INPUT, message) from error


def load_calibration(path: Path) -> Calibration:
    """Read a calibration that `hshap calibrate` wrote."""
    fix = "pass a file that hshap calibrate wrote"
    with opened(path, most=LARGEST, fix=fix):
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
