"""Tables in Markdown: the one place that knows how they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, right: bool = False) -> str:
    """Return a table; `right` aligns every column but the first to the right, as numbers want."""
    rule = ["---", *["---:" if right else "---"] * (len(header) - 1)]
    lines = [_line(header), f"|{'|'.join(rule)}|", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[object]) -> str:
    # An empty cell is one space wide, as in a table written by hand.
    return "|" + "|".join(f" {cell} " if str(cell) else " " for cell in cells) + "|"
