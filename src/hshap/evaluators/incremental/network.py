"""A traced torch network, run on full inputs or on patches. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch
from torch.fx.node import Node, map_arg

from hshap.evaluators.incremental.boxes import (
    LARGEST_SHARE,
    Borders,
    borders_of,
    size_of_own,
)
from hshap.evaluators.incremental.constant_baseline import is_flat, plan, stretch
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.steps import (
    Step,
    Values,
    WriteCounts,
    hides_writes,
    kept_names,
    overwritten_names,
    reads_overwritten,
    with_last_reads,
)
from hshap.evaluators.incremental.tracing import UntraceableError, trace_module
from hshap.evaluators.incremental.windows import Known, tiles_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hshap._util.types import Shape
    from hshap.evaluators.incremental.boxes import Pieces
    from hshap.evaluators.incremental.constant_baseline import Plan
    from hshap.evaluators.incremental.steps import Step, Value, Values
    from hshap.evaluators.incremental.windows import Corners, Sides


Activations: TypeAlias = dict[str, Known]
"""Activations of an anchor by the names of the steps; meta tensors if only the shape is kept."""


class ShownBox(NamedTuple):
    """A box of an image over an anchor, and the pieces of it at every step where they are known.

    `bytes` is the memory of its own pieces, those of larger boxes left out.
    """

    corners: Corners
    pieces: Mapping[str, Pieces]
    bytes: int = 0


@dataclass(frozen=True, eq=False)
class _PiecesOfRow(Mapping[str, "Pieces"]):
    """The pieces of one row by step, put together when a smaller box asks for them: few ever do."""

    made: Mapping[str, Patch | Borders | None]
    row: int

    def __getitem__(self, name: str) -> Pieces:
        value = self.made[name]
        return () if value is None else value.pieces(self.row)

    def __iter__(self) -> Iterator[str]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)


class _Larger(NamedTuple):
    """The pieces of each row's larger box, and the share of strips up to which borders are kept."""

    pieces: Sequence[Mapping[str, Pieces]]
    largest_share: float


class FlatAnchor(NamedTuple):
    """An input of one colour, its activations and its output.

    `share` is the part of the image that was computed.
    """

    tensor: torch.Tensor
    activations: Activations
    output: torch.Tensor
    share: float


class ActivationsTooLargeError(Exception):
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
        self._plans: dict[Sides, Plan | None] = {}
        try:
            trace = trace_module(module, shape)
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

        Raises `ActivationsTooLargeError` if they take more than `max_bytes`, and `OverwrittenError`
        if the network reads a tensor that it has overwritten, which patches do not support.
        """
        if self._shape not in {None, tuple(image.shape[1:])}:
            message = f"was traced for images of shape {self._shape} alone"
            raise ValueError(message)
        with torch.inference_mode(mode=False), torch.no_grad():  # where tensors count writes
            return self._activations(image, max_bytes)

    def has_flat_anchor(self, image: torch.Tensor) -> bool:
        """Tell whether an image has one colour, and activations that repeat far from borders."""
        return is_flat(image) and self._plan(tuple(image.shape[2:])) is not None

    def _plan(self, grid: Sides) -> Plan | None:
        """Return the plan of flat anchors for images of a size; each is made once."""
        if grid not in self._plans:
            self._plans[grid] = plan(self.steps, self._input, grid)
        return self._plans[grid]

    def flat_activations(
        self,
        image: torch.Tensor,
        max_bytes: int | None = None,
        layout: torch.memory_format = torch.preserve_format,
    ) -> FlatAnchor | None:
        """Return the activations of an image of one colour, from those of a smaller one.

        That is a copy in the given memory layout. None if the image has several colours, or if no
        smaller one will do. Fails like `activations`.
        """
        grid = tuple(image.shape[2:])
        zones = self._plan(grid) if is_flat(image) else None
        if zones is None:
            return None
        sides = [slice(0, zone.high) for zone in zones[self._input]]
        small = image[(slice(None), slice(None), *sides)].clone(memory_format=layout)
        found, _ = self.activations(small, max_bytes)
        kept = {
            name: stretch(value, zones[name])
            for name, value in found.items()
            if name in zones and isinstance(value, torch.Tensor)
        }
        # Of the small image: a view of the large one would keep all its memory.
        corner = small[(slice(None), slice(None), *(slice(0, 1) for _ in grid))]
        with torch.inference_mode():
            output = self.run(Patch(corner, ((0,) * len(grid),), kept[self._input]), found | kept)
        return FlatAnchor(
            corner.expand_as(image), found | kept, output, small.numel() / image.numel()
        )

    def _activations(
        self, image: torch.Tensor, max_bytes: int | None
    ) -> tuple[Activations, torch.Tensor]:
        values: Values = {self._input: image.clone()}
        kept: Activations = {self._input: image}
        writes, size = WriteCounts(values), size_of(kept)
        for step in self.steps:
            writes.check((step.args, step.options))
            value = step.act(
                *fill_arguments(step.args, values), **fill_arguments(step.options, values)
            )
            values[step.name] = value
            if isinstance(value, torch.Tensor):
                own = kept[step.name] = self._kept_of(step.name, value)
                writes.add(step.name, value, own)
                if step.kind == "constant":
                    writes.watch(value)
                size += 0 if own.device.type == "meta" else own.nbytes
                # The sum is an upper bound, since some tensors share memory.
                if max_bytes is not None and size > max_bytes < size_of(kept):
                    raise ActivationsTooLargeError
            for name in step.last_reads:
                del values[name]
        writes.check(self._output)
        writes.check_kept()
        return kept, fill_arguments(self._output, values)

    def _kept_of(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if name not in self._kept:
            return value.to("meta")
        return value.clone() if name in self._overwritten else value

    def run(self, patch: Patch, activations: Activations) -> torch.Tensor:
        """Return the outputs `(rows, ...)` of inputs that differ from the anchor in patches."""
        return full(fill_arguments(self._output, self._values(patch, activations)))

    def whole(self, activations: Activations) -> ShownBox:
        """Return the activations of an image as those of a box that shows all of it."""
        grid = tuple(activations[self._input].shape[2:])
        origin = (0,) * len(grid)
        names = [s.name for s in self.steps if s.rule is not None and not s.rule.drops_space]
        return ShownBox((origin, grid), {name: tiles_of(activations[name]) for name in names})

    def run_boxes(
        self,
        corners: Sequence[Corners],
        around: Sequence[ShownBox],
        activations: Activations,
        image: torch.Tensor,
        *,
        largest_share: float = LARGEST_SHARE,
    ) -> tuple[torch.Tensor, list[ShownBox]]:
        """Return the outputs `(rows, ...)` for boxes of an image over an anchor, and their pieces.

        Each must be a part of its larger box `around`; `borders_of` says which boxes run together.
        `activations` are those of the anchor. Steps run strip by strip while strips cover less
        than `largest_share` of their rectangle.
        """
        larger = [box.corners for box in around]
        borders = borders_of(corners, larger, activations[self._input], image)
        known = _Larger([box.pieces for box in around], largest_share)
        made: dict[str, Patch | Borders | None] = {}
        outputs = full(
            fill_arguments(self._output, self._values(borders, activations, known, made))
        )
        own = size_of_own([value for value in made.values() if value is not None])
        boxes = [
            ShownBox(each, _PiecesOfRow(made, row), own // len(corners))
            for row, each in enumerate(corners)
        ]
        return outputs, boxes

    def results(self, patch: Patch, activations: Activations) -> Values:
        """Return the result of every step: a patch, or a full tensor."""
        return self._values(patch, activations, free=False)

    def _values(
        self,
        start: Patch | Borders,
        activations: Activations,
        larger: _Larger | None = None,
        made: dict[str, Patch | Borders | None] | None = None,
        *,
        free: bool = True,
    ) -> Values:
        """Return the results that are left at the end, or all of them without `free`.

        `made` takes the patches and borders of steps whose activations are kept.
        """
        values: Values = {self._input: start}
        for step in self.steps:
            if larger is not None and not runs_in_strips(step, values, larger.largest_share):
                join_borders(step, values)
            args = fill_arguments(step.args, values)
            pieces = () if larger is None else larger.pieces
            value = run_rule(step, args, activations, pieces) if on_patches(step, values) else None
            if value is None:
                convert = shape_only if step.reads_shape else full
                options = map_values(fill_arguments(step.options, values), convert)
                value = step.act(*map_values(args, convert), **options)
            values[step.name] = value
            if made is not None and isinstance(value, (Patch, Borders)):
                # Of other activations no reader looks at the surroundings; later steps may write.
                made[step.name] = value if step.name in self._kept else None
            for name in step.last_reads if free else ():
                del values[name]
        return values


def size_of(activations: Activations) -> int:
    """Return the bytes of memory that activations take; tensors that share memory count once."""
    tiles = (
        tile
        for known in activations.values()
        for tile in ([known] if isinstance(known, torch.Tensor) else [t.data for t in known.tiles])
    )
    real = (tile.untyped_storage() for tile in tiles if tile.device.type != "meta")
    return sum({storage.data_ptr(): storage.nbytes() for storage in real}.values())


def on_patches(step: Step, values: Values) -> bool:
    """Tell whether all arguments are patches that should be: a rule may have returned None."""
    return all(isinstance(values[name], (Patch, Borders)) for name in step.patch_args)


def runs_in_strips(step: Step, values: Values, largest_share: float) -> bool:
    """Tell whether a step runs strip by strip: its arguments are borders with small strips."""
    borders = [values[name] for name in step.patch_args]
    if step.rule is None or not all(isinstance(each, Borders) for each in borders):
        return False
    # A rule that does not look at anchors sees each place by itself.
    return not step.rule.reads_anchors or (
        step.rule.is_local and all(each.share < largest_share for each in borders)
    )


def join_borders(step: Step, values: Values) -> None:
    """Turn the borders that a step reads into patches of one rectangle; reductions take borders."""
    is_joined = step.rule is not None and not step.rule.drops_space
    for name in step.patch_args if is_joined else ():
        if isinstance(values[name], Borders):
            values[name] = values[name].patch()


def run_rule(
    step: Step,
    args: Value,
    activations: Mapping[str, Known],
    larger: Sequence[Mapping[str, Pieces]],
) -> Value:
    """Return the output patch or borders of a step, or None if the step has to run in full.

    `larger` are the pieces of the larger boxes of borders.
    """
    if step.rule is None or not _on_one_grid(args):
        return None
    rule, flat = step.rule, args[0] if isinstance(args[0], (list, tuple)) else args
    anchor = activations[step.name]
    borders = next((arg for arg in flat if isinstance(arg, Borders)), None)
    if borders is None or rule.drops_space:
        return rule.act(flat, anchor)

    def strip(number: int) -> Value:
        # Its surroundings are put together only for rules that look at them.
        own = [
            (arg.strip(number) if rule.reads_anchors else arg.strips[number])
            if isinstance(arg, Borders)
            else arg
            for arg in flat
        ]
        return rule.act(own, anchor)

    strips = tuple(strip(number) for number in range(len(borders.strips)))
    if not all(isinstance(each, Patch) for each in strips):
        return None
    return Borders(strips, borders.sides, tuple(pieces[step.name] for pieces in larger))


def _on_one_grid(args: Value) -> bool:
    """Tell whether there are patches among the arguments, all in tensors of one grid."""
    found: list[Patch | Borders] = []
    map_values(
        args, lambda value: found.append(value) if isinstance(value, (Patch, Borders)) else None
    )
    return bool(found) and len({patch.grid for patch in found}) == 1


def fill_arguments(args: Value, values: Values) -> Value:
    """Return arguments with the results of steps in the place of their nodes."""
    if isinstance(args, tuple) and all(isinstance(arg, Node) for arg in args):
        return tuple(values[arg.name] for arg in args)  # most often: faster than the general way
    return map_arg(args, lambda node: values[node.name])


def map_values(value: Value, act: Callable[[Value], Value]) -> Value:
    """Apply a function to every value inside of lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        return type(value)(map_values(item, act) for item in value)
    if isinstance(value, dict):
        return {key: map_values(item, act) for key, item in value.items()}
    return act(value)


def full(value: Value) -> Value:
    """Return a full tensor for a patch or borders, and any other value as it is."""
    return value.full() if isinstance(value, (Patch, Borders)) else value


def shape_only(value: Value) -> Value:
    """Return a tensor of the right shape that takes no memory."""
    if not isinstance(value, (Patch, Borders)):
        return value
    shape = (len(value.starts), *value.anchor.shape[1:])
    return torch.empty(shape, dtype=value.anchor.dtype, device="meta")
