"""A traced torch network, run on full inputs or on patches. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch.fx.node import map_arg

from hshap.evaluators.incremental.frames import (
    LARGEST_SHARE,
    Frame,
    framed,
    pieces_of,
    size_of_own,
)
from hshap.evaluators.incremental.graph import (
    Step,
    Value,
    Values,
    hides_writes,
    kept_names,
    overwritten_names,
    reads_overwritten,
    relus_of_convolutions,
    with_last_reads,
)
from hshap.evaluators.incremental.patches import Patch, Piece
from hshap.evaluators.incremental.tracing import UntraceableError, traced
from hshap.evaluators.incremental.writes import WriteCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hshap._util.types import Shape
    from hshap.evaluators.incremental.frames import Corners, Pieces

Activations: TypeAlias = dict[str, torch.Tensor]
"""Activations of an anchor by the names of the steps; meta tensors if only the shape is kept."""


class ShownBox(NamedTuple):
    """A box of an image over an anchor, and the pieces of it at every step where they are known.

    `bytes` is the memory of its own pieces, those of larger boxes left out.
    """

    corners: Corners
    pieces: Mapping[str, Pieces]
    bytes: int = 0


class _Larger(NamedTuple):
    """The pieces of a larger box, and the share of strips up to which frames are kept."""

    pieces: Mapping[str, Pieces]
    largest_share: float


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
        self._reusing = relus_of_convolutions(self.steps, self._kept)
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
            act = torch.relu_ if step.name in self._reusing else step.act
            value = act(*_filled(step.args, values), **_filled(step.options, values))
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
        return _full(_filled(self._output, self._values(patch, activations)))

    def whole(self, activations: Activations) -> ShownBox:
        """Return the activations of an image as those of a box that shows all of it."""
        grid = tuple(activations[self._input].shape[2:])
        origin = (0,) * len(grid)
        names = [s.name for s in self.steps if s.rule is not None and not s.rule.drops_space]
        return ShownBox(
            (origin, grid), {name: (Piece(origin, activations[name][0]),) for name in names}
        )

    def run_box(
        self,
        corners: Corners,
        around: ShownBox,
        activations: Activations,
        image: torch.Tensor,
        *,
        largest_share: float = LARGEST_SHARE,
    ) -> tuple[torch.Tensor, ShownBox]:
        """Return the output `(1, ...)` for a box of an image over an anchor, and its pieces.

        It must be a part of the larger box `around`. `activations` are those of the anchor. Steps
        run strip by strip while strips cover less than `largest_share` of their rectangle.
        """
        frame = framed(corners, around.corners, activations[self._input], image)
        larger = _Larger(around.pieces, largest_share)
        made: dict[str, Patch | Frame | None] = {}
        output = _full(_filled(self._output, self._values(frame, activations, larger, made)))
        pieces = {name: () if value is None else pieces_of(value) for name, value in made.items()}
        own = size_of_own([value for value in made.values() if value is not None])
        return output, ShownBox(corners, pieces, own)

    def results(self, patch: Patch, activations: Activations) -> Values:
        """Return the result of every step: a patch, or a full tensor."""
        return self._values(patch, activations, free=False)

    def _values(
        self,
        start: Patch | Frame,
        activations: Activations,
        larger: _Larger | None = None,
        made: dict[str, Patch | Frame | None] | None = None,
        *,
        free: bool = True,
    ) -> Values:
        """Return the results that are left at the end, or all of them without `free`.

        `made` takes the patches and frames of steps whose activations are kept.
        """
        values: Values = {self._input: start}
        for step in self.steps:
            if larger is not None and not _runs_in_strips(step, values, larger.largest_share):
                _join_frames(step, values)
            args = _filled(step.args, values)
            pieces = {} if larger is None else larger.pieces
            value = _patched(step, args, activations, pieces) if _on_patches(step, values) else None
            if value is None:
                convert = _shape_only if step.reads_shape else _full
                options = _mapped(_filled(step.options, values), convert)
                value = step.act(*_mapped(args, convert), **options)
            values[step.name] = value
            if made is not None and isinstance(value, (Patch, Frame)):
                # Of other activations no reader looks at the surroundings; later steps may write.
                made[step.name] = value if step.name in self._kept else None
            for name in step.last_reads if free else ():
                del values[name]
        return values


def size_of(activations: Activations) -> int:
    """Return the bytes of memory that activations take; tensors that share memory count once."""
    real = (t.untyped_storage() for t in activations.values() if t.device.type != "meta")
    return sum({storage.data_ptr(): storage.nbytes() for storage in real}.values())


def _on_patches(step: Step, values: Values) -> bool:
    """Tell whether all arguments are patches that should be: a rule may have returned None."""
    return all(isinstance(values[name], (Patch, Frame)) for name in step.patch_args)


def _runs_in_strips(step: Step, values: Values, largest_share: float) -> bool:
    """Tell whether a step runs strip by strip: its arguments are frames with small strips."""
    frames = [values[name] for name in step.patch_args]
    if step.rule is None or not all(isinstance(frame, Frame) for frame in frames):
        return False
    # A rule that does not look at anchors sees each place by itself.
    return not step.rule.reads_anchors or (
        step.rule.is_local and all(frame.share < largest_share for frame in frames)
    )


def _join_frames(step: Step, values: Values) -> None:
    """Turn the frames that a step reads into patches of one rectangle."""
    for name in step.patch_args if step.rule is not None else ():
        if isinstance(values[name], Frame):
            values[name] = values[name].patch()


def _patched(
    step: Step, args: Value, activations: Activations, larger: Mapping[str, Pieces]
) -> Value:
    """Return the output patch or frame of a step, or None if the step has to run in full.

    `larger` are the pieces of the larger box of frames.
    """
    if step.rule is None or not _on_one_grid(args):
        return None
    rule, flat = step.rule, args[0] if isinstance(args[0], (list, tuple)) else args
    anchor = activations[step.name]
    frame = next((arg for arg in flat if isinstance(arg, Frame)), None)
    if frame is None:
        return rule.act(flat, anchor)

    def strip(number: int) -> Value:
        # Its surroundings are put together only for rules that look at them.
        own = [
            (arg.strip(number) if rule.reads_anchors else arg.strips[number])
            if isinstance(arg, Frame)
            else arg
            for arg in flat
        ]
        return rule.act(own, anchor)

    strips = tuple(strip(number) for number in range(len(frame.sides)))
    if not all(isinstance(each, Patch) for each in strips):
        return None
    return Frame(strips, frame.sides, larger[step.name])


def _on_one_grid(args: Value) -> bool:
    """Tell whether there are patches among the arguments, all in tensors of one grid."""
    found: list[Patch | Frame] = []
    _mapped(args, lambda value: found.append(value) if isinstance(value, (Patch, Frame)) else None)
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
    return value.full() if isinstance(value, (Patch, Frame)) else value


def _shape_only(value: Value) -> Value:
    """Return a tensor of the right shape that takes no memory."""
    if not isinstance(value, (Patch, Frame)):
        return value
    return value.anchor.to("meta").expand(len(value.starts), *value.anchor.shape[1:])
