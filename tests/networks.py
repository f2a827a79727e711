"""Named networks for tests of `Incremental`: every kind of architecture, and every past bug."""

from __future__ import annotations

import types
import warnings
from functools import partial

import torch
from random_networks import with_statistics
from torch import nn
from torch.nn import functional as f
from torch.nn.utils import prune

SHAPE = (3, 21, 26)


class Net(nn.Module):
    """A network whose forward is a function of it and of the images; its parts have names."""

    def __init__(self, act, **parts):
        super().__init__()
        self.act = act
        for name, part in parts.items():
            if isinstance(part, torch.Tensor):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x):
        return self.act(self, x)


def conv(inputs=3, outputs=4, kernel=3, *more, **options):
    """A convolution whose bias is far from zero, so that padding after it would be seen."""
    made = nn.Conv2d(inputs, outputs, kernel, *more, **{"padding": kernel // 2, **options})
    if made.bias is not None:
        nn.init.uniform_(made.bias, 0.3, 0.8)
    return made


def head(channels=4):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3))


def tail(channels=4):
    return nn.Sequential(conv(channels), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten())


def chain(*layers):
    """Layers that run together, with others before and behind."""
    return nn.Sequential(conv(3, 4, 1), nn.GELU(), *layers, nn.GELU(), nn.LazyConv2d(3, 3), head(3))


def plain():
    return nn.Sequential(conv(), nn.ReLU(), tail())


def normed():
    return nn.Sequential(conv(), nn.BatchNorm2d(4), tail())


# Architectures: one block of each kind


def residual(norm=nn.BatchNorm2d):
    """As in ResNet, with a shortcut that is a convolution too."""

    def act(net, x):
        out = net.second(net.relu(net.norm(net.first(x))))
        out += net.short(x)
        return net.end(net.relu(out))

    relu, first = nn.ReLU(inplace=True), conv(3, 4, 3, 2, bias=False)
    parts = {"norm": norm(4), "second": conv(4), "short": conv(3, 4, 1, 2), "end": head()}
    return Net(act, first=first, relu=relu, **parts)


def group_norms():
    return residual(partial(nn.GroupNorm, 2))


def convnext(*, permuted=True):
    """Filters of each channel, then linear layers with channels last, or a norm written out."""

    def act(net, x):
        x = net.stem(x)
        inner = net.filter(x)
        if permuted:
            inner = net.norm(inner.permute(0, 2, 3, 1))
            inner = (net.scale * net.narrow(net.gelu(net.widen(inner)))).permute(0, 3, 1, 2)
        else:
            apart = inner - inner.mean(1, keepdim=True)
            inner = apart / torch.sqrt(apart.pow(2).mean(1, keepdim=True) + 1e-6)
            inner = net.scale[:, None, None] * inner
        return net.end(x + inner)

    parts = {"widen": nn.Linear(6, 12), "narrow": nn.Linear(12, 6), "norm": nn.LayerNorm(6)}
    stem, filters = nn.Conv2d(3, 6, 4, 4), nn.Conv2d(6, 6, 7, padding=3, groups=6)
    parts |= {"gelu": nn.GELU(), "scale": torch.rand(6), "end": head(6)}
    return Net(act, stem=stem, filter=filters, **parts)


def functions_on_the_last_axis():
    """The same by calls of functions with their own weights."""

    def act(net, x):
        last = f.layer_norm(net.c(x).permute(0, 2, 3, 1), (4,), net.scale, net.scale, 1e-6)
        last = f.linear(2.0 * last - 0.5, net.weight, net.bias).permute(0, 3, 1, 2)
        return net.t(last)

    parts = {"scale": torch.rand(4), "weight": torch.randn(5, 4), "bias": torch.randn(5)}
    return Net(act, c=conv(), t=tail(5), **parts)


def gated():
    """As in MobileNet-v3 and EfficientNet: an inverted bottleneck with squeeze and excitation."""

    def act(net, x):
        x = net.stem(x)
        inner = net.filter(net.widen(x))
        gate = net.hard(net.up(f.relu(net.down(net.pool(inner)))))
        return net.end(x + net.narrow(inner * gate))

    def unit(*more, **options):
        return nn.Sequential(conv(*more, bias=False, **options), nn.BatchNorm2d(more[1]), act_())

    act_ = nn.Hardswish
    parts = {"stem": unit(3, 4, 3, 2), "widen": unit(4, 8, 1), "filter": unit(8, 8, 5, groups=8)}
    parts |= {"down": conv(8, 2, 1), "up": conv(2, 8, 1), "narrow": conv(8, 4, 1)}
    return Net(act, pool=nn.AdaptiveAvgPool2d(1), hard=nn.Hardsigmoid(), end=head(), **parts)


def regnet():
    relu = nn.ReLU(inplace=True)
    layers = [conv(3, 8, 1), nn.BatchNorm2d(8), relu, conv(8, 8, 3, 2, groups=2), relu]
    return nn.Sequential(*layers, conv(8, 4, 1), head())


def hourglass(mode="bilinear"):
    """As in U-Net: down, up to the size of what came before, and both joined."""

    def act(net, x):
        first = torch.relu(net.norm(net.down(x)))
        up = f.interpolate(net.deep(first), size=first.shape[-2:], mode=mode)
        return net.last(torch.cat([up, first], 1)).mean(dim=(-1, -2))

    parts = {"down": conv(3, 4, 3, 2), "deep": conv(4, 4, 3, 2), "norm": nn.BatchNorm2d(4)}
    return Net(act, last=conv(8, 3), **parts)


def attention():
    """A convolutional stem and tokens of all places."""

    def act(net, x):
        tokens = net.stem(x).flatten(2).mT
        heard, _ = net.attention(tokens, tokens, tokens, need_weights=False)
        return (tokens + heard).mean(1)

    stem = nn.Sequential(conv(3, 8), nn.ReLU(), nn.Conv2d(8, 8, 4, 4))
    return Net(act, stem=stem, attention=nn.MultiheadAttention(8, 2, batch_first=True))


def one_of_three(axes):
    layer, norm, pool = (getattr(nn, f"{k}{axes}d") for k in ("Conv", "BatchNorm", "MaxPool"))
    layers = layer(2, 4, 3, 2, 1), norm(4), pool(2), layer(4, 4, 3, padding=1)
    return nn.Sequential(*layers, getattr(nn, f"AdaptiveAvgPool{axes}d")(1), nn.Flatten())


ARCHITECTURES = {
    "residual": residual,
    "group norms": group_norms,
    "ConvNeXt": convnext,
    "ConvNeXt, norm written out": lambda: convnext(permuted=False),
    "functions on the last axis": functions_on_the_last_axis,
    "gated": gated,
    "RegNet": regnet,
    "hourglass": hourglass,
    "hourglass, nearest": lambda: hourglass("nearest"),
    "attention": attention,
    "flat": lambda: nn.Sequential(conv(), nn.Flatten(), nn.LazyLinear(3)),
    "signals": lambda: one_of_three(1),
    "volumes": lambda: one_of_three(3),
}
OTHER_SHAPES = {"signals": (2, 60), "volumes": (2, 12, 11, 13)}

# What differs from its trace, writes in place, or has no rule


def code(text, **parts):
    """A network whose forward is lines of code; c, d and t are parts of every one."""
    made = {}
    lines = "".join(f"    {line}\n" for line in text.split("; "))
    exec(f"def act(net, x):\n{lines}", globals(), made)  # noqa: S102, the table below
    usual = {"c": conv(), "d": conv(4), "t": tail(), "relu": nn.ReLU(inplace=True)}
    return Net(made["act"], **{**usual, **parts})


def hooked(net, place=None, *, before=False):
    module = net if place is None else net[place]
    if before:
        module.register_forward_pre_hook(lambda _, given: ((given[0] - 0.5) / 0.2,))
    else:
        module.register_forward_hook(lambda _, given, made: made * 2 + given[0].mean())
    return net


def with_own_forward(net, place=None):
    module = net if place is None else net[place]
    own = type(module).forward
    module.forward = types.MethodType(lambda self, x: own(self, 2 * x - 1), module)
    return net


def pruned():
    net = normed()
    prune.l1_unstructured(net[0], "weight", 0.5)
    return net


def weight_normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.utils.weight_norm(conv()), nn.BatchNorm2d(4), tail())


def stochastic_depth(x, p, mode, training=True):
    """As in torchvision, whose function is one step of a trace."""
    return x * 0.0 if training else x


stochastic_depth.__module__ = "torchvision.ops.stochastic_depth"
torch.fx.wrap("stochastic_depth")


class PadsItself(nn.Conv2d):
    """A convolution of its own class that pads first, as ports of other frameworks do."""

    def __init__(self, before):
        super().__init__(3, 4, 3, stride=2, padding=(0, 1), bias=False)
        self.before = nn.ZeroPad2d(before)

    def forward(self, x):
        return f.conv2d(self.before(x), self.weight, self.bias, self.stride, self.padding)


class Standardized(nn.Conv2d):
    def forward(self, x):
        return f.conv2d(x, self.weight * x.mean(), self.bias)


class Places(nn.MaxPool2d):
    def forward(self, x):
        return super().forward(x)[0]


def shared():
    one = conv(3, 3, 3, padding=0)
    return nn.Sequential(nn.ZeroPad2d(2), one, nn.ZeroPad2d(1), one, head(3))


def pads_itself(before):
    return nn.Sequential(PadsItself(before), nn.BatchNorm2d(4), nn.ReLU(), head())


def computed_weights():
    parts = {"weight": torch.randn(4, 3, 3, 3), "mixing": torch.randn(3, 3, 1, 1)}

    def act(net, x):
        made = f.conv2d(net.weight, net.mixing)
        return f.conv2d(net.c(x).relu(), made, padding=1).mean((2, 3))

    return Net(act, c=conv(3, 3), **parts)


def last_axis(ending):
    """Puts channels last, and leaves them there in ways of its own."""
    endings = {
        "mean": lambda net, x: f.gelu(x * net.scale).mean((1, 2)),
        "largest": lambda net, x: (x - net.wide).amax((1, 2)),
        "both": lambda net, x: x.permute(0, 3, 1, 2).mean((2, 3)) + x.amax((1, 2)),
        "in place": lambda net, x: (x.mul_(0.5), x.permute(0, 3, 1, 2).mean((2, 3)))[1],
        "another order": lambda net, x: x.permute(0, 2, 1, 3).mean((1, 2)),
        "softmax": lambda net, x: x.permute(0, 3, 1, 2).softmax(1).mean((2, 3)),
        "two ways": lambda net, x: (
            torch.permute(x, (0, 3, 1, 2)) / (1.0 + x.abs()).permute(0, 3, 1, 2)
        ).mean((2, 3)),
    }

    def act(net, x):
        return endings[ending](net, net.linear(net.norm(net.c(x).permute(0, 2, 3, 1))))

    parts = {"norm": nn.LayerNorm(4), "linear": nn.Linear(4, 5), "scale": torch.rand(5)}
    return Net(act, c=conv(), wide=torch.rand(1, 1, 1, 5), **parts)


ODD = {
    # differ from their trace
    "a hook before": lambda: hooked(plain(), before=True),
    "a hook after": lambda: hooked(plain()),
    "a hook on a convolution": lambda: hooked(plain(), 0),
    "a hook before a convolution": lambda: hooked(plain(), 0, before=True),
    "a hook on a norm": lambda: hooked(normed(), 1),
    "a hook on a ReLU": lambda: hooked(plain(), 1),
    "its own forward": lambda: with_own_forward(plain()),
    "a layer's own forward": lambda: with_own_forward(plain(), 0),
    "stochastic depth": "return net.t(stochastic_depth(net.c(x), 0.1, 'row', net.training))",
    "stochastic depth, always on": "return net.t(stochastic_depth(net.c(x), 0.1, 'row', True))",
    "low precision inside": lambda: code(
        "with torch.autocast('cpu', dtype=torch.bfloat16): return net.n(x)",
        n=plain(),
    ),
    "a branch": "return net.c(x).amax((2, 3)) if x.sum() > 0 else x.mean((2, 3))",
    "a branch on rows": "return net.t(net.c(x)) * (2.0 if x.shape[0] > 1 else 1.0)",
    "pruned": pruned,
    "weights normed": weight_normed,
    "weights computed": computed_weights,
    "weights of the image": lambda: nn.Sequential(Standardized(3, 4, 3), head()),
    # write in place
    "another name": "a = net.c(x); torch.relu_(a); return net.t(a)",
    "another name, by sign": "a = b = net.c(x); b -= 0.5; return net.t(a)",
    "a part overwritten": "a = net.c(x); a[:, :2].zero_(); return net.t(a)",
    "overwritten twice": "a = net.c(x); torch.relu_(a); d = net.d(a); a.mul_(2.0); return net.t(d)",
    "read before and after": lambda: code(
        "a = net.c(x); return net.t(net.d(net.relu(net.same(a))) + a)",
        same=nn.Identity(),
    ),
    "padded, overwritten": (
        "a = net.c(x); "
        "return net.t(net.d(f.pad(a, (0, 0, 0, 0)).relu_()) + net.d(a))"
    ),
    "dropped, overwritten": (
        "a = net.c(x); "
        "return net.t(net.d(a) + f.relu(f.dropout(a, 0.5, False), True))"
    ),
    "the input overwritten":
        "return net.t(net.c(x) + net.c(f.pad(x, (0, 0, 0, 0)).clamp_(0.2, 0.6)))",
    "through data": "x = net.c(x); x.data.mul_(2.0); return net.t(x)",
    "its own buffer": lambda: code(
        "net.n.add_(0.0 * x.mean()); return net.t(net.c(x) + net.n)",
        n=torch.zeros(1, 1, 1),
    ),
    # look at sizes
    "padded to fit": lambda: code(
        "a = net.c(x); b = f.interpolate(net.d(a), scale_factor=2); "
        "n, m = a.size(2) - b.size(2), a.size(3) - b.size(3); "
        "return net.t(torch.cat([a, f.pad(b, [m // 2, m - m // 2, 0, n])], 1))",
        d=nn.Conv2d(4, 4, 3, 2), t=tail(8),
    ),
    "padded to even sides": lambda: code(
        "assert x.shape[1] == 3; x = net.c(f.pad(x, (0, int(x.shape[3] % 2), 0, x.shape[2] % 2))); "
        "return {'logits': net.t(x).reshape(x.shape[0], -1)}"
    ),
    "pooled by its size": "a = net.c(x); return f.avg_pool2d(a, (a.size(2), a.size(3))).flatten(1)",
    # convolutions and pools in other ways
    "calls of convolutions": lambda: code(
        "x = f.conv2d(net.pad(x), net.weight, net.bias, 2); "
        "x = f.conv2d(f.pad(x, (1, 0), value=0.5), net.deep, padding=1, groups=6); "
        "return f.relu6(x).mean([2, 3])[:, :3]",
        pad=nn.ZeroPad2d((0, 1, 2, 1)), weight=torch.randn(6, 3, 3, 3),
        bias=torch.randn(6), deep=torch.randn(6, 1, 3, 2),
    ),
    "calls by keyword": lambda: code(
        "return net.relu(net.n(net.d(input=net.c(x)))).mean((2, 3))",
        n=nn.BatchNorm2d(4),
    ),
    "calls of pools": lambda: code(
        "x = f.max_pool2d(f.relu(net.c(x)), 3, stride=2, padding=1); "
        "return net.d(f.relu(x)).mean((2, 3))", c=conv(3, 32), d=conv(32, 64),
    ),
    "pads itself": lambda: pads_itself((1, 1, 2, 2)),
    "pads itself on one side": lambda: pads_itself((0, 1, 0, 1)),
    "one layer twice": shared,
    "a pool with places": lambda: nn.Sequential(conv(), Places(2, return_indices=True), head()),
    "a pool that rounds up": lambda: nn.Sequential(
        conv(), nn.MaxPool2d(3, 2, ceil_mode=True), nn.AvgPool2d(3, 2, 1, True), head()
    ),
    "a pool read twice": lambda: code(
        "a = f.relu(net.c(x)); return net.t(f.max_pool2d(a, 2)) + a.sum((2, 3))",
        t=nn.Sequential(conv(4), nn.ReLU(), conv(4), tail()),
    ),
    # chains of layers
    "three in a chain": lambda: chain(conv(4, 6), nn.ReLU(), conv(6, 6), nn.SiLU(), conv(6, 5)),
    "a pool in a chain": lambda: chain(conv(4, 6, 7, 2), nn.LeakyReLU(-0.5), nn.MaxPool2d(3, 2, 1)),
    "a pool between": lambda: chain(conv(4, 6), nn.ReLU(True), nn.MaxPool2d(2), conv(6, 4)),
    "a pool first": lambda: chain(nn.MaxPool2d(3, 2, 1), nn.Hardswish(), conv(4, 6, 5)),
    "a mean pool between": lambda: chain(
        conv(4, 6, 5, padding=4, dilation=2), nn.AvgPool2d(3, 2, 1), conv(6, 4, 1, 2)
    ),
    "padded after the last pixel": lambda: chain(
        conv(4, 6, 1), conv(6, 6, 2, padding="same", groups=6)
    ),
    "four in a chain": lambda: chain(
        conv(4, 6, 1, 2), conv(6, 6, groups=6), conv(6, 4, 1, padding=1), conv(4, 4, 4)
    ),
    # reductions, other axes and orders
    **{f"channels last, {name}": partial(last_axis, name) for name in (
        "mean", "largest", "both", "in place", "another order", "softmax", "two ways"
    )},
    "amin, axes kept": "return net.c(x).amin((-1, -2), keepdim=True).flatten(1)",
    "sum": "return net.c(x).sum((2, 3))",
    "mean over an axis": "return net.c(x).mean(axis=(2, 3))",
    "adaptive pools": lambda: code(
        "x = net.c(x); "
        "return (f.adaptive_max_pool2d(x, 1) + f.adaptive_avg_pool2d(x, 1)).flatten(1)"
    ),
    "rows, then columns": "return net.c(x).amax(2).amin(2)",
    "channels padded": "return net.t(f.pad(f.avg_pool2d(x, 2), (0, 0, 0, 0, 0, 1)))",
    "a number for each row": lambda: code(
        "return net.t(net.c(x) + net.p)",
        p=torch.randn(4, 21, 1),
    ),
    "a constant with rows": lambda: code(
        "return (net.c(x)[:, None] + net.p).flatten(1, 2).mean((2, 3))", p=torch.randn(3, 1, 1, 1)
    ),
    "clamped by place": lambda: code(
        "return net.t(torch.clamp(net.c(x), net.p))",
        p=torch.randn(4, 21, 26),
    ),
    "enlarged by 2.1": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, 3), nn.Upsample(scale_factor=2.1, mode="bilinear"), tail()
    ),
    "enlarged by 3.2": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 6, 6), nn.Upsample(scale_factor=3.2), tail()
    ),
    "large exponents": "return torch.exp(25 * x).mean((2, 3)).log1p()",
    "a norm of the input": lambda: code(
        "return net.t(net.c((x - net.mean) / 0.3))",
        mean=torch.rand(3, 1, 1),
    ),
}  # fmt: skip
NETWORKS = {**ARCHITECTURES, **ODD}


def network(name):
    """Make a network by its name, with weights that are the same each time."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        made = NETWORKS[name]
        made = code(made) if isinstance(made, str) else made()
        made(torch.rand(2, *OTHER_SHAPES.get(name, SHAPE)))  # decides the sizes of lazy layers
        return with_statistics(made).eval()
