"""The tensors of a program that is being drawn, and the choices of a random generator."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from benchmarks.experiments.fuzzing.program import INPUT, NAMES, Line, with_statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

T = TypeVar("T")

LARGEST = 1e3
"""Numbers of a tensor stay below this, so that rounding stays small."""

MOST_CHANNELS = 12
MOST_PIXELS = 4000


class Workspace:
    """Tensors by name, each of a batch of two; `axes` is the number of spatial axes."""

    def __init__(self, rng: np.random.Generator, shape: Sequence[int]) -> None:
        self.rng, self.axes = rng, len(shape) - 1
        self._tensors = {INPUT: torch.rand(2, *shape)}
        self._gone: set[str] = set()

    def accepts(self, line: Line) -> bool:
        """Run a line and keep its tensor; False if torch refuses it or its numbers are extreme."""
        scratch = nn.Module().eval()
        # The copies share memory with each other where the tensors do.
        names = {**NAMES, **copy.deepcopy(self._tensors), "self": scratch}
        counts = [(names[name], names[name]._version) for name in self._tensors]  # noqa: SLF001
        try:
            exec(line.part, names)  # noqa: S102, the code of this grammar
            with_statistics(scratch).eval()
            with torch.no_grad():
                exec("\n".join(line.statements()), names)  # noqa: S102
        except (RuntimeError, ValueError, IndexError, TypeError):
            return False
        made = names[line.out]
        if not self._is_sensible(made):
            return False
        # Mostly, nobody reads a tensor again that was overwritten.
        if self.rng.random() < 0.95:
            written = {_memory(t) for t, count in counts if t._version > count}  # noqa: SLF001
            self._gone |= {n for n in self._tensors if _memory(names[n]) in written}
        self._tensors = {n: names[n] for n in self._tensors} | {line.out: made}
        return True

    def _is_sensible(self, made: torch.Tensor) -> bool:
        """Tell whether a tensor can be built upon."""
        pixels = made[0, 0].numel() if made.ndim == self.axes + 2 else 0
        fits = len(made) == 2 and 1 < pixels <= MOST_PIXELS and made.shape[1] <= MOST_CHANNELS
        # Not a number is not below either.
        return fits and float(made.abs().max()) < LARGEST

    def readable(self) -> list[str]:
        """Return the names of tensors that were not overwritten."""
        return [name for name in self._tensors if name not in self._gone] or [INPUT]

    def name(self) -> str:
        """Return a tensor, more often a new one."""
        names = self.readable()
        last = min(len(names), 1 + int(self.rng.geometric(0.5)))
        return names[-int(self.rng.integers(1, last + 1))]

    def one_of(self, values: Sequence[T]) -> T:
        """Return one of several values."""
        return values[int(self.rng.integers(len(values)))]

    def number_below(self, high: int, low: int = 0) -> int:
        """Return a whole number from `low` on, below `high`."""
        return int(self.rng.integers(low, high))

    def sides(self, low: int, high: int) -> Any:
        """Return one number, or one for each axis."""
        if self.rng.random() < 0.6:
            return self.number_below(high, low)
        return tuple(self.number_below(high, low) for _ in range(self.axes))

    def grid(self, name: str) -> tuple[int, ...]:
        """Return the spatial sides of a tensor."""
        return tuple(self._tensors[name].shape[2:])

    def channels(self, name: str) -> int:
        """Return the number of channels of a tensor."""
        return self._tensors[name].shape[1]

    def line(self, code: str, *reads: str, part: str = "") -> Line:
        """Return a line with a new name; PART stands for its attribute, NAME for its bare name."""
        number = len(self._tensors)
        attribute = f"self.p{number}"
        code = code.replace("PART", attribute)
        part = part.replace("PART", attribute).replace("NAME", f"p{number}")
        return Line(f"t{number}", code, reads, part)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
