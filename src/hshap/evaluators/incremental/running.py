"""Running one step on patches or frames, or on full tensors where it has no rule. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx.node import Node, map_arg

from hshap.evaluators.incremental.frames import Frame
from hshap.evaluators.incremental.patches import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hshap.evaluators.incremental.drawing import Known
    from hshap.evaluators.incremental.frames import Pieces
    from hshap.evaluators.incremental.graph import Step, Value, Values


def on_patches(step: Step, values: Values) -> bool:
    """Tell whether all arguments are patches that should be: a rule may have returned None."""
    return all(isinstance(values[name], (Patch, Frame)) for name in step.patch_args)


def runs_in_strips(step: Step, values: Values, largest_share: float) -> bool:
    """Tell whether a step runs strip by strip: its arguments are frames with small strips."""
    frames = [values[name] for name in step.patch_args]
    if step.rule is None or not all(isinstance(frame, Frame) for frame in frames):
        return False
    # A rule that does not look at anchors sees each place by itself.
    return not step.rule.reads_anchors or (
        step.rule.is_local and all(frame.is_thin(largest_share) for frame in frames)
    )


def join_frames(step: Step, values: Values) -> None:
    """Turn the frames that a step reads into patches of one rectangle; reductions take frames."""
    is_joined = step.rule is not None and not step.rule.drops_space
    for name in step.patch_args if is_joined else ():
        if isinstance(values[name], Frame):
            values[name] = values[name].patch()


def patched(
    step: Step,
    args: Value,
    activations: Mapping[str, Known],
    larger: Sequence[Mapping[str, Pieces]],
) -> Value:
    """Return the output patch or frame of a step, or None if the step has to run in full.

    `larger` are the pieces of the larger boxes of frames.
    """
    if step.rule is None or not _on_one_grid(args):
        return None
    rule, flat = step.rule, args[0] if isinstance(args[0], (list, tuple)) else args
    anchor = activations[step.name]
    frame = next((arg for arg in flat if isinstance(arg, Frame)), None)
    if frame is None or rule.drops_space:
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

    strips = tuple(strip(number) for number in range(len(frame.strips)))
    if not all(isinstance(each, Patch) for each in strips):
        return None
    return Frame(strips, frame.sides, tuple(pieces[step.name] for pieces in larger))


def _on_one_grid(args: Value) -> bool:
    """Tell whether there are patches among the arguments, all in tensors of one grid."""
    found: list[Patch | Frame] = []
    mapped(args, lambda value: found.append(value) if isinstance(value, (Patch, Frame)) else None)
    return bool(found) and len({patch.grid for patch in found}) == 1


def filled(args: Value, values: Values) -> Value:
    """Return arguments with the results of steps in the place of their nodes."""
    if isinstance(args, tuple) and all(isinstance(arg, Node) for arg in args):
        return tuple(values[arg.name] for arg in args)  # most often: faster than the general way
    return map_arg(args, lambda node: values[node.name])


def mapped(value: Value, act: Callable[[Value], Value]) -> Value:
    """Apply a function to every value inside of lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, act) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, act) for key, item in value.items()}
    return act(value)


def full(value: Value) -> Value:
    """Return a full tensor for a patch or a frame, and any other value as it is."""
    return value.full() if isinstance(value, (Patch, Frame)) else value


def shape_only(value: Value) -> Value:
    """Return a tensor of the right shape that takes no memory."""
    if not isinstance(value, (Patch, Frame)):
        return value
    shape = (len(value.starts), *value.anchor.shape[1:])
    return torch.empty(shape, dtype=value.anchor.dtype, device="meta")
