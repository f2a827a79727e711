"""Activation functions that overwrite their argument, where no other step reads it. Needs torch."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as f

from hshap.evaluators.incremental.graph import Rule, Value
from hshap.evaluators.incremental.layer_rules import same_zones
from hshap.evaluators.incremental.patches import Patch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hshap.evaluators.incremental.drawing import Known
    from hshap.evaluators.incremental.patches import Operation

LAYERS = (
    *(nn.CELU, nn.ELU, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.LeakyReLU, nn.Mish),
    *(nn.ReLU, nn.ReLU6, nn.SELU, nn.SiLU, nn.Threshold),
)
FUNCTIONS = {
    *(f.celu, f.elu, f.hardsigmoid, f.hardswish, f.hardtanh, f.leaky_relu, f.mish),
    *(f.relu, f.relu6, f.selu, f.silu),
}


def in_place(act: Value) -> Operation | None:
    """Return the same activation function, written into its argument; None if torch has none."""
    if act is torch.relu:
        return torch.relu_
    if act in FUNCTIONS:
        return partial(act, inplace=True)
    if type(act) not in LAYERS:
        return None
    writing = copy.copy(act)
    writing.inplace = True
    return writing


def of_last_reader(writing: Operation) -> Rule:
    """Return the rule of a function that alone reads its argument: it writes there, if it may."""

    def rule(args: Sequence[Value], anchor: Known) -> Patch:
        patch: Patch = args[0]
        made = writing(patch.data if patch.is_owned else patch.data.clone())
        return Patch(made, patch.starts, anchor, is_owned=True)

    return Rule(rule, reads_anchors=False, zones=same_zones)
