"""Targets: which number of the model's output is explained. Nothing is applied unasked."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hshap import checks
from hshap.errors import ArgumentError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Target = int | Callable[[Any], Any]
"""A class, or a callable from outputs `(n, classes)` to one number for each of the n inputs."""


def as_targets(target: Any) -> tuple[Target, ...]:
    """Return the targets that are asked for, one or several."""
    if is_several(target):
        if len(target) == 0:
            message = (
                f"target={checks.shown(target)} is empty; pass a class, several, or a callable"
            )
            raise ArgumentError(message)
        return tuple(_as_target(single) for single in target)
    return (_as_target(target),)


def is_several(target: Any) -> bool:
    """Tell whether a target is a list of them."""
    if isinstance(target, np.ndarray):
        return target.ndim > 0
    return isinstance(target, Sequence) and not isinstance(target, str)


def describe_target(target: Target) -> int | str:
    """Return what is stored of a target: the class, or the callable's name."""
    if isinstance(target, int):
        return target
    return getattr(target, "__qualname__", type(target).__qualname__)


def measure(target: Target, outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the number that is explained for each row of the model's outputs."""
    if isinstance(target, int):
        if target >= outputs.shape[1]:
            last = outputs.shape[1] - 1
            message = (
                f"target={target} is out of range: the model has {outputs.shape[1]} outputs; "
                + ("pass 0, or a callable" if last == 0 else f"pass 0 to {last}, or a callable")
            )
            raise ArgumentError(message)
        return outputs[:, target]
    # A copy, since others read the outputs too and a callable may well work in place.
    values = np.asarray(target(outputs.copy()), dtype=np.float64)
    if values.shape != (len(outputs),):
        message = (
            f"target {describe_target(target)} returned shape {values.shape} for outputs "
            f"{outputs.shape}; it must return one number for each row, {(len(outputs),)}"
        )
        raise ModelError(message)
    return values


def _as_target(target: Any) -> Target:
    if callable(target) and not isinstance(target, type):
        return target
    try:
        index = -1 if isinstance(target, (bool, type)) else operator.index(target)
    except TypeError:
        index = -1
    if index < 0:
        message = (
            f"target={checks.shown(target)} is not a class; pass a whole number from 0, several of "
            "them, or a callable on the model's output"
        )
        raise ArgumentError(message)
    return index
