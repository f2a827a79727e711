"""Random networks, drawn as lines of code from one table of operations.

Each is a `Program`: it runs as a module, and prints as the class that repeats a failure.
"""

from __future__ import annotations

import copy
import re
from string import Template
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as f

NAMES = {"torch": torch, "nn": nn, "f": f}
GRIDS = {1: (9, 48), 2: (6, 22), 3: (4, 9)}
"""Smallest and largest side for each number of spatial axes."""

MOST_LINES, MOST_CHANNELS, MOST_PIXELS, LARGEST = 10, 12, 4000, 1e3

OPERATIONS = """
4 $P($x) :: nn.Conv${N}d($c, <1|2|3|5>, #1-4#, #1-2#, #0-3#, #1-2#, bias=<1|1|0> > 0, padding_mode=$mode)
2 $P($x) :: nn.Conv${N}d($c, <1|2> * $c, #1-4#, #1-2#, #0-2#, #1-2#, $c)
2 $P($x) :: nn.Conv${N}d($c, 3, #1-4#, padding='<same|same|valid>', dilation=#1-2#, padding_mode=$mode)
2 $P($x) :: nn.Sequential(nn.Conv${N}d($c, 4, 3, 1, 1), nn.BatchNorm${N}d(4), <nn.ReLU(True)|nn.SiLU()>)
3 $P($x) :: nn.Sequential(nn.Conv${N}d($c, 8, 1), <nn.ReLU6()|nn.SiLU(True)|nn.BatchNorm${N}d(8)|nn.GELU()>, nn.Conv${N}d(8, <3|8>, #1-4#, #1-2#, #0-3#, #1-2#, <1|8>))
1 f.conv${N}d($x, $P<|, ${P}b>, stride=#1-2#, padding=#0-2#) :: nn.Parameter(0.3 * torch.randn(3, $c, *[<1|2|3>] * $N)); ${P}b = nn.Parameter(torch.randn(3))
1 $P($x) :: nn.BatchNorm${N}d($c, affine=<True|False>)
2 $P($x) :: nn.<MaxPool|AvgPool>${N}d(#1-3#, #1-3#, <0|1>, ceil_mode=<True|False>)
1 $P($x) :: nn.<MaxPool${N}d(3, 2, 1, dilation=2)|AvgPool${N}d(3, 2, 1, count_include_pad=False)>
1 f.<max|avg>_pool${N}d($x, #1-3#, <2|stride=1|stride=2, padding=1, ceil_mode=True>)
3 $P($x) :: nn.<ReLU|ReLU6|ELU|CELU|SELU|SiLU|Mish|Hardswish|Hardsigmoid|Hardtanh|LeakyReLU|Dropout|AlphaDropout>(<|inplace=True>)
1 $P($x) :: nn.<GELU|Hardshrink|Identity|LogSigmoid|PReLU|Sigmoid|Softplus|Softshrink|Softsign|Tanh|Tanhshrink>()
1 $P($x) :: nn.<Threshold(0.1, -0.2<|, True>)|Dropout${N}d()>
2 f.<relu($x)|relu($x, True)|relu6($x)|leaky_relu($x, 0.2, True)|elu($x)|gelu($x)|silu($x, inplace=True)|mish($x)|hardswish($x)|hardsigmoid($x)|hardtanh($x, -0.5, 0.5<|, True>)|softplus($x)|dropout($x, 0.5, training=self.training)>
2 torch.<relu|sigmoid|tanh|abs|exp|neg|relu_>($x)
1 torch.clamp($x, <-0.5, 0.7|min=0.1>)
2 $x.<relu()|relu_()|sigmoid()|tanh()|abs()|clamp(-0.4, 0.6)|contiguous()|neg()|tanh_()|clamp_(-0.5, 0.5)|detach()|sigmoid_()>
3 <torch.relu|f.relu|torch.relu_|torch.tanh>(<$P($x)|f.pad($x, $widths)|$x.contiguous()|$x[:]|$x.view($x.shape)|torch.cat([$x], 1)|f.dropout($x, 0.5, False)>) :: nn.<Identity()|Dropout(inplace=True)|ReLU(inplace=True)>
4 <$x + $y|$x - $y|$x * $y|torch.add($x, $y)|torch.add($x, $y, alpha=0.5)|$x.sub($y)|$x.add_($y)|$x.mul_($y)|$x.sub_($y)|torch.maximum($x, $y)|$x / (1.5 + abs($y))>
2 <$t = $x; $t += $y|$t = $x; $t *= $y|$t = $x; $t -= $y|$t = $x; $t *= 0.5|$t = $x; $t += 1.0>
2 <$x + 0.5|0.5 - $x|$x * 2|$x / 3.0|1.0 / (2.0 + abs($x))|$x.mul_(0.5)|$x.add_(1)|torch.div($x, 2.0)|-$x|$x.sub(0.3)|$x ** 2|$x.square()>
2 <$x + $P|$P * $x|$x - $P|$x.add_($P)|$x * abs($P)> :: nn.Parameter(0.5 * torch.randn(<$c, *[1] * $N|1, $c, *[1] * $N|[1] * $N|[]|$grid|1, *$grid>))
2 torch.cat(<[$x, $z], 1|[$x, $z], dim=1|($z, $x, $z), 1|[$x, $z], -$N - 1>)
2 f.pad($x, $widths<||, value=0.4|, "constant", -0.5|, mode="reflect"|, mode="circular">)
1 $P($x) :: nn.<Zero|Reflection|Replication>Pad${N}d($widths)
1 $P($x) :: nn.Upsample(scale_factor=<1|2|2|3|1.5>, mode='<nearest|$linear|nearest-exact>')
1 $P($x) :: nn.Upsample(scale_factor=2, mode='$linear', align_corners=True)
1 f.interpolate($x, <scale_factor=2|scale_factor=1.5|size=$w.shape[2:]|$w.shape[2:]>, mode='<nearest|$linear>')
2 <torch.softmax($x, 1)|$x - $x.mean(1, keepdim=True)|$x.mean(1, True)|f.softmax($x, dim=1)|torch.sum($x, 1, keepdim=True)|$x.amax(1, keepdim=True)|f.normalize($x)|$x.norm(dim=1, keepdim=True)|$x / torch.sqrt($x.var(1, keepdim=True, unbiased=False) + 0.1)|torch.softmax($x, -1)|$x.mean(2, keepdim=True)>
3 <$P($x.permute($last)).permute($first)|f.gelu($P($x.permute($last))).permute($first)|torch.permute($P(torch.permute($x, ($last))), ($first))|(0.5 * $P($x.permute($last))).permute($first) + 0.1|$P($x.permute($last)).tanh_().permute($first)|$P($x.permute($last)).flip(1).permute($first)|$P($x.permute([$last])).softmax(-1).permute($first)> :: <nn.LayerNorm($c)|nn.Linear($c, 3)|nn.Sequential(nn.LayerNorm($c), nn.Linear($c, 4), nn.GELU())|nn.Sequential(nn.Linear($c, 2, bias=False), nn.ReLU(True))|nn.PReLU()>
1 <$x.flip(-1)|$x * torch.sigmoid($x.mean($dims, True))|$x.roll(1, -1)|$x[:, :1]|$x - $x.amax($dims, keepdim=True)|$x[..., 1:]|$x.chunk(2, 1)[0]|torch.cumsum($x, 1)|$x.transpose(-1, -2)|$x.relu_().permute($last).permute($first)>
1 $P($x) :: nn.<GroupNorm(1, $c)|InstanceNorm${N}d($c, affine=True)|ConvTranspose${N}d($c, 2, 2, stride=2)|AdaptiveMaxPool${N}d(3)|AdaptiveAvgPool${N}d(2)|LPPool${N}d(2, 2)|Softmax(1)|Softmax(-1)|LocalResponseNorm(2)>
"""  # noqa: E501, one operation a line
"""A weight, the code, and the part of the module that it uses. `<a|b>` is a choice, `#1-3#` a
number for all axes or one for each, $x a tensor, $y one like it, $z one of its size, $w any."""

TABLE = [line.split(" ", 1) for line in OPERATIONS.strip().splitlines()]
WEIGHTS = np.array([float(weight) for weight, _ in TABLE])
ENDS = ("$x.mean($dims)", "$x.amax($dims)", "f.adaptive_avg_pool${N}d($x, 1).flatten(1)")
MODES = ("zeros", "zeros", "zeros", "reflect", "replicate", "circular")


class Program(NamedTuple):
    """A network for images of a shape; its weights come from the seed."""

    shape: tuple[int, ...]
    seed: int
    parts: tuple[str, ...]
    lines: tuple[str, ...]

    def __str__(self):
        parts = [f"        {part}" for part in ("super().__init__()", *self.parts)]
        lines = [f"        {line}" for line in self.lines]
        head = ["class Net(nn.Module):", "    def __init__(self):"]
        return "\n".join([*head, *parts, "    def forward(self, t0):", *lines])

    def module(self):
        names = dict(NAMES)
        exec(str(self), names)  # noqa: S102, the code of this table
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            return with_statistics(names["Net"]()).double().eval()


def program(seed):
    """Draw a program. Every line is tried at once, and drawn again if torch refuses it."""
    rng = np.random.default_rng(seed)
    axes = int(rng.choice([1, 2, 2, 2, 3]))
    low, high = GRIDS[axes]
    shape = (int(rng.integers(1, 4)), *(int(n) for n in rng.integers(low, high, axes)))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        draft = Draft(rng, shape)
        for _ in range(int(rng.integers(2, MOST_LINES + 1))):
            draft.add()
    return Program(shape, seed, tuple(draft.parts), (*draft.lines, draft.end()))


class Draft:
    """The lines of a program so far, and the tensors that they make of a batch of two."""

    def __init__(self, rng, shape):
        self.rng, self.axes = rng, len(shape) - 1
        self.tensors = {"t0": torch.rand(2, *shape, dtype=torch.float64)}
        self.parts, self.lines, self.overwritten = [], [], set()

    def add(self):
        for _ in range(20):
            text = TABLE[self.rng.choice(len(TABLE), p=WEIGHTS / WEIGHTS.sum())][1]
            code, _, part = self.filled(text).partition(" :: ")
            out, number = f"t{len(self.tensors)}", len(self.tensors)
            part = f"self.p{number} = {part}" if part else ""
            line = code if code.startswith(out) else f"{out} = {code}"
            if self.accepts(out, line, part):
                self.lines.append(line)
                self.parts += [part] if part else []
                return

    def accepts(self, out, line, part):
        """Run a line and keep its tensor; False if torch refuses it or its numbers are extreme."""
        scratch = nn.Module()
        names = {**NAMES, **copy.deepcopy(self.tensors), "self": scratch}
        before = [(names[name], names[name]._version) for name in self.tensors]
        try:
            exec(part, names)  # noqa: S102
            with_statistics(scratch).double().eval()
            with torch.no_grad():
                exec(line, names)  # noqa: S102
        except (RuntimeError, ValueError, IndexError, TypeError):
            return False
        made = names[out]
        pixels = made[0, 0].numel() if made.ndim == self.axes + 2 and made.shape[1] else 0
        fits = 1 < pixels <= MOST_PIXELS and len(made) == 2 and made.shape[1] <= MOST_CHANNELS
        if not (fits and float(made.abs().max()) < LARGEST):
            return False
        if self.rng.random() < 0.95:  # mostly, nobody reads a tensor again that was overwritten
            written = {memory(tensor) for tensor, count in before if tensor._version > count}
            self.overwritten |= {n for n in self.tensors if memory(names[n]) in written}
        self.tensors = {name: names[name] for name in self.tensors} | {out: made}
        return True

    def end(self):
        names = self.readable()
        chosen = {names[-1], *(name for name in names[1:] if self.rng.random() < 0.25)}
        ends = [self.filled(str(self.rng.choice(ENDS)), name) for name in sorted(chosen)]
        return f"return torch.cat([{', '.join(ends)}], 1)"

    def readable(self):
        return [name for name in self.tensors if name not in self.overwritten] or ["t0"]

    def filled(self, text, name=None):
        """Fill a line of the table in; the last tensors are read more often than others."""
        rng, names, axes = self.rng, self.readable(), self.axes
        name = name or names[-min(len(names), int(rng.geometric(0.5)))]
        shape = self.tensors[name].shape
        same = [n for n in names if self.tensors[n].shape[2:] == shape[2:]]
        alike = [n for n in same if self.tensors[n].shape[1] in {1, shape[1]}]
        while "<" in text:
            text = re.sub("<([^<>]*)>", lambda m: str(rng.choice(m[1].split("|"))), text, count=1)
        text = re.sub(r"#(\d)-(\d)#", lambda found: self.sides(int(found[1]), int(found[2])), text)
        low = -1 if rng.random() < 0.1 else 0
        words = {
            "x": name,
            "y": rng.choice(alike),
            "z": rng.choice(same),
            "w": rng.choice(names),
            "t": f"t{len(self.tensors)}",
            "P": f"self.p{len(self.tensors)}",
            "c": shape[1],
            "N": axes,
            "grid": tuple(shape[2:]),
            "dims": tuple(range(2, axes + 2)),
            "widths": tuple(int(n) for n in rng.integers(low, 3, 2 * axes)),
            "mode": repr(str(rng.choice(MODES))),
            "linear": ("linear", "bilinear", "trilinear")[axes - 1],
            "last": ", ".join(map(str, (0, *range(2, axes + 2), 1))),
            "first": ", ".join(map(str, (0, axes + 1, *range(1, axes + 1)))),
        }
        return Template(text).substitute(words)

    def sides(self, low, high):
        if self.rng.random() < 0.6:
            return str(self.rng.integers(low, high + 1))
        return str(tuple(int(n) for n in self.rng.integers(low, high + 1, self.axes)))


def memory(tensor):
    return tensor.untyped_storage().data_ptr()


def with_statistics(network):
    """Give every norm statistics and weights that are not those of a new one."""
    for part in network.modules():
        if isinstance(part, nn.modules.batchnorm._NormBase):
            if part.running_mean is not None:
                nn.init.normal_(part.running_mean, std=0.3)
                nn.init.uniform_(part.running_var, 0.5, 2.0)
            if part.weight is not None:
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias, std=0.3)
    return network
