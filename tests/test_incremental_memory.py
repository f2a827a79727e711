"""No step of `Incremental` writes into memory that another value, or the caller, still reads."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as f

from hshap import Batched, Constant, CostPolicy, Dyadic, Explainer, Fixed, Incremental
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network

ACTS = {
    "relu": torch.relu,
    "f.relu": f.relu,
    "f.relu in place": lambda x: f.relu(x, True),
    "relu_": torch.relu_,
    "layer": nn.ReLU(),
    "layer in place": nn.ReLU(inplace=True),
    "leaky in place": nn.LeakyReLU(0.2, inplace=True),
    "hardtanh in place": nn.Hardtanh(-0.2, 0.3, inplace=True),
    "+=": lambda x: x.__iadd__(1.0),
    "mul_": lambda x: x.mul_(0.5),
    "clamp_": lambda x: x.clamp_(0.1, 0.4),
}
SHARED = {
    "pad": lambda x: f.pad(x, (1, 2, 0, 1)),
    "pad by nothing": lambda x: f.pad(x, (0, 0, 0, 0)),
    "zero pad": nn.ZeroPad2d(1),
    "constant pad": nn.ConstantPad2d((0, 1, 0, 0), 0.3),
    "padded twice": lambda x: f.pad(f.pad(x, (1, 0, 0, 0)), (0, 1, 0, 0), value=-1.0),
    "identity": nn.Identity(),
    "dropout": nn.Dropout(),
    "contiguous": lambda x: x.contiguous(),
    "function dropout": lambda x: f.dropout(x, 0.5, training=False),
}


class ReadAgain(nn.Module):
    """`y = act(shared(x))`, and x is read again, before or after."""

    def __init__(self, shared, act, *, of_input, before):
        super().__init__()
        self.shared = shared if isinstance(shared, nn.Module) else None
        self.share = None if isinstance(shared, nn.Module) else shared
        self.act_layer = act if isinstance(act, nn.Module) else None
        self.act = None if isinstance(act, nn.Module) else act
        self.first = nn.Identity() if of_input else nn.Conv2d(2, 2, 3, padding=1)
        self.a, self.b = nn.Conv2d(2, 3, 3), nn.Conv2d(2, 3, 3)
        self.of_input, self.before = of_input, before

    def forward(self, x):
        x = x - 0.5 if self.of_input else self.first(x)
        other = self.b(x) if self.before else None
        y = (self.share or self.shared)(x)
        y = (self.act or self.act_layer)(y)
        other = self.b(x) if other is None else other
        return torch.cat([self.a(y).mean((2, 3)), other.mean((2, 3))], 1)


@pytest.mark.parametrize("act", sorted(ACTS))
@pytest.mark.parametrize("shared", sorted(SHARED))
@pytest.mark.parametrize("before", [False, True], ids=["read after", "read before"])
@pytest.mark.parametrize("of_input", [False, True], ids=["convolved", "input"])
@pytest.mark.filterwarnings("ignore:Incremental runs every input in full")
def test_a_tensor_that_is_read_again_is_not_overwritten(shared, act, before, of_input):
    torch.manual_seed(0)
    net = ReadAgain(SHARED[shared], ACTS[act], of_input=of_input, before=before).eval()
    image = np.random.default_rng(0).random((2, 40, 40), dtype=np.float32)
    baseline = np.random.default_rng(1).random((2, 40, 40), dtype=np.float32)
    kept = image.copy(), baseline.copy()
    found, full = (
        Explainer(way, Fixed(baseline), Dyadic(10)).explain(image, target=4).games
        for way in (Incremental(net, cost_policy=CostPolicy.always()), Batched(net))
    )
    for one, other in zip(found, full, strict=True):
        np.testing.assert_allclose(one.values, other.values, rtol=1e-5, atol=1e-6)
    assert np.array_equal(image, kept[0])
    assert np.array_equal(baseline, kept[1])


@pytest.mark.parametrize("side", [40, 400], ids=["in full", "on a crop"])
def test_the_callers_image_is_never_written_to(side):
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)

        def forward(self, x):
            return self.conv(torch.relu(f.pad(x, (1, 1, 1, 1)))).mean((2, 3))

    image = np.random.default_rng(0).normal(size=(1, side, side)).astype(np.float32)
    kept = image.copy()
    way = Incremental(Padded().eval(), cost_policy=CostPolicy.always())
    Explainer(way, Constant(-0.5), Dyadic(side // 2)).explain(image, target=0)
    assert np.array_equal(image, kept)


@pytest.mark.parametrize("side", [40, 400])
def test_activations_are_freed_with_the_run_without_a_garbage_collection(side):
    sessions = []

    class Noted:
        def open_session(self):
            session = Incremental(module, cost_policy=CostPolicy.always()).open_session()
            sessions.append(weakref.ref(session))
            return session

    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module.eval()
    image = np.random.default_rng(0).normal(size=(1, side, side)).astype(np.float32)
    gc.disable()
    try:
        found = Explainer(Noted(), Constant(0.5), Dyadic(side // 4)).explain(image, target=0)
        assert found.provenance.incremental
        assert [session() for session in sessions] == [None]
    finally:
        gc.enable()


def test_a_patch_says_whether_it_owns_its_memory():
    network = Network(
        nn.Sequential(nn.Conv2d(1, 1, 3), nn.Identity(), nn.ZeroPad2d(1), nn.ReLU()).eval()
    )
    anchor = torch.rand(1, 1, 12, 12)
    with torch.inference_mode():
        activations, _ = network.activations(anchor)
        patch = Patch(torch.rand(1, 1, 4, 4), ((3, 3),), anchor)
        results = network.results(patch, activations)
    conv, same, padded, relu = (results[step.name] for step in network.steps)
    assert [one.is_owned for one in (conv, same, padded, relu)] == [True, False, False, True]
    assert padded.data.data_ptr() == conv.data.data_ptr() != relu.data.data_ptr()


@pytest.mark.parametrize("sign", ["+=", "-=", "*=", "/="])
def test_arithmetic_in_place_changes_all_names_of_a_tensor(sign):
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.last = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3)

        def forward(self, x):
            a = b = self.conv(x)
            if sign == "+=":
                b += 0.5
            elif sign == "-=":
                b -= 0.5
            elif sign == "*=":
                b *= 0.5
            else:
                b /= 0.5
            return self.last(a).mean((2, 3))

    reason = Network(Named().eval()).reason
    assert reason == "it reads a tensor that it has overwritten in place"


def test_a_network_that_writes_through_data_runs_in_full():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3)

        def forward(self, x):
            x = self.conv(x)
            x.data.mul_(2.0)
            return x.mean((2, 3))

    assert "bare memory" in Network(Hidden().eval()).reason


class Quiet(nn.Module):
    """Reads a tensor again after an operation that writes nothing."""

    def __init__(self, act):
        super().__init__()
        self.act, self.conv = act, nn.Conv2d(1, 1, 3, padding=1)

    def forward(self, x):
        x = self.conv(x)
        return (self.act(x) + x).mean((2, 3))


@pytest.mark.parametrize(
    "act",
    [f.relu, f.hardswish, f.elu, nn.Dropout(inplace=True), nn.ReLU()],
    ids=["relu", "hardswish", "elu", "dropout", "layer"],
)
def test_operations_that_write_nothing_leave_a_network_on_patches(act):
    assert not Network(Quiet(act).eval()).reason


def test_a_network_that_changes_its_own_buffer_runs_in_full():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 3)
            self.register_buffer("calls", torch.zeros(1, 1, 1))

        def forward(self, x):
            self.calls.add_(0.0 * x.mean())
            return (self.conv(x) + self.calls).mean((2, 3))

    net = Counting().eval()
    image = np.random.default_rng(0).random((1, 40, 40), dtype=np.float32)
    way = Incremental(net, cost_policy=CostPolicy.always())
    with pytest.warns(RuntimeWarning, match="overwritten in place"):
        Explainer(way, Constant(0.0), Dyadic(10)).explain(image, target=0)


@pytest.mark.parametrize("shape", [(3, 1, 1, 1), (2, 1, 1, 1, 1)])
def test_a_constant_with_rows_of_its_own_has_no_rule(shape):
    class Added(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 3)
            self.register_buffer("more", torch.randn(shape))

        def forward(self, x):
            return (self.conv(x) + self.more).flatten(-3).amax(-1)

    net, anchor = Added().eval(), torch.rand(1, 1, 12, 12)
    network = Network(net)
    with torch.inference_mode():
        activations, _ = network.activations(anchor)
        patch = Patch(torch.rand(1, 1, 4, 4), ((3, 3),), anchor)
        assert torch.allclose(network.run(patch, activations), net(patch.full()), atol=1e-6)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_padding_to_the_same_size_differs_at_the_two_borders(mode, kernel, dilation, axes):
    torch.manual_seed(0)
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    options = {"padding": "same", "padding_mode": mode, "dilation": dilation}
    model = kind(1, 2, kernel, **options).eval()
    side, others = 11, (10,) * (axes - 1)
    network, anchor = Network(model), torch.rand(1, 1, *others, side)
    with torch.inference_mode():
        activations, _ = network.activations(anchor)
        for size in (1, 2, 5):
            for start in range(side - size + 1):
                data = torch.rand(1, 1, *(2,) * (axes - 1), size)
                patch = Patch(data, ((8,) * (axes - 1) + (start,),), anchor)
                found = network.run(patch, activations)
                assert torch.allclose(found, model(patch.full()), atol=1e-6), (size, start)
