"""The outputs of a model: scores that can be used, or an error that names the inputs."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from hshap._util.arrays import is_tensor, to_numpy
from hshap.errors import ArgumentError, HshapError, ModelError, ModelFailedError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from hshap._util.types import Array, Heat, Shape, Untyped
    from hshap.evaluators.canvas import Row


LOGITS = "logits"
"""The name of the scores in outputs with several entries, as in transformers and torchvision."""

SHAPE_WORDS = re.compile(
    r"shape|size|channel|dimension|\bdim\b|\b\dD\b|rank|mismatch", re.IGNORECASE
)
LONGEST = 500
"""Characters of a model's own message that are quoted."""


def scores_in(raw: Untyped) -> Untyped:
    """Return the scores in a model's output: its `logits`, its only entry, or the output itself.

    Outputs with `logits` are those of transformers and torchvision: objects, dictionaries and named
    tuples. Anything else comes back as it is.

    >>> scores_in({"loss": None, "logits": [[1.0, 2.0]]})
    [[1.0, 2.0]]
    >>> scores_in((np.array([[1.0, 2.0]]),))
    array([[1., 2.]])
    """
    if isinstance(raw, dict):
        held: dict[object, object] = raw
        found = held.get(LOGITS, next(iter(held.values())) if len(held) == 1 else None)
        return raw if found is None else found
    found = getattr(raw, LOGITS, None)
    if found is not None:
        return found
    if isinstance(raw, (tuple, list)):
        items: Sequence[object] = raw
        return items[0] if len(items) == 1 and getattr(items[0], "shape", None) else raw
    return raw


def as_scores(raw: object, count: int) -> Heat:
    """Return scores `(count, classes)`, or say why the model's output cannot be used."""
    if type(raw) is np.ndarray and _is_usual(raw, count):
        return raw.astype(np.float64)
    found = scores_in(raw)
    scores = None if found is None or isinstance(found, (dict, str)) else _array(found)
    if scores is None or _is_several(found, count):
        raise ModelError(f"the model returned {_describe(found)}; {_fix(found)}")
    if count == 1 and scores.ndim < 2:
        scores = scores.reshape(1, -1)  # a model that squeezes a batch of one
    listed = isinstance(found, (tuple, list))
    if scores.ndim > 2 and not listed and all(side == 1 for side in scores.shape[2:]):
        scores = scores.reshape(scores.shape[:2])  # a convolution as the last layer
    if scores.ndim not in (1, 2) or len(scores) != count or scores.size == 0:
        message = (
            f"the model returned shape {scores.shape} for {count} inputs; it must return "
            f"({count},) or ({count}, classes)"
        )
        if scores.ndim > 2 and len(scores) == count:
            axes, largest = tuple(range(2, scores.ndim)), "amax" if is_tensor(found) else "max"
            message += f", for example lambda batch: model(batch).{largest}({axes})"
        raise ModelError(message)
    return scores.reshape(count, -1).astype(np.float64)


def _is_usual(raw: Array, count: int) -> bool:
    """Tell whether an array is `(count, classes)` and of real numbers, as most outputs are."""
    return raw.dtype.kind == "f" and raw.shape[:-1] == (count,) and raw.size > 0


def _array(raw: object) -> Array | None:
    try:
        return to_numpy("the model's output", raw)
    except ArgumentError as error:
        if is_tensor(raw) or isinstance(raw, np.ndarray):
            raise ModelError(str(error).replace("; pass ", "; return ")) from None
        return None


def _is_several(raw: object, count: int) -> bool:
    """Tell whether an output has several arrays, and is no list with one for each input."""
    if not isinstance(raw, (tuple, list)):
        return False
    items: Sequence[object] = raw
    one_each = isinstance(raw, list) and len(items) == count
    return not one_each and any(getattr(item, "shape", None) for item in items)


def _describe(raw: object) -> str:
    if isinstance(raw, dict):
        return f"a dict with the entries {', '.join(map(str, list(raw)[:8]))}"
    if isinstance(raw, (tuple, list)):
        return f"a {type(raw).__name__} of {len(raw)}"
    return "None" if raw is None else f"a {type(raw).__name__}"


def _fix(raw: object) -> str:
    entry = ".scores"
    if isinstance(raw, dict) and raw:
        entry = f"[{next(iter(raw))!r}]"
    elif isinstance(raw, (tuple, list)):
        entry = "[0]"
    elif raw is None:
        return "it must return the scores (n, classes); a return statement may be missing"
    return (
        "wrap it in a function that returns the scores alone, for example "
        f"lambda batch: model(batch){entry}"
    )


@contextmanager
def naming_inputs(rows: Sequence[Row]) -> Generator[None]:
    """Run a model on rows; an error then names the first of them.

    An exception of the model itself becomes the cause of a `ModelFailedError`.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001, whatever the model raises
        raise_named(error, rows)


def raise_named(error: Exception, rows: Sequence[Row]) -> NoReturn:
    """Raise an error of a model again, with the first of its inputs; see `naming_inputs`."""
    canvas, kept, _ = rows[0]
    if isinstance(error, HshapError) and (
        isinstance(error, ModelFailedError) or not isinstance(error, ModelError)
    ):
        raise error
    if isinstance(error, ModelError):
        message = f"{error} (the first: image {canvas.position} with {kept} kept)"
        raise ModelError(message) from error
    said = " ".join(str(error).split())[:LONGEST]
    hint = _shape_hint(canvas.shape) if SHAPE_WORDS.search(said) else ""
    message = (
        f"the model failed on a batch of {len(rows)} inputs of shape {canvas.shape}, the first "
        f"from image {canvas.position} of the run: {type(error).__name__}: {said}{hint}"
    )
    raise ModelFailedError(message) from error


def _shape_hint(shape: Shape) -> str:
    """Return the likely fix for an image of a shape that the model does not take."""
    grid = " x ".join(map(str, shape[1:]))
    count = "1 channel" if shape[0] == 1 else f"{shape[0]} channels"
    read = f"image has shape {shape}, read as {count} of {grid} pixels"
    if len(shape) == 2:
        return f"; {read}: for a grey picture, pass image[None]"
    if len(shape) > 3:
        return f"; {read}: for a batch of pictures, pass one of them, image[0]"
    return f"; {read}: pass an image of the size and the channels that the model takes"
