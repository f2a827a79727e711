"""Recipes: small frozen objects that hold options and no state.

They print, compare and pickle, and their description is stored with results.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
from dataclasses import dataclass, fields, is_dataclass
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, TypeVar, cast, dataclass_transform

import numpy as np

from hshap._util import checks
from hshap.errors import UnknownOptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import DataclassInstance

    from hshap._util.types import Json

T = TypeVar("T")

PLAIN = frozenset({bool, int, float, str})
"""Types of options that are their own description."""

QUIET = {"quiet": True}
"""Metadata of a field that is shown and described only if it is not None."""


@dataclass_transform(frozen_default=True)
def recipe(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass whose error for an unknown option lists the known ones.

    Unlike in a plain dataclass, fields may be arrays: they compare by content and print their
    shape.
    """
    own_init = "__init__" in cls.__dict__
    made = dataclass(frozen=True, eq=False, repr=False, init=not own_init)(cls)
    methods = {
        "__init__": _naming_options(made),
        "__eq__": _equal,
        "__hash__": _hash,
        "__repr__": _shown,
    }
    for name, method in methods.items():
        setattr(made, name, method)
    return made


def settle(self: object, **values: object) -> None:
    """Replace given values by checked ones, in the constructor of a frozen object."""
    for name, value in values.items():
        object.__setattr__(self, name, value)


def describe(value: object) -> Json:
    """Return a recipe as JSON: its type and options, arrays as shape and fingerprint."""
    # Most options are plain, so they come first.
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or type(plain) in PLAIN or isinstance(plain, (bool, int, float, str)):
        return cast("Json", plain)
    if is_dataclass(value) and not isinstance(value, type):
        options = {name: describe(option) for name, option in _told(value).items()}
        return {"type": type(value).__name__, **options}
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
        return {
            "type": "array",
            "shape": list(value.shape),
            "dtype": str(value.dtype),
            "sha256": digest,
        }
    if isinstance(value, (list, tuple)):
        return [describe(item) for item in value]
    if isinstance(value, dict):
        return {str(name): describe(item) for name, item in value.items()}
    return {"type": getattr(value, "__qualname__", type(value).__qualname__)}


def _naming_options(cls: type) -> Callable[..., None]:
    init: Callable[..., None] = cls.__init__
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @wraps(init)
    def checked(self: object, *args: object, **options: object) -> None:
        for name, value in options.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"did you mean {near[0]}? " if near else ""
                message = (
                    f"{cls.__name__} has no option {name}={checks.shown(value)}; "
                    f"{hint}its options are {', '.join(known)}"
                )
                raise UnknownOptionError(message)
        init(self, *args, **options)

    return checked


def _values(self: DataclassInstance) -> dict[str, object]:
    return {field.name: getattr(self, field.name) for field in fields(self)}


def _told(self: DataclassInstance) -> dict[str, object]:
    """Return the values that are shown and described."""
    values = {name: getattr(self, name) for name, _ in _names(type(self))}
    quiet = [name for name, is_quiet in _names(type(self)) if is_quiet and values[name] is None]
    return {name: value for name, value in values.items() if name not in quiet} if quiet else values


@lru_cache(maxsize=256)
def _names(kind: type[DataclassInstance]) -> tuple[tuple[str, bool], ...]:
    """Return the names of a recipe's options, and whether each is left out where it is None."""
    return tuple((one.name, bool(one.metadata.get("quiet"))) for one in fields(kind))


def _equal(self: DataclassInstance, other: DataclassInstance) -> bool:
    if type(self) is not type(other):
        return NotImplemented
    mine, theirs = _values(self), _values(other)
    return all(
        np.array_equal(np.asarray(value), np.asarray(theirs[name]))
        if isinstance(value, np.ndarray) or isinstance(theirs[name], np.ndarray)
        else bool(value == theirs[name])
        for name, value in mine.items()
    )


def _hash(self: DataclassInstance) -> int:
    # Arrays are left out: equal recipes still hash alike, and hashing stays cheap.
    kept = (value for value in _values(self).values() if not isinstance(value, np.ndarray))
    return hash((type(self), *kept))


def _shown(self: DataclassInstance) -> str:
    parts = (
        f"{name}=array{value.shape}" if isinstance(value, np.ndarray) else f"{name}={value!r}"
        for name, value in _told(self).items()
    )
    return f"{type(self).__name__}({', '.join(parts)})"
