"""How a command ends: exit codes that a script can rely on, and errors in one line."""

from __future__ import annotations

from enum import IntEnum

from hshap.errors import FormatError, HshapError, MissingExtraError, ModelError, ModelFailedError


class Code(IntEnum):
    """What an exit code says.

    >>> int(Code.INPUT)
    3
    """

    FINE = 0
    UNEXPECTED = 1  # a fault of hshap, or a self-test that failed
    USAGE = 2  # an option that is wrong or missing
    INPUT = 3  # an image or an explanation that cannot be read
    MODEL = 4  # a model that cannot be loaded, or does not fit the image
    OUTPUT = 5  # what cannot be written, or is there already
    MISSING = 6  # a library that is not installed


class Refusal(HshapError):  # noqa: N818, it says no more than that
    """A command will not go on; says why and what to do instead.

    >>> Refusal(Code.INPUT, "a.png is not an image").code.name
    'INPUT'
    """

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def code_of(error: BaseException) -> Code:
    """Return the exit code of an error.

    >>> code_of(ValueError("?")).name
    'UNEXPECTED'
    """
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
    """Say an error in one line.

    >>> one_line(KeyError("a"))
    "unexpected KeyError: 'a'; run again with --debug for the traceback"
    """
    said = _first_line(error)
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return "memory ran out; pass a smaller --batch-size, fewer images or smaller ones"
    if isinstance(error, ModelFailedError):
        return f"the model failed: {brief(error.__cause__ or error)}; run again with --debug"
    if isinstance(error, HshapError):
        return said
    return f"unexpected {type(error).__name__}: {said}; run again with --debug for the traceback"


def brief(error: BaseException) -> str:
    """Return an exception of somebody else's in a few words, for our own message.

    >>> brief(ValueError("wrong"))
    'ValueError: wrong'
    """
    said = _first_line(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _first_line(error: BaseException) -> str:
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    if isinstance(error, HshapError):
        return " ".join(lines)
    return lines[0][:300] if lines else ""
