"""Saved explanations, as `hshap explain` wrote them."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Literal

from hshap.cli.faults import Code, Refusal
from hshap.explanation.explanation import Explanation

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 8 * 2**30


def load(path: Path) -> Explanation:
    """Read an explanation; a file that would unpack to more than 8 GiB is refused unread."""
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > MAX_BYTES:
            message = f"{path} unpacks to {unpacked} bytes, more than {MAX_BYTES}; check its origin"
            raise Refusal(Code.INPUT, message)
        return Explanation.load(path)
    except zipfile.BadZipFile:
        message = f"{path} is not an hshap explanation; pass an .npz that hshap wrote"
        raise Refusal(Code.INPUT, message) from None
    except OSError as error:
        message = f"{path} cannot be read ({error.strerror or error}); pass an .npz file"
        raise Refusal(Code.INPUT, message) from error
    except MemoryError as error:
        message = f"{path} is damaged, or too large for this machine; check its origin"
        raise Refusal(Code.INPUT, message) from error


def load_picture(path: Path) -> Explanation:
    """Read the explanation of a picture; signals and volumes are refused."""
    return as_picture(load(path), path)


def as_picture(explanation: Explanation, path: Path) -> Explanation:
    """Return an explanation of two spatial axes; refuse signals and volumes."""
    if len(explanation.grid) != 2:
        message = f"{path} explains a grid of {explanation.grid}, not a picture; use it in Python"
        raise Refusal(Code.INPUT, message)
    return explanation


def source(explanation: Explanation, key: Literal["image", "class"], otherwise: str) -> str:
    """Return the name of the image or class that `hshap explain` stored, or another name."""
    return str(explanation.settings.source.get(key, otherwise))
