"""Texts that commands write: names of files, notes on standard error, JSON documents."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from typing import TYPE_CHECKING

from hshap._util.visible import as_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hshap._util.types import Json

MOST_BYTES = 120
"""Bytes of a file's name that is made of another one."""


class Names:
    """Gives file names that differ, also on file systems that ignore case; none is in `taken`.

    >>> names = Names()
    >>> names.new("cell"), names.new("Cell"), names.new("a/b: c")
    ('cell', 'Cell-2', 'a_b_c')
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.lower() for name in taken}

    def new(self, wanted: str) -> str:
        """Return a name that is safe on any file system and was not given before."""
        base = re.sub(r"[^\w.+-]+", "_", as_text(wanted)).strip("._")
        # File systems count bytes, up to 255 with the ending.
        base = base.encode()[:MOST_BYTES].decode(errors="ignore") or "image"
        name, number = base, 1
        while name.lower() in self._taken:
            number += 1
            name = f"{base}-{number}"
        self._taken.add(name.lower())
        return name


def as_json(document: Mapping[str, Json]) -> str:
    """Return a document as standard JSON, without NaN or infinity.

    >>> as_json({"found": 1}).split()
    ['{', '"found":', '1', '}']
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def print_json(document: Mapping[str, Json]) -> None:
    """Print the one JSON document of a command."""
    sys.stdout.write(as_json(document))


def print_csv(rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV, each in one line."""
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(
        [visible(str(cell)) for cell in row] for row in rows
    )
    sys.stdout.write(lines.getvalue())


def say(text: str) -> None:
    """Write a note in one line to standard error, where it cannot mix with results."""
    sys.stderr.write(f"hshap: {visible(text)}\n")


def say_notes(notes: Mapping[str, Sequence[Path]]) -> None:
    """Write each note once, with the first of the files that it is about."""
    for note, files in notes.items():
        others = f" and {len(files) - 1} more" if len(files) > 1 else ""
        say(f"{files[0]}{others}: {note}")
