"""Libraries that read files: their errors become one line, and their texts reach no log.

Messages, warnings and logs of these libraries quote values of a header, such as a patient's name.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hshap.errors import FormatError, HshapError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

LOGGERS = ("pydicom", "nibabel", "nibabel.global", "tifffile", "highdicom")


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
