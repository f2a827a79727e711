"""Runs of `Incremental`: its report, its warnings, its memory, its time, and models that fail."""

from __future__ import annotations

import gc
import re
import time
import warnings
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from full_passes import ALWAYS, every_game
from networks import SHAPE, Net, conv, head, network, tail
from torch import nn

from hshap import (
    ArgumentError,
    Batched,
    Bisection,
    Conditional,
    Constant,
    Dyadic,
    Explainer,
    Fixed,
    Incremental,
    References,
)
from hshap.errors import ModelFailedError
from hshap.protocols import CostPolicy

RNG = np.random.default_rng(0)
IMAGE = RNG.random((3, 48, 52), dtype=np.float32)
GATE, STATISTICS = (
    "its other argument changes with the input",
    "its statistics are those of all places",
)


def values(way, image=IMAGE, baseline=None, partition=None, **options):
    parts = baseline or Constant(0.2), partition or Bisection(12)
    found = Explainer(way, *parts, **options).explain(image, target=0)
    return np.concatenate([game.values for game in found.games]), found.provenance


def incremental(net, **options):
    return Incremental(net, **{"cost_policy": ALWAYS, **options})


# The report


REPORTS = {
    "residual": ["Patches run to the end.", "iadd +patch"],
    "ConvNeXt": ["Patches run to the end.", "LayerNorm +patch", "Linear +patch"],
    "ConvNeXt, norm written out": ["Patches run to the end.", "sqrt +patch"],
    "functions on the last axis": ["Patches run to the end.", "layer_norm +patch", "linear +patch"],
    "RegNet": ["Patches run to the end.", r"AdaptiveAvgPool2d +change"],
    "gated": ["Patches end at mul.", rf"mul +mul +full +1.00 +{GATE}", "AdaptiveAvgPool2d +change"],
    "group norms": ["Patches end at norm.", rf"GroupNorm +full +1.00 +{STATISTICS}"],
    "hourglass": ["Patches end at interpolate.", "getattr +shape", "its rule does not cover"],
    "padded to even sides": ["Patches run to the end."],
    "attention": ["Patches end at", "flatten +full"],
    "flat": ["Flatten +full"],
    "stochastic depth": ["Patches run to the end.", "stochastic_depth +patch"],
    "calls of pools": ["max_pool2d +patch", r"relu +patch"],
    "pads itself on one side": ["ZeroPad2d +patch"],
    "large exponents": [r"Patches run to the end\.$"],
    "a branch": ["every input runs in full: it cannot be traced"],
    "a branch on rows": ["every input runs in full: it cannot be traced"],
    "through data": ["it reads the bare memory of a tensor"],
    "another name": ["it reads a tensor that it has overwritten in place"],
    "another name, by sign": ["it reads a tensor that it has overwritten in place"],
    "rows, then columns": ["amax +full"],
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_says_where_patches_end(name):
    told = Incremental(network(name)).report(SHAPE)
    for words in REPORTS[name]:
        assert re.search(words, told, re.DOTALL), told


def test_a_report_of_a_network_without_patches_says_why():
    without = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2)).eval()
    assert "none of its operations works place by place" in Incremental(without).report((3, 8, 8))


def test_operations_that_write_nothing_keep_a_network_on_patches():
    for act in (torch.relu, nn.functional.elu, nn.Dropout(inplace=True), nn.ReLU()):
        quiet = Net(lambda net, x: (net.act_(net.c(x)) + net.c(x)).mean((2, 3)), c=conv(), act_=act)
        assert "Patches run to the end." in Incremental(quiet.eval()).report(SHAPE)


def test_the_module_is_left_as_it_was():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.ramp = conv(), None
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            if self.ramp is None:
                self.ramp = torch.ones_like(x[:1, :1])
            self.calls += 1
            self.seen = self.conv(x * self.ramp - torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1))
            return self.seen.amax(dim=(2, 3))

    net = Counts().eval()
    before = set(vars(net))
    Incremental(net).report(SHAPE)
    assert set(vars(net)) == before
    assert (net.ramp, float(net.calls)) == (None, 0.0)
    net = nn.Sequential(nn.ZeroPad2d(1), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), tail()).eval()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    values(incremental(net, channels_last=True))
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert (net[1].padding, net[1].weight.is_contiguous()) == ((0, 0), True)


# Scores that depend on the other inputs of a batch


class Mates(nn.Module):
    """Scores that depend on the batch: in the middle of the network, at its end, or nowhere."""

    def __init__(self, place, side=0):
        super().__init__()
        self.place, self.side = place, side
        self.first, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 4, 3, padding=1)
        self.size = nn.Linear(4 * (side // 16) ** 2, 4) if side else nn.Identity()

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = x - 0.5 * x.mean(0, keepdim=True) if self.place == "middle" else x
        x = torch.relu(self.last(x))
        x = nn.functional.avg_pool2d(x, 8).flatten(1) if self.side else x.mean((2, 3))
        x = self.size(x)
        return x - 0.5 * x.amax(0, keepdim=True) if self.place == "end" else x


@pytest.mark.parametrize("middle", [None, 0.4], ids=["noise", "one colour in the middle"])
@pytest.mark.parametrize("policy", [CostPolicy(), ALWAYS], ids=["usual", "always"])
@pytest.mark.parametrize("side", [64, 368], ids=["small", "large"])
@pytest.mark.parametrize("place", ["middle", "end", "end, one size", "nowhere"])
def test_scores_that_depend_on_the_batch_are_those_of_single_inputs(place, side, policy, middle):
    torch.manual_seed(0)
    module = Mates(place.partition(",")[0], side if "size" in place else 0).eval()
    image = np.random.default_rng(0).random((3, side, side), dtype=np.float32)
    if middle is not None:
        image[:, side // 4 : -side // 4, side // 4 : -side // 4] = middle
    parts = {"baseline": Constant(0.4), "partition": Bisection(side // 4)}
    expected, _ = values(Batched(module, batch_size=1), image, **parts)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found, made = values(Incremental(module, cost_policy=policy), image, **parts)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    warned = any("depend on the other inputs of a batch" in str(one.message) for one in told)
    assert warned == (place != "nowhere")
    assert made.batches == ("dependent" if warned else "independent")
    assert made.incremental > 0 or warned or policy is not ALWAYS


class Faint(nn.Module):
    """Takes a share of the batch's mean from scores that are nearly the same for parts of noise."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU()),
            *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish()),
            *(nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.ReLU6(), nn.MaxPool2d(3, 2, 1)),
            *(nn.Conv2d(12, 4, 3), nn.Mish(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        )

    def forward(self, x):
        y = self.body(x)
        return y - 0.3 * y.mean(0, keepdim=True)


def test_a_crop_of_nearly_equal_scores_does_not_clear_a_network():
    module, image = Faint().eval(), np.random.default_rng(0).random((3, 384, 384)).astype("f")
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    image[:, 10:80, 10:80] = 6.0  # outside of the crop in the middle that is compared
    parts = {"baseline": Constant(0.4), "partition": Dyadic(96), "search": every_game}
    expected, _ = values(Batched(module, batch_size=1), image, **parts)
    with pytest.warns(RuntimeWarning, match="depend on the other inputs of a batch"):
        found, _ = values(incremental(module), image, **parts)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


# Reasons to run in full


def test_reasons_to_run_in_full_are_told():
    moving = Conditional(
        lambda image, known, draws, rng: np.stack([image * known] * draws), draws=2
    )
    for name, baseline, options, told in [
        ("residual", moving, {}, "depend on the regions that are shown"),
        ("residual", None, {"max_memory": 1000}, "more than max_memory=1000 bytes"),
        ("a branch", None, {}, "cannot be traced"),
        ("its own buffer", None, {}, "overwritten in place"),
        ("channels last, in place", None, {}, "overwritten in place"),
        ("low precision inside", None, {}, "differ from those of a full forward pass"),
    ]:
        net = network(name)
        with pytest.warns(RuntimeWarning, match=told):
            found, made = values(incremental(net, **options), baseline=baseline)
        expected, _ = values(Batched(net, batch_size=1), baseline=baseline)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert (made.incremental, told in made.reason) == (0, True)


def test_a_network_for_one_shape_still_scores_others():
    net, rng = network("padded to even sides"), np.random.default_rng(0)
    images = [rng.random((3, n, n), dtype=np.float32) for n in (41, 64, 41)]
    explainer = Explainer(incremental(net), Constant(0.1), Bisection(8))
    with pytest.warns(RuntimeWarning, match=r"traced for images of shape \(3, 41, 41\) alone"):
        found = list(explainer.explain_many((image, 1) for image in images))
    for one in found:
        dense = Explainer(net, Constant(0.1), Bisection(8)).explain(images[one.position], target=1)
        assert np.allclose(one.attribution(), dense.attribution(), atol=1e-6)


def test_many_images_share_what_is_kept_of_the_baseline():
    images = [RNG.random(IMAGE.shape, dtype=np.float32) for _ in range(5)]
    maps = []
    for way in (Batched(network("residual")), incremental(network("residual"), max_memory=400_000)):
        found = Explainer(way, Constant(0.2), Bisection(12)).explain_many((i, 1) for i in images)
        maps.append({one.position: one.attribution() for one in found})
    for position, dense in maps[0].items():
        assert np.allclose(maps[1][position], dense, atol=1e-6)


def test_a_model_may_squeeze_a_batch_of_one():
    net = Net(lambda net, x: net.c(x).mean((2, 3)).squeeze(), c=conv(3, 2)).eval()
    expected, _ = values(Batched(net, batch_size=1))
    for way in (Batched(net), incremental(net)):
        np.testing.assert_allclose(values(way)[0], expected, atol=1e-6)


# Memory


class Watched:
    """An evaluator that measures after each batch how much memory torch holds more than before."""

    def __init__(self, inner):
        self.inner, self.most = inner, 0

    def open_session(self):
        watched, session, before = self, self.inner.open_session(), held_by_torch()

        class Session:
            put = staticmethod(session.put)
            capacity = staticmethod(session.capacity)
            provenance = staticmethod(session.provenance)

            def score(self, rows):
                scores = session.score(rows)
                watched.most = max(watched.most, held_by_torch() - before)
                return scores

        return Session()


def held_by_torch():
    plain = (torch.Tensor, nn.Parameter)  # other classes may hold no memory of their own
    tensors = (one for one in gc.get_objects() if type(one) in plain)
    real = [one.untyped_storage() for one in tensors if one.device.type != "meta"]
    return sum({storage.data_ptr(): storage.nbytes() for storage in real}.values())


@pytest.mark.parametrize("side", [52, 400], ids=["small", "large"])
def test_kept_activations_take_no_more_than_max_memory(side):
    torch.manual_seed(0)
    net = nn.Sequential(conv(), nn.ReLU(), conv(4, 8), nn.ReLU(), head(8)).eval()
    net[-1].large = nn.Parameter(torch.rand(2**20))  # which is shared, not copied
    image, *others = np.random.default_rng(1).random((3, 3, side, side), dtype=np.float32)
    one, inputs = 4 * (3 + 4 + 8 + 8) * side * side, 3 * image.nbytes
    parts = {"baseline": References(np.stack(others)), "partition": Dyadic(side // 2)}
    expected, _ = values(Batched(net), image, **parts, search=every_game)
    for most in (int(1.2 * one), 20 * one):
        watched = Watched(incremental(net, max_memory=most, batch_size=8))
        found, _ = values(watched, image, **parts, search=every_game)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        assert 0 < watched.most <= most + inputs


@pytest.mark.parametrize("side", [52, 400])
def test_activations_are_freed_without_a_garbage_collection(side):
    sessions = []

    class Noted:
        def open_session(self):
            session = incremental(NET).open_session()
            sessions.append(weakref.ref(session))
            return session

    gc.disable()
    try:
        _, made = values(Noted(), RNG.random((3, side, side), dtype=np.float32))
        assert made.incremental
        assert [session() for session in sessions] == [None]
    finally:
        gc.enable()


@pytest.mark.parametrize(("norm", "most"), [(nn.BatchNorm2d(4), 64), (nn.GroupNorm(2, 4), 32)])
def test_batches_are_no_larger_than_memory_and_the_caller_allow(norm, most):
    """Patches that become full tensors form no larger batches than full inputs."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), norm, head()).eval()
    sizes = patch_batches(net)
    image = RNG.random((3, 24, 24), dtype=np.float32)
    values(incremental(net), image, partition=Dyadic(2), search=every_game)
    assert max(sizes) == most
    sizes.clear()
    values(incremental(net, batch_size=2), image, partition=Dyadic(6), search=every_game)
    assert max(sizes) == 2


def patch_batches(net, act=lambda rows, *, in_full: None):
    """Return a list to which every run of the trace adds its batch size.

    The trace works on a copy of the last layer; only full passes call the layer itself.
    """
    sizes, own = [], net[-1][-1]

    def note(layer, given, made):
        act(len(made), in_full=layer is own)
        sizes.extend([] if layer is own else [len(made)])

    own.register_forward_hook(note)
    return sizes


# Time


@pytest.mark.parametrize(
    ("policy", "seconds", "on_patches", "expected"),
    [
        (CostPolicy(setup_seconds=10.0), 0.001, 0.0, "no patches"),
        (CostPolicy(setup_seconds=1e-9, quick_seconds=0.0), 1.0, 1.0, "patches"),
        (CostPolicy(allowed_overhead=100.0, setup_seconds=0.0), 1.0, 5000.0, "a few"),
        (CostPolicy(setup_seconds=0.0), 0.01, 0.0, "after the first batch"),
        (CostPolicy.always(), 0.001, 100.0, "patches"),
    ],
)
def test_patches_run_where_they_save_time(policy, seconds, on_patches, expected, monkeypatch):
    """By a clock that stands still but for passes: so long each for a batch, in full or not."""
    now = [0.0]

    def take_time(rows, *, in_full):
        now[0] += seconds if in_full or rows == 1 else on_patches  # one row is the anchor

    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), head()).eval()
    sizes = patch_batches(net, take_time)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    found, made = values(
        Incremental(net, cost_policy=policy), partition=Bisection(6), search=every_game
    )
    share = made.incremental / (made.full + made.incremental)
    shares = {"no patches": (0, 0), "patches": (0.6, 1), "a few": (0.001, 0.6)}
    low, high = shares.get(expected, (0.5, 0.99))
    assert low <= share <= high
    assert bool(sizes) == bool(made.incremental)
    expected, _ = values(Batched(net), partition=Bisection(6), search=every_game)
    np.testing.assert_allclose(found, expected, atol=1e-6)


# Models that fail, and bad arguments


def test_a_failing_model_is_named_with_its_inputs():
    def fails(net, x):
        message = "mine"
        raise KeyError(message)

    with pytest.raises(ModelFailedError, match=r"failed on a batch .* image 0") as caught:
        values(Incremental(Net(fails).eval()))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_failure_during_the_comparison_is_the_models():
    net, calls = nn.Sequential(nn.Conv2d(3, 2, 3), head(2)).eval(), []

    def fail_the_second_time(rows, *, in_full):
        calls.extend([1] if in_full else [])
        if len(calls) == 2 and in_full:
            message = "worn out"
            raise OSError(message)

    patch_batches(net, fail_the_second_time)
    # Patches are not to blame, so no warning says that they failed.
    with pytest.raises(ModelFailedError, match="OSError: worn out"):
        values(incremental(net))
    assert len(calls) == 2


def test_a_network_whose_patches_fail_runs_in_full():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), head()).eval()
    expected, _ = values(net)

    def fail_on_patches(layer, given, made):
        if layer is not net[-1][-1] and len(made) > 1:  # one is the anchor
            message = "no batches here"
            raise ValueError(message)

    net[-1][-1].register_forward_hook(fail_on_patches)
    with pytest.warns(RuntimeWarning, match=r"a patch failed \(ValueError: no batches here\)"):
        found, _ = values(incremental(net))
    np.testing.assert_allclose(found, expected, atol=1e-6)

    def fail_in_the_trace(layer, given, made):
        if layer is not net[-1][-1]:
            message = "no steps here"
            raise ValueError(message)

    net[-1][-1].register_forward_hook(fail_in_the_trace)
    with pytest.warns(RuntimeWarning, match=r"step by step it failed \(ValueError: no steps here"):
        found, _ = values(incremental(net))
    np.testing.assert_allclose(found, expected, atol=1e-6)


NET = nn.Sequential(conv(), head()).eval()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Incremental(lambda batch: batch), "Incremental takes torch modules; use Batched"),
        (lambda: Incremental(NET, max_memory=-1), "max_memory must be at least 0"),
        (lambda: Incremental(NET, batch_size="auto"), "batch_size must be a whole number, got"),
        (lambda: Incremental(NET, cost_policy=0.1), r"cost_policy is 0\.1, which is no CostPolicy"),
        (lambda: Incremental(nn.Sequential(conv(), nn.Dropout()).train()), "training mode"),
        (lambda: CostPolicy(allowed_overhead=-0.1), "allowed_overhead must be a finite number of"),
        (lambda: CostPolicy(quick_seconds="short"), "quick_seconds must be a finite number"),
    ],
)
def test_bad_arguments_are_told(make, told):
    with pytest.raises(ArgumentError, match=told):
        make()


def test_the_policy_is_among_the_settings():
    found = Explainer(incremental(NET), Fixed(IMAGE * 0), Dyadic(24)).explain(IMAGE, target=0)
    assert found.settings["model"]["cost_policy"]["allowed_overhead"] is None
