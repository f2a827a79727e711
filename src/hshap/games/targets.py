"""Targets: the explained value of the model's outputs, and whether the model decides for it.

No softmax is applied unless asked for. The rule of decisions is here alone: runs and commands
explain the images that it calls positive, and an explanation says when its image is negative.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, cast, get_args

import numpy as np

from hshap._util import checks
from hshap._util.arrays import to_numpy
from hshap._util.recipes import recipe, settle
from hshap.errors import ArgumentError, ModelError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hshap._util.types import Heat

Activation = Literal["raw", "softmax", "sigmoid"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)


@recipe
class Output:
    """One output of the model as it is, or after a softmax or sigmoid.

    `Output(3)` explains the same as the plain class `3`.

    >>> Output(1, "softmax")(np.zeros((1, 4)))
    array([0.25])
    """

    index: int
    activation: Activation = "raw"

    def __post_init__(self) -> None:
        settle(self, index=checks.integer("index", self.index, minimum=0))
        if self.activation not in ACTIVATIONS:
            message = (
                f"activation must be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}; "
                "pass one of these"
            )
            raise ArgumentError(message)

    def __call__(self, outputs: Heat) -> Heat:
        """Return the explained number of each row of outputs `(n, classes)`."""
        _refuse_out_of_range(self.index, outputs)
        if self.activation == "raw":
            return outputs[:, self.index]
        if self.activation == "sigmoid":
            return np.exp(-np.logaddexp(0, -outputs[:, self.index]))
        rest = outputs - outputs.max(axis=1, keepdims=True)
        return np.exp(rest[:, self.index]) / np.exp(rest).sum(axis=1)


Target: TypeAlias = "int | Callable[[Heat], ArrayLike]"
"""A class, or a callable from outputs `(n, classes)` to one number for each of the n inputs."""

Wanted: TypeAlias = "Target | str"
"""A target, or the name of a class, for models that know the names of theirs."""


def as_targets(target: object, index: Callable[[str], int] | None = None) -> tuple[Target, ...]:
    """Return the targets that are asked for, one or several.

    `index` returns the output of a class by its name; without it, names are refused.
    """
    if not is_several(target):
        return (_as_target(target, index),)
    several: Sequence[object] = target  # pyright: ignore[reportAssignmentType]
    if len(several) == 0:
        message = f"target={checks.shown(target)} is empty; pass a class, several, or a callable"
        raise ArgumentError(message)
    return tuple(_as_target(single, index) for single in several)


def is_several(target: object) -> bool:
    """Tell whether a target is a list of them."""
    if isinstance(target, np.ndarray):
        return target.ndim > 0
    return isinstance(target, Sequence) and not isinstance(target, str)


def class_index(target: Target) -> int | None:
    """Return the model output that a target explains; None for a callable of the user's.

    >>> class_index(2), class_index(Output(3, "softmax")), class_index(len)
    (2, 3, None)
    """
    if isinstance(target, Output):
        return target.index
    return target if isinstance(target, int) else None


def describe_target(target: Target) -> int | str:
    """Return the words for a target: the class, or the callable's name.

    >>> describe_target(Output(3, "softmax"))
    'softmax of output 3'
    """
    if isinstance(target, int):
        return target
    if isinstance(target, Output):
        return (
            target.index
            if target.activation == "raw"
            else f"{target.activation} of output {target.index}"
        )
    return getattr(target, "__qualname__", type(target).__qualname__)


def measure(target: Target, outputs: Heat) -> Heat:
    """Return the explained number for each row of the model's outputs."""
    if isinstance(target, int):
        _refuse_out_of_range(target, outputs)
        return outputs[:, target]
    # A copy, since others read the outputs too and a callable may well work in place.
    values = to_numpy("target's answer", target(outputs.copy())).astype(np.float64, copy=False)
    if values.shape != (len(outputs),):
        message = (
            f"target {describe_target(target)} returned shape {values.shape} for outputs "
            f"{outputs.shape}; it must return one number for each row, {(len(outputs),)}"
        )
        raise ModelError(message)
    return values


def _refuse_out_of_range(index: int, outputs: Heat) -> None:
    last = outputs.shape[1] - 1
    if index > last:
        message = f"target={index} is out of range: the model has {last + 1} outputs; " + (
            "pass 0, or a callable" if last == 0 else f"pass 0 to {last}, or a callable"
        )
        raise ArgumentError(message)


def _as_target(target: object, index_of: Callable[[str], int] | None) -> Target:
    if isinstance(target, str) and index_of is not None:
        return index_of(target)
    if callable(target) and not isinstance(target, type):
        return cast("Target", target)
    try:
        index = -1 if isinstance(target, (bool, type)) else operator.index(target)  # pyright: ignore[reportArgumentType]
    except TypeError:
        index = -1
    if index < 0:
        message = (
            f"target={checks.shown(target)} is not a class; pass a whole number from 0, several of "
            "them, or a callable on the model's output"
        )
        raise ArgumentError(message)
    return index


HALF = 0.5
DECISION = "the model's decision"
CLOSE = 1e-3
"""Probabilities of classes that exclude each other add up to 1, but for this."""


@recipe
class Positives:
    """The images that are explained: the model decides for the target, above the baseline.

    The decision follows the scale of the model's outputs:

    - several outputs, and any softmax: the target's is the highest.
    - outputs from 0 to 1 on image and baseline that do not add up to 1, a single one among them,
      and any sigmoid: the target's is above one half.
    - any other single output is read as a logit: it is above 0.
    - a callable of the user's has no known scale: it need only be above its baseline.

    `min_score` takes the place of this rule: the score is at least this number. In any case, the
    score is above that of the bare baseline: else there is nothing to find.

    >>> Positives().reason(0, np.array([0.03]), np.array([[0.01]]))
    '0.03 is not above one half'
    >>> Positives().reason(0, np.array([1.5, -2.0]), np.array([[0.5, 0.0]]))
    ''
    """

    min_score: float | None = None

    def __post_init__(self) -> None:
        if self.min_score is not None:
            settle(self, min_score=checks.number("min_score", self.min_score, minimum=-np.inf))

    @property
    def rule(self) -> str:
        """The rule in a few words, for the rows of a run.

        >>> Positives().rule, Positives(0.2).rule
        ("the model's decision", 'a score of at least 0.2')
        """
        return DECISION if self.min_score is None else f"a score of at least {self.min_score!r}"

    def reason(self, target: Target, outputs: Heat, hidden: Heat) -> str:
        """Return why the model's decision is negative; empty if it is positive.

        `outputs` `(classes,)` are the model's for the image, `hidden` `(draws, classes)` those for
        the bare baseline. Whether the score is above the baseline's is for `not_above`, once the
        baseline is chosen.
        """
        if self.min_score is None:
            return decided_against(target, outputs, hidden)
        score = float(measure(target, outputs[None])[0])
        return f"{score:.3g} is below {self.min_score:.3g}" * (score < self.min_score)


POSITIVES = Positives()
"""The usual rule."""


def not_above(score: float, bare: float) -> str:
    """Return why a score has nothing to explain over its baseline's; empty if it has.

    >>> not_above(0.9, 0.95), not_above(0.9, 0.1)
    ('0.9 is not above its baseline, which scores 0.95', '')
    """
    if score > bare or not np.isfinite(score - bare):  # other numbers are an error elsewhere
        return ""
    return f"{score:.3g} is not above its baseline, which scores {bare:.3g}"


def decided_against(target: Target, outputs: Heat, hidden: Heat) -> str:
    """Return how the model decides against a target; empty if it does not, or nobody knows.

    The arguments are those of `Positives.reason`.
    """
    index, score = class_index(target), float(measure(target, outputs[None])[0])
    if index is None or not np.isfinite(score):
        return ""
    kind = target.activation if isinstance(target, Output) else "raw"
    every = np.concatenate([outputs[None], hidden])
    apart = bool(((every >= 0) & (every <= 1)).all()) and (
        len(outputs) == 1 or not bool((np.abs(every.sum(axis=1) - 1) <= CLOSE).all())
    )
    if kind == "sigmoid" or (kind == "raw" and apart):
        return f"{score:.3g} is not above one half" * (score <= HALF)
    if len(outputs) == 1:
        return f"{score:.3g} is not above 0" * (kind == "raw" and score <= 0)
    top = int(outputs.argmax())
    return f"output {top} is higher" * bool(outputs[top] > outputs[index])
