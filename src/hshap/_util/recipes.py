"""Recipes: small frozen objects that say how to do something and hold no state.

They print, compare, pickle to workers and are stored, described in plain words, with results.
"""

from __future__ import annotations

import difflib
import hashlib
import inspect
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from hshap._util import checks
from hshap.errors import UnknownOptionError

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def recipe(cls: type[T]) -> type[T]:
    """Make a class a frozen dataclass that names its options when it is given an unknown one.

    Unlike those of a plain dataclass, fields may be arrays: they compare by content and print
    as shape and type.
    """
    own_init = "__init__" in cls.__dict__
    made = dataclass(frozen=True, eq=False, repr=False, init=not own_init)(cls)
    made.__init__ = _naming_options(made)
    made.__eq__ = _equal
    made.__hash__ = _hash
    made.__repr__ = _shown
    return made


def settle(self: object, **values: object) -> None:
    """Set fields of a frozen object while it is made: checked values in place of given ones."""
    for name, value in values.items():
        object.__setattr__(self, name, value)


def describe(value: Any) -> Any:
    """Return what JSON can hold of a recipe: its type and options, arrays as a fingerprint."""
    if is_dataclass(value) and not isinstance(value, type):
        options = {field.name: describe(getattr(value, field.name)) for field in fields(value)}
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
    plain = value.item() if isinstance(value, np.generic) else value
    if plain is None or isinstance(plain, (bool, int, float, str)):
        return plain
    return {"type": getattr(value, "__qualname__", type(value).__qualname__)}


def _naming_options(cls: type[Any]) -> Any:
    init = cls.__init__
    known = [name for name in inspect.signature(init).parameters if name != "self"]

    @wraps(init)
    def checked(self: Any, *args: Any, **options: Any) -> None:
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


def _values(self: Any) -> dict[str, Any]:
    return {field.name: getattr(self, field.name) for field in fields(self)}


def _equal(self: Any, other: Any) -> bool:
    if type(self) is not type(other):
        return NotImplemented
    mine, theirs = _values(self), _values(other)
    return all(
        np.array_equal(mine[name], theirs[name])
        if isinstance(mine[name], np.ndarray) or isinstance(theirs[name], np.ndarray)
        else bool(mine[name] == theirs[name])
        for name in mine
    )


def _hash(self: Any) -> int:
    # Arrays are left out: equal recipes still hash alike, and hashing stays cheap.
    kept = (value for value in _values(self).values() if not isinstance(value, np.ndarray))
    return hash((type(self), *kept))


def _shown(self: Any) -> str:
    parts = (
        f"{name}=array{value.shape}" if isinstance(value, np.ndarray) else f"{name}={value!r}"
        for name, value in _values(self).items()
    )
    return f"{type(self).__name__}({', '.join(parts)})"
