"""Checks of arguments: each returns the usable value, or raises an error that names the fix.

The caller gives the name of the argument; the checks do not know its purpose.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from hshap.errors import ArgumentError

if TYPE_CHECKING:
    from typing import SupportsIndex


def shown(value: object) -> str:
    """Return a value as a message shows it: in one line, and not too long."""
    shape = getattr(value, "shape", None)
    if shape is not None and shape != ():
        return f"{type(value).__name__} of shape {tuple(shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def integer(name: str, value: object, *, minimum: int) -> int:
    """Return a whole number of at least `minimum`."""
    try:
        # operator.index would take True for 1, and no caller means that.
        number = None if isinstance(value, bool) else operator.index(cast("SupportsIndex", value))
    except TypeError:
        number = None
    if number is None:
        message = f"{name} must be a whole number, got {shown(value)}; pass {minimum} or more"
        raise ArgumentError(message)
    if number < minimum:
        message = f"{name} must be at least {minimum}, got {number}; pass {minimum} or more"
        raise ArgumentError(message)
    return number


def number(name: str, value: object, *, minimum: float, maximum: float = math.inf) -> float:
    """Return a finite number between two limits, both allowed."""
    limits = f"from {minimum:g} to {maximum:g}" if maximum < math.inf else f"of {minimum:g} or more"
    limits = "of any size" if minimum == -math.inf else limits
    try:
        found = math.nan if isinstance(value, (bool, str)) else float(cast("float", value))
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not (math.isfinite(found) and minimum <= found <= maximum):
        message = f"{name} must be a finite number {limits}, got {shown(value)}; pass one {limits}"
        raise ArgumentError(message)
    return found


def flag(name: str, value: object) -> bool:
    """Return True or False, and take nothing else for either."""
    if not isinstance(value, bool):
        message = f"{name} must be True or False, got {shown(value)}; pass one of the two"
        raise ArgumentError(message)
    return value


def sides(name: str, value: object) -> int | tuple[int, ...]:
    """Return one side length for all axes, or a tuple with one for each."""
    return whole_numbers(name, value, minimum=1)


def whole_numbers(name: str, value: object, *, minimum: int) -> int | tuple[int, ...]:
    """Return one whole number, or a tuple of several."""
    several = isinstance(value, Iterable) and not isinstance(value, str)
    # An array or tensor without axes is one number, although it looks iterable.
    if not several or getattr(value, "ndim", 1) == 0:
        return integer(name, value, minimum=minimum)
    numbers = tuple(
        integer(name, number, minimum=minimum) for number in cast("Iterable[object]", value)
    )
    if not numbers:
        message = f"{name} is empty; pass one number, or one for each spatial axis"
        raise ArgumentError(message)
    return numbers


def per_axis(name: str, value: int | tuple[int, ...], axes: int) -> tuple[int, ...]:
    """Return one value for each of `axes` spatial axes."""
    if isinstance(value, int):
        return (value,) * axes
    if len(value) != axes:
        message = (
            f"{name}={value} has {len(value)} entries, but the image has {axes} spatial axes; "
            f"pass one number, or {axes} of them"
        )
        raise ArgumentError(message)
    return value
