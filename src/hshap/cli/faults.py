"""How a command ends: exit codes that a script can rely on, and errors in one line."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from hshap.errors import (
    FormatError,
    HshapError,
    MissingExtraError,
    ModelError,
    ModelFailedError,
    PairsFailedError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LINES = 20
"""Lines that a command tells about inputs of one kind; of others it tells the number."""


class Code(IntEnum):
    """The exit codes of the command line.

    >>> int(Code.INPUT)
    3
    """

    FINE = 0
    UNEXPECTED = 1  # a fault of hshap, or a self-test that failed
    USAGE = 2  # an option is wrong or missing
    INPUT = 3  # an image or an explanation cannot be read
    MODEL = 4  # a model cannot be loaded, or does not fit the image
    OUTPUT = 5  # a result cannot be written, or exists already
    MISSING = 6  # a library is not installed
    SKIPPED = 7  # all is done, except for images that --skip-bad left out
    CONCERN = 8  # all is done, and --strict: an explanation is not supported by its checks


class Refusal(HshapError):  # noqa: N818, a command refuses; nothing went wrong inside hshap
    """A command stops; the message gives the reason and the fix.

    >>> Refusal(Code.INPUT, "a.png is not an image").code.name
    'INPUT'
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Refusals(Refusal):
    """A command stops for several reasons, each in a line of its own.

    >>> Refusals(Code.INPUT, ["a.png is empty", "b.png is empty"]).lines
    ('a.png is empty', 'b.png is empty')
    """

    def __init__(self, code: Code, lines: Sequence[str]) -> None:
        super().__init__(code, "; ".join(lines))
        self.lines = tuple(lines)


def code_of(error: BaseException) -> Code:
    """Return the exit code of an error.

    >>> code_of(ValueError("?")).name
    'UNEXPECTED'
    """
    if isinstance(error, PairsFailedError):
        return code_of(error.first)
    if isinstance(error, Refusal):
        return error.code
    if isinstance(error, MissingExtraError):
        return Code.MISSING
    if isinstance(error, FormatError):
        return Code.INPUT
    if isinstance(error, ModelError):
        return Code.MODEL
    return Code.USAGE if isinstance(error, HshapError) else Code.UNEXPECTED


def one_line(error: BaseException) -> str:
    """Return the message of an error in one line.

    >>> one_line(KeyError("a"))
    "unexpected KeyError: 'a'; run again with --debug for the traceback"
    """
    if isinstance(error, PairsFailedError):
        return one_line(error.first)
    text = str(error) if isinstance(error, Refusal) else _first_line(error)
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return "memory ran out; pass a smaller --batch-size, fewer images or smaller ones"
    if isinstance(error, ModelFailedError):
        return f"the model failed: {brief(error.__cause__ or error)}; run again with --debug"
    if isinstance(error, HshapError):
        return text
    return f"unexpected {type(error).__name__}: {text}; run again with --debug for the traceback"


def lines_of(error: BaseException) -> Sequence[str]:
    """Return the lines that tell an error: one, unless there are several reasons."""
    return error.lines if isinstance(error, Refusals) else (one_line(error),)


def few(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and the number of the others.

    >>> few([str(number) for number in range(33)])[-2:]
    ['19', 'and 13 more']
    """
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"and {more} more"] if more > 0 else [])]


def brief(error: BaseException) -> str:
    """Return the type and first line of an exception, to quote in a message of hshap.

    >>> brief(ValueError("wrong"))
    'ValueError: wrong'
    """
    text = _first_line(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _first_line(error: BaseException) -> str:
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    if isinstance(error, HshapError):
        return " ".join(lines)
    return lines[0][:300] if lines else ""
