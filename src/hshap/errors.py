"""The few exceptions of hshap.

HshapError
├── ArgumentError (ValueError)       an argument cannot be used; says which, its value and the fix
├── UnknownOptionError (TypeError)   a recipe has no such option; names the ones it has
├── ModelError (RuntimeError)        the model's answer cannot be used; says for which input
├── FormatError (ValueError)         a file is not an explanation this version can read
└── MissingExtraError (ImportError)  an optional dependency is absent; names the pip command
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


class HshapError(Exception):
    """Base of every exception that hshap raises on purpose."""


class ArgumentError(HshapError, ValueError):
    """An argument cannot be used."""


class UnknownOptionError(HshapError, TypeError):
    """A recipe was given an option that it does not have."""


class ModelError(HshapError, RuntimeError):
    """The model's answer cannot be used."""


class FormatError(HshapError, ValueError):
    """A file is not an explanation that this version can read."""


class MissingExtraError(HshapError, ImportError):
    """An optional dependency is not installed."""


def require(module: str, *, what: str, extra: str | None = None) -> ModuleType:
    """Import an optional dependency, or say which extra brings it, or that it comes by itself."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        source = package if extra is None else f"'hshap[{extra}]'"
        message = f"{what} needs {package}: pip install {source}"
        raise MissingExtraError(message) from error
