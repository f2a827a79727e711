"""What commands write: results and tables on standard output, notes on standard error.

Names in them are shown, never obeyed. Nothing is folded where the output is no terminal.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import sys
from threading import RLock
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

import typer

from hshap._util.visible import as_text, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hshap._util.types import Json

GAP = "  "
LEAST = 12
"""Columns that a cell of a table keeps, however narrow the terminal is."""

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


class StatusLine:
    """The one line at the foot of a terminal that is written again and again; empty if none is."""

    def __init__(self) -> None:
        self._shown, self._lock = "", RLock()

    def show(self, text: str) -> bool:
        """Put a text in place of the one before; False if standard error is no terminal."""
        with self._lock:
            if not sys.stderr.isatty():
                return False
            room = shutil.get_terminal_size().columns - 1
            self._shown = _cut(visible(text), room)
            sys.stderr.write(f"\r\x1b[K{self._shown}")
            sys.stderr.flush()
            return True

    def clear(self) -> None:
        """Take the line away, so that others can be written."""
        with self._lock:
            if self._shown:
                self._shown = ""
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()


STATUS = StatusLine()


def say(text: str) -> None:
    """Write a note in one line to standard error, where it cannot mix with results."""
    STATUS.clear()
    sys.stderr.write(f"hshap: {visible(text)}\n")


def tell(text: str) -> None:
    """Write a line to standard output."""
    STATUS.clear()
    typer.echo(visible(text))


def say_notes(notes: Mapping[str, Sequence[Path]]) -> None:
    """Write each note once, with the first of the files that it is about."""
    for note, files in notes.items():
        others = f" and {len(files) - 1} more" if len(files) > 1 else ""
        say(f"{files[0]}{others}: {note}")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """Print a table: the first two columns left, the others right.

    On a terminal that is too narrow for it, long cells are cut in the middle. Where even that is
    not enough, each row becomes a few lines, one for each cell.
    """
    names = [visible(name) for name in headings]
    cells = [[visible(cell) for cell in row] for row in rows]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    if title is not None:
        tell(title)
    for line in table_lines(names, cells, room):
        tell(line)


def table_lines(names: Sequence[str], rows: Sequence[Sequence[str]], room: int | None) -> list[str]:
    """Return the lines of a table that is at most `room` columns wide.

    >>> table_lines(["image", "score"], [["a.png", "1.5"], ["a/long/name.png", "2"]], 20)
    ['image          score', '────────────────────', 'a.png          1.5', 'a/long…me.png  2']
    >>> table_lines(["image", "score"], [["a.png", "1.5"]], 8)
    ['image  a.png', 'score  1.5']
    """
    columns = list(zip(names, *rows, strict=True))
    widths = [max(map(_width, column)) for column in columns]
    gaps = len(GAP) * (len(widths) - 1)
    if room is not None:
        least = [min(width, LEAST) for width in widths]
        if sum(least) + gaps > room:
            return _records(names, rows)
        while sum(widths) + gaps > room:
            longest = max(range(len(widths)), key=lambda n: widths[n] - least[n])
            widths[longest] -= 1
    made = [
        GAP.join(
            _padded(_cut(cell, width), width, right=number > 1)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (names, *rows)
    ]
    return [made[0], "─" * (sum(widths) + gaps), *made[1:]]


def _records(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a line for each cell, and an empty one between rows."""
    width = max(map(_width, names))
    blocks = [
        [f"{_padded(name, width)}{GAP}{cell}" for name, cell in zip(names, row, strict=True)]
        for row in rows
    ]
    lines = [line for block in blocks for line in (*block, "")]
    return lines[:-1]


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    return sum(0 if combining(sign) else 1 + (east_asian_width(sign) in "WF") for sign in text)


def _padded(text: str, width: int, *, right: bool = False) -> str:
    blank = " " * (width - _width(text))
    return blank + text if right else text + blank


def _cut(text: str, width: int) -> str:
    """Return a text of at most so many columns, without its middle if it is longer."""
    if _width(text) <= width:
        return text
    head, tail = text[: width // 2], text[-((width - 1) // 2) :]
    while _width(head) + 1 + _width(tail) > width:
        head, tail = (head[:-1], tail) if _width(head) >= _width(tail) else (head, tail[1:])
    return f"{head}…{tail}"


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(5.4), duration(200), duration(8000)
    ('5.4 s', '3 min', '2.2 h')
    """
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def left_out(negative: int, total: int, rule: str) -> str:
    """Return the line on negative images, with the rule by which the others were explained.

    >>> left_out(3, 10, "the model's decision")
    "3 of 10 images are negative, not explained: that takes the model's decision, and a score above
    the baseline's; --all explains them, too"
    """
    are = f"{'image' if total == 1 else 'images'} {'is' if negative == 1 else 'are'}"
    needed = f"that takes {rule}, and a score above the baseline's"
    return (
        f"{negative} of {total} {are} negative, not explained: {needed}; --all explains them, too"
    )
