"""Fonts for names in any script: an installed one that has the letters, or a sign for each."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from hshap.errors import require

if TYPE_CHECKING:
    from hshap._util.types import Untyped

STAND_IN = "\N{WHITE SQUARE}"
"""Drawn for a letter that no installed font has; the fonts of matplotlib have this one."""

NO_LETTERS = "Last Resort"
"""A font of matplotlib that has a box for every letter, and names its script."""


def drawable(text: str) -> tuple[str, list[str]]:
    """Return a text that can be drawn without a missing letter, and the fonts to draw it with.

    >>> drawable("cell.png")[0]
    'cell.png'
    """
    require("matplotlib", extra="plot", needed_by="plots")
    from matplotlib import font_manager, rcParams  # noqa: PLC0415, an optional dependency

    usual = list(rcParams["font.family"])
    known = _letters(font_manager.findfont(font_manager.FontProperties(family=usual)))
    missing = frozenset(sign for sign in text if ord(sign) not in known and not sign.isspace())
    if not missing:
        return text, usual
    font, found = _font_with(missing)
    shown = "".join(STAND_IN if sign in missing - found else sign for sign in text)
    return shown, [*usual, *([font] if font else [])]


def literal(text: str) -> str:
    """Return a text that matplotlib draws as it is: between dollars it would read a formula."""
    return text.replace("$", r"\$")


@cache
def _font_with(missing: frozenset[str]) -> tuple[str, frozenset[str]]:
    """Return the installed font that has most of these letters, and those that it has."""
    from matplotlib import font_manager  # noqa: PLC0415

    best, found = "", frozenset[str]()
    for entry in font_manager.fontManager.ttflist:
        if entry.name.startswith(NO_LETTERS):
            continue
        known = _letters(entry.fname)
        held = frozenset(sign for sign in missing if ord(sign) in known)
        if len(held) > len(found):
            best, found = entry.name, held
        if len(found) == len(missing):
            break
    return best, found


@cache
def _letters(path: str) -> frozenset[int]:
    from matplotlib import font_manager  # noqa: PLC0415

    try:
        font: Untyped = font_manager.get_font(path)
        return frozenset(font.get_charmap())
    except (OSError, RuntimeError, ValueError):  # a damaged font, or a removed one
        return frozenset()
