"""Texts of others on a terminal: a character that it would obey, or not show, is spelled out."""

from __future__ import annotations

from unicodedata import category

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of Unicode: control characters, invisible ones and those that turn the direction of
text, bytes that are no text, ends of lines and paragraphs."""


def visible(text: str) -> str:
    r"""Return a text in one line, in which every control character is shown as its escape.

    A name can otherwise clear the screen, hide an error, or write lines that hshap never wrote.

    >>> print(visible("a\x1b[2J\nb\u202e"))
    a\x1b[2J\nb\u202e
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(letter) if category(letter) in OBEYED else letter for letter in text)


def _escape(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file's name that is no text
        return f"\\x{code - 0xDC00:02x}"
    return letter.encode("unicode_escape").decode("ascii")
