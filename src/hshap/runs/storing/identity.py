"""Identity: the digests of a model, of settings and of images, which make the identity of a row.

A digest covers all that can change a result: weights, code, options, constants. An object whose
content cannot be seen is told, so that the caller gives the model a name of its own.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from hshap._util.version import __version__
from hshap.runs.storing.schema import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hshap._util.types import Array, Untyped
    from hshap.explainer import Explainer

NO_EFFECT = frozenset({"model", "batch_size", "check_batches"})
"""Options of evaluators that leave the scores as they are, and the model, which has its own."""

MOST_DEPTH = 50


@dataclass
class Digest:
    """The SHA-256 of any object, and the classes in it whose content cannot be seen.

    >>> def digest(value):
    ...     made = Digest()
    ...     made.add(value)
    ...     return made.hex
    >>> digest({"a": [1, 2.0]}) == digest({"a": [1, 2.0]})
    True
    >>> digest(np.zeros(2)) == digest(np.zeros((2, 1)))
    False
    """

    unseen: set[str] = field(default_factory=set[str])
    _hash: Untyped = field(default_factory=hashlib.sha256)
    _open: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def hex(self) -> str:
        """The digest of everything that was added."""
        return self._hash.hexdigest()

    def add(self, value: object) -> None:
        """Add an object with all that it refers to."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
            self._text(f"{type(value).__name__} {value!r}")
        elif id(value) in self._open:
            self._text(f"again {self._open[id(value)]}")
        elif len(self._open) > MOST_DEPTH:
            self.unseen.add(type(value).__qualname__)
        else:
            self._open[id(value)] = len(self._open)
            self._add_content(value)
            del self._open[id(value)]

    def _add_content(self, value: Untyped) -> None:
        state = getattr(value, "state_dict", None)
        if isinstance(value, np.ndarray):
            self._array(value)
        elif isinstance(value, np.generic):
            self._array(np.asarray(value))
        elif callable(getattr(value, "detach", None)):
            self._tensor(value)
        elif callable(state) and not isinstance(value, type):
            self._text(f"module {type(value).__qualname__} {value!r}")
            self.add(dict(cast("Mapping[str, object]", state())))
            inside = getattr(value, "modules", lambda: [value])
            kinds: set[type] = {type(module) for module in inside()}
            for kind in sorted(kinds, key=_qualified):
                self._code(kind)
        elif isinstance(value, dict):
            self._text(f"dict {len(value)}")
            for name, item in value.items():
                self.add(name)
                self.add(item)
        elif isinstance(value, (list, tuple)):
            self._several(type(value).__name__, value)
        elif isinstance(value, (set, frozenset)):
            self._several("set", sorted(map(_alone, value)))
        else:
            self._add_code(value)

    def _add_code(self, value: Untyped) -> None:
        if isinstance(value, functools.partial):
            self._several("partial", (value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            self._several("method", (value.__func__, value.__self__))
        elif isinstance(value, types.FunctionType):
            self._function(value)
        elif isinstance(value, type):
            self._code(value)
        elif isinstance(value, (types.ModuleType, types.BuiltinFunctionType, np.ufunc)):
            self._text(f"{type(value).__name__} {value.__name__}")
        elif is_dataclass(value):
            self._code(type(value))
            self.add({item.name: getattr(value, item.name) for item in fields(value)})
        elif hasattr(value, "__dict__"):
            self._code(type(value))
            self.add(vars(value))
        else:
            self._text(type(value).__qualname__)
            self.unseen.add(type(value).__qualname__)

    def _several(self, name: str, values: Iterable[object]) -> None:
        items = list(values)
        self._text(f"{name} {len(items)}")
        for item in items:
            self.add(item)

    def _function(self, value: types.FunctionType) -> None:
        self._text(f"function {value.__qualname__}")
        if _is_of_a_library(value):
            return
        self._bytecode(value.__code__)
        self.add(value.__defaults__)
        self.add(value.__kwdefaults__)
        held = inspect.getclosurevars(value)
        self.add(dict(held.nonlocals))
        # Data and functions that it reads by name; other modules count by their name alone.
        read = (bool, int, float, str, bytes, tuple, list, dict, np.ndarray, types.FunctionType)
        self.add(
            {k: v if isinstance(v, read) else type(v).__name__ for k, v in held.globals.items()}
        )

    def _bytecode(self, code: types.CodeType) -> None:
        self._bytes(code.co_code)
        self._text(" ".join(code.co_names))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._bytecode(constant)
            else:
                self._text(repr(constant) if not isinstance(constant, frozenset) else "frozenset")

    def _code(self, kind: type) -> None:
        """Add the methods of a class of the user's own."""
        self._text(f"class {kind.__qualname__}")
        if _is_of_a_library(kind):
            return
        for name, method in sorted(vars(kind).items()):
            if isinstance(method, types.FunctionType):
                self._text(name)
                self._bytecode(method.__code__)

    def _tensor(self, value: Untyped) -> None:
        plain = value.detach().cpu()
        try:
            self._array(plain.numpy())
        except TypeError:  # a type that NumPy lacks, such as bfloat16
            self._text(str(plain.dtype))
            self._array(plain.float().numpy())

    def _array(self, value: Array) -> None:
        self._text(f"array {value.dtype.str} {value.shape}")
        if value.dtype.hasobject:
            self._several("objects", value.ravel().tolist())
        else:
            self._bytes(np.ascontiguousarray(value).data.cast("B") if value.size else b"")

    def _text(self, text: str) -> None:
        self._bytes(text.encode("utf-8", "surrogatepass"))

    def _bytes(self, data: bytes | memoryview) -> None:
        self._hash.update(f"{len(data)} ".encode())
        self._hash.update(data)


def _is_of_a_library(value: type | types.FunctionType) -> bool:
    """Tell whether a name says enough: hshap's version is part of every identity."""
    return value.__module__.partition(".")[0] in ("hshap", "torch", "builtins", "numpy")


def _qualified(kind: type) -> str:
    return kind.__qualname__


def _alone(value: object) -> str:
    made = Digest()
    made.add(value)
    return made.hex


@dataclass(frozen=True)
class Fingerprint:
    """The digests of a model and of settings; `unseen` are classes that they do not cover."""

    model: str
    settings: str
    unseen: tuple[str, ...] = ()

    def identity(self, target: str, image_sha256: str) -> str:
        """Return the identity of a row.

        >>> len(Fingerprint("a", "b").identity("0", "c"))
        64
        """
        parts = (str(SCHEMA), self.model, self.settings, target, image_sha256)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def parts_of(explainer: Explainer) -> dict[str, object]:
    """Return all parts of an explainer that can change a result, but the model."""
    evaluator = explainer.evaluator
    options = fields(evaluator) if is_dataclass(evaluator) else ()
    effective = {one.name: getattr(evaluator, one.name) for one in options}
    return {
        "evaluator": {
            "type": type(evaluator).__qualname__,
            **{name: value for name, value in effective.items() if name not in NO_EFFECT},
        },
        "baseline": explainer.baseline,
        "partition": explainer.partition,
        "search": explainer.search,
        "evidence": explainer.evidence,
    }


def fingerprint(explainer: Explainer, *, model_id: str | None, settings: object) -> Fingerprint:
    """Return the digests of an explainer; `settings` are further ones, such as the layout.

    `model_id` takes the place of the model's own digest.
    """
    model, made = Digest(), Digest()
    evaluator = explainer.evaluator
    own = getattr(evaluator, "model", evaluator)
    model.add(own if model_id is None else model_id)
    made.add([__version__, parts_of(explainer), settings])
    return Fingerprint(model.hex, made.hex, tuple(sorted(model.unseen | made.unseen)))
