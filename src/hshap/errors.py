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

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

EXTRAS = {
    "torch": ("torch", "safetensors"),
    "plot": ("matplotlib",),
    "onnx": ("onnxruntime",),
    "trees": ("higra", "scipy"),
    "cli": ("matplotlib", "typer", "rich", "pillow", "imagecodecs"),
    "export": ("tifffile",),
    "large": ("tifffile", "imagecodecs", "zarr"),
    "medical": ("pydicom", "nibabel", "highdicom"),
    "slides": ("tifffile", "imagecodecs", "zarr", "openslide-python", "openslide-bin"),
    "serve": (
        *("matplotlib", "typer", "rich", "pillow", "imagecodecs"),
        *("starlette", "uvicorn"),
    ),
    "runs": ("cloudpickle", "duckdb", "fsspec", "pyarrow"),
    "dask": ("cloudpickle", "distributed", "duckdb", "fsspec", "pyarrow"),
    "ray": ("cloudpickle", "duckdb", "fsspec", "pyarrow", "ray"),
    "slurm": ("cloudpickle", "duckdb", "fsspec", "pyarrow", "submitit"),
}
"""The packages of each extra in pyproject.toml.

Messages name them: an extra could be installed only if the index had this project by its name.
"""

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
    ... except hshap.PairsFailedError as error:
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
    hshap.errors.MissingExtraError: this example needs a_library: pip install torch safetensors
    """


def require(module: str, *, needed_by: str, extra: str | None = None) -> ModuleType:
    """Import an optional dependency, or say which packages to install."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        message = f"{needed_by} needs {package}: {installing(extra or package)}"
        raise MissingExtraError(message) from error


def installing(name: str) -> str:
    """Return the command that installs the packages of an extra, or one package.

    >>> installing("trees"), installing("pandas")
    ('pip install higra scipy', 'pip install pandas')
    """
    return f"pip install {' '.join(EXTRAS.get(name, (name,)))}"
