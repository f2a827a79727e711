"""Dropped images: each becomes a new file in the folder of images, and never replaces another."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from hshap._util.atomic import give_name
from hshap.cli.output import Names
from hshap.formats.listing import PICTURES, elsewhere, is_large

if TYPE_CHECKING:
    from collections.abc import AsyncIterable

MOST_NAMES = 10_000
"""Names that are tried for a file before it is refused."""


class DropRefusedError(Exception):
    """A dropped file is not stored; the message gives the reason and the fix."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Drops:
    """Stores dropped images of at most `most_bytes` each in a folder."""

    folder: Path
    most_bytes: int

    async def store(self, name: str, chunks: AsyncIterable[bytes]) -> Path:
        """Write the bytes of a dropped image to a new file of that name, or one like it.

        The file appears when it is complete. One that is too large, empty or of no known kind
        leaves nothing behind.
        """
        suffix = Path(name).suffix.lower()
        if suffix not in PICTURES:
            kinds = f"{name!r} is no image; drop one of {', '.join(PICTURES)}"
            message = elsewhere(repr(name)) if is_large(name) else kinds
            raise DropRefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        staged = self.folder / f".hshap-drop-{secrets.token_hex(8)}"
        try:
            size = await self._write(staged, chunks)
            if not size:
                message = f"{name!r} is empty; drop another file"
                raise DropRefusedError(HTTPStatus.BAD_REQUEST, message)
            return self._named(staged, Names().new(Path(name).stem), suffix)
        except OSError as error:
            message = f"{name!r} cannot be stored ({error.strerror})"
            raise DropRefusedError(HTTPStatus.INSUFFICIENT_STORAGE, message) from error
        finally:
            with suppress(OSError):
                staged.unlink(missing_ok=True)

    async def _write(self, path: Path, chunks: AsyncIterable[bytes]) -> int:
        size = 0
        with path.open("xb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > self.most_bytes:
                    message = (
                        f"the file has more than {self.most_bytes} bytes; drop a smaller one, or "
                        "start hshap serve with a larger --max-upload"
                    )
                    raise DropRefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        return size

    def _named(self, staged: Path, stem: str, suffix: str) -> Path:
        """Give a file the first free name; one that exists is never replaced."""
        for number in range(1, MOST_NAMES):
            path = self.folder / (f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}")
            if give_name(staged, path):
                return path
        message = f"{stem}{suffix} exists {MOST_NAMES} times; rename the file"
        raise DropRefusedError(HTTPStatus.CONFLICT, message)
