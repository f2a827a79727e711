"""Explanations of large images in a run: a row for the game over tiles, and a file for the rest.

    tiled/SHA256.npz                 the whole explanation, as `TiledExplanation.save` writes it

The file appears before its row, which holds its digest in `transform`. So a row never lacks its
file, and a kill in between leaves a file that no row names and nobody reads.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from hshap.errors import FormatError
from hshap.explanation.storage import MAX_BYTES, tiled_bytes, tiled_from_bytes
from hshap.explanation.tiled import TiledExplanation
from hshap.runs.storing.files import publish
from hshap.runs.storing.rows import as_row, digest_of, summary_of
from hshap.runs.storing.stored_rows import from_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hshap._util.types import Untyped
    from hshap.explanation.explanation import Explanation
    from hshap.runs.storing.files import Files
    from hshap.runs.storing.rows import Origin, Row

TILED = "tiled"
SHA256 = re.compile(r"[0-9a-f]{64}")


def store_tiled(found: TiledExplanation, origin: Origin, files: Files) -> Row:
    """Write the file of an explanation, and return its row; numbers are those of the whole."""
    data = tiled_bytes(found)
    sha256 = hashlib.sha256(data).hexdigest()
    publish(files, _name(sha256), data)
    how = {TILED: sha256, "side": found.side, "overlap": found.overlap, "level": found.level}
    told = replace(origin, transform=json.dumps(how, sort_keys=True))
    row = as_row(found.tiles, told) | summary_of_any(found)
    return {**row, "digest": digest_of(row)}


def summary_of_any(found: Explanation | TiledExplanation) -> Row:
    """Return the columns of a row that repeat what an explanation tells; of all tiles, if any."""
    if not isinstance(found, TiledExplanation):
        return summary_of(found)
    return summary_of(found.tiles) | {
        "evaluations": found.evaluations,
        "seconds": found.seconds,
        "complete": found.tiles.complete and all(one.complete for one in found.inside),
        "doubt": max([found.tiles.audit.doubt, *(one.audit.doubt for one in found.inside)]),
        "concerns": [concern.text for concern in found.concerns],
        "boxes": [box._asdict() for box in found.boxes()],
    }


def results_of(
    rows: Sequence[Mapping[str, Untyped]], files: Files
) -> Iterator[Explanation | TiledExplanation]:
    """Yield the explanations of rows; a `FormatError` where a row, or its file, is not valid.

    Rows that hold all of their explanation are checked at once.
    """
    digests = [tiled_of(row) for row in rows]
    plain = from_rows([row for row, sha256 in zip(rows, digests, strict=True) if sha256 is None])
    for row, sha256 in zip(rows, digests, strict=True):
        yield next(plain) if sha256 is None else _read_tiled(row, sha256, files)


def _read_tiled(row: Mapping[str, Untyped], sha256: str, files: Files) -> TiledExplanation:
    try:
        data = files.read(_name(sha256))
    except OSError as error:
        message = f"{files.location}/{_name(sha256)}, the file of {row['image']!r}, is missing"
        raise FormatError(f"{message}; explain the image again") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        message = f"{files.location}/{_name(sha256)}, the file of {row['image']!r}, was altered"
        raise FormatError(f"{message}; explain the image again")
    return TiledExplanation(**tiled_from_bytes(data, _name(sha256), MAX_BYTES))


def tiled_of(row: Mapping[str, Untyped]) -> str | None:
    """Return the digest of the file of a row; None if the row is of no large image.

    >>> tiled_of({"transform": ""}), tiled_of({"transform": '{"size": [2, 2]}'})
    (None, None)
    """
    if not row["transform"]:
        return None
    try:
        sha256 = json.loads(row["transform"]).get(TILED)
    except (ValueError, AttributeError, RecursionError):
        return None
    # It becomes part of a path, and a run folder may come from anybody.
    return sha256 if isinstance(sha256, str) and SHA256.fullmatch(sha256) else None


def problem_of(row: Mapping[str, Untyped], files: Files) -> str:
    """Return the problem with the file of a row: missing or altered; empty if there is none."""
    sha256 = tiled_of(row)
    if sha256 is None:
        return ""
    try:
        is_same = hashlib.sha256(files.read(_name(sha256))).hexdigest() == sha256
    except OSError:
        return f"{_name(sha256)} is missing"
    return "" if is_same else f"{_name(sha256)} was altered"


def _name(sha256: str) -> str:
    return f"{TILED}/{sha256}.npz"
