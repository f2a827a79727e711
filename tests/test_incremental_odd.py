"""Networks that differ from their trace, or for which there is no rule."""

from __future__ import annotations

import gc
import types
import warnings
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as f
from torch.nn.utils import prune

from hshap import (
    Batched,
    Constant,
    CostPolicy,
    Dyadic,
    Explainer,
    Incremental,
    References,
    SearchResult,
)
from hshap.evaluators.incremental.activation_cache import ActivationCache, Anchor
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network, size_of

SHAPE = (3, 24, 24)
# How fast this machine is must not matter here.
ALWAYS = CostPolicy.always()


def incremental(net, **options):
    return Incremental(net, cost_policy=ALWAYS, **options)


def every_game(root, draws=1):
    del draws
    level = [root]
    while level:
        games = yield level
        level = [part for game in games for part in game.children if part.split()]
    return SearchResult(())


class Net(nn.Module):
    """A network whose forward is a function of it, and whose parts have names."""

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


def conv(inputs=3, outputs=4, kernel=3, **options):
    return nn.Conv2d(inputs, outputs, kernel, **{"padding": kernel // 2, **options})


def tail(inputs=4):
    pool = nn.AdaptiveMaxPool2d(1)
    return nn.Sequential(conv(inputs), nn.ReLU(), pool, nn.Flatten(), nn.Linear(4, 3))


def plain():
    return nn.Sequential(conv(), nn.ReLU(), tail())


def normed():
    return nn.Sequential(conv(), nn.BatchNorm2d(4), tail())


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


def asks_for_tensors(net, x):
    return net.n((x - 0.5) / 0.2 if isinstance(x, torch.Tensor) else x)


def in_low_precision(net, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return net.n(x)


def another_name(net, x):
    a = b = net.c(x)
    b += 1
    return net.t(a)


def dropped_and_overwritten(net, x):
    a = net.c(x)
    d = net.d(a)
    return net.t(d + net.relu(net.same(a)))


def same_and_overwritten(net, x):
    a = net.c(x)
    return net.t(net.d(net.relu(net.same(a))) + a)


def part_overwritten(net, x):
    a = net.c(x)
    a[:, :2].zero_()
    return net.t(a)


def overwritten_twice(net, x):
    a = net.c(x)
    torch.relu_(a)
    d = net.d(a)
    a.mul_(2.0)
    return net.t(d)


def padded_and_overwritten(net, x):
    a = net.c(x)
    return net.t(net.d(f.pad(a, (1, 1, 1, 1)).relu_()) + net.e(a))


def padded_to_fit(net, x):
    a = net.c(x)
    b = f.interpolate(net.d(a), scale_factor=2)
    down, right = a.size(2) - b.size(2), a.size(3) - b.size(3)
    widths = [right // 2, right - right // 2, down // 2, down - down // 2]
    return net.t(torch.cat([a, f.pad(b, widths)], 1))


def pooled_by_its_size(net, x):
    a = net.c(x)
    return net.f(f.avg_pool2d(a, (a.size(2), a.size(3))).flatten(1))


RELU, IDENTITY = {"relu": nn.ReLU(inplace=True)}, {"same": nn.Identity()}
NETWORKS = {
    "a hook before": lambda: hooked(plain(), before=True),
    "a hook after": lambda: hooked(plain()),
    "a hook on a convolution": lambda: hooked(plain(), 0),
    "a hook before a convolution": lambda: hooked(plain(), 0, before=True),
    "a hook on a norm": lambda: hooked(normed(), 1),
    "a hook on a ReLU": lambda: hooked(plain(), 1),
    "its own forward": lambda: with_own_forward(plain()),
    "a layer's own forward": lambda: with_own_forward(plain(), 0),
    "asks for tensors": lambda: Net(asks_for_tensors, n=plain()),
    "low precision inside": lambda: Net(in_low_precision, n=plain()),
    "another name": lambda: Net(another_name, c=conv(), t=tail()),
    "dropout, overwritten": lambda: Net(
        dropped_and_overwritten, c=conv(), d=conv(4), t=tail(), same=nn.Dropout(), **RELU
    ),
    "identity, overwritten": lambda: Net(
        same_and_overwritten, c=conv(), d=conv(4), t=tail(), **IDENTITY, **RELU
    ),
    "a part overwritten": lambda: Net(part_overwritten, c=conv(), t=tail()),
    "overwritten twice": lambda: Net(overwritten_twice, c=conv(), d=conv(4), t=tail()),
    "padded, overwritten": lambda: Net(
        padded_and_overwritten, c=conv(), d=conv(4, padding=0), e=conv(4), t=tail()
    ),
    "padded to fit": lambda: Net(padded_to_fit, c=conv(), d=nn.Conv2d(4, 4, 3, 2), t=tail(8)),
    "pooled by its size": lambda: Net(pooled_by_its_size, c=conv(), f=nn.Linear(4, 3)),
    "mean over an axis": lambda: Net(lambda net, x: net.c(x).mean(axis=(2, 3)), c=conv()),
    "more channels by padding": lambda: Net(
        lambda net, x: net.t(f.pad(f.avg_pool2d(x, 2), (0, 0, 0, 0, 0, 1))), t=tail()
    ),
    "pruned": pruned,
    "weights normed": weight_normed,
    "a number for each row": lambda: Net(
        lambda net, x: net.t(net.c(x) + net.p), c=conv(), t=tail(), p=torch.randn(4, 24, 1)
    ),
    "clamped by place": lambda: Net(
        lambda net, x: net.t(torch.clamp(net.c(x), net.p)),
        c=conv(),
        t=tail(),
        p=torch.randn(4, 24, 24),
    ),
    "norm of the batch": lambda: nn.Sequential(
        conv(), nn.BatchNorm2d(4, track_running_stats=False), tail()
    ),
    "enlarged by 2.1": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, 3), nn.Upsample(scale_factor=2.1, mode="bilinear"), tail()
    ),
    "enlarged by 3.2": lambda: nn.Sequential(
        nn.Conv2d(3, 4, 6, 6), nn.Upsample(scale_factor=3.2), tail()
    ),
    "large exponents": lambda: Net(lambda _, x: torch.exp(25 * x).mean((2, 3)).log1p()),
}


@pytest.mark.filterwarnings("ignore:Incremental runs every input in full")
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_numbers_are_those_of_full_inputs(name):
    torch.manual_seed(0)
    net = NETWORKS[name]().eval()
    image = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    dense, parts = (
        np.concatenate(
            [
                game.values
                for game in Explainer(way(net, batch_size=1), Constant(0.0), Dyadic(6), every_game)
                .explain(image, target=0)
                .games
            ]
        )
        for way in (Batched, incremental)
    )
    np.testing.assert_allclose(parts, dense, rtol=1e-5, atol=1e-5 * np.abs(dense).max())


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(("kernel", "width"), [(1, 1), (2, 1), (3, 1), (3, 2), (3, 4), (5, 3)])
def test_padding_shows_pixels_further_in(mode, kernel, width):
    torch.manual_seed(0)
    model = nn.Conv2d(1, 2, kernel, padding=width, padding_mode=mode).eval()
    network, anchor = Network(model), torch.rand(1, 1, 12, 13)
    with torch.inference_mode():
        activations, _ = network.activations(anchor)
        for down in range(11):
            for right in range(12):
                patch = Patch(torch.rand(1, 1, 2, 2), ((down, right),), anchor)
                expected = model(patch.full())
                found = network.run(patch, activations)
                assert torch.allclose(found, expected, atol=1e-6), (down, right)


class TestTheUsersModule:
    def test_tracing_leaves_it_as_it_was(self):
        class Counts(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = conv()
                self.ramp = None
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
        assert net.ramp is None
        assert net.calls == 0
        assert isinstance(net(torch.rand(1, *SHAPE)), torch.Tensor)

    def test_weights_are_shared_not_copied(self):
        net = plain().eval()
        traced = Network(net)
        own = {id(p) for p in net.parameters()}
        used = [
            p
            for step in traced.steps
            if isinstance(step.act, nn.Module)
            for p in step.act.parameters()
        ]
        assert used
        assert {id(p) for p in used} <= own


def patch_batches(net):
    """Return a list to which every run of the trace adds its batch size.

    The trace works on a copy of the last layer; only full passes call the layer itself.
    """
    batches, own = [], net[-1]
    own.register_forward_hook(
        lambda layer, given, made: None if layer is own else batches.append(len(made))
    )
    return batches


def classifier(norm=None):
    middle = [nn.ReLU() if norm is None else norm, nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(nn.Conv2d(3, 4, 3), *middle, nn.Linear(4, 2)).eval()


class TestMemory:
    def test_views_count_with_all_the_memory_that_they_hold(self):
        base = torch.zeros(1, 64, 8, 8)
        assert size_of({"base": base, "view": base[:, :1]}) == base.numel() * 4
        assert size_of({"view": base[:, :1]}) == base.numel() * 4

    def test_the_least_recently_used_activations_go_first(self):
        network = Network(plain().eval())
        images = [torch.rand(SHAPE) for _ in range(3)]
        one = ActivationCache(10**9).add(network, images[0]).bytes
        cache = ActivationCache(2 * one)
        gone = [weakref.ref(cache.add(network, image)) for image in images[:2]][1]
        assert cache.get(images[0]) is not None  # and so it was used after the second
        cache.add(network, images[2])
        assert [image in cache for image in images] == [True, False, True]
        assert cache.bytes == 2 * one
        assert gone() is None

    def test_equal_images_have_activations_of_their_own(self):
        network, image = Network(plain().eval()), torch.rand(SHAPE)
        cache = ActivationCache(10**9)
        cache.add(network, image)
        assert image in cache
        assert image.clone() not in cache

    def test_activations_that_went_are_freed(self):
        class Watching:
            """Looks after every batch which anchors are still in memory."""

            def __init__(self, inner):
                self.inner, self.seen, self.most = inner, set(), 0

            def open_session(self):
                watching, session = self, self.inner.open_session()

                class Session:
                    put = staticmethod(session.put)
                    capacity = staticmethod(session.capacity)

                    def score(self, rows):
                        scores = session.score(rows)
                        alive = [one for one in gc.get_objects() if type(one) is Anchor]
                        watching.seen |= set(map(weakref.ref, alive))
                        watching.most = max(watching.most, sum(one.bytes for one in alive))
                        return scores

                return Session()

        references = References(np.random.default_rng(0).random((6, *SHAPE), dtype=np.float32))
        image = np.random.default_rng(1).random(SHAPE, dtype=np.float32)
        made = Watching(incremental(plain().eval(), batch_size=4, max_memory=60_000))
        Explainer(made, references, Dyadic(12), every_game).explain(image, target=0)
        assert len(made.seen) > 6  # more were made than fit
        assert 0 < made.most <= 60_000

    def test_batch_size_is_kept_to(self):
        net = classifier()
        batches = patch_batches(net)
        explainer = Explainer(incremental(net, batch_size=2), Constant(0.0), Dyadic(6), every_game)
        explainer.explain(np.ones(SHAPE, dtype=np.float32), target=0)
        assert max(batches) == 2

    @pytest.mark.parametrize(("norm", "most"), [(nn.BatchNorm2d(4), 64), (nn.GroupNorm(2, 4), 32)])
    def test_patches_that_become_full_tensors_form_no_larger_batches_than_full_inputs(
        self, norm, most
    ):
        net = classifier(norm)
        batches = patch_batches(net)
        image = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
        Explainer(incremental(net), Constant(0.0), Dyadic(2), every_game).explain(image, target=0)
        assert max(batches) == most


def test_a_model_may_squeeze_a_batch_of_one():
    class Squeezes(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1))

        def forward(self, x):
            return self.net(x).squeeze()

    torch.manual_seed(0)
    model, image = Squeezes().eval(), np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    found = [
        Explainer(kind, Constant(0.0), Dyadic(6), every_game).explain(image, target=1)
        for kind in (Batched(model), Batched(model, batch_size=1), incremental(model))
    ]
    values = [np.array([game.values for game in each.games]) for each in found]
    assert np.ptp(values[0]) > 0
    for other in values[1:]:
        assert np.allclose(values[0], other, atol=1e-6)


def test_a_network_whose_patches_fail_runs_in_full():
    net = classifier()
    own = net[-1]

    def fail_in_the_trace(layer, given, made):
        if layer is not own and len(made) > 1:  # one is the anchor
            message = "no batches here"
            raise ValueError(message)

    own.register_forward_hook(fail_in_the_trace)
    image = np.random.default_rng(0).random(SHAPE, dtype=np.float32)
    with pytest.warns(RuntimeWarning, match=r"a patch failed \(ValueError: no batches here\)"):
        found = Explainer(incremental(net), Constant(0.0), Dyadic(6)).explain(image, target=0)
    full = Explainer(net, Constant(0.0), Dyadic(6)).explain(image, target=0)
    assert np.array_equal(found.attribution(), full.attribution())


@pytest.mark.parametrize(
    ("name", "differs"),
    [
        ("asks for tensors", True),
        ("another name", True),
        ("low precision inside", True),
        ("plain", False),
    ],
)
def test_large_images_are_compared_on_a_crop(name, differs):
    torch.manual_seed(0)
    sides = []

    class Sized(nn.Module):
        """Notes the sizes of its inputs; when it is traced, they have none."""

        def __init__(self, net):
            super().__init__()
            self.net = net
            self.note = lambda x: None if isinstance(x, torch.fx.Proxy) else sides.append(x.shape)

        def forward(self, x):
            self.note(x)
            return self.net(x)

    net = Sized({**NETWORKS, "plain": plain}[name]()).eval()
    image = np.random.default_rng(0).random((3, 368, 368), dtype=np.float32)
    explainer = Explainer(incremental(net), Constant(0.0), Dyadic(184), every_game)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        explainer.explain(image, target=0)
    told = [str(one.message) for one in seen]
    assert any("differ from those of a full forward pass" in one for one in told) == differs
    assert (1, 3, 160, 160) in sides
