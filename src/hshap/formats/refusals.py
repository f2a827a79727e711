"""Refusals of the files of others: what is too large, or makes a library fail, takes one line.

Sizes are checked before a decoder takes memory for them. Messages, warnings and logs of libraries
quote values of a header, such as a patient's name, so their texts reach no message and no log.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING

from hshap.errors import FormatError, HshapError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

LOGGERS = ("pydicom", "nibabel", "nibabel.global", "tifffile", "highdicom")

MOST_BYTES = 4 * 2**30
"""Bytes of a decoded image that is read as a whole: larger ones are read region by region."""


def refuse_large(name: str, shape: Sequence[int], itemsize: int) -> None:
    """Refuse an image whose announced size would not fit in memory.

    >>> refuse_large("scan.nii", (2000, 2000, 2000), 4)
    Traceback (most recent call last):
    hshap.errors.FormatError: scan.nii announces 2000 x 2000 x 2000 values, 32,000,000,000 bytes,
    more than 4,294,967,296; cut it, or read a tiled file by open_image
    """
    size = prod(int(side) for side in shape) * itemsize
    if size > MOST_BYTES or any(side < 0 for side in shape):
        sides = " x ".join(map(str, shape))
        message = (
            f"{name} announces {sides} values, {size:,} bytes, more than {MOST_BYTES:,}; cut it, "
            "or read a tiled file by open_image"
        )
        raise FormatError(message)


class _Kept(logging.Filter):
    """Holds the levels of records, and lets none of them through."""

    def __init__(self) -> None:
        super().__init__()
        self.worst = 0

    def filter(self, record: logging.LogRecord) -> bool:
        self.worst = max(self.worst, record.levelno)
        return False


@contextmanager
def quietly(path: Path, action: str, *, strict: bool = False) -> Generator[None]:
    """Turn every error of a library into one line without its text; `strict` also logged ones."""
    kept = _Kept()
    loggers = [logging.getLogger(name) for name in LOGGERS]
    for logger in loggers:
        # First, since a call around this one lets no record through to later filters.
        logger.filters.insert(0, kept)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (HshapError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    # Any: these libraries and their decoders raise a dozen classes for a damaged file.
    except Exception as error:  # noqa: BLE001
        raise _damaged(path, action, type(error).__name__) from None
    finally:
        for logger in loggers:
            logger.removeFilter(kept)
    if strict and kept.worst >= logging.ERROR:
        raise _damaged(path, action, "an error in its structure")


def _damaged(path: Path, action: str, kind: str) -> FormatError:
    message = f"{path} is damaged, truncated or of another kind: {action} failed with {kind}"
    return FormatError(f"{message}; copy it again")
