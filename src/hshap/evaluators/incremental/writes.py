"""Writes in place: find steps that read a tensor after another step has overwritten it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hshap.evaluators.incremental.graph import Value, Values, names_in

if TYPE_CHECKING:
    import torch


class OverwrittenError(Exception):
    """A step reads a tensor that another has overwritten, perhaps under another name."""


class WriteCounts:
    """Counts the writes to each tensor. torch does the counting, for all names of one memory."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._counts = {name: _count(value) for name, value in values.items()}
        self._kept: list[tuple[torch.Tensor, int]] = []

    def add(self, name: str, value: torch.Tensor, kept: torch.Tensor) -> None:
        """Note the writes to a new result, and to the tensor that is kept of it."""
        self._counts[name] = _count(value)
        if kept.device.type != "meta":
            self._kept.append((kept, _count(kept)))

    def check(self, args: Value) -> None:
        """Raise `OverwrittenError` if an argument was overwritten since it was computed."""
        for name in names_in(args) & self._counts.keys():
            if _count(self._values[name]) != self._counts[name]:
                raise OverwrittenError

    def check_kept(self) -> None:
        """Raise `OverwrittenError` if a kept tensor was overwritten."""
        if any(_count(tensor) != count for tensor, count in self._kept):
            raise OverwrittenError


def _count(tensor: torch.Tensor) -> int:
    return tensor._version  # noqa: SLF001, torch's own count has no public name
