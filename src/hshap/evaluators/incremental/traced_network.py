"""A torch network as a list of steps, run on whole inputs or on patches of them. Needs torch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch.fx.node import map_arg
from torch.nn import functional as f

from hshap.evaluators.incremental.function_rules import SHAPES, function_rule
from hshap.evaluators.incremental.graph import (
    Step,
    folded,
    is_plain,
    overwritten,
    read_after,
    traceable,
    watched,
    with_last_reads,
    works_in_place,
)
from hshap.evaluators.incremental.layer_rules import Rule, module_rule, pointwise
from hshap.evaluators.incremental.patches import Patch

if TYPE_CHECKING:
    from collections.abc import Callable

Anchors = dict[str, torch.Tensor]


class TooLargeError(Exception):
    """Activations take more memory than they may."""


class OverwrittenError(Exception):
    """A step reads what another has written over, by whatever name."""


class _Writes:
    """How often each tensor was written to, which torch counts, by whatever name it was."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._seen = {name: _writes(value) for name, value in values.items()}
        self._held: list[tuple[torch.Tensor, int]] = []

    def note(self, name: str, value: torch.Tensor, kept: torch.Tensor) -> None:
        self._seen[name] = _writes(value)
        if kept.device.type != "meta":
            self._held.append((kept, _writes(kept)))

    def check(self, read: Any, values: dict[str, Any]) -> None:
        """Refuse to read what was written over since it was made."""

        def one(node: fx.Node) -> None:
            if node.name in self._seen and _writes(values[node.name]) != self._seen[node.name]:
                raise OverwrittenError

        map_arg(read, one)

    def check_kept(self) -> None:
        """Refuse what was written over though it is kept."""
        if any(_writes(tensor) != version for tensor, version in self._held):
            raise OverwrittenError


def _writes(tensor: torch.Tensor) -> int:
    return tensor._version  # noqa: SLF001, torch's own count has no public name


class Network:
    """A traced module.

    `reason` says why it cannot be run on patches, if so. Everything up to the first step without a
    rule is; from there on, tensors are whole.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module, self.reason = module, ""
        self.steps: list[Step] = []
        self._input, self._output = "", None
        self._fresh: set[fx.Node] = set()  # whose patches are made anew, not an argument's
        if not is_plain(module):
            self.reason = "it has hooks, or a forward of its own, which tracing does not see"
            return
        try:
            traced = folded(fx.symbolic_trace(traceable(module)))
            spatial: dict[fx.Node, bool] = {}
            constants: dict[fx.Node, Any] = {}
            for node in traced.graph.nodes:
                self._add(traced, node, spatial, constants)
        except Exception as error:  # noqa: BLE001, tracing runs the user's code, which may do anything
            self.reason = f"it cannot be traced ({type(error).__name__}: {error})"
            return
        self.steps = with_last_reads(self.steps, self._output)
        self.watched, self._overwritten = watched(self.steps), overwritten(self.steps)
        if not any(step.rule for step in self.steps):
            self.reason = "none of its operations works place by place"
        if read_after(self.steps, self._overwritten):
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
            rule = _in_place(act, node, rule, self._fresh)
            if rule is not None and rule.looks_around:
                self._fresh.add(node)
            kind = _kind(traced, node)
            options = dict(node.kwargs)
            step = Step(
                node.name,
                kind,
                act,
                node.args,
                options,
                rule,
                in_place=works_in_place(node, act),
                local=tuple(n.name for n in node.all_input_nodes if spatial.get(n)),
                reads_shape=(str(node.args[1]) if kind == "getattr" else kind) in SHAPES,
            )
            self.steps.append(step)
            # A mean over all places leaves nothing to be local.
            spatial[node] = rule is not None and not rule.ends_space

    @property
    def goes_whole(self) -> bool:
        """Whether some step needs whole tensors of what had places until then."""
        return any(s.local and s.rule is None and not s.reads_shape for s in self.steps)

    def anchors(
        self, image: torch.Tensor, max_bytes: int | None = None
    ) -> tuple[Anchors, torch.Tensor]:
        """Return the activations of one input `(1, *image)` that patches look at, and its output.

        Of the others only the shape is kept. More than `max_bytes` raise `TooLargeError`. Where it
        reads what it has written over, `OverwrittenError` is raised: patches do not do that.
        """
        with torch.inference_mode(mode=False), torch.no_grad():  # where tensors count their writes
            return self._anchors(image, max_bytes)

    def _anchors(self, image: torch.Tensor, max_bytes: int | None) -> tuple[Anchors, torch.Tensor]:
        values: dict[str, Any] = {self._input: image.clone()}
        kept: Anchors = {self._input: image}
        writes = _Writes(values)
        for step in self.steps:
            writes.check((step.args, step.options), values)
            value = step.act(*_filled(step.args, values), **_filled(step.options, values))
            values[step.name] = value
            if isinstance(value, torch.Tensor):
                kept[step.name] = self._kept(step.name, value)
                writes.note(step.name, value, kept[step.name])
                if max_bytes is not None and size_of(kept) > max_bytes:
                    raise TooLargeError
            for name in step.last:
                del values[name]
        writes.check(self._output, values)
        writes.check_kept()
        return kept, _filled(self._output, values)

    def _kept(self, name: str, value: torch.Tensor) -> torch.Tensor:
        if name not in self.watched:
            return value.to("meta")
        return value.clone() if name in self._overwritten else value

    def run(self, patch: Patch, anchors: Anchors) -> torch.Tensor:
        """Return the outputs `(rows, ...)` of inputs that differ from the anchor in patches."""
        return _whole(_filled(self._output, self._values(patch, anchors, forget=True)))

    def shares(self, patch: Patch, anchors: Anchors) -> list[tuple[str, str, str, float]]:
        """Return for each step its name, its kind, how it runs, and the share of its outcome."""
        values = self._values(patch, anchors, forget=False)
        return [
            (step.name, step.kind, *_share(values[step.name]))
            for step in self.steps
            if step.kind != "constant"
        ]

    def _values(self, patch: Patch, anchors: Anchors, *, forget: bool) -> dict[str, Any]:
        values: dict[str, Any] = {self._input: patch}
        for step in self.steps:
            args = _filled(step.args, values)
            value = _patched(step, args, anchors) if _in_patches(step, values) else None
            if value is None:
                seen = _shape_only if step.reads_shape else _whole
                whole = _mapped(args, seen), _mapped(_filled(step.options, values), seen)
                value = step.act(*whole[0], **whole[1])
            values[step.name] = value
            for name in step.last if forget else ():
                del values[name]
        return values


def _in_patches(step: Step, values: dict[str, Any]) -> bool:
    """Tell whether all that should be is: some rules find that they cannot only when they run."""
    return all(isinstance(values[name], Patch) for name in step.local)


def _patched(step: Step, args: Any, anchors: Anchors) -> Any:
    """Return what a step makes of patches, if it can."""
    if step.rule is None or not _fits(args):
        return None
    flat = args[0] if isinstance(args[0], (list, tuple)) else args
    return step.rule.act(flat, anchors[step.name])


def size_of(anchors: Anchors) -> int:
    """Return how many bytes of memory activations take; some share it under two names."""
    real = (t.untyped_storage() for t in anchors.values() if t.device.type != "meta")
    return sum({storage.data_ptr(): storage.nbytes() for storage in real}.values())


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
    # An enlargement's size may be read from another tensor.
    plain = target is f.interpolate or not any(
        isinstance(value, fx.Node) for value in node.kwargs.values()
    )
    options = dict(node.kwargs)
    if target in {torch.cat, torch.concat} and len(node.args) > 1:
        options["dim"] = node.args[1]
    given = [constants.get(arg, arg) if isinstance(arg, fx.Node) else arg for arg in flat]
    rule = function_rule(target, given, options, local) if plain else None
    if node.op == "call_method":
        name = str(target)
        return (lambda first, *args, **more: getattr(first, name)(*args, **more)), rule
    return target, rule


def _in_place(act: Any, node: fx.Node, rule: Rule | None, fresh: set[fx.Node]) -> Rule | None:
    """Let a ReLU overwrite patches that were made for it alone: they need no second room."""
    first: Any = node.args[0] if node.args else None
    is_relu = type(act) is nn.ReLU or act in {f.relu, torch.relu}
    if rule is None or not is_relu or first not in fresh or len(first.users) > 1:
        return rule
    return pointwise(torch.relu_)


def _kind(traced: Any, node: fx.Node) -> str:
    if node.op == "call_module":
        return type(traced.get_submodule(str(node.target))).__name__
    return str(getattr(node.target, "__name__", node.target))


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


def _shape_only(value: Any) -> Any:
    """Return a tensor of the right shape that takes no memory."""
    if not isinstance(value, Patch):
        return value
    return value.anchor.to("meta").expand(len(value.starts), *value.anchor.shape[1:])


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
