"""Operators of ONNX that reduce, join or rearrange axes. Needs torch."""

from __future__ import annotations

import torch
from torch import fx, nn

from hshap.evaluators.onnx_import.calls import Call, Converter, UnsupportedError


def _reduction(call: Call) -> fx.Node:
    axes = call.known(1, "axes")
    over = range(call.rank(call.first)) if axes is None else axes.tolist()
    dims, keep = [int(a) for a in over], bool(call.options.get("keepdims", 1))
    target = {"ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax}[call.kind]
    if call.kind == "ReduceMean":
        dims = [a % call.rank(call.first) for a in dims]
        return call.graph.call_method("mean", (call.first, dims), {"keepdim": True} if keep else {})
    return call.call(target, call.first, dims, keepdim=keep)


def _reshape(call: Call) -> fx.Node:
    shape = call.needed(1, "shape")
    sides = [int(n) for n in shape]
    if 0 in sides[1:] or not sides:
        message = f"Reshape to {sides}"
        raise UnsupportedError(message)
    # The first axis is the batch, whatever its size was in the file.
    if -1 not in sides[1:]:
        return call.call(torch.reshape, call.first, [-1, *sides[1:]])
    flat = call.call(torch.flatten, call.first, 1)
    return flat if len(sides) == 2 else call.call(torch.unflatten, flat, 1, sides[1:])


def _flatten(call: Call) -> fx.Node:
    call.refuse_unless(call.options.get("axis", 1) == 1, "axis")
    return call.layer(nn.Flatten())


def _transpose(call: Call) -> fx.Node:
    order = call.options.get("perm", list(range(call.rank(call.first)))[::-1])
    return call.call(torch.permute, call.first, [int(a) for a in order])


def _squeeze(call: Call) -> fx.Node:
    axes = call.known(1, "axes")
    if axes is None:
        message = f"{call.kind} without axes"
        raise UnsupportedError(message)
    target = torch.squeeze if call.kind == "Squeeze" else torch.unsqueeze
    made = call.first
    dims = [int(a) for a in axes.reshape(-1)]
    for dim in sorted(dims, reverse=call.kind == "Squeeze"):
        made = call.call(target, made, dim)
    return made


def _concat(call: Call) -> fx.Node:
    nodes = [call.node(n) for n in range(len(call.inputs))]
    return call.call(torch.cat, nodes, call.options["axis"] % call.rank(nodes[0]))


CONVERTERS: dict[str, Converter] = {
    "ReduceMean": _reduction,
    "ReduceSum": _reduction,
    "ReduceMax": _reduction,
    "Reshape": _reshape,
    "Flatten": _flatten,
    "Transpose": _transpose,
    "Squeeze": _squeeze,
    "Unsqueeze": _squeeze,
    "Concat": _concat,
}
