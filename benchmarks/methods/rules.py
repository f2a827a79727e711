"""Networks as DeepExplainer wants them: one module for every step that has a rule.

It hangs its rules on modules, and takes the plain gradient wherever a network calls a function,
uses one module twice, or has a module that it does not know. Networks written in another style,
the demo's among them, would then be explained by something else than its method: on one image of
the demo its values added up to 1.6 times the right sum, and with this module they add up.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

RELU = (torch.relu, torch.relu_, nn.functional.relu, "relu", "relu_")
LOG_SUM_EXP = (torch.logsumexp, "logsumexp")


class GlobalMax(nn.MaxPool2d):
    """The maximum over all places, whatever the size of the image."""

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.kernel_size = self.stride = tuple(images.shape[-2:])
        return super().forward(images)


class Elementwise(nn.Module):
    """A function of one number."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.function(values)


# The package finds its rules by the names of classes; these have those of their kinds.
GlobalMax.__name__ = "MaxPool2d"
Elementwise.__name__ = "Softplus"


class LogSumExp(nn.Module):
    """The smooth maximum in three steps, of which the sum needs no rule.

    Image and reference share one shift, so that it cancels between them. Computed in doubles, since
    values far below the largest would vanish in single precision.
    """

    def __init__(self, dim: Any, *, keepdim: bool = False) -> None:
        super().__init__()
        self.dim, self.keepdim = dim, keepdim
        self.exp, self.log = Elementwise(torch.exp), Elementwise(torch.log)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        shift = values.detach().max().double()
        total = self.exp(values.double() - shift).sum(self.dim, keepdim=self.keepdim)
        return (self.log(total) + shift).to(values.dtype)


@contextmanager
def with_rules(model: nn.Module) -> Generator[nn.Module, None, None]:
    """Give a model that computes the same, with modules that have rules.

    A model that cannot be traced, such as one that counts its inputs, stays itself, and the models
    in it are exchanged meanwhile.
    """
    inner = dict(model.named_children())
    traced = _traced(model) if inner else model
    if traced is not None:
        yield traced
        return
    with ExitStack() as stack:
        for name, child in inner.items():
            stack.callback(setattr, model, name, child)
            setattr(model, name, stack.enter_context(with_rules(child)))
        yield model


def _traced(model: nn.Module) -> nn.Module | None:
    """Return a copy, since the package leaves tensors behind in modules; None if it cannot be."""
    try:
        whole = fx.symbolic_trace(deepcopy(model))
    except (fx.proxy.TraceError, TypeError, RuntimeError):
        return None
    for node in list(whole.graph.nodes):
        module = _stand_in(node, whole)
        if module is not None:
            name = f"rule_{node.name}"
            whole.add_submodule(name, module)
            with whole.graph.inserting_after(node):
                stand_in = whole.graph.call_module(name, node.args[:1])
            node.replace_all_uses_with(stand_in)
            whole.graph.erase_node(node)
    whole.recompile()
    return whole.eval()


def _stand_in(node: fx.Node, whole: fx.GraphModule) -> nn.Module | None:
    """Return the module that is to take the place of a step, if any."""
    if node.op == "call_module":
        return _instead_of(whole.get_submodule(str(node.target)))
    if node.op not in {"call_function", "call_method"}:
        return None
    if node.target in RELU:
        return nn.ReLU()
    if node.target in LOG_SUM_EXP:
        return LogSumExp(*node.args[1:2], **node.kwargs)
    return None


def _instead_of(module: nn.Module) -> nn.Module | None:
    if isinstance(module, nn.ReLU):
        return nn.ReLU()  # one for each use, and never in place
    if isinstance(module, nn.AdaptiveMaxPool2d) and module.output_size in {1, (1, 1)}:
        return GlobalMax()
    return None
