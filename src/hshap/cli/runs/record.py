"""The record of a run, `summary.json`: by it, later runs know which files they may replace."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hshap.cli.output import as_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hshap._util.types import Json

SUMMARY = "summary.json"
DIGESTS = "sha256"
MAX_BYTES = 2**28
HEAD = 4096
SIGNS = {".png": b"Software\0hshap", ".html": b"<title>hshap", ".npz": b"game_region.npy"}
"""Bytes near the beginning of a file that hshap wrote, by suffix."""


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_summary(
    folder: Path, document: Mapping[str, Json], kept: Mapping[str, str]
) -> dict[str, Json]:
    """Write the record of a run next to its files: `document`, and every file with its digest.

    `kept` are files of an earlier run that stay, with their digests. Returns the whole record.
    """
    written = {file.name: digest(file) for file in folder.iterdir() if file.name != SUMMARY}
    digests = dict(sorted({**kept, **written}.items()))
    record = {**document, "files": sorted([SUMMARY, *digests]), DIGESTS: digests}
    (folder / SUMMARY).write_text(as_json(record), encoding="utf-8")
    return record


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
        # Plain names alone: a record must not lead out of its folder.
        if Path(name).name == name and _is_ours(folder / name, noted_digest):
            found[name] = str(noted_digest)
    return found


def _is_ours(path: Path, noted_digest: Json) -> bool:
    sign = SIGNS.get(path.suffix)
    try:
        if sign is None or not stat.S_ISREG(path.lstat().st_mode):
            return False
        with path.open("rb") as file:
            signed = sign in file.read(HEAD)
        return signed and digest(path) == noted_digest
    except (OSError, ValueError):  # a name may hold a null byte
        return False
