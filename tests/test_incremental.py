"""Recomputing only the activations that differ gives the scores of full forward passes."""

from __future__ import annotations

import json
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as f

from hshap import (
    ArgumentError,
    Batched,
    Bisection,
    Blur,
    Conditional,
    Constant,
    CostPolicy,
    Dyadic,
    Explainer,
    Fixed,
    Incremental,
    ModelFailedError,
    References,
    Shifted,
    Superpixels,
)
from hshap._util.recipes import describe
from hshap.evaluators.incremental.cost_policy import CostLedger
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network

# Tries patches everywhere: runs as short as these would never pay for the setup.
ALWAYS = CostPolicy.always()


class Residual(nn.Module):
    """A block as in ResNet, with a shortcut that is a convolution too."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.short = nn.Conv2d(inputs, outputs, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.second(self.relu(self.norm(self.first(x))))
        out += self.short(x)
        return self.relu(out)


class Squeeze(nn.Module):
    """Squeeze and excitation: every place depends on all."""

    def __init__(self, channels):
        super().__init__()
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.fc(self.pool(x)))


class Forked(nn.Module):
    """Two ways that meet: concatenated, added, scaled."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2d(3, 4, 5, padding=2)
        self.narrow = nn.Conv2d(3, 4, 1)
        self.last = nn.Conv2d(8, 4, 3, dilation=2, padding=2, groups=2)

    def forward(self, x):
        a, b = self.wide(x), torch.relu(self.narrow(x))
        out = self.last(torch.cat([a, b], dim=1)) + 0.5 * a - b
        return nn.functional.max_pool2d(out, 2).mean(dim=(2, 3))


class InPlace(nn.Module):
    """Adds a wide view to a narrow one, and works in place throughout."""

    def __init__(self):
        super().__init__()
        self.narrow, self.wide = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 5, padding=2)
        self.relu, self.last = nn.ReLU(inplace=True), nn.Conv2d(4, 3, 3)

    def forward(self, x):
        out = self.narrow(x)
        out += self.wide(x)
        out = self.relu(out).mul_(0.5)
        return self.last(out).mean(dim=(2, 3))


class Alias(nn.Module):
    """Reads under an old name what was overwritten since."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 3)

    def forward(self, x):
        a = self.first(x)
        torch.relu_(a)
        return self.last(a).mean(dim=(2, 3))


class Normalised(nn.Module):
    """Brings its inputs to a common scale first."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.rand(3, 1, 1))
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.conv((x - self.mean) / 0.3).amax(dim=(2, 3))


class Padded(nn.Module):
    """Convolves as some packages do: pads by itself, and calls functions with its own weights."""

    def __init__(self):
        super().__init__()
        self.pad = nn.ZeroPad2d((0, 1, 2, 1))
        self.weight = nn.Parameter(torch.randn(6, 3, 3, 3))
        self.bias = nn.Parameter(torch.randn(6))
        self.deep = nn.Parameter(torch.randn(6, 1, 3, 2))

    def forward(self, x):
        x = nn.functional.conv2d(self.pad(x), self.weight, self.bias, 2)
        x = nn.functional.pad(x, (1, 0), value=0.5)
        x = nn.functional.conv2d(x, self.deep, padding=1, groups=6)
        return nn.functional.relu6(x).mean([2, 3])[:, :3]


class Hourglass(nn.Module):
    """A small U-Net: down, up to the size of what came before, and both joined."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode
        self.down, self.deep = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)
        self.norm, self.last = nn.BatchNorm2d(4), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x):
        first = torch.relu(self.norm(self.down(x)))
        deep = self.deep(first)
        up = nn.functional.interpolate(deep, size=first.shape[-2:], mode=self.mode)
        return self.last(torch.cat([up, first], 1)).mean(dim=(-1, -2))


def head(channels):
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)]


def networks():
    torch.manual_seed(0)
    made = {
        "plain": nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3, 2, 1), *head(5)),
        "strides": nn.Sequential(
            nn.Conv2d(3, 4, 7, (2, 3), 3), nn.GELU(), nn.Conv2d(4, 5, (1, 4), 3), *head(5)
        ),
        "same": nn.Sequential(nn.Conv2d(3, 4, 4, padding="same"), nn.SiLU(), *head(4)),
        "valid": nn.Sequential(nn.Conv2d(3, 4, 3, padding="valid", dilation=3), *head(4)),
        "reflect": nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), *head(4)),
        "circular": nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), nn.ReLU(), *head(4)
        ),
        "max pool": nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, 2, 1), nn.Conv2d(4, 4, 3), *head(4)
        ),
        "ceil": nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.MaxPool2d(3, 2, ceil_mode=True), nn.Conv2d(4, 4, 2), *head(4)
        ),
        "mean pool": nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.AvgPool2d(2, padding=1), nn.Conv2d(4, 4, 3), *head(4)
        ),
        "mean pool, edges": nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, 2, 1, count_include_pad=False), *head(4)
        ),
        "residual": nn.Sequential(Residual(3, 4, 1), Residual(4, 6, 2), nn.Dropout(), *head(6)),
        "upsampled": nn.Sequential(
            nn.Conv2d(3, 4, 3, 2), nn.Upsample(scale_factor=2), nn.Conv2d(4, 4, 3), *head(4)
        ),
        "bilinear": nn.Sequential(
            nn.Conv2d(3, 4, 3, 2), nn.Upsample(scale_factor=2, mode="bilinear"), *head(4)
        ),
        "padded": Padded(),
        "hourglass, nearest": Hourglass("nearest"),
        "hourglass, bilinear": Hourglass("bilinear"),
        "enlarged": nn.Sequential(
            nn.Upsample(scale_factor=(3, 2), mode="bilinear"), nn.Conv2d(3, 4, 3), *head(4)
        ),
        "corners": nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
            *head(4),
        ),
        "norm first": nn.Sequential(
            nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), *head(4)
        ),
        "squeezed": nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), Squeeze(4), nn.Conv2d(4, 4, 3), *head(4)
        ),
        "group norm": nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Conv2d(4, 4, 3), *head(4)
        ),
        "forked": nn.Sequential(Forked(), nn.Linear(4, 3)),
        "normalised": Normalised(),
        "in place": InPlace(),
        "alias": Alias(),
        "grouped max": nn.Sequential(
            nn.Conv2d(3, 6, 3, groups=3), nn.AdaptiveMaxPool2d(1), nn.Flatten()
        ),
        "flat": nn.Sequential(nn.Flatten(), nn.Linear(3 * 20 * 26, 3)),
    }
    return {name: with_statistics(network).eval() for name, network in made.items()}


def with_statistics(network):
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return network


NETWORKS = networks()
SHAPE = (3, 20, 26)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@given(st.data())
@settings(deadline=None, max_examples=200)
def test_patches_give_the_outputs_of_full_inputs(data):
    name = data.draw(st.sampled_from(sorted(NETWORKS)))
    model = NETWORKS[name]
    rng = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    size = tuple(data.draw(st.integers(1, n)) for n in SHAPE[1:])
    rows = data.draw(st.integers(1, 4))
    starts = tuple(
        tuple(data.draw(st.integers(0, n - m)) for n, m in zip(SHAPE[1:], size, strict=True))
        for _ in range(rows)
    )
    anchor = torch.rand(1, *SHAPE, generator=rng)
    patch = Patch(torch.rand(rows, 3, *size, generator=rng), starts, anchor)
    whole = patch.full()
    network = Network(model)
    with torch.inference_mode():
        expected = model(whole.clone())
        if network.reason:
            assert name in {"flat", "alias"}
            return
        activations, output = network.activations(anchor.clone())
        # Batch norms are folded into convolutions, so only nearly.
        assert torch.allclose(output, model(anchor), rtol=1e-5, atol=1e-6)
        found = network.run(patch, activations)
        assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5), name
        # What is known of the anchor is left as it was.
        assert torch.allclose(network.run(patch, activations), found, rtol=0, atol=0)


class Generated(nn.Module):
    """Random layers one after another, some around a shortcut, some beside another way."""

    def __init__(self, rng, channels=3):
        super().__init__()
        self.steps, self.ways = nn.ModuleList(), []
        for _ in range(rng.integers(2, 6)):
            way = rng.choice(["on", "on", "on", "shortcut", "fork"])
            layer, channels = self.layer(rng, channels, local=way != "on")
            self.steps.append(layer)
            self.ways.append(way)
            channels = channels * 2 if way == "fork" else channels
        self.last = rng.choice(["mean", "max", "mean of dims"])

    def layer(self, rng, channels, local):
        kinds = ["conv", "conv norm", "relu", "norm", "depthwise"]
        kinds += [] if local else ["max", "mean", "up", "smooth", "stride", "pad", "group norm"]
        kernel, dilation = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        wide = nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation)
        made = {
            "conv": lambda: wide,
            "conv norm": lambda: nn.Sequential(wide, nn.BatchNorm2d(channels), nn.ReLU(True)),
            "relu": lambda: nn.ReLU(inplace=bool(rng.integers(2)) and not local),
            "norm": lambda: nn.BatchNorm2d(channels),
            "depthwise": lambda: nn.Conv2d(channels, channels, 3, 1, 1, groups=channels),
            "max": lambda: nn.MaxPool2d(kernel, int(rng.integers(1, 3)), kernel // 2),
            "mean": lambda: nn.AvgPool2d(kernel, int(rng.integers(1, 3)), kernel // 2),
            "up": lambda: nn.Upsample(scale_factor=2),
            "smooth": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
            "stride": lambda: nn.Conv2d(channels, channels, kernel, int(rng.integers(1, 4)), 2),
            "pad": lambda: nn.ZeroPad2d(tuple(int(n) for n in rng.integers(0, 3, 4))),
            "group norm": lambda: nn.GroupNorm(1, channels),
        }
        return made[rng.choice(kinds)](), channels

    def forward(self, x):
        for step, way in zip(self.steps, self.ways, strict=True):
            out = step(x)
            x = out + x if way == "shortcut" else torch.cat([x, out], 1) if way == "fork" else out
        if self.last == "max":
            return x.amax(dim=(2, 3))
        return x.mean(dim=(2, 3)) if self.last == "mean" else torch.mean(x, [2, 3])


@pytest.mark.parametrize("seed", range(200))
def test_networks_made_at_random(seed):
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = with_statistics(Generated(rng)).eval()
    grid = tuple(int(n) for n in rng.integers(9, 30, 2))
    size = tuple(int(rng.integers(1, n + 1)) for n in grid)
    starts = tuple(
        tuple(int(rng.integers(n - m + 1)) for n, m in zip(grid, size, strict=True))
        for _ in range(3)
    )
    anchor = torch.rand(1, 3, *grid)
    patch = Patch(torch.rand(3, 3, *size), starts, anchor)
    network = Network(model)
    with torch.inference_mode():
        expected = model(patch.full())
        if network.reason:
            assert "place by place" in network.reason
            return
        activations, _ = network.activations(anchor.clone())
        found = network.run(patch, activations)
    scale = expected.abs().max()
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5 * scale), model


@pytest.mark.parametrize("axes", [1, 3])
def test_signals_and_volumes(axes):
    conv, pool, norm, mean = (
        getattr(nn, f"{kind}{axes}d")
        for kind in ("Conv", "MaxPool", "BatchNorm", "AdaptiveAvgPool")
    )
    model = nn.Sequential(
        conv(2, 4, 3, 2, 1), norm(4), pool(2), conv(4, 4, 3, padding=1), mean(1), nn.Flatten()
    ).eval()
    grid = {1: (60,), 3: (14, 12, 17)}[axes]
    same_as_batched(model, (2, *grid), Bisection(4), Constant(0.3))


def same_as_batched(model, shape, partition, baseline, *, cost_policy=ALWAYS, **options):
    image = np.random.default_rng(0).random(shape, dtype=np.float32)
    incremental = Incremental(model, cost_policy=cost_policy, **options)
    dense, quick = (
        Explainer(evaluator, baseline=baseline, partition=partition).explain(image, target=1)
        for evaluator in (Batched(model), incremental)
    )
    assert [g.region for g in dense.games] == [g.region for g in quick.games]
    for one, other in zip(dense.games, quick.games, strict=True):
        scale = np.abs(one.values).max()
        assert np.allclose(one.values, other.values, rtol=1e-5, atol=1e-5 * scale)
    return quick


@pytest.mark.parametrize(
    "partition",
    [Bisection(5), Dyadic(6), Shifted(Dyadic(6), (3, 8)), Superpixels(min_area=40, max_area=80)],
    ids=str,
)
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "last"])
@pytest.mark.parametrize("name", ["residual", "forked", "squeezed"])
def test_explanations_are_those_of_the_dense_evaluator(name, partition, last):
    reference = np.random.default_rng(1).random(SHAPE, dtype=np.float32)
    same_as_batched(NETWORKS[name], SHAPE, partition, Fixed(reference), channels_last=last)


@pytest.mark.parametrize(
    "baseline",
    [
        Constant(0.2),
        Blur(2.0),
        References(np.random.default_rng(2).random((3, *SHAPE), dtype=np.float32)),
        Conditional(
            lambda image, known, draws, rng: np.stack([np.where(known, image, 0.1)] * draws),
            draws=2,
        ),
    ],
    ids=lambda baseline: type(baseline).__name__,
)
def test_any_baseline_works(baseline):
    with says_why(isinstance(baseline, Conditional), "depend on the regions that are shown"):
        same_as_batched(NETWORKS["residual"], SHAPE, Bisection(6), baseline)


def says_why(whole, reason):
    return pytest.warns(RuntimeWarning, match=reason) if whole else nullcontext()


class WithMemory:
    """An evaluator that notes the memory of kept activations after every batch."""

    def __init__(self, inner):
        self.inner, self.kept = inner, []

    def open_session(self):
        noted, session = self.kept, self.inner.open_session()

        class Session:
            put = staticmethod(session.put)
            capacity = staticmethod(session.capacity)

            def score(self, rows):
                scores = session.score(rows)
                noted.append(session.kept_bytes)
                return scores

        return Session()


@pytest.mark.parametrize("most", [1000, 100_000, 10**6])
def test_memory_is_bounded(most):
    model, image = NETWORKS["residual"], np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    watched = WithMemory(Incremental(model, max_memory=most, cost_policy=ALWAYS))
    with says_why(most == 1000, "more than max_memory=1000 bytes"):
        found = Explainer(watched, Constant(0.1), Bisection(6)).explain(image, target=1)
    assert max(watched.kept) <= most
    assert bool(max(watched.kept)) == (most > 1000)
    full = Explainer(model, Constant(0.1), Bisection(6)).explain(image, target=1)
    assert np.allclose(found.attribution(), full.attribution(), atol=1e-6)


def test_many_images_share_what_is_kept_of_the_baseline():
    rng = np.random.default_rng(0)
    images = [rng.random(SHAPE, dtype=np.float32) for _ in range(5)]
    model = NETWORKS["residual"]
    found = [
        {
            e.position: e
            for e in Explainer(made, Constant(0.2), Bisection(6)).explain_many(
                (i, 1) for i in images
            )
        }
        for made in (
            Batched(model),
            Incremental(model, max_memory=200_000, cost_policy=ALWAYS),
        )
    ]
    for position in range(5):
        dense, quick = (each[position] for each in found)
        assert np.allclose(dense.attribution(), quick.attribution(), atol=1e-6)


def test_the_report_tells_layer_by_layer():
    told = Incremental(NETWORKS["squeezed"]).report((3, 64, 64))
    lines = {line.split()[0]: line.split()[2] for line in told.splitlines()[1:-3]}
    assert lines["_0"] == "patch"
    assert lines["mul"] == "full"
    assert told.splitlines()[-4].split()[2] == "full"
    assert lines["_1_pool"] == "change"
    assert told.splitlines()[-2].startswith("Patches end at mul. A patch of a quarter of each side")
    assert "every input runs in full: none of its operations" in Incremental(
        NETWORKS["flat"]
    ).report(SHAPE)


def test_networks_that_cannot_be_traced_run_in_full():
    class Choosing(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, x):
            return self.conv(x).amax(dim=(2, 3)) if x.sum() > 0 else x.mean(dim=(2, 3))[:, :2]

    model = Choosing().eval()
    assert "cannot be traced" in Incremental(model).report(SHAPE)
    with says_why(True, "cannot be traced"):
        same_as_batched(model, SHAPE, Bisection(6), Constant(0.2))


class Watched(nn.Module):
    """Counts how often a network is traced, and how often the trace is run."""

    def __init__(self, network):
        super().__init__()
        self.network, self.last = network, nn.Flatten()
        self.traced, self.run = [], []
        own, traced, run = self.last, self.traced, self.run
        self.note_tracing = lambda x: traced.append(1) if isinstance(x, torch.fx.Proxy) else None
        # A trace works on a copy of the layers; only full passes call the layer itself.
        self.last.register_forward_hook(
            lambda layer, given, made: None if layer is own else run.append(len(made))
        )

    def forward(self, x):
        self.note_tracing(x)
        return self.last(self.network(x))


class TestShortRuns:
    """Setup costs time, which a few evaluations of a fast network do not earn back."""

    def test_a_run_that_would_not_pay_for_it_has_no_setup(self):
        model = Watched(NETWORKS["residual"]).eval()
        policy = CostPolicy(setup_seconds=10.0)
        same_as_batched(model, SHAPE, Bisection(6), Constant(0.2), cost_policy=policy)
        assert not model.traced

    def test_setup_comes_once_enough_was_spent(self):
        model = Watched(NETWORKS["residual"]).eval()
        policy = CostPolicy(setup_seconds=1e-9, quick_seconds=0.0)  # as if the network were slow
        same_as_batched(model, SHAPE, Bisection(2), Constant(0.2), cost_policy=policy)
        assert len(model.traced) == 1
        assert model.run

    def test_without_a_limit_patches_run_from_the_first_batch(self):
        model = Watched(NETWORKS["residual"]).eval()
        same_as_batched(model, SHAPE, Bisection(6), Constant(0.2), cost_policy=CostPolicy.always())
        assert len(model.traced) == 1
        assert max(model.run) > 1


class TestCostLedger:
    SHAPE, SIZE = (3, 20, 20), (16, 16)

    def ledger(self, modules=1, **options):
        return CostLedger(CostPolicy(**options), modules=modules)

    def test_overhead_is_bounded(self):
        ledger = self.ledger(setup_seconds=0.01, modules=10)
        assert not ledger.allows(0.1)
        assert not ledger.allows_setup(self.SHAPE, passes=0)
        ledger.add_full(self.SHAPE, 10, 2.0)
        assert ledger.allows(0.1)
        assert ledger.allows_setup(self.SHAPE, passes=0)
        assert not ledger.allows_setup(self.SHAPE, passes=1)  # 0.2 seconds more
        ledger.add_overhead(0.15)
        assert ledger.allows(0.05)
        assert not ledger.allows(0.1)
        ledger.add_patches(self.SHAPE, self.SIZE, 1.0, 0.2)  # patches were faster
        assert ledger.allows(0.9)

    def test_saved_passes_pay_for_overhead(self):
        ledger = self.ledger()
        ledger.add_saved(1.0)
        assert ledger.allows(1.05)
        assert not ledger.allows(1.2)

    def test_slow_patches_are_not_tried_a_third_time(self):
        ledger = self.ledger(allowed_overhead=100.0)
        ledger.add_full(self.SHAPE, 10, 1.0)
        for _ in range(2):
            assert ledger.allows_patches(self.SHAPE, self.SIZE, count=4, alone=0.1)
            ledger.add_patches(self.SHAPE, self.SIZE, 0.4, 0.8)
        assert not ledger.allows_patches(self.SHAPE, self.SIZE, count=4, alone=0.1)
        assert ledger.allows_patches(self.SHAPE, (8, 8), count=4, alone=0.1)

    def test_a_fast_network_runs_one_full_batch_before_patches(self):
        ledger = self.ledger()
        assert not ledger.allows_patches(self.SHAPE, self.SIZE, count=4, alone=0.01)
        ledger.add_full(self.SHAPE, 4, 0.02)
        assert ledger.allows_patches(self.SHAPE, self.SIZE, count=4, alone=0.01)

    def test_a_slow_network_is_tried_whatever_the_overhead(self):
        ledger = self.ledger(quick_seconds=0.05)
        ledger.add_full(self.SHAPE, 2, 0.2)
        ledger.add_overhead(100.0)
        assert ledger.allows_anchor(self.SHAPE)
        assert ledger.allows_patches(self.SHAPE, self.SIZE, count=4, alone=0.1)

    def test_no_limit_allows_everything(self):
        ledger = CostLedger(CostPolicy.always(), modules=10**6)
        ledger.add_overhead(1e6)
        for _ in range(3):
            ledger.add_patches(self.SHAPE, self.SIZE, 0.1, 10.0)
        assert ledger.allows_setup(self.SHAPE, passes=2)
        assert ledger.allows_anchor(self.SHAPE)
        assert ledger.allows_patches(self.SHAPE, self.SIZE, count=4, alone=0.0)


def test_a_policy_that_cannot_be_used_is_told():
    with pytest.raises(
        ArgumentError, match="allowed_overhead must be a finite number of 0 or more"
    ):
        CostPolicy(allowed_overhead=-0.1)
    with pytest.raises(ArgumentError, match="quick_seconds must be a finite number"):
        CostPolicy(quick_seconds="short")
    with pytest.raises(ArgumentError, match=r"cost_policy is 0\.1, which is no CostPolicy"):
        Incremental(NETWORKS["plain"], cost_policy=0.1)


def test_the_policy_is_described_with_the_evaluator():
    described = describe(Incremental(NETWORKS["plain"], cost_policy=CostPolicy.always()))
    assert described["cost_policy"] == {
        "type": "CostPolicy",
        "allowed_overhead": None,
        "setup_seconds": 5e-4,
        "quick_seconds": 0.05,
    }
    assert json.loads(json.dumps(described, allow_nan=False)) == described


class TestFailures:
    def test_a_failing_model_is_named_with_its_inputs(self):
        class Fails(nn.Module):
            def forward(self, x):
                message = "mine"
                raise KeyError(message)

        explainer = Explainer(Incremental(Fails().eval()), Constant(0.0), Bisection(10))
        with pytest.raises(ModelFailedError, match=r"failed on a batch .* image 0") as caught:
            explainer.explain(np.zeros(SHAPE, dtype=np.float32), target=0)
        assert isinstance(caught.value.__cause__, KeyError)

    def test_a_failure_during_the_comparison_is_the_models(self):
        model = nn.Sequential(nn.Conv2d(3, 2, 3), *head(2)).eval()
        own, calls = model[-1], []

        def fail_the_second_time(layer, given, made):
            calls.extend([layer] if layer is own else [])
            if len(calls) == 2:
                message = "worn out"
                raise OSError(message)

        own.register_forward_hook(fail_the_second_time)
        explainer = Explainer(Incremental(model, cost_policy=ALWAYS), Constant(0.0), Bisection(10))
        # Patches are not to blame, so no warning says that they failed.
        with pytest.raises(ModelFailedError, match="OSError: worn out"):
            explainer.explain(np.ones(SHAPE, dtype=np.float32), target=0)
        assert len(calls) == 2


def test_other_models_are_refused():
    with pytest.raises(ArgumentError, match="Incremental takes torch modules; use Batched"):
        Incremental(lambda batch: batch)
    with pytest.raises(ArgumentError, match="max_memory must be at least 0"):
        Incremental(NETWORKS["plain"], max_memory=-1)
    with pytest.raises(ArgumentError, match="training mode"):
        Incremental(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Dropout()).train())


@pytest.mark.parametrize("outside", [0.0, -torch.inf])
@pytest.mark.parametrize("grid", [(300,), (60, 55), (17, 15, 16)])
@pytest.mark.parametrize("together", [False, True])
def test_a_window_shows_the_patch_the_anchor_and_the_padding(grid, together, outside):
    # Together, windows lie at one place around their patches, which are copied at once.
    rng = np.random.default_rng(len(grid))
    anchor = torch.rand(1, 2, *grid)
    for _ in range(6):
        size = tuple(int(rng.integers(1, n + 1)) for n in grid)
        starts = tuple(
            tuple(int(rng.integers(n - m + 1)) for n, m in zip(grid, size, strict=True))
            for _ in range(2)
        )
        patch = Patch(torch.rand(2, 2, *size), starts, anchor)
        wide = tuple(int(rng.integers(1, n + 5)) for n in grid)
        shifts = [tuple(int(rng.integers(-4, 5)) for _ in grid) for _ in starts]
        views = [
            tuple(a + b for a, b in zip(start, shifts[0 if together else row], strict=True))
            for row, start in enumerate(starts)
        ]
        whole = anchor.repeat(2, 1, *(1 for _ in grid))
        for row, start, data in zip(whole, starts, patch.data, strict=True):
            row[(slice(None), *(slice(a, a + n) for a, n in zip(start, size, strict=True)))] = data
        assert torch.equal(patch.full(), whole)
        margin = max(grid) + 10
        padded = f.pad(whole, [margin, margin] * len(grid), value=outside)
        expected = [
            row[
                (
                    slice(None),
                    *(slice(a + margin, a + margin + n) for a, n in zip(view, wide, strict=True)),
                )
            ]
            for row, view in zip(padded, views, strict=True)
        ]
        assert torch.equal(patch.window(views, wide, outside), torch.stack(expected))
