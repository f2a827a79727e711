"""A network as a list of steps, and facts known before they run; writes in place. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import fx
from torch.fx.node import map_arg

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap.evaluators.incremental.patches import Patch, Zone
    from hshap.evaluators.incremental.windows import Known

    Zones: TypeAlias = Sequence[Zone]


Value: TypeAlias = Any
"""An argument or a result of a step: a tensor, a patch, a number, a string, or a tuple of these."""

Values: TypeAlias = dict[str, Value]
"""Results by the names of their steps."""


@dataclass(frozen=True, eq=False)
class Rule:
    """How an operation runs on patches.

    `act(args, anchor)` returns the output patch, or None if unsupported. Tensors among `args` are
    patches; `anchor` is the output for the anchor. With `reads_anchors`, the rule reads the values
    of the arguments' anchors. With `drops_space`, the output has no spatial axes, and is a tensor.
    With `is_local`, an output depends on one window around its place, and on nothing beyond it.
    `zones` tells where outputs for an image of one colour agree, given where each argument does;
    None if that is not known.
    """

    act: Callable[[Sequence[Value], Known], Patch | torch.Tensor | None]
    reads_anchors: bool = True
    drops_space: bool = False
    is_local: bool = False
    zones: Callable[[Sequence[Zones]], Zones | None] | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """One operation: `act` runs on full tensors, `rule` on patches if there is one."""

    name: str
    kind: str
    act: Callable[..., Value]
    args: tuple[Value, ...]
    options: dict[str, Value]
    rule: Rule | None
    in_place: bool = False
    reads_shape: bool = False  # only the shape of its arguments matters
    patch_args: tuple[str, ...] = ()  # arguments that are patches, unless a rule failed
    last_reads: tuple[str, ...] = ()  # values that no later step reads


def names_in(args: Value) -> set[str]:
    """Return the names of the steps whose results the arguments refer to."""
    names: set[str] = set()
    map_arg(args, lambda node: names.add(node.name))
    return names


def with_last_reads(steps: Sequence[Step], output: Value) -> list[Step]:
    """Tell each step which values no later step reads, so that they can be freed."""
    later = names_in(output)
    found: list[Step] = []
    for step in reversed(steps):
        read = names_in((step.args, step.options))
        unread = {step.name} - later  # no step reads its result
        last = tuple(sorted((read | unread) - (later - unread)))
        found.append(replace(step, last_reads=last))
        later |= read
    return found[::-1]


def kept_names(steps: Sequence[Step], output: Value) -> set[str]:
    """Return the names of activations whose full values must be kept."""
    names = names_in(output)
    for step in steps:
        if step.reads_shape:
            continue
        if step.rule is None or step.rule.reads_anchors:
            names.update(step.patch_args)  # other arguments are computed for every row
        if step.rule is not None and step.rule.drops_space:
            names.add(step.name)
    return names


def overwritten_names(steps: Sequence[Step]) -> dict[str, int]:
    """Return the names of activations that a step overwrites, with the number of that step."""
    found: dict[str, int] = {}
    for number, step in enumerate(steps):
        if step.in_place and step.args and isinstance(step.args[0], fx.Node):
            found.setdefault(step.args[0].name, number)
    return found


def hides_writes(steps: Sequence[Step]) -> bool:
    """Tell whether a step takes the bare memory of a tensor, where torch does not count writes."""
    hidden = {"data", "numpy", "data_ptr", "untyped_storage", "storage", "__array__"}
    return any(
        (str(step.args[1]) if step.kind == "getattr" else step.kind) in hidden for step in steps
    )


def reads_overwritten(steps: Sequence[Step], overwritten: dict[str, int]) -> bool:
    """Tell whether a step reads an activation that an earlier one has overwritten."""
    return any(
        overwritten.get(name, number) < number
        for number, step in enumerate(steps)
        for name in names_in((step.args, step.options))
    )


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

    def watch(self, constant: Value) -> None:
        """Note the writes to a tensor of the module itself, which later runs read too."""
        if isinstance(constant, torch.Tensor):
            self._kept.append((constant, _count(constant)))

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
