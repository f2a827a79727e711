"""The operations of random networks: every layer and function that `Incremental` knows, and others.

Each function returns the code of one operation on tensors that exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.experiments.fuzzing.program import Line
    from benchmarks.experiments.fuzzing.workspace import Workspace

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
PLACE_BY_PLACE = (
    *("torch.softmax({0}, 1)", "{0} - {0}.mean(1, keepdim=True)", "{0}.mean(1, True)"),
    *("{0} / torch.sqrt({0}.var(1, keepdim=True, unbiased=False) + 0.1)", "f.softmax({0}, dim=1)"),
    *(
        "torch.sum({0}, 1, keepdim=True)",
        "{0}.amax(1, keepdim=True)",
        "f.local_response_norm({0}, 2)",
    ),
    *("f.normalize({0}, dim=1)", "f.normalize({0})", "{0}.pow(2)", "{0} ** 2", "{0}.square()"),
    *(
        "torch.sqrt({0}.abs() + 0.1)",
        "{0}.norm(dim=1, keepdim=True)",
        "{0}.mean((1,), keepdim=True)",
    ),
    *("{0}.amax(-1, keepdim=True)", "{0}.mean(2, keepdim=True)", "torch.softmax({0}, -1)"),
)
"""Many read the channels of one place alone; the last ones do not."""

CHANNELS_LAST = (
    *("PART({0}.permute(LAST)).permute(FIRST)", "f.gelu(PART({0}.permute(LAST))).permute(FIRST)"),
    *(
        "torch.permute(PART(torch.permute({0}, (LAST))), (FIRST))",
        "PART({0}.permute([LAST])).permute(FIRST)",
    ),
    *(
        "(0.5 * PART({0}.permute(LAST))).permute(FIRST) + 0.1",
        "PART({0}.permute(LAST)).tanh_().permute(FIRST)",
    ),
    *(
        "PART({0}.permute(LAST)).flip(1).permute(FIRST)",
        "PART({0}.permute(LAST)).relu().permute(FIRST)",
    ),
    *(
        "PART({0}.permute(LAST)).softmax(-1).permute(FIRST)",
        "{0}.permute(LAST).relu_().permute(FIRST)",
    ),
)
WITHOUT_RULE = (
    *("{0}.flip(-1)", "{0} * torch.sigmoid({0}.mean({dims}, True))"),
    *("{0}.roll(1, -1)", "{0}[:, :1]", "{0} - {0}.amax({dims}, keepdim=True)", "{0}[..., 1:]"),
    *("{0}.chunk(2, 1)[0]", "torch.cumsum({0}, 1)", "{0}.transpose(-1, -2)"),
)


def convolution(w: Workspace) -> Line:
    name = w.name()
    inputs = w.channels(name)
    groups = w.one_of([1, 1, 1, inputs])
    outputs = groups * w.number_below(3, 1) if groups > 1 else w.number_below(6, 1)
    same = w.rng.random() < 0.25
    options = {
        "kernel_size": w.sides(1, 5),
        "stride": 1 if same else w.sides(1, 3),
        "padding": w.one_of(["same", "same", "valid"]) if same else w.sides(0, 4),
        "dilation": w.sides(1, 3),
        "groups": groups,
        "bias": bool(w.rng.random() < 0.7),
        "padding_mode": w.one_of([*MODES, "zeros", "zeros"]),
    }
    layer = f"nn.Conv{w.axes}d({inputs}, {outputs}, {_keywords(options)})"
    if w.rng.random() < 0.3:
        layer = f"nn.Sequential({layer}, nn.BatchNorm{w.axes}d({outputs}))"
    return w.line("PART({0})", name, part=f"PART = {layer}")


def expansion(w: Workspace) -> Line:
    """Return a convolution of 1 x 1, mostly a widening one, and another one behind it."""
    name = w.name()
    inputs = w.channels(name)
    width = inputs * w.number_below(5, 1)
    groups = w.one_of([1, width])
    same = w.rng.random() < 0.25
    options = {
        "kernel_size": w.sides(1, 5),
        "stride": 1 if same else w.sides(1, 3),
        "padding": "same" if same else w.sides(0, 4),
        "dilation": w.sides(1, 3),
        "groups": groups,
        "padding_mode": w.one_of(["zeros"] * 5 + ["circular"]),
    }
    last = f"nn.Conv{w.axes}d({width}, {width if groups > 1 else 3}, {_keywords(options)})"
    norm, act = f"nn.BatchNorm{w.axes}d({width})", w.one_of(["nn.ReLU6()", "nn.SiLU(inplace=True)"])
    first = w.one_of(["", f"{norm}, ", f"{norm}, {act}, ", f"{act}, "])
    layers = f"nn.Conv{w.axes}d({inputs}, {width}, 1), {first}{last}"
    return w.line("PART({0})", name, part=f"PART = nn.Sequential({layers})")


def functional_convolution(w: Workspace) -> Line:
    name = w.name()
    kernel = tuple(w.number_below(4, 1) for _ in range(w.axes))
    shape = (w.number_below(5, 1), w.channels(name), *kernel)
    options = {"stride": 1, "padding": w.one_of(["same", "valid", 1, 2]), "dilation": 1}
    if isinstance(options["padding"], int):
        options = {"stride": w.sides(1, 3), "padding": w.sides(0, 3)}
    given = w.one_of(["", ", None", ", PART_bias"])
    code = f"f.conv{w.axes}d({{0}}, PART{given}, {_keywords(options)})"
    scale = 1.0 / np.sqrt(np.prod(shape[1:]))
    part = f'self.register_buffer("NAME", {scale:.3f} * torch.randn{shape})'
    bias = f'self.register_buffer("NAME_bias", torch.randn({shape[0]}))'
    return w.line(code, name, part=f"{part}; {bias}" if "bias" in given else part)


def norm(w: Workspace) -> Line:
    name = w.name()
    affine = bool(w.rng.random() < 0.7)
    layer = f"nn.BatchNorm{w.axes}d({w.channels(name)}, affine={affine})"
    return w.line("PART({0})", name, part=f"PART = {layer}")


def activation(w: Workspace) -> Line:
    inplace = "inplace=True" if w.rng.random() < 0.5 else ""
    layers = [f"{kind}({inplace})" for kind in WITH_INPLACE] + [f"{kind}()" for kind in LAYERS]
    layers += [f"Threshold(0.1, -0.2{', True' if inplace else ''})"]
    layers += [f"Dropout{w.axes}d({inplace})"]
    return w.line("PART({0})", w.name(), part=f"PART = nn.{w.one_of(layers)}")


def function(w: Workspace) -> Line:
    return w.line(w.one_of(FUNCTIONS), w.name())


def shared(w: Workspace) -> Line:
    """Return an activation of a tensor that may share memory with another one."""
    widths = tuple(w.number_below(3) for _ in range(2 * w.axes))
    shared = (f"f.pad({{0}}, {widths})", "{0}.contiguous()", "f.dropout({0}, 0.5, False)")
    shared += (
        "PART({0})",
        "{0}.detach()",
        "{0}[:]",
        "{0}.view({0}.shape)",
        "torch.cat([{0}], 1)",
    )
    acts = ("torch.relu(%s)", "f.relu(%s)", "f.relu(%s, True)", "(%s).relu_()", "(%s).tanh()")
    code = w.one_of(acts).replace("%s", w.one_of(shared))
    layer = w.one_of(["nn.Identity()", "nn.Dropout(inplace=True)", "nn.ReLU(inplace=True)"])
    part = f"PART = {layer}" if "PART" in code else ""
    return w.line(code, w.name(), part=part)


def arithmetic(w: Workspace) -> Line:
    name = w.name()
    alike = [
        other
        for other in w.readable()
        if w.grid(other) == w.grid(name) and w.channels(other) in {1, w.channels(name)}
    ]
    return w.line(w.one_of(ARITHMETIC), name, w.one_of(alike))


def number(w: Workspace) -> Line:
    return w.line(w.one_of(WITH_NUMBER), w.name())


def constant(w: Workspace) -> Line:
    name = w.name()
    ones = (1,) * w.axes
    channels, grid = w.channels(name), w.grid(name)
    shapes = [(channels, *ones), (1, channels, *ones), ones, (1, *ones), (), grid, (1, *grid)]
    part = f'self.register_buffer("NAME", 0.5 * torch.randn({w.one_of(shapes)}))'
    codes = ("{0} + PART", "PART * {0}", "{0} - PART", "{0}.add_(PART)", "{0} * abs(PART)")
    return w.line(w.one_of(codes), name, part=part)


def cat(w: Workspace) -> Line:
    name = w.name()
    alike = [other for other in w.readable() if w.grid(other) == w.grid(name)]
    codes = ("torch.cat([{0}, {1}], 1)", "torch.cat([{0}, {1}], dim=1)")
    codes += ("torch.cat(({1}, {0}, {1}), dim=1)", "torch.concat([{0}, {1}], 1)")
    codes += (f"torch.cat([{{0}}, {{1}}], -{w.axes + 1})", "torch.cat([{0}], 1)")
    return w.line(w.one_of(codes), name, w.one_of(alike))


def padding(w: Workspace) -> Line:
    kind = w.one_of(["f", "f", "f", "Zero", "Constant", "Reflection", "Replication"])
    low = -1 if w.rng.random() < 0.1 else 0
    axes = w.number_below(w.axes + 1, 1) if kind == "f" else w.axes
    widths = tuple(w.number_below(3, low) for _ in range(2 * axes))
    if kind != "f":
        value = ", 0.3" if kind == "Constant" else ""
        part = f"PART = nn.{kind}Pad{w.axes}d({widths}{value})"
        return w.line("PART({0})", w.name(), part=part)
    options = w.one_of(
        ["", ", value=0.4", ', "constant", -0.5', ', mode="reflect"', ', mode="circular"']
    )
    return w.line(f"f.pad({{0}}, {widths}{options})", w.name())


def _pool_options(w: Workspace, *, mean: bool) -> dict[str, Any]:
    kernel = w.sides(1, 4)
    options: dict[str, Any] = {
        "kernel_size": kernel,
        "stride": w.sides(1, 4),
        "padding": w.number_below(2),
        "ceil_mode": bool(w.rng.random() < 0.25),
    }
    if mean:
        options["count_include_pad"] = bool(w.rng.random() < 0.6)
    elif w.rng.random() < 0.3:
        options["dilation"] = w.number_below(3, 1)
    return options


def max_pool(w: Workspace) -> Line:
    options = _keywords(_pool_options(w, mean=False))
    part = f"PART = nn.MaxPool{w.axes}d({options})"
    return w.line("PART({0})", w.name(), part=part)


def mean_pool(w: Workspace) -> Line:
    options = _keywords(_pool_options(w, mean=True))
    part = f"PART = nn.AvgPool{w.axes}d({options})"
    return w.line("PART({0})", w.name(), part=part)


def functional_pool(w: Workspace) -> Line:
    mean = bool(w.rng.random() < 0.5)
    options = _pool_options(w, mean=mean)
    count = w.number_below(4, 1)
    names = list(options)
    given = [str(options[name]) for name in names[:count]]
    given += [f"{name}={options[name]}" for name in names[count:]]
    kind = "avg" if mean else "max"
    return w.line(f"f.{kind}_pool{w.axes}d({{0}}, {', '.join(given)})", w.name())


def upsampling(w: Workspace) -> Line:
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[w.axes]
    mode = w.one_of(["nearest", linear, linear, "nearest-exact"])
    factor = w.one_of([1, 2, 2, 3, 1.5, (2, 1, 3)[: w.axes]])
    align = ", align_corners=True" if mode == linear and w.rng.random() < 0.2 else ""
    part = f"PART = nn.Upsample(scale_factor={factor}, mode={mode!r}{align})"
    return w.line("PART({0})", w.name(), part=part)


def interpolation(w: Workspace) -> Line:
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[w.axes]
    mode = w.one_of(["nearest", linear])
    factor = f"scale_factor={w.one_of([2, 2.0, 3, 1.5])}"
    other = w.one_of(w.readable())
    size = w.one_of([factor, "size={1}.shape[2:]", "{1}.shape[2:]"])
    return w.line(f"f.interpolate({{0}}, {size}, mode={mode!r})", w.name(), other)


def place_by_place(w: Workspace) -> Line:
    return w.line(w.one_of(PLACE_BY_PLACE), w.name())


def channels_last(w: Workspace) -> Line:
    name, axes = w.name(), w.axes
    channels = w.channels(name)
    first, last = (0, axes + 1, *range(1, axes + 1)), (0, *range(2, axes + 2), 1)
    orders = {"LAST": last, "FIRST": first}
    code = w.one_of(CHANNELS_LAST)
    for word, order in orders.items():
        code = code.replace(word, ", ".join(map(str, order)))
    layers = (
        f"nn.LayerNorm({channels})",
        f"nn.Linear({channels}, 3)",
        f"nn.Sequential(nn.LayerNorm({channels}), nn.Linear({channels}, 4), nn.GELU())",
        f"nn.Sequential(nn.Linear({channels}, 2, bias=False), nn.ReLU(True))",
        "nn.PReLU()",
    )
    return w.line(code, name, part=f"PART = {w.one_of(layers)}" if "PART" in code else "")


def without_rule(w: Workspace) -> Line:
    dims = str(tuple(range(2, w.axes + 2)))
    return w.line(w.one_of(WITHOUT_RULE).replace("{dims}", dims), w.name())


def foreign_layer(w: Workspace) -> Line:
    name, axes = w.name(), w.axes
    channels = w.channels(name)
    layers = [
        f"nn.GroupNorm(1, {channels})",
        f"nn.InstanceNorm{axes}d({channels}, affine=True)",
        f"nn.ConvTranspose{axes}d({channels}, 2, 2, stride=2)",
        f"nn.AdaptiveMaxPool{axes}d(3)",
        f"nn.AdaptiveAvgPool{axes}d(2)",
        f"nn.LPPool{axes}d(2, 2)",
        *("nn.Softmax(1)", "nn.Softmax(-1)", "nn.LocalResponseNorm(2)", "nn.LogSoftmax(dim=1)"),
    ]
    return w.line("PART({0})", name, part=f"PART = {w.one_of(layers)}")


def _keywords(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items())


OPERATIONS: list[Callable[[Workspace], Line]] = [
    *([convolution] * 4 + [expansion] * 2 + [functional_convolution, norm]),
    *([max_pool, mean_pool, functional_pool]),
    *([activation] * 2 + [function] * 3 + [padding] * 3 + [shared] * 3 + [arithmetic] * 4),
    *([number, constant, cat] * 2 + [upsampling, interpolation, without_rule, foreign_layer]),
    *([place_by_place, channels_last] * 2),
]
"""Operations to draw from; some more often than others."""
