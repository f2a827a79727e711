"""The few exceptions of hshap.

HshapError
├── ArgumentError (ValueError)       an argument cannot be used; says which, its value and the fix
├── UnknownOptionError (TypeError)   a recipe has no such option; names the ones it has
├── ModelError (RuntimeError)        the model's answer cannot be used; says for which input
│   └── ModelFailedError             the model raised an exception, which is the cause of this one
├── PairsFailedError (RuntimeError)  some images of a run failed; has the exception of each
├── FormatError (ValueError)         a file is no explanation, or large image, that can be read
└── MissingExtraError (ImportError)  an optional dependency is absent; names the pip command
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

__all__ = [
    "ArgumentError",
    "FormatError",
    "HshapError",
    "MissingExtraError",
    "ModelError",
    "ModelFailedError",
    "PairsFailedError",
    "UnknownOptionError",
]

MODULES = {"pillow": "PIL", "openslide-python": "openslide"}
"""Packages that are imported by another name."""

EXTRA = re.compile(r"(?P<package>[\w.-]+)[^;]*; *extra *== *['\"](?P<extra>[\w-]+)['\"]")
"""A package of an extra, in the requirements of an installed package."""

MOST_POSITIONS = 10
"""Positions that a message lists."""


class HshapError(Exception):
    """Base of every exception that hshap raises on purpose.

    >>> import hshap
    >>> try:
    ...     hshap.Dyadic(min_size=0)
    ... except hshap.HshapError as error:
    ...     print(error)
    min_size must be at least 1, got 0; pass 1 or more
    """


class ArgumentError(HshapError, ValueError):
    """An argument cannot be used.

    >>> import hshap
    >>> hshap.Blur(sigma=-1.0)
    Traceback (most recent call last):
    hshap.errors.ArgumentError: sigma must be a finite number of 0.001 or more, got -1.0;
    pass one of 0.001 or more
    """


class UnknownOptionError(HshapError, TypeError):
    """A recipe was given an option that it does not have.

    >>> import hshap
    >>> hshap.DepthFirst(tolerence=0.1)
    Traceback (most recent call last):
    hshap.errors.UnknownOptionError: DepthFirst has no option tolerence=0.1; did you mean tolerance?
    its options are tolerance, keep_whole, max_evaluations, max_seconds, width
    """


class ModelError(HshapError, RuntimeError):
    """The model's answer cannot be used.

    >>> import hshap
    >>> import numpy as np
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.mean(), baseline=hshap.Constant(0.0), partition=hshap.Dyadic(1)
    ... )
    >>> explainer.explain(np.ones((1, 4, 4)), target=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hshap.errors.ModelError: the model returned shape () for 16 inputs; it must return (16,) ...
    """


class ModelFailedError(ModelError):
    """The model raised an exception; `__cause__` is that exception.

    >>> import hshap
    >>> import numpy as np
    >>> def broken(batch):
    ...     raise ZeroDivisionError("no pixels")
    >>> explainer = hshap.Explainer(
    ...     broken, baseline=hshap.Constant(0.0), partition=hshap.Dyadic(1)
    ... )
    >>> explainer.explain(np.ones((1, 4, 4)), target=0)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hshap.errors.ModelFailedError: the model failed on a batch of 16 inputs of shape (1, 4, 4), ...
    """


class PairsFailedError(HshapError, RuntimeError):
    """Some pairs of `explain_many` failed; all others were explained before this is raised.

    `errors` has the exception of each, by the position of its pair.

    >>> import hshap
    >>> import numpy as np
    >>> explainer = hshap.Explainer(
    ...     lambda batch: batch.max(axis=(1, 2, 3)),
    ...     baseline=hshap.Constant(0.0),
    ...     partition=hshap.Dyadic(min_size=2),
    ... )
    >>> pairs = [(np.ones((1, 4, 4)), 0), (np.full((1, 4, 4), np.nan), 0)]
    >>> try:
    ...     for explanation in explainer.explain_many(pairs):
    ...         print(explanation.position)
    ... except hshap.errors.PairsFailedError as error:
    ...     print(list(error.errors))
    0
    [1]
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(errors)
        self.errors = dict(sorted(errors.items()))

    @property
    def first(self) -> Exception:
        """The exception of the first of the pairs."""
        return next(iter(self.errors.values()))

    def __str__(self) -> str:
        """Return the positions, and the first of the messages, in one line."""
        positions = list(map(str, self.errors))
        if len(positions) > MOST_POSITIONS:
            positions[MOST_POSITIONS:] = ["..."]
        said = " ".join(str(self.first).split()) or type(self.first).__name__
        return (
            f"pairs: {len(self.errors)} failed, at position {', '.join(positions)}; the results of "
            f"the others came before this error; the first failed with: {said}"
        )


class FormatError(HshapError, ValueError):
    """A file is not an explanation that this version can read, or not a large image.

    >>> import hshap
    >>> hshap.Explanation.load(__file__)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    hshap.errors.FormatError: ... is not an hshap explanation; pass a file that save() wrote
    """


class MissingExtraError(HshapError, ImportError):
    """An optional dependency is not installed.

    >>> require("a_library", extra="torch", needed_by="this example")
    Traceback (most recent call last):
    hshap.errors.MissingExtraError: this example needs a_library: pip install safetensors torch
    """


def require(module: str, *, needed_by: str, extra: str | None = None) -> ModuleType:
    """Import an optional dependency, or say which packages to install."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        message = f"{needed_by} needs {package}: {installing(extra or package)}"
        raise MissingExtraError(message) from error


def require_extra(extra: str, *, needed_by: str) -> None:
    """Say which packages of an extra to install; return if none is missing."""
    missing = missing_packages(extra)
    if missing:
        raise MissingExtraError(f"{needed_by} needs {', '.join(missing)}: {installing(extra)}")


def installing(name: str) -> str:
    """Return the command that installs the packages of an extra, or one package.

    Packages are named, since no index has this project by its name.

    >>> installing("trees"), installing("pandas")
    ('pip install higra scipy', 'pip install pandas')
    """
    return f"pip install {' '.join(packages_of(name) or (name,))}"


def packages_of(extra: str) -> tuple[str, ...]:
    """Return the packages of an extra, as this installation knows them; none if it is unknown.

    >>> packages_of("export")
    ('tifffile',)
    """
    found = (EXTRA.fullmatch(line) for line in _requirements())
    return tuple(match["package"] for match in found if match and match["extra"] == extra)


def missing_packages(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed.

    >>> missing_packages("no such extra")
    []
    """
    names = {name: MODULES.get(name, name.replace("-", "_")) for name in packages_of(extra)}
    return [name for name, module in names.items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:  # it is imported without a specification, or was hidden
        return bool(sys.modules[module])


def _requirements() -> list[str]:
    """Return the requirements that the package was installed with; none beside a checkout."""
    from importlib.metadata import PackageNotFoundError, requires  # noqa: PLC0415, it takes long

    try:
        return requires("hshap") or []
    except PackageNotFoundError:
        return []
