"""Calls: one node of an ONNX graph, and the graph of torch that it is added to. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch import fx, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hshap._util.types import Array, Untyped


class UnsupportedError(Exception):
    """An operator, or an option of it, that has no counterpart here."""


@dataclass(frozen=True, eq=False)
class Call:
    """One node of an ONNX graph, and the graph of torch that it is added to.

    `inputs` are nodes of that graph, constant arrays, or None. `rank` gives the number of axes of
    a node's tensor.
    """

    kind: str
    inputs: Sequence[Untyped]
    options: Mapping[str, Untyped]
    rank: Callable[[fx.Node], int]
    add_module: Callable[[nn.Module, fx.Node], fx.Node]
    graph: fx.Graph
    constant: Callable[[Array], fx.Node]

    @property
    def first(self) -> fx.Node:
        """The first input, which must be a tensor that the network computes."""
        return self.node(0)

    @property
    def axes(self) -> int:
        """Number of spatial axes of the first input."""
        return self.rank(self.first) - 2

    def node(self, number: int) -> fx.Node:
        """Return an input as a node."""
        given = self.inputs[number]
        return given if isinstance(given, fx.Node) else self.constant(given)

    def known(self, number: int, name: str = "") -> Array | None:
        """Return an input that must be a constant, or an option of that name in older versions."""
        given = self.inputs[number] if number < len(self.inputs) else None
        if isinstance(given, fx.Node):
            message = f"{self.kind} with a computed argument {number}"
            raise UnsupportedError(message)
        if given is None and name in self.options:
            return np.asarray(self.options[name])
        return given

    def needed(self, number: int, name: str = "") -> Array:
        """Return a constant input that the operator cannot do without."""
        found = self.known(number, name)
        if found is None:
            message = f"{self.kind} without its input {number}"
            raise UnsupportedError(message)
        return found

    def layer(self, module: nn.Module) -> fx.Node:
        """Add a layer on the first input."""
        return self.add_module(module, self.first)

    def call(self, target: Callable[..., Untyped], *args: Untyped, **options: Untyped) -> fx.Node:
        """Add a function."""
        return self.graph.call_function(target, args, options)

    def refuse_unless(self, holds: bool, option: str) -> None:  # noqa: FBT001, reads as a sentence
        """Raise `UnsupportedError` that names an option."""
        if not holds:
            message = f"{self.kind} with {option}={self.options.get(option)!r}"
            raise UnsupportedError(message)


Converter: TypeAlias = "Callable[[Call], fx.Node]"


def tensor(array: Array) -> torch.Tensor:
    """Return an array as a tensor with memory of its own."""
    return torch.from_numpy(np.array(array))
