"""A torch network as a list of steps, run on whole inputs or on patches of them. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.fx.node import map_arg

from hshap.layers import Rule, function_rule, module_rule
from hshap.patches import Patch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Anchors = dict[str, torch.Tensor]


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


class Network:
    """A traced module.

    `reason` says why it cannot be run on patches, if so. Everything up to the first step without a
    rule is; from there on, tensors are whole.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.reason = module, ""
        self.steps: list[Step] = []
        self._input, self._output = "", None
        try:
            traced = fx.symbolic_trace(module)
        except Exception as error:  # noqa: BLE001, tracing runs the user's code, which may do anything
            self.reason = f"it cannot be traced ({type(error).__name__}: {error})"
            return
        spatial: dict[fx.Node, bool] = {}
        constants: dict[fx.Node, Any] = {}
        for node in traced.graph.nodes:
            self._add(traced, node, spatial, constants)
        self.watched, self._overwritten = _watched(self.steps), _overwritten(self.steps)
        if not any(step.rule for step in self.steps):
            self.reason = "none of its operations works place by place"
        if _read_after(self.steps, self._overwritten):
            self.reason = "it reads what it has overwritten in place"

    def _add(
        self,
        traced: Any,
        node: fx.Node,
        spatial: dict[fx.Node, bool],
        constants: dict[fx.Node, Any],
    ) -> None:
        if node.op == "placeholder":
            if self._input:
                self.reason = "it takes more than one input"
            self._input, spatial[node] = node.name, True
        elif node.op == "get_attr":
            value = constants[node] = _attribute(traced, str(node.target))
            self.steps.append(Step(node.name, "constant", lambda: value, (), {}, None))
            spatial[node] = False
        elif node.op == "output":
            self._output = node.args[0]
        else:
            act, rule = _operation(traced, node, spatial, constants)
            kind = _kind(traced, node)
            options = dict(node.kwargs)
            in_place = _works_in_place(node, act)
            self.steps.append(Step(node.name, kind, act, node.args, options, rule, in_place))
            # A mean over all places leaves nothing to be local.
            spatial[node] = rule is not None and not _ends_space(rule)

    def anchors(self, image: torch.Tensor) -> tuple[Anchors, torch.Tensor]:
        """Return the activations of one input `(1, *image)` that patches look at, and its output.

        Of the others only the shape is kept.
        """
        values: dict[str, Any] = {self._input: image.clone()}
        kept: Anchors = {self._input: image}
        for step in self.steps:
            value = step.act(*_filled(step.args, values), **_filled(step.options, values))
            values[step.name] = value
            if isinstance(value, torch.Tensor):
                kept[step.name] = self._kept(step.name, value)
        return kept, _filled(self._output, values)

    def _kept(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if name not in self.watched:
            return value.to("meta")
        return value.clone() if name in self._overwritten else value

    def run(self, patch: Patch, anchors: Anchors) -> torch.Tensor:
        """Return the outputs `(rows, ...)` of inputs that differ from the anchor in patches."""
        return _whole(_filled(self._output, self._values(patch, anchors)))

    def shares(self, patch: Patch, anchors: Anchors) -> list[tuple[str, str, str, float]]:
        """Return for each step its name, its kind, how it runs, and the share of its outcome."""
        values = self._values(patch, anchors)
        return [
            (step.name, step.kind, *_share(values[step.name]))
            for step in self.steps
            if step.kind != "constant"
        ]

    def _values(self, patch: Patch, anchors: Anchors) -> dict[str, Any]:
        values: dict[str, Any] = {self._input: patch}
        for step in self.steps:
            args = _filled(step.args, values)
            if step.rule is not None and _fits(args):
                flat = args[0] if isinstance(args[0], (list, tuple)) else args
                values[step.name] = step.rule(flat, anchors[step.name])
            else:
                whole = _mapped(args, _whole), _mapped(_filled(step.options, values), _whole)
                values[step.name] = step.act(*whole[0], **whole[1])
        return values


def _share(value: Any) -> tuple[str, float]:
    if isinstance(value, Patch):
        return "patch", prod(value.size) / prod(value.grid)
    return "whole", 1.0


def _operation(
    traced: Any,
    node: fx.Node,
    spatial: dict[fx.Node, bool],
    constants: dict[fx.Node, Any],
) -> tuple[Callable[..., Any], Rule | None]:
    if node.op == "call_module":
        module = traced.get_submodule(str(node.target))
        first: Any = node.args[0] if len(node.args) == 1 else None
        known = spatial.get(first, False) and not node.kwargs
        return module, module_rule(module) if known else None
    target: Any = node.target
    flat = node.args[0] if node.args and isinstance(node.args[0], (list, tuple)) else node.args
    local = [isinstance(arg, fx.Node) and spatial.get(arg, False) for arg in flat]
    plain = not any(isinstance(value, fx.Node) for value in node.kwargs.values())
    options = dict(node.kwargs)
    if target in {torch.cat, torch.concat} and len(node.args) > 1:
        options["dim"] = node.args[1]
    given = [constants.get(arg, arg) if isinstance(arg, fx.Node) else arg for arg in flat]
    rule = function_rule(target, given, options, local) if plain else None
    if node.op == "call_method":
        name = str(target)
        return (lambda first, *args, **more: getattr(first, name)(*args, **more)), rule
    return target, rule


def _kind(traced: Any, node: fx.Node) -> str:
    if node.op == "call_module":
        return type(traced.get_submodule(str(node.target))).__name__
    return str(getattr(node.target, "__name__", node.target))


def _ends_space(rule: Rule) -> bool:
    return getattr(rule, "__name__", "") == "_mean"


def _watched(steps: Sequence[Step]) -> set[str]:
    """Return the names of activations whose anchors are looked at: all but those of pointwise."""
    names: set[str] = set()
    for step in steps:
        if step.rule is None or step.rule.__qualname__ != "_pointwise.<locals>.rule":
            map_arg((step.args, step.options), lambda node: names.add(node.name))
        if step.rule is not None and _ends_space(step.rule):
            names.add(step.name)
    return names


def _works_in_place(node: fx.Node, act: Any) -> bool:
    if node.op == "call_module":
        return bool(getattr(act, "inplace", False))
    name = str(getattr(node.target, "__name__", node.target))
    named_so = name.endswith("_") and not name.endswith("__")
    return named_so or name in {"iadd", "isub", "imul", "itruediv"} or "inplace" in node.kwargs


def _overwritten(steps: Sequence[Step]) -> dict[str, int]:
    """Return the names of activations that a step writes over, with the number of the step."""
    found: dict[str, int] = {}
    for number, step in enumerate(steps):
        if step.in_place and step.args and isinstance(step.args[0], fx.Node):
            found[step.args[0].name] = number
    return found


def _read_after(steps: Sequence[Step], overwritten: dict[str, int]) -> bool:
    """Tell whether a step reads what an earlier one has overwritten."""
    late: list[bool] = []
    for number, step in enumerate(steps):
        map_arg(
            (step.args, step.options),
            lambda node, number=number: late.append(overwritten.get(node.name, number) < number),
        )
    return any(late)


def _fits(args: Any) -> bool:
    """Tell whether the patches among the arguments lie in tensors of one grid."""
    found: list[Patch] = []
    _mapped(args, lambda value: found.append(value) if isinstance(value, Patch) else None)
    return bool(found) and len({patch.grid for patch in found}) == 1


def _filled(args: Any, values: dict[str, Any]) -> Any:
    return map_arg(args, lambda node: values[node.name])


def _mapped(value: Any, act: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, act) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, act) for key, item in value.items()}
    return act(value)


def _whole(value: Any) -> Any:
    return value.whole() if isinstance(value, Patch) else value


def _attribute(root: Any, path: str) -> Any:
    for name in path.split("."):
        root = getattr(root, name)
    return root


def reported(network: Network, shape: tuple[int, ...]) -> str:
    """Return a table: each layer, how it runs, and the share of its work that a patch leaves."""
    if network.reason:
        return f"every input is run as a whole: {network.reason}"
    grid = shape[1:]
    size = tuple(max(1, n // 4) for n in grid)
    start = tuple((n - m) // 2 for n, m in zip(grid, size, strict=True))
    kind = next((p for p in network.module.parameters() if p.is_floating_point()), torch.empty(0))
    with torch.inference_mode():
        image = torch.zeros((1, *shape), dtype=kind.dtype, device=kind.device)
        anchors, _ = network.anchors(image)
        data = image[(slice(None), slice(None), *(slice(0, m) for m in size))]
        shares = network.shares(Patch(data, (start,), image), anchors)
    head = ("layer", "operation", "how", "work for a quarter of the side")
    lines = [head, *((n, k, w, f"{s:.2f}") for n, k, w, s in shares)]
    widths = [max(len(line[i]) for line in lines) + 3 for i in range(3)]
    return "\n".join(
        "".join(cell.ljust(width) for cell, width in zip(line, widths, strict=False)) + line[3]
        for line in lines
    )
