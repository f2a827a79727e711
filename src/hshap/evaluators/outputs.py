"""The outputs of a model: scores that can be used, or an error that names the inputs."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from hshap._util.arrays import to_numpy
from hshap.errors import HshapError, ModelError, ModelFailedError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hshap._util.types import Heat
    from hshap.evaluators.canvas import Row


def as_scores(raw: object, count: int) -> Heat:
    """Return scores `(count, classes)`, or say why the model's output cannot be used."""
    if isinstance(raw, (tuple, list, dict)) and not _is_numeric(raw):
        message = (
            f"the model returned a {type(raw).__name__}; wrap it in a function that returns the "
            "scores alone, for example lambda batch: model(batch)[0]"
        )
        raise ModelError(message)
    scores = to_numpy("the model's output", raw)
    if scores.dtype.kind not in "fiub":
        message = f"the model returned {scores.dtype} values; it must return real numbers"
        raise ModelError(message)
    if count == 1 and scores.ndim < 2:
        scores = scores.reshape(1, -1)  # a model that squeezes a batch of one
    if scores.ndim not in (1, 2) or len(scores) != count or scores.size == 0:
        message = (
            f"the model returned shape {scores.shape} for {count} inputs; it must return "
            f"({count},) or ({count}, classes)"
        )
        raise ModelError(message)
    return scores.reshape(count, -1).astype(np.float64)


def _is_numeric(raw: object) -> bool:
    try:
        return not isinstance(raw, dict) and np.asarray(raw).dtype.kind in "fiub"
    except (ValueError, TypeError, RuntimeError):
        return False


@contextmanager
def naming_inputs(rows: Sequence[Row]) -> Generator[None]:
    """Run a model on rows; an error then names the first of them.

    An exception of the model itself becomes the cause of a `ModelFailedError`.
    """
    try:
        yield
    except ModelFailedError:
        raise
    except ModelError as error:
        canvas, kept, _ = rows[0]
        message = f"{error} (the first: image {canvas.position} with {kept} kept)"
        raise ModelError(message) from error
    except HshapError:
        raise
    except Exception as error:
        canvas = rows[0].canvas
        message = (
            f"the model failed on a batch of {len(rows)} inputs of shape {canvas.shape}, the first "
            f"from image {canvas.position} of the run: {type(error).__name__}: {error}"
        )
        raise ModelFailedError(message) from error


def out_of_memory(error: BaseException | None) -> bool:
    """Tell whether an exception reports missing memory, whichever library raised it."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return True
    # torch on the CPU and onnxruntime have no exception class for it.
    phrases = ("out of memory", "can't allocate memory", "failed to allocate", "bad allocation")
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(phrase in text for phrase in phrases)


def free_memory() -> None:
    """Return the memory that torch keeps in reserve on a GPU."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
