"""The grammar of random networks: every layer and function that `Incremental` knows, and others.

Each rule returns the code of one operation on tensors that exist. The operation is tried at once;
if torch refuses it, or its numbers leave a sensible range, another one is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from benchmarks.experiments.fuzz_program import INPUT, NAMES, Line, Program, with_statistics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

LARGEST = 1e3
MOST_CHANNELS = 12
MOST_PIXELS = 4000
GRIDS = {1: (9, 48), 2: (6, 22), 3: (4, 9)}
MODES = ("zeros", "reflect", "replicate", "circular")
WITH_INPLACE = (
    *("ReLU", "ReLU6", "ELU", "CELU", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid"),
    *("Hardtanh", "LeakyReLU", "Dropout", "AlphaDropout"),
)
LAYERS = (
    *("GELU", "Hardshrink", "Identity", "LogSigmoid", "PReLU", "Sigmoid", "Softplus"),
    *("Softshrink", "Softsign", "Tanh", "Tanhshrink", "ReLU"),
)
FUNCTIONS = (
    *("f.relu({0})", "f.relu({0}, True)", "f.relu({0}, inplace=True)", "f.relu6({0})"),
    *("f.leaky_relu({0}, 0.2)", "f.leaky_relu({0}, 0.2, True)", "f.elu({0})", "f.gelu({0})"),
    *("f.silu({0}, inplace=True)", "f.mish({0})", "f.hardswish({0})", "f.hardsigmoid({0})"),
    *("f.hardtanh({0}, -0.5, 0.5)", "f.hardtanh({0}, -0.5, 0.5, True)", "f.softplus({0})"),
    *("f.sigmoid({0})", "f.tanh({0})", "f.dropout({0}, 0.5, False)", "torch.relu({0})"),
    *("f.dropout({0}, 0.5, training=self.training)", "torch.sigmoid({0})", "torch.tanh({0})"),
    *("torch.abs({0})", "torch.exp({0})", "torch.neg({0})", "torch.clamp({0}, -0.5, 0.7)"),
    *("torch.clamp({0}, min=0.1)", "{0}.relu()", "{0}.relu_()", "{0}.sigmoid()", "{0}.tanh()"),
    *("{0}.abs()", "{0}.clamp(-0.4, 0.6)", "{0}.contiguous()", "{0}.neg()", "torch.relu_({0})"),
    *("{0}.tanh_()", "{0}.clamp_(-0.5, 0.5)", "{0}.detach()", "-{0}", "{0}.sigmoid_()"),
)
ARITHMETIC = (
    *("{0} + {1}", "{0} - {1}", "{0} * {1}", "torch.add({0}, {1})", "torch.sub({0}, {1})"),
    *("torch.mul({0}, {1})", "{0}.add({1})", "{0}.sub({1})", "{0}.mul({1})", "{0}.add_({1})"),
    *("{0}.mul_({1})", "{0}.sub_({1})", "torch.maximum({0}, {1})", "{0} / (1.5 + abs({1}))"),
    *("torch.add({0}, {1}, alpha=0.5)", "{out} = {0}\n{out} += {1}", "{out} = {0}\n{out} *= {1}"),
    *("{out} = {0}\n{out} -= {1}",),
)
WITH_NUMBER = (
    *("{0} + 0.5", "0.5 - {0}", "{0} * 2", "{0} / 3.0", "1.0 / (2.0 + abs({0}))", "{0}.div(2)"),
    *("{0}.mul_(0.5)", "{0}.add_(1)", "torch.div({0}, 2.0)", "{out} = {0}\n{out} += 1.0"),
    *("{out} = {0}\n{out} *= 0.5", "{0} - 1", "torch.mul({0}, 0.7)", "{0}.sub(0.3)"),
)
WITHOUT_RULE = (
    *("{0}.flip(-1)", "torch.softmax({0}, 1)", "{0} * torch.sigmoid({0}.mean({dims}, True))"),
    *("{0}.roll(1, -1)", "{0}[:, :1]", "{0} - {0}.amax({dims}, keepdim=True)", "{0}[..., 1:]"),
    *("{0}.chunk(2, 1)[0]", "torch.cumsum({0}, 1)", "{0}.transpose(-1, -2)", "{0}.square()"),
)


class Grammar:
    """Draws programs. All choices come from `rng`."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def program(self, seed: int) -> Program:
        """Return a random program."""
        rng = self._rng
        self._axes = int(rng.choice([1, 2, 2, 2, 3]))
        low, high = GRIDS[self._axes]
        grid = tuple(int(n) for n in rng.integers(low, high, self._axes))
        shape = (int(rng.integers(1, 4)), *grid)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._tensors = {INPUT: torch.rand(2, *shape)}
            self._gone: set[str] = set()
            lines: list[Line] = []
            for _ in range(int(rng.integers(2, 13))):
                lines += self._tried()
            output = self._output()
        dtype = "float32" if rng.random() < 0.5 else "float64"
        return Program(shape, seed, dtype, tuple(lines), output)

    def _tried(self) -> list[Line]:
        """Return one new line, or none if twenty draws all fail."""
        rules: list[Callable[[], Line]] = [
            *([self._convolution] * 4 + [self._functional_convolution, self._norm] * 1),
            *([self._activation] * 2 + [self._function] * 3 + [self._padding] * 3),
            *([self._arithmetic] * 4 + [self._number, self._constant, self._cat] * 2),
            *([self._shared] * 3),
            *(self._max_pool, self._mean_pool, self._upsampling, self._interpolation),
            *(self._without_rule, self._foreign_layer, self._functional_pool),
        ]
        for _ in range(20):
            line = self._one_of(rules)()
            if self._works(line):
                return [line]
        return []

    def _works(self, line: Line) -> bool:
        """Run a line on tensors of its own; tell whether the result can be built upon."""
        scratch = nn.Module().eval()
        names = {**NAMES, **{n: t.clone() for n, t in self._tensors.items()}, "self": scratch}
        try:
            exec(line.part, names)  # noqa: S102, the code of this grammar
            with_statistics(scratch).eval()
            with torch.no_grad():
                exec("\n".join(line.statements()), names)  # noqa: S102
        except (RuntimeError, ValueError, IndexError, TypeError):
            return False
        made = names[line.out]
        fits = made.ndim == self._axes + 2 and len(made) == 2 and made[0, 0].numel() > 1
        sensible = bool(torch.isfinite(made).all()) and float(made.abs().max()) < LARGEST
        if not (fits and sensible and made.shape[1] <= MOST_CHANNELS and _pixels(made)):
            return False
        changed = {n for n, t in self._tensors.items() if not torch.equal(names[n], t)}
        # Mostly, nobody reads a tensor again that was overwritten.
        self._gone |= changed if self._rng.random() < 0.9 else set()
        self._tensors = {n: names[n] for n in self._tensors} | {line.out: made}
        return True

    def _output(self) -> str:
        """Return the sum of one or several numbers for each class, from one or several tensors."""
        names = self._readable()
        chosen = {names[-1], *(name for name in names[1:] if self._rng.random() < 0.25)}
        dims = tuple(range(2, self._axes + 2))
        pool = f"f.adaptive_avg_pool{self._axes}d({{}}, 1).flatten(1)"
        kinds = ("({}).mean(DIMS)", "({}).amax(DIMS)", "torch.mean(({}), DIMS)", pool)
        reduced: list[str] = []
        for name in sorted(chosen):
            text = self._one_of(kinds).replace("DIMS", str(dims))
            # The bracket around the name lets the program rename it.
            text = text.format(name if "({})" in text else f"({name})")
            reduced.append(f"{text}.sum(1, keepdim=True)" if len(chosen) > 1 else text)
        return " + ".join(reduced)

    def _readable(self) -> list[str]:
        return [name for name in self._tensors if name not in self._gone] or [INPUT]

    def _name(self) -> str:
        """Return a tensor, more often a new one."""
        names = self._readable()
        last = min(len(names), 1 + int(self._rng.geometric(0.5)))
        return names[-int(self._rng.integers(1, last + 1))]

    def _one_of(self, values: Sequence[T]) -> T:
        return values[int(self._rng.integers(len(values)))]

    def _number_below(self, high: int, low: int = 0) -> int:
        return int(self._rng.integers(low, high))

    def _sides(self, low: int, high: int) -> Any:
        """Return one number, or one for each axis."""
        if self._rng.random() < 0.6:
            return self._number_below(high, low)
        return tuple(self._number_below(high, low) for _ in range(self._axes))

    def _channels(self, name: str) -> int:
        return self._tensors[name].shape[1]

    def _line(self, code: str, *reads: str, part: str = "") -> Line:
        number = len(self._tensors)
        attribute = f"self.p{number}"
        code = code.replace("PART", attribute)
        part = part.replace("PART", attribute).replace("NAME", f"p{number}")
        return Line(f"t{number}", code, reads, part)

    def _convolution(self) -> Line:
        name = self._name()
        inputs = self._channels(name)
        groups = self._one_of([1, 1, 1, inputs])
        outputs = groups * self._number_below(3, 1) if groups > 1 else self._number_below(6, 1)
        same = self._rng.random() < 0.25
        options = {
            "kernel_size": self._sides(1, 5),
            "stride": 1 if same else self._sides(1, 3),
            "padding": self._one_of(["same", "same", "valid"]) if same else self._sides(0, 4),
            "dilation": self._sides(1, 3),
            "groups": groups,
            "bias": bool(self._rng.random() < 0.7),
            "padding_mode": self._one_of([*MODES, "zeros", "zeros"]),
        }
        layer = f"nn.Conv{self._axes}d({inputs}, {outputs}, {_keywords(options)})"
        if self._rng.random() < 0.3:
            layer = f"nn.Sequential({layer}, nn.BatchNorm{self._axes}d({outputs}))"
        return self._line("PART({0})", name, part=f"PART = {layer}")

    def _functional_convolution(self) -> Line:
        name = self._name()
        kernel = tuple(self._number_below(4, 1) for _ in range(self._axes))
        shape = (self._number_below(5, 1), self._channels(name), *kernel)
        options = {"stride": 1, "padding": self._one_of(["same", "valid", 1, 2]), "dilation": 1}
        if isinstance(options["padding"], int):
            options = {"stride": self._sides(1, 3), "padding": self._sides(0, 3)}
        given = self._one_of(["", ", None", ", PART_bias"])
        code = f"f.conv{self._axes}d({{0}}, PART{given}, {_keywords(options)})"
        scale = 1.0 / np.sqrt(np.prod(shape[1:]))
        part = f'self.register_buffer("NAME", {scale:.3f} * torch.randn{shape})'
        bias = f'self.register_buffer("NAME_bias", torch.randn({shape[0]}))'
        return self._line(code, name, part=f"{part}; {bias}" if "bias" in given else part)

    def _norm(self) -> Line:
        name = self._name()
        affine = bool(self._rng.random() < 0.7)
        layer = f"nn.BatchNorm{self._axes}d({self._channels(name)}, affine={affine})"
        return self._line("PART({0})", name, part=f"PART = {layer}")

    def _activation(self) -> Line:
        inplace = "inplace=True" if self._rng.random() < 0.5 else ""
        layers = [f"{kind}({inplace})" for kind in WITH_INPLACE] + [f"{kind}()" for kind in LAYERS]
        layers += [f"Threshold(0.1, -0.2{', True' if inplace else ''})"]
        layers += [f"Dropout{self._axes}d({inplace})"]
        return self._line("PART({0})", self._name(), part=f"PART = nn.{self._one_of(layers)}")

    def _function(self) -> Line:
        return self._line(self._one_of(FUNCTIONS), self._name())

    def _shared(self) -> Line:
        """Return an activation of a tensor that may share memory with another one."""
        widths = tuple(self._number_below(3) for _ in range(2 * self._axes))
        shared = (f"f.pad({{0}}, {widths})", "{0}.contiguous()", "f.dropout({0}, 0.5, False)")
        shared += (
            "PART({0})",
            "{0}.detach()",
            "{0}[:]",
            "{0}.view({0}.shape)",
            "torch.cat([{0}], 1)",
        )
        acts = ("torch.relu(%s)", "f.relu(%s)", "f.relu(%s, True)", "(%s).relu_()", "(%s).tanh()")
        code = self._one_of(acts).replace("%s", self._one_of(shared))
        layer = self._one_of(["nn.Identity()", "nn.Dropout(inplace=True)", "nn.ReLU(inplace=True)"])
        part = f"PART = {layer}" if "PART" in code else ""
        return self._line(code, self._name(), part=part)

    def _arithmetic(self) -> Line:
        name = self._name()
        alike = [
            other
            for other in self._readable()
            if self._tensors[other].shape[2:] == self._tensors[name].shape[2:]
            and self._channels(other) in {1, self._channels(name)}
        ]
        return self._line(self._one_of(ARITHMETIC), name, self._one_of(alike))

    def _number(self) -> Line:
        return self._line(self._one_of(WITH_NUMBER), self._name())

    def _constant(self) -> Line:
        name = self._name()
        ones = (1,) * self._axes
        channels, grid = self._channels(name), tuple(self._tensors[name].shape[2:])
        shapes = [(channels, *ones), (1, channels, *ones), ones, (1, *ones), (), grid, (1, *grid)]
        part = f'self.register_buffer("NAME", 0.5 * torch.randn({self._one_of(shapes)}))'
        codes = ("{0} + PART", "PART * {0}", "{0} - PART", "{0}.add_(PART)", "{0} * abs(PART)")
        return self._line(self._one_of(codes), name, part=part)

    def _cat(self) -> Line:
        name = self._name()
        alike = [
            other
            for other in self._readable()
            if self._tensors[other].shape[2:] == self._tensors[name].shape[2:]
        ]
        codes = ("torch.cat([{0}, {1}], 1)", "torch.cat([{0}, {1}], dim=1)")
        codes += ("torch.cat(({1}, {0}, {1}), dim=1)", "torch.concat([{0}, {1}], 1)")
        codes += (f"torch.cat([{{0}}, {{1}}], -{self._axes + 1})", "torch.cat([{0}], 1)")
        return self._line(self._one_of(codes), name, self._one_of(alike))

    def _padding(self) -> Line:
        kind = self._one_of(["f", "f", "f", "Zero", "Constant", "Reflection", "Replication"])
        low = -1 if self._rng.random() < 0.1 else 0
        axes = self._number_below(self._axes + 1, 1) if kind == "f" else self._axes
        widths = tuple(self._number_below(3, low) for _ in range(2 * axes))
        if kind != "f":
            value = ", 0.3" if kind == "Constant" else ""
            part = f"PART = nn.{kind}Pad{self._axes}d({widths}{value})"
            return self._line("PART({0})", self._name(), part=part)
        options = self._one_of(
            ["", ", value=0.4", ', "constant", -0.5', ', mode="reflect"', ', mode="circular"']
        )
        return self._line(f"f.pad({{0}}, {widths}{options})", self._name())

    def _pool_options(self, *, mean: bool) -> dict[str, Any]:
        kernel = self._sides(1, 4)
        options: dict[str, Any] = {
            "kernel_size": kernel,
            "stride": self._sides(1, 4),
            "padding": self._number_below(2),
            "ceil_mode": bool(self._rng.random() < 0.25),
        }
        if mean:
            options["count_include_pad"] = bool(self._rng.random() < 0.6)
        elif self._rng.random() < 0.3:
            options["dilation"] = self._number_below(3, 1)
        return options

    def _max_pool(self) -> Line:
        options = _keywords(self._pool_options(mean=False))
        part = f"PART = nn.MaxPool{self._axes}d({options})"
        return self._line("PART({0})", self._name(), part=part)

    def _mean_pool(self) -> Line:
        options = _keywords(self._pool_options(mean=True))
        part = f"PART = nn.AvgPool{self._axes}d({options})"
        return self._line("PART({0})", self._name(), part=part)

    def _functional_pool(self) -> Line:
        mean = bool(self._rng.random() < 0.5)
        options = self._pool_options(mean=mean)
        count = self._number_below(4, 1)
        names = list(options)
        given = [str(options[name]) for name in names[:count]]
        given += [f"{name}={options[name]}" for name in names[count:]]
        kind = "avg" if mean else "max"
        return self._line(f"f.{kind}_pool{self._axes}d({{0}}, {', '.join(given)})", self._name())

    def _upsampling(self) -> Line:
        linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[self._axes]
        mode = self._one_of(["nearest", linear, linear, "nearest-exact"])
        factor = self._one_of([1, 2, 2, 3, 1.5, (2, 1, 3)[: self._axes]])
        align = ", align_corners=True" if mode == linear and self._rng.random() < 0.2 else ""
        part = f"PART = nn.Upsample(scale_factor={factor}, mode={mode!r}{align})"
        return self._line("PART({0})", self._name(), part=part)

    def _interpolation(self) -> Line:
        linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[self._axes]
        mode = self._one_of(["nearest", linear])
        factor = f"scale_factor={self._one_of([2, 2.0, 3, 1.5])}"
        other = self._one_of(self._readable())
        size = self._one_of([factor, "size={1}.shape[2:]", "{1}.shape[2:]"])
        return self._line(f"f.interpolate({{0}}, {size}, mode={mode!r})", self._name(), other)

    def _without_rule(self) -> Line:
        dims = str(tuple(range(2, self._axes + 2)))
        return self._line(self._one_of(WITHOUT_RULE).replace("{dims}", dims), self._name())

    def _foreign_layer(self) -> Line:
        name, axes = self._name(), self._axes
        channels = self._channels(name)
        layers = [
            f"nn.GroupNorm(1, {channels})",
            f"nn.InstanceNorm{axes}d({channels}, affine=True)",
            f"nn.ConvTranspose{axes}d({channels}, 2, 2, stride=2)",
            f"nn.AdaptiveMaxPool{axes}d(3)",
            f"nn.AdaptiveAvgPool{axes}d(2)",
            f"nn.LPPool{axes}d(2, 2)",
            "nn.Softmax(1)",
        ]
        return self._line("PART({0})", name, part=f"PART = {self._one_of(layers)}")


def _pixels(tensor: torch.Tensor) -> bool:
    return tensor[0, 0].numel() <= MOST_PIXELS


def _keywords(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())
