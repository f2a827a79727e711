"""Steps: a traced torch network as a list, and what is known before it runs. Needs torch."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torch import fx, nn
from torch.fx.node import map_arg
from torch.nn.utils.fusion import fuse_conv_bn_eval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hshap.evaluators.incremental.layer_rules import Rule

FOLDED = {
    (nn.Conv1d, nn.BatchNorm1d),
    (nn.Conv2d, nn.BatchNorm2d),
    (nn.Conv3d, nn.BatchNorm3d),
}


@dataclass(frozen=True, eq=False)
class Step:
    """One operation: `act` on whole tensors, `rule` on patches if there is one."""

    name: str
    kind: str
    act: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]
    rule: Rule | None
    in_place: bool = False
    reads_shape: bool = False
    local: tuple[str, ...] = ()  # what it reads that should be patches
    last: tuple[str, ...] = ()  # values that no later step reads


def is_plain(module: nn.Module) -> bool:
    """Tell whether calling a module does what its type says: no hooks, no forward of its own."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return "forward" not in vars(module) and not any(getattr(module, name) for name in hooks)


def traceable(module: nn.Module) -> nn.Module:
    """Return a copy that shares the parameters: tracing runs the user's code, which may set things.

    Buffers are copied, since that code may write to them.
    """
    return copy.deepcopy(module, {id(own): own for own in module.parameters()})


def folded(traced: fx.GraphModule) -> fx.GraphModule:
    """Put every batch norm that only follows a convolution into that convolution's weights."""
    modules: dict[str, Any] = dict(traced.named_modules())
    for node in list(traced.graph.nodes):
        before = node.args[0] if node.op == "call_module" and len(node.args) == 1 else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        first, norm = modules[str(before.target)], modules[str(node.target)]
        known = (type(first), type(norm)) in FOLDED and norm.running_mean is not None
        if known and is_plain(first) and is_plain(norm):
            name = f"{before.target}_folded_{node.name}"
            modules[name] = fuse_conv_bn_eval(first, norm)
            traced.add_submodule(name, modules[name])
            before.target = name
            node.replace_all_uses_with(before)
            traced.graph.erase_node(node)
    return traced


def with_last_reads(steps: Sequence[Step], output: Any) -> list[Step]:
    """Tell each step what no later one reads, so that it need not be kept."""
    later: set[str] = set()
    map_arg(output, lambda node: later.add(node.name))
    found: list[Step] = []
    for step in reversed(steps):
        read: set[str] = set()
        map_arg((step.args, step.options), lambda node, read=read: read.add(node.name))
        unread = {step.name} - later  # nobody reads it at all
        found.append(replace(step, last=tuple(sorted((read | unread) - (later - unread)))))
        later |= read
    return found[::-1]


def watched(steps: Sequence[Step]) -> set[str]:
    """Return the names of activations whose anchors are looked at: all but those of pointwise."""
    names: set[str] = set()
    for step in steps:
        if step.reads_shape:
            continue
        if step.rule is None or step.rule.looks_around:
            map_arg((step.args, step.options), lambda node: names.add(node.name))
        if step.rule is not None and step.rule.ends_space:
            names.add(step.name)
    return names


def works_in_place(node: fx.Node, act: Any) -> bool:
    """Tell whether a node's operation writes over what it reads."""
    if node.op == "call_module":
        return bool(getattr(act, "inplace", False))
    name = str(getattr(node.target, "__name__", node.target))
    named_so = name.endswith("_") and not name.endswith("__")
    return named_so or name in {"iadd", "isub", "imul", "itruediv"} or "inplace" in node.kwargs


def overwritten(steps: Sequence[Step]) -> dict[str, int]:
    """Return the names of activations that a step writes over, with the number of the step."""
    found: dict[str, int] = {}
    for number, step in enumerate(steps):
        if step.in_place and step.args and isinstance(step.args[0], fx.Node):
            found.setdefault(step.args[0].name, number)
    return found


def read_after(steps: Sequence[Step], overwritten: dict[str, int]) -> bool:
    """Tell whether a step reads what an earlier one has overwritten."""
    late: list[bool] = []
    for number, step in enumerate(steps):
        map_arg(
            (step.args, step.options),
            lambda node, number=number: late.append(overwritten.get(node.name, number) < number),
        )
    return any(late)
