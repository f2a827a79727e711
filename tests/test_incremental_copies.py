"""Patches copy little: covered axes are padded by the layer, functions write in place."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn
from torch.nn import functional as f

import hshap
from hshap.evaluators.incremental.drawing import empty, tiles_of
from hshap.evaluators.incremental.in_place import FUNCTIONS, LAYERS, in_place, of_last_reader
from hshap.evaluators.incremental.layer_rules import layer_rule
from hshap.evaluators.incremental.patches import Patch, ReceptiveField
from hshap.evaluators.incremental.sliding import Slide, slid
from hshap.evaluators.incremental.traced_network import Network

GRID = (9, 12)
SLIDING = (
    nn.Conv2d(4, 5, 3, padding=1),
    nn.Conv2d(4, 4, 3, 2, 1, groups=4),
    nn.Conv2d(4, 5, (2, 3), padding="same"),  # one pixel more after than before
    nn.Conv2d(4, 5, 3, padding=3),  # outputs that see padding alone
    nn.Conv2d(4, 5, 3, 2, 2, dilation=2),
    nn.Conv2d(4, 5, 1, 2),
    nn.MaxPool2d(3, 2, 1),
    nn.MaxPool2d(2, ceil_mode=True),
    nn.AvgPool2d(3, 2, 1),
    nn.AvgPool2d((2, 5), 2),
)


def tensors(seed=0, rows=2):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(1, 4, *GRID, generator=made), torch.randn(rows, 4, *GRID, generator=made)


@pytest.mark.parametrize(
    "size", [GRID, (GRID[0], 5), (4, GRID[1])], ids=["both", "rows", "columns"]
)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("layer", SLIDING, ids=str)
def test_covered_axes_agree_with_the_layer_itself(layer, size):
    anchor, inputs = tensors()
    starts = ((0, 0), tuple(n - m for n, m in zip(GRID, size, strict=True)))
    data = [inputs[row, :, a : a + size[0], b : b + size[1]] for row, (a, b) in enumerate(starts)]
    patch = Patch(torch.stack(data), starts, anchor)
    with torch.no_grad():
        made = layer_rule(layer).act([patch], layer(anchor)).full()
        torch.testing.assert_close(made, layer(patch.full()), rtol=1e-5, atol=1e-6)


def test_patches_that_cover_the_tensor_are_not_copied():
    anchor, inputs = tensors()
    field, seen = ReceptiveField((3, 3), (1, 1), (1, 1), (1, 1)), []

    def act(window, padding):
        seen.append((window, padding))
        return window

    slid([Slide(field, act, 0.0)], Patch(inputs, ((0, 0),) * 2, anchor), anchor)
    assert seen[0][0] is inputs
    assert seen[0][1] == (1, 1)


@pytest.mark.parametrize(
    # In a fixed order, which processes that share the tests must agree on.
    "kind",
    [*sorted({*LAYERS, *FUNCTIONS}, key=lambda kind: kind.__name__), torch.relu],
    ids=lambda kind: f"{kind.__module__}.{kind.__name__}",
)
def test_functions_write_into_memory_that_is_theirs_alone(kind):
    act = kind(0.5, -1.0) if kind is nn.Threshold else kind() if isinstance(kind, type) else kind
    anchor, inputs = tensors()
    before, expected, rule = inputs.clone(), act(inputs.clone()), of_last_reader(in_place(act))
    shared = rule.act([Patch(inputs, ((0, 0),) * 2, anchor)], anchor)
    assert torch.equal(shared.data, expected)
    assert torch.equal(inputs, before)
    owned = rule.act([Patch(inputs, ((0, 0),) * 2, anchor, is_owned=True)], anchor)
    assert torch.equal(owned.data, expected)
    assert owned.data.data_ptr() == inputs.data_ptr()


def test_functions_without_a_form_in_place_have_none():
    assert in_place(nn.GELU()) is None
    assert in_place(f.gelu) is None


def test_convolutions_of_one_place_keep_no_surroundings():
    # GELU has no form in place, so that no chain is made.
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 2, 1), nn.GELU()
    last = nn.Conv2d(2, 2, 3), nn.AdaptiveAvgPool2d(1)
    network = Network(nn.Sequential(*layers, *last).eval())
    kept, _ = network.activations(torch.rand(1, 3, *GRID))
    real = [step.kind for step in network.steps if kept[step.name].device.type != "meta"]
    assert real == ["GELU", "Conv2d", "AdaptiveAvgPool2d"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_pieces_copy_and_fill_numbers_of_every_type(dtype):
    one, other = (torch.randn(1, 3, *GRID).to(dtype) for _ in range(2))
    (target,), (source,) = tiles_of(one), tiles_of(other)
    expected = one.clone()
    expected[..., 2:4, 5:7] = other[..., 2:4, 5:7]
    expected[..., 0:1, 3:9] = -torch.inf
    target.copy(((2, 5), (4, 7)), source)
    target.fill(((0, 3), (1, 9)), -torch.inf)
    assert torch.equal(one, expected)


class PadsItself(nn.Conv2d):
    """A convolution of its own class that pads first, as ports of other frameworks do."""

    def __init__(self, inputs, outputs, before, **options):
        super().__init__(inputs, outputs, 3, **options)
        self.before = nn.ZeroPad2d(before)

    def forward(self, x):
        return f.conv2d(self.before(x), self.weight, self.bias, self.stride, self.padding)


@pytest.mark.parametrize(
    ("before", "expected"),
    [((1, 1, 2, 2), ["Conv2d", "ReLU"]), ((0, 1, 0, 1), ["ZeroPad2d", "Conv2d", "ReLU"])],
)
def test_convolutions_take_their_paddings_and_norms(before, expected):
    torch.manual_seed(0)
    first = PadsItself(3, 4, before, stride=2, padding=(0, 1), bias=False)
    norm = nn.BatchNorm2d(4)
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    module = nn.Sequential(first, norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1)).eval()
    network = Network(module)
    assert [step.kind for step in network.steps[:-1]] == expected
    image = torch.rand(1, 3, *GRID)
    _, output = network.activations(image)
    with torch.no_grad():
        torch.testing.assert_close(output, module(image), rtol=1e-5, atol=1e-6)
    assert first.padding == (0, 1)


def test_weights_that_are_computed_stay_arguments():
    class Standardized(nn.Conv2d):
        def forward(self, x):
            return f.conv2d(x, self.weight * x.mean(), self.bias)

    network = Network(nn.Sequential(Standardized(3, 4, 3), nn.AdaptiveAvgPool2d(1)).eval())
    assert "conv2d" in [step.kind for step in network.steps]


def test_shared_convolutions_take_each_padding_once():
    shared = nn.Conv2d(3, 3, 3)
    module = nn.Sequential(nn.ZeroPad2d(2), shared, nn.ZeroPad2d(1), shared, nn.Flatten()).eval()
    image = torch.rand(1, 3, *GRID)
    network = Network(module)
    assert [step.kind for step in network.steps] == ["Conv2d x 2", "Flatten"]
    with torch.no_grad():
        torch.testing.assert_close(network.activations(image)[1], module(image))


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.conv, self.norm = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(input=self.first(x)))).mean((2, 3))


class PaddedBySize(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))
        self.first = nn.Conv2d(3, 3, 3)

    def forward(self, x):
        pad = x.size(2) // 12
        return f.conv2d(self.first(x).relu(), self.weight, padding=(pad, pad)).mean((2, 3))


class OfConstants(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))
        self.mixing = nn.Parameter(torch.randn(3, 3, 1, 1))
        self.first = nn.Conv2d(3, 3, 3)

    def forward(self, x):
        made = f.conv2d(self.weight, self.mixing)
        return f.conv2d(self.first(x).relu(), made, padding=1).mean((2, 3))


@pytest.mark.parametrize("kind", [ByKeyword, PaddedBySize, OfConstants])
def test_convolutions_that_are_called_in_other_ways_keep_their_arguments(kind):
    torch.manual_seed(0)
    module = kind().eval()
    image = np.random.default_rng(0).random((3, 48, 40), np.float32)
    found = []
    for way in (
        hshap.Batched(module),
        hshap.Incremental(module, cost_policy=hshap.CostPolicy.always()),
    ):
        explainer = hshap.Explainer(way, hshap.Constant(0.4), hshap.Bisection(12))
        found.append(explainer.explain(image, target=0))
    values = [np.concatenate([game.values for game in one.games]) for one in found]
    assert values[1] == pytest.approx(values[0], rel=1e-5, abs=1e-6)
    assert found[1].provenance.incremental > 0


def test_a_convolution_of_constants_is_a_constant_still():
    network = Network(OfConstants().eval(), (3, 24, 20))
    assert all(step.rule is not None for step in network.steps if step.kind != "constant")


def test_a_plain_tensor_with_one_place_is_not_channels_last():
    plain = torch.empty(2, 8, 1, 1)
    assert empty(plain, (2, 8, 5, 6)).is_contiguous()
    last = torch.empty(2, 8, 5, 6).to(memory_format=torch.channels_last)
    part = last[..., 1:3, 2:4]
    assert empty(part, (2, 8, 3, 3)).is_contiguous(memory_format=torch.channels_last)
