"""Files that are never half written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def replace(path: str | os.PathLike[str], write: Callable[[IO[bytes]], object]) -> Path:
    """Let `write` fill a file; one that is there stays whole until the new one is complete.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace(Path(folder) / "note.txt", lambda file: file.write(b"hello")).read_text()
    'hello'
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        grant_usual_permissions(Path(name))
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path


def grant_usual_permissions(path: Path) -> None:
    """Give a temporary file or folder, which is private, the permissions of any new one."""
    # Python can read the mask only by setting it.
    mask = os.umask(0)
    os.umask(mask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
