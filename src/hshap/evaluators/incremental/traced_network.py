"""A traced torch network, run on full inputs or on patches. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.fx.node import map_arg

from hshap.evaluators.incremental.graph import (
    Step,
    Value,
    Values,
    hides_writes,
    kept_names,
    overwritten_names,
    reads_overwritten,
    with_last_reads,
)
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.tracing import UntraceableError, traced
from hshap.evaluators.incremental.writes import WriteCounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from hshap._util.types import Shape

Activations: TypeAlias = dict[str, torch.Tensor]
"""Activations of an anchor by the names of the steps; meta tensors if only the shape is kept."""


class TooLargeError(Exception):
    """Activations take more memory than allowed."""


class Network:
    """A traced module.

    `reason` says why it cannot run on patches, and is empty if it can. A module that looks at the
    shape of its input is traced for images of one `shape` alone, if that is given. Steps before the
    first one without a rule run on patches, later ones on full tensors.
    """

    def __init__(self, module: torch.nn.Module, shape: Shape | None = None) -> None:
        self.module, self.reason = module, ""
        self.steps: list[Step] = []
        try:
            trace = traced(module, shape)
        except UntraceableError as error:
            self.reason = str(error)
            return
        self._input, self._output, self._shape = trace.input, trace.output, trace.shape
        self.steps = with_last_reads(trace.steps, trace.output)
        self._kept = kept_names(self.steps, trace.output)
        self._overwritten = overwritten_names(self.steps)
        if not any(step.rule for step in self.steps):
            self.reason = "none of its operations works place by place"
        if hides_writes(self.steps):
            self.reason = "it reads the bare memory of a tensor, where writes are not counted"
        if reads_overwritten(self.steps, self._overwritten):
            self.reason = "it reads a tensor that it has overwritten in place"

    @property
    def needs_full_tensors(self) -> bool:
        """Whether a step without a rule reads patches, which then become full tensors."""
        return any(s.patch_args and s.rule is None and not s.reads_shape for s in self.steps)

    def activations(
        self, image: torch.Tensor, max_bytes: int | None = None
    ) -> tuple[Activations, torch.Tensor]:
        """Return the activations of an anchor `(1, *image)` that patches need, and its output.

        Raises `TooLargeError` if they take more than `max_bytes`, and `OverwrittenError` if the
        network reads a tensor that it has overwritten, which patches do not support.
        """
        if self._shape not in {None, tuple(image.shape[1:])}:
            message = f"was traced for images of shape {self._shape} alone"
            raise ValueError(message)
        with torch.inference_mode(mode=False), torch.no_grad():  # where tensors count writes
            return self._activations(image, max_bytes)

    def _activations(
        self, image: torch.Tensor, max_bytes: int | None
    ) -> tuple[Activations, torch.Tensor]:
        values: Values = {self._input: image.clone()}
        kept: Activations = {self._input: image}
        writes = WriteCounts(values)
        for step in self.steps:
            writes.check((step.args, step.options))
            value = step.act(*_filled(step.args, values), **_filled(step.options, values))
            values[step.name] = value
            if isinstance(value, torch.Tensor):
                kept[step.name] = self._kept_of(step.name, value)
                writes.add(step.name, value, kept[step.name])
                if step.kind == "constant":
                    writes.watch(value)
                if max_bytes is not None and size_of(kept) > max_bytes:
                    raise TooLargeError
            for name in step.last_reads:
                del values[name]
        writes.check(self._output)
        writes.check_kept()
        return kept, _filled(self._output, values)

    def _kept_of(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if name not in self._kept:
            return value.to("meta")
        return value.clone() if name in self._overwritten else value

    def run(self, patch: Patch, activations: Activations) -> torch.Tensor:
        """Return the outputs `(rows, ...)` of inputs that differ from the anchor in patches."""
        return _full(_filled(self._output, self._values(patch, activations, free=True)))

    def results(self, patch: Patch, activations: Activations) -> Values:
        """Return the result of every step: a patch, or a full tensor."""
        return self._values(patch, activations, free=False)

    def _values(self, patch: Patch, activations: Activations, *, free: bool) -> Values:
        values: Values = {self._input: patch}
        for step in self.steps:
            args = _filled(step.args, values)
            value = _patched(step, args, activations) if _on_patches(step, values) else None
            if value is None:
                convert = _shape_only if step.reads_shape else _full
                options = _mapped(_filled(step.options, values), convert)
                value = step.act(*_mapped(args, convert), **options)
            values[step.name] = value
            for name in step.last_reads if free else ():
                del values[name]
        return values


def size_of(activations: Activations) -> int:
    """Return the bytes of memory that activations take; tensors that share memory count once."""
    real = (t.untyped_storage() for t in activations.values() if t.device.type != "meta")
    return sum({storage.data_ptr(): storage.nbytes() for storage in real}.values())


def _on_patches(step: Step, values: Values) -> bool:
    """Tell whether all arguments are patches that should be: a rule may have returned None."""
    return all(isinstance(values[name], Patch) for name in step.patch_args)


def _patched(step: Step, args: Value, activations: Activations) -> Value:
    """Return the output patch of a step, or None if the step has to run in full."""
    if step.rule is None or not _on_one_grid(args):
        return None
    flat = args[0] if isinstance(args[0], (list, tuple)) else args
    return step.rule.act(flat, activations[step.name])


def _on_one_grid(args: Value) -> bool:
    """Tell whether there are patches among the arguments, all in tensors of one grid."""
    found: list[Patch] = []
    _mapped(args, lambda value: found.append(value) if isinstance(value, Patch) else None)
    return bool(found) and len({patch.grid for patch in found}) == 1


def _filled(args: Value, values: Values) -> Value:
    return map_arg(args, lambda node: values[node.name])


def _mapped(value: Value, act: Callable[[Value], Value]) -> Value:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, act) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, act) for key, item in value.items()}
    return act(value)


def _full(value: Value) -> Value:
    return value.full() if isinstance(value, Patch) else value


def _shape_only(value: Value) -> Value:
    """Return a tensor of the right shape that takes no memory."""
    if not isinstance(value, Patch):
        return value
    return value.anchor.to("meta").expand(len(value.starts), *value.anchor.shape[1:])
