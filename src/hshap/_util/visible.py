"""Texts of others: a character that a terminal would obey, or no file can store, is spelled out."""

from __future__ import annotations

import os
import re
from unicodedata import category

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of Unicode: control characters, invisible ones and those that turn the direction of
text, bytes that are no text, ends of lines and paragraphs."""

NO_TEXT = re.compile("[\ud800-\udfff]")
"""Bytes of a file's name that are not UTF-8, as Python holds them."""

SPELLED = re.compile(r"\\x([89a-f][0-9a-f])")
"""The escape of such a byte."""


def visible(text: str) -> str:
    r"""Return a text in one line, in which every control character is shown as its escape.

    A name can otherwise clear the screen, hide an error, or write lines that hshap never wrote.

    >>> print(visible("a\x1b[2J\nb\u202e"))
    a\x1b[2J\nb\u202e
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(letter) if category(letter) in OBEYED else letter for letter in text)


def as_text(name: str) -> str:
    r"""Return the name of a file as text that every file and page can store.

    A byte that is not UTF-8 becomes its escape; all else stays.

    >>> print(as_text("caf\udce9.png"))
    caf\xe9.png
    """
    return NO_TEXT.sub(lambda found: _escape(found[0]), name)


def path_of(text: str) -> str:
    r"""Return the path of a file whose path or name was stored by `as_text`.

    >>> path_of(as_text("caf\udce9.png")) == "caf\udce9.png"
    True
    """
    if not SPELLED.search(text) or os.path.lexists(text):
        return text
    return SPELLED.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text)


def _escape(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is no text
        return f"\\x{code - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode("ascii")
