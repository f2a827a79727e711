"""Activations of images of one colour come from a small image, and equal those of a full pass."""

from __future__ import annotations

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional as f

from hshap import (
    Batched,
    Bisection,
    Box,
    Constant,
    CostPolicy,
    Explainer,
    Fixed,
    Incremental,
    References,
)
from hshap.evaluators.canvas import Canvas, Row, StandIns
from hshap.evaluators.incremental.drawing import Tiled, put_together
from hshap.evaluators.incremental.flat import stretched
from hshap.evaluators.incremental.patches import Zone
from hshap.evaluators.incremental.reductions import Part, largest, mean, smallest, total
from hshap.evaluators.incremental.traced_network import Network, size_of


class Skips(nn.Module):
    """A stride, a skip connection, dilation, padding and upsampling by a factor."""

    def __init__(self, mode="nearest"):
        super().__init__()
        self.stem, self.wide = nn.Conv2d(3, 4, 5, 2, 2), nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.pool, self.last = nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 3, (3, 1), padding=(1, 0))
        self.mode = mode

    def forward(self, x):
        x = f.relu(self.stem(x))
        small = self.pool(x)
        small = small + f.relu(self.wide(small))
        large = f.interpolate(torch.cat([small, small * 0.5], 1), scale_factor=2, mode=self.mode)
        return self.last(large).mean((2, 3))


def sequence(*layers):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


NETWORKS = {
    "convolutions": lambda: sequence(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3)),
    "strides": lambda: sequence(
        nn.Conv2d(3, 4, 7, 2, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 4, 3, 2, 1), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(4, 2, 2),
    ),
    "ceil mode": lambda: sequence(nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Conv2d(3, 2, 3)),
    "stride of three": lambda: sequence(nn.Conv2d(3, 4, 5, 3, 1), nn.Conv2d(4, 4, 3, 3)),
    "same": lambda: sequence(nn.Conv2d(3, 4, (4, 2), padding="same", dilation=3)),
    "padding": lambda: sequence(nn.ConstantPad2d((1, 3, 2, 0), 0.7), nn.Conv2d(3, 2, 3)),
    "nearest": Skips,
    "bilinear": lambda: Skips("bilinear"),
    "upsampling": lambda: sequence(nn.Conv2d(3, 2, 3), nn.Upsample(scale_factor=3), nn.ReLU()),
    "no head": lambda: nn.Sequential(nn.Conv2d(3, 2, 3, padding=1), nn.ReLU()),
}  # fmt: skip
COLOUR = torch.tensor([0.3, -0.2, 0.9])


def plain(shape, colour=COLOUR):
    return colour.reshape(1, -1, *(1 for _ in shape)).expand(1, len(colour), *shape).clone()


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("grid", [(192, 256), (201, 163), (97, 480)])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_activations_of_one_colour_are_those_of_a_full_pass(name, grid):
    torch.manual_seed(0)
    network, image = Network(NETWORKS[name]().eval()), plain(grid)
    flat = network.flat_activations(image)
    assert flat is not None
    activations, output = network.activations(image)
    kept = [n for n, value in activations.items() if value.device.type != "meta"]
    for step in kept:
        found, expected = flat.activations[step], activations[step]
        if isinstance(found, Tiled):
            torch.testing.assert_close(put_together(found), expected, rtol=1e-5, atol=1e-6)
    assert sum(isinstance(flat.activations[step], Tiled) for step in kept) >= 1
    torch.testing.assert_close(flat.output, output, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(flat.tensor, image)
    assert {n: tuple(v.shape) for n, v in flat.activations.items() if n in kept} == {
        n: tuple(activations[n].shape) for n in kept
    }
    assert flat.share <= 0.5
    assert size_of(flat.activations) <= 0.6 * size_of(activations)


class Resized(nn.Module):
    """Ends at a size that does not follow that of the image."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 2, 3, 4, 1), nn.Conv2d(2, 1, 3)

    def forward(self, x):
        return self.last(f.interpolate(self.conv(x), size=(192, 192))).mean((2, 3))


class Placed(nn.Module):
    """Adds a number of its own to each row."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 2, 3, padding=1), nn.Conv2d(2, 1, 3)
        self.register_buffer("rows", torch.rand(1, 1, 192, 1))

    def forward(self, x):
        return self.last(self.conv(x) + self.rows).mean((2, 3))


NOT_FLAT = {
    "a size": Resized,
    "a number for each row": Placed,
    "circular": lambda: sequence(nn.Conv2d(3, 2, 3, padding=1, padding_mode="circular")),
    "a large receptive field": lambda: sequence(nn.Conv2d(3, 2, 3, dilation=80)),
}


@pytest.mark.parametrize("name", sorted(NOT_FLAT))
def test_other_networks_run_in_full(name):
    torch.manual_seed(0)
    module = NOT_FLAT[name]().eval()
    image = np.random.default_rng(0).random((3, 192, 192), dtype=np.float32)
    scores = {}
    for way in (Incremental(module, cost_policy=CostPolicy.always()), Batched(module)):
        explainer = Explainer(way, Constant(0.4), Bisection(48))
        games = explainer.explain(image, target=0).games
        scores[type(way)] = np.concatenate([game.values for game in games])
    np.testing.assert_allclose(scores[Incremental], scores[Batched], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["circular", "a large receptive field", "a size"])
def test_without_a_smaller_image_there_is_no_flat_anchor(name):
    network = Network(NOT_FLAT[name]().eval())
    assert network.flat_activations(plain((192, 192))) is None


def test_an_image_of_two_colours_is_not_flat():
    network, image = Network(NETWORKS["strides"]().eval()), plain((192, 256))
    image[0, 1, 100, 100] += 1e-6
    assert not network.has_flat_anchor(image)
    assert network.flat_activations(image) is None


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", ["strides", "bilinear", "no head"])
def test_explanations_over_one_colour_are_those_of_full_passes(name, channels_last):
    torch.manual_seed(0)
    module = NETWORKS[name]().eval()
    if name == "no head":
        module = nn.Sequential(module, nn.AdaptiveMaxPool2d(1), nn.Flatten()).eval()
    image = np.random.default_rng(0).random((3, 400, 420), dtype=np.float32)
    colour = np.broadcast_to(COLOUR.numpy()[:, None, None], image.shape)
    values = {}
    ways = (
        Incremental(module, channels_last=channels_last, cost_policy=CostPolicy.always()),
        Batched(module),
    )
    for way in ways:
        found = Explainer(way, Fixed(colour.copy()), Bisection(50)).explain(image, target=0)
        values[type(way)] = np.concatenate([game.values for game in found.games])
    scale = np.abs(values[Batched]).max()
    assert np.abs(values[Incremental] - values[Batched]).max() <= 1e-5 * scale


@pytest.mark.parametrize("fill", [Constant(0.4), None], ids=["one colour", "any"])
@pytest.mark.parametrize("name", ["strides", "bilinear"])
def test_boxes_in_one_batch_score_like_full_passes(name, fill):
    torch.manual_seed(0)
    module = NETWORKS[name]().eval()
    rng = np.random.default_rng(0)
    image, other = (rng.random((3, 400, 420), dtype=np.float32) for _ in range(2))
    root = Box((0, 0), (400, 420))
    halves = [Box((0, 0), (400, 210)), Box((0, 210), (400, 420))]
    quarters = [Box((a, b), (a + 200, b + 210)) for a in (0, 200) for b in (0, 210)]
    eighths = [Box((a, b), (a + 200, b + 105)) for a in (0, 200) for b in (0, 105, 210, 315)]
    scores = {}
    for way in (Incremental(module, cost_policy=CostPolicy.always()), Batched(module)):
        session = way.open_session()
        stand_ins = StandIns((fill or Fixed(other))(image), image.shape, session.put)
        canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
        calls = [[(root,), ()], *([(box,) for box in each] for each in (halves, quarters, eighths))]
        found = [session.score([Row(canvas, kept, 0) for kept in call]) for call in calls]
        scores[type(way)] = np.concatenate(found)
    scale = np.abs(scores[Batched]).max()
    assert np.abs(scores[Incremental] - scores[Batched]).max() <= 1e-5 * scale


def test_a_flat_anchor_does_not_keep_the_memory_of_the_whole_image():
    network = Network(NETWORKS["strides"]().eval())
    flat = network.flat_activations(plain((400, 420)))
    assert flat.tensor.shape == (1, 3, 400, 420)
    assert flat.tensor.untyped_storage().nbytes() <= size_of(flat.activations)


def test_the_time_of_a_full_pass_is_not_that_of_the_small_image(monkeypatch):
    ticks = iter(range(10_000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    session = Incremental(NETWORKS["strides"]().eval()).open_session()
    image = np.random.default_rng(0).random((3, 480, 640), dtype=np.float32)
    stand_ins = StandIns(Constant(0.4)(image), image.shape, session.put)
    root = Box((0, 0), (480, 640))
    canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
    session.score([Row(canvas, (root,), 0)])
    anchor = session._cache.get(canvas.stand_ins((), 0))
    assert isinstance(next(iter(anchor.activations.values())), Tiled)
    # One tick for the crop of 160 x 160 pixels, where one tick of the small image was a minute.
    assert anchor.pass_seconds == pytest.approx(480 * 640 / 160**2)


@pytest.mark.parametrize(("last", "expected"), [(0.4, True), (None, False)])
def test_all_draws_must_be_flat_to_take_little_memory(last, expected):
    module = NETWORKS["strides"]().eval()
    rng = np.random.default_rng(0)
    image, other = (rng.random((3, 400, 420), dtype=np.float32) for _ in range(2))
    draws = [np.full_like(image, 0.4), other if last is None else np.full_like(image, last)]
    size = size_of(Network(module).activations(torch.from_numpy(image)[None])[0])
    session = Incremental(module, max_memory=int(1.6 * size)).open_session()
    stand_ins = StandIns(References(np.stack(draws))(image), image.shape, session.put)
    root = Box((0, 0), (400, 420))
    canvas = Canvas(image, stand_ins, root, put=session.put, position=0)
    session.score([Row(canvas, (root,), 0)])
    assert (canvas.image in session._cache) == expected


@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_reductions_count_repeated_numbers(dtype, as_array):
    small = torch.arange(24.0, dtype=dtype).reshape(1, 2, 3, 4)
    tiled = stretched(small, [Zone(0, 3, 5), Zone(1, 4, 7)])
    corners = (1, 1), (8, 10)
    (start, stop), times = tiled.without_repeats(corners)
    cut = small[:, :, start[0] : stop[0], start[1] : stop[1]]
    full = put_together(tiled)[:, :, 1:8, 1:10].double()
    parts = [Part(cut.numpy() if as_array else cut, times)]
    torch.testing.assert_close(total(parts), full.sum((2, 3)))
    torch.testing.assert_close(mean(parts), full.mean((2, 3)))
    torch.testing.assert_close(largest(parts).double(), full.amax((2, 3)))
    torch.testing.assert_close(smallest(parts).double(), full.amin((2, 3)))


def test_group_norms_over_one_colour_agree_with_a_full_pass():
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 1),
        nn.ReLU(),
        nn.GroupNorm(2, 8),
        nn.Conv2d(8, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ).eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.5)
    image = np.random.default_rng(0).random((3, 512, 512), np.float32)
    scores = []
    on_patches = Incremental(net, cost_policy=CostPolicy.always())
    for way in (Batched(net), on_patches):
        explainer = Explainer(way, Constant(0.4), Bisection(256))
        scores.append(explainer.explain(image, target=0).games[0].values)
    assert np.abs(scores[1] - scores[0]).max() <= 1e-5 * np.abs(scores[0]).max()


def test_a_full_tensor_has_the_layout_of_its_anchor():
    """Torch rounds a group norm otherwise with channels last; a patch of one place has both."""

    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.GroupNorm(1, 2)

        def forward(self, x):
            return self.norm(f.relu(x.contiguous(), inplace=True)).mean((2, 3))

    module = Plain().eval()
    colour = torch.tensor([0.41196537, 0.94418895]).reshape(1, 2, 1, 1)
    image = colour.expand(1, 2, 32, 48).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        flat = Network(module).flat_activations(image)
        assert float((flat.output - module(image)).abs().max()) <= 1e-6
