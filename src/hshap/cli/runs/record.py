"""The record of a run, `summary.json`: by it, later runs know which files they may replace."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from hshap.export.page.writing import folder_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hshap._util.types import Json, Untyped

SUMMARY = "summary.json"
DIGESTS = "sha256"
MAX_BYTES = 2**28
HEAD = 4096
PAGE = "index.html"
SIGNS = {
    ".png": (b"Software\0hshap",),
    ".html": (b"<title>hshap",),
    ".npz": (b"game_region.npy", b"tile_scores.npy"),
    ".geojson": (b"written by hshap",),
    ".js": (b"hshapPart(",),
    ".txt": (b"written by hshap",),
}
"""Bytes near the beginning of a file that hshap wrote, one of them, by suffix."""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_in(folder: Path) -> list[str]:
    """Return the files of a run, by name; those of a large page are in a folder of their own."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def read_summary(folder: Path) -> dict[str, Json] | None:
    """Return the record of the run that filled a folder; None if there is none."""
    path = folder / SUMMARY
    try:
        state = path.lstat()  # a link, a pipe or a device is no record
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_BYTES:
            return None
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    is_record = isinstance(found, dict) and "hshap" in found and "command" in found
    return cast("dict[str, Json]", found) if is_record else None


class Recorded(NamedTuple):
    """A saved explanation of a record: its file, and path and digest of its image."""

    file: Path
    image: str
    sha256: str


def recorded(folder: Path) -> Iterator[Recorded]:
    """Yield the explanations of a folder's record that are there."""
    record = read_summary(folder) or {}
    for entry in cast("Iterable[Untyped]", record.get("images") or ()):
        try:
            names = [Path(str(each["explanation"])).name for each in entry["explanations"]]
            image, sha256 = str(entry["image"]), str(entry.get("sha256", ""))
        except (AttributeError, KeyError, TypeError):  # anybody may have edited the record
            continue
        files = (folder / name for name in names)
        yield from (Recorded(file, image, sha256) for file in files if file.exists())


def unchanged(folder: Path) -> dict[str, str]:
    """Return the files in a folder that an earlier run wrote and nobody changed, with digests.

    The record alone is not believed, since anybody may have edited it: a file must have the digest
    that is written there, and bytes that only files of hshap have.
    """
    record = read_summary(folder)
    if record is None:
        return {}
    noted = record.get(DIGESTS)
    found = {SUMMARY: ""}
    for name, noted_digest in noted.items() if isinstance(noted, dict) else ():
        if is_inside(folder, name) and is_ours(folder / name, noted_digest):
            found[name] = str(noted_digest)
    return found


def is_inside(folder: Path, name: str) -> bool:
    """Tell whether a name is plain, or of the page's folder: a record must not lead elsewhere."""
    if Path(name).name == name:
        return True
    home, *others = name.split("/")
    if home != folder_of(Path(PAGE)) or not all(part.strip(".") for part in others):
        return False
    above = (folder / home, folder / home / others[0]) if others[1:] else (folder / home,)
    return len(others) <= 2 and not any(path.is_symlink() for path in above)


def is_ours(path: Path, noted_digest: Json) -> bool:
    """Tell whether a file is one of hshap that nobody has changed."""
    try:
        return is_signed(path) and digest(path) == noted_digest
    except (OSError, ValueError):  # a name may hold a null byte
        return False


def is_signed(path: Path) -> bool:
    """Tell whether a file has bytes near its beginning that only files of hshap have."""
    signs = SIGNS.get(path.suffix)
    if signs is None or not stat.S_ISREG(path.lstat().st_mode):
        return False
    with path.open("rb") as file:
        head = file.read(HEAD)
    return any(sign in head for sign in signs)
