"""Layers that run on one window, as a chain, agree with the module.

The oracle is the module on full inputs.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as f

from hshap.evaluators.incremental.chain_costs import Link, Reach, cheapest, cost, reach_after
from hshap.evaluators.incremental.chains import Chain
from hshap.evaluators.incremental.in_place import in_place
from hshap.evaluators.incremental.layer_rules import slide_of
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network, size_of

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
OPTIONS = {
    "plain": {"kernel_size": 3, "padding": 1},
    "stride 2": {"kernel_size": 3, "padding": 1, "stride": 2},
    "no padding": {"kernel_size": 3},
    "same": {"kernel_size": 4, "padding": "same"},
    "dilated": {"kernel_size": 3, "padding": 2, "dilation": 2},
    "wide": {"kernel_size": 5, "padding": 2, "stride": 2},
}


def block(axes=2, groups=12, acts=None, **options):
    """A widening convolution with a bias, so that its padding would not be zero, and another."""
    conv, between = CONVOLUTIONS[axes], (nn.ReLU6(),) if acts is None else acts
    torch.manual_seed(0)
    made = nn.Sequential(conv(4, 12, 1), *between, conv(12, 12, groups=groups, **options))
    nn.init.uniform_(made[0].bias, 0.5, 1.0)
    return made.eval()


def kinds(module):
    return [step.kind for step in Network(module).steps]


def disagreement(module, grid, size, starts, *, channels=4, last=False):
    layout = torch.channels_last if last else torch.contiguous_format
    network = Network(module, channels_last=last)
    anchor = torch.rand(1, channels, *grid).contiguous(memory_format=layout)
    with torch.inference_mode():
        activations, _ = network.activations(anchor)
        data = torch.rand(len(starts), channels, *size).contiguous(memory_format=layout)
        patch = Patch(data, tuple(starts), anchor)
        expected, found = module(patch.full()), network.run(patch, activations)
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("groups", [1, 12], ids=["full", "each channel"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    "starts", [[(0, 0), (5, 7), (13, 11)], [(6, 5)], [(0, 11), (13, 0)]], ids=str
)
def test_patches_at_borders_and_inside_agree_with_the_module(options, groups, starts):
    module = block(groups=groups, **options)
    assert kinds(module) == ["Conv2d x 2"]
    assert disagreement(module, (20, 18), (7, 7), starts) <= 1e-5


@pytest.mark.parametrize("axes", [1, 3])
def test_other_numbers_of_axes_agree_with_the_module(axes):
    module = block(axes, kernel_size=3, padding=1)
    assert kinds(module) == [f"Conv{axes}d x 2"]
    starts = [(0,) * axes, (4,) * axes, (7,) * axes]
    assert disagreement(module, (11,) * axes, (4,) * axes, starts) <= 1e-5


@pytest.mark.parametrize(
    "acts", [(), (nn.SiLU(),), (nn.ReLU(inplace=True), nn.Hardswish())], ids=len
)
def test_activation_functions_between_belong_to_the_layer(acts):
    module = block(acts=acts, kernel_size=3, padding=1)
    assert kinds(module) == ["Conv2d x 2"]
    assert disagreement(module, (20, 18), (20, 5), [(0, 0), (0, 13)]) <= 1e-5


def test_boxes_along_their_sides_agree_with_the_module():
    module = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1),
        *block(kernel_size=3, padding=1, stride=2),
        nn.ReLU(),
        nn.Conv2d(12, 3, 1),
        nn.AdaptiveAvgPool2d(1),
    ).eval()
    network = Network(module)
    assert "Conv2d x 4" in [step.kind for step in network.steps]
    image, anchor = torch.rand(1, 4, 64, 72), torch.full((1, 4, 64, 72), 0.3)
    outside, _ = network.activations(anchor)
    whole = network.whole(network.activations(image)[0])
    flat = network.flat_activations(anchor)
    boxes = [((0, 0), (32, 72)), ((32, 0), (64, 72))]
    with torch.inference_mode():
        for known in [outside] if flat is None else [outside, flat.activations]:
            found, _ = network.run_boxes(boxes, [whole] * 2, known, image, largest_share=2.0)
            for row, ((top, left), (bottom, right)) in enumerate(boxes):
                painted = anchor.clone()
                painted[..., top:bottom, left:right] = image[..., top:bottom, left:right]
                torch.testing.assert_close(found[row], module(painted)[0], rtol=1e-5, atol=1e-6)


def filter_(inputs, outputs, **options):
    """A convolution whose padding would not be zero after a bias."""
    made = nn.Conv2d(inputs, outputs, **options)
    nn.init.uniform_(made.bias, 0.5, 1.0)
    return made


class PoolCalls(nn.Module):
    """Calls functions instead of layers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = filter_(4, 32, kernel_size=3, padding=1), nn.Conv2d(32, 64, 3, 1, 1)

    def forward(self, x):
        inner = f.max_pool2d(f.relu(self.first(x)), 3, stride=2, padding=1)
        return self.last(f.relu(inner))


def chains():
    """Layers of chains, by the kind of the chain."""
    torch.manual_seed(0)
    three = {"kernel_size": 3, "padding": 1}
    return {
        "Conv2d x 3": nn.Sequential(
            filter_(4, 6, **three),
            nn.ReLU(),
            filter_(6, 6, **three),
            nn.SiLU(),
            filter_(6, 5, **three),
        ),
        "Conv2d, MaxPool2d": nn.Sequential(
            filter_(4, 6, kernel_size=7, stride=2, padding=3),
            nn.LeakyReLU(-0.5),
            nn.MaxPool2d(3, 2, 1),
        ),
        "Conv2d x 2, MaxPool2d": nn.Sequential(
            filter_(4, 6, **three), nn.ReLU(inplace=True), nn.MaxPool2d(2), filter_(6, 4, **three)
        ),
        "Conv2d x 2, AvgPool2d": nn.Sequential(
            filter_(4, 6, kernel_size=5, padding=4, dilation=2),
            nn.AvgPool2d(3, 2, 1),
            filter_(6, 4, kernel_size=(1, 3), stride=(2, 1), padding=(0, 2)),
        ),
        "MaxPool2d, Conv2d": nn.Sequential(
            nn.MaxPool2d(3, 2, 1), nn.Hardswish(), filter_(4, 6, kernel_size=5, padding=2)
        ),
        "Conv2d x 2": nn.Sequential(  # padded after the last pixel alone
            filter_(4, 6, kernel_size=1), filter_(6, 6, kernel_size=2, padding="same", groups=6)
        ),
        "Conv2d x 4": nn.Sequential(
            filter_(4, 6, kernel_size=1, stride=2),
            filter_(6, 6, groups=6, **three),
            filter_(6, 4, kernel_size=1, padding=1),
            filter_(4, 4, kernel_size=4, padding="same"),
        ),
    }


def chain_of(layers):
    """Make a chain of layers, each with the activation functions after it."""
    found, acts = [], []
    for layer in layers:
        if slide_of(layer) is None:
            acts[-1].append(in_place(layer))
        else:
            found.append(layer)
            acts.append([])
    return Chain(found, acts).eval()


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("last", [False, True], ids=["plain", "channels last"])
@pytest.mark.parametrize("kind", chains())
def test_chains_agree_with_the_layers_wherever_patches_lie(kind, last):
    layers, grid = chains()[kind].eval(), (23, 26)
    chain = chain_of(layers)
    assert chain.kind == kind
    layout = torch.channels_last if last else torch.contiguous_format
    anchor = torch.rand(1, 4, *grid).contiguous(memory_format=layout)
    places = [
        ((5, 6), ((0, 0), (9, 10), (18, 20))),  # borders and corners
        ((1, 1), ((22, 0), (0, 25), (11, 13))),
        ((23, 4), ((0, 0), (0, 12), (0, 22))),  # all of one axis, where layers pad by themselves
        ((3, 26), ((0, 0), (20, 0))),
        ((23, 26), ((0, 0),)),
    ]
    with torch.inference_mode():
        for size, starts in places:
            data = torch.rand(len(starts), 4, *size).contiguous(memory_format=layout)
            patch = Patch(data, starts, anchor)
            found = chain.rule().act([patch], layers(anchor)).full()
            torch.testing.assert_close(found, layers(patch.full()), rtol=1e-5, atol=1e-6)


class Skipping(nn.Module):
    """Reads the argument of a pool a second time, so that no chain goes on across both."""

    def __init__(self):
        super().__init__()
        self.first = filter_(4, 16, kernel_size=3, padding=1)
        self.last = nn.Sequential(nn.Conv2d(16, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1))

    def forward(self, x):
        first = f.relu(self.first(x))
        return self.last(f.max_pool2d(first, 2)).sum((2, 3)) + first[:, :8].sum((2, 3))


def test_layers_after_a_pool_of_a_tensor_that_is_read_twice_make_chains():
    module = Skipping().eval()
    assert kinds(module)[0] == "Conv2d"
    assert any("Conv2d x 2" in kind for kind in kinds(module))
    for size, starts in (((5, 6), [(0, 0), (9, 10), (18, 20)]), ((23, 4), [(0, 0), (0, 22)])):
        assert disagreement(module, (23, 26), size, starts) <= 1e-5


def test_calls_of_functions_make_chains_too():
    module = PoolCalls().eval()
    assert kinds(module) == ["Conv2d, MaxPool2d", "relu", "Conv2d"]
    for size, starts in (((5, 6), [(0, 0), (9, 10), (18, 20)]), ((23, 4), [(0, 0), (0, 22)])):
        assert disagreement(module, (23, 26), size, starts) <= 1e-5


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("kind", chains())
def test_chains_of_boxes_agree_with_the_module(kind):
    first = filter_(4, 4, kernel_size=1), nn.GELU()
    module = nn.Sequential(*first, *chains()[kind], nn.ReLU(), nn.Conv2d(_outputs(kind), 3, 3))
    network = Network(module.eval())
    assert any(" x " in step.kind or "," in step.kind for step in network.steps)
    image, anchor = torch.rand(1, 4, 64, 72), torch.full((1, 4, 64, 72), 0.3)
    outside, _ = network.activations(anchor)
    flat = network.flat_activations(anchor)
    nested = [((0, 0), (64, 36)), ((32, 0), (64, 36)), ((32, 18), (64, 36)), ((40, 20), (52, 30))]
    with torch.inference_mode():
        for known in [outside] if flat is None else [outside, flat.activations]:
            around = network.whole(network.activations(image)[0])
            for box in nested:
                found, (around,) = network.run_boxes([box], [around], known, image)
                painted = anchor.clone()
                place = (..., *map(slice, *box))
                painted[place] = image[place]
                torch.testing.assert_close(found, module(painted), rtol=1e-5, atol=1e-5)


def _outputs(kind):
    module, image = chains()[kind].eval(), torch.rand(1, 4, 64, 72)
    return module(image).shape[1]


class Pool(nn.MaxPool2d):
    """A pool of a class of its own, which may do anything."""

    def __init__(self, **options):
        super().__init__(2, **options)

    def forward(self, x):
        return super().forward(x)[0]


class ReadTwice(nn.Module):
    """Reads the wide tensor a second time."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 12, 1), nn.Conv2d(12, 12, 3, padding=1)

    def forward(self, x):
        wide = self.first(x)
        return self.last(wide) + wide


class Dropped(nn.Module):
    """Has a function between the convolutions that does not overwrite its argument."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 12, 1), nn.Conv2d(12, 12, 3, padding=1)

    def forward(self, x):
        return self.last(f.dropout(self.first(x), 0.5, self.training))


def hooked():
    module = block(kernel_size=3)
    module[0].register_forward_hook(lambda *_: None)
    return module


OTHERS = {
    "read twice": ReadTwice(),
    "dropout": Dropped(),
    "reflecting": block(kernel_size=3, padding=1, padding_mode="reflect"),
    "hooked": hooked(),
    "many multiplications": nn.Sequential(
        nn.Conv2d(4, 64, 3, padding=1), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3)
    )[1:],
    "a pool first": nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(4, 6, 3)),
    "a pool that rounds up": nn.Sequential(nn.Conv2d(4, 6, 3), nn.MaxPool2d(2, ceil_mode=True)),
    "a pool with places": nn.Sequential(nn.Conv2d(4, 6, 3), Pool(return_indices=True)),
}


@pytest.mark.parametrize("module", OTHERS.values(), ids=OTHERS)
def test_other_convolutions_stay_apart(module):
    module.eval()
    assert not any(" x " in kind or "," in kind for kind in kinds(module))
    channels = next(p for p in module.parameters()).shape[1]
    assert disagreement(module, (20, 18), (7, 7), [(0, 0), (13, 11)], channels=channels) <= 1e-5


def test_the_wide_tensor_is_not_kept():
    image = torch.rand(1, 4, 40, 40)
    kept, _ = Network(block(kernel_size=3, padding=1)).activations(image)
    output = 4 * 12 * 40 * 40
    assert size_of(kept) == image.nbytes + output


def test_the_module_itself_is_left_as_it_is():
    module, image = block(kernel_size=3, padding=1), torch.rand(1, 4, 20, 20)
    with torch.inference_mode():
        before = module(image)
        network = Network(module)
        _, output = network.activations(image.clone())
        assert torch.equal(module(image), before)
        torch.testing.assert_close(output, before, rtol=1e-5, atol=1e-6)


def test_weights_are_put_into_the_layout_of_the_images_once():
    module = nn.Sequential(nn.Conv2d(4, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3)).eval()
    before = [layer.weight for layer in module]
    for last in (False, True):
        layers = [step.act for step in Network(module, channels_last=last).steps]
        weights = [p for layer in layers for p in layer.parameters() if p.ndim == 4]
        assert all(w.is_contiguous(memory_format=torch.channels_last) == last for w in weights)
    assert all(layer.weight is w for layer, w in zip(module, before, strict=True))
    assert all(w.is_contiguous() for w in before)


def link(multiplications, channels, extent=2, stride=1):
    return Link(multiplications, channels, channels, extent, stride, not extent)


def test_few_multiplications_make_chains_and_many_do_not():
    start = Reach(1.0, 1.0)
    assert cheapest([link(9, 16), link(9, 16)], start) == [(0, 2)]
    assert cheapest([link(2000, 16), link(2000, 16)], start) == [(0, 1), (1, 2)]
    # A layer that reads its own place alone never needs a copy, and widens no rim.
    assert cheapest([link(2000, 16), link(2000, 16, extent=0)], start) == [(0, 2)]


def test_the_cheapest_chains_are_those_of_a_search_through_all():
    links = [link(27, 3), link(144, 16), link(128, 16, 1, 2), link(288, 32), link(64, 32, 0)]
    reaches = [Reach(1.0, 1.0)]
    for each in links:
        reaches.append(reach_after(each, reaches[-1]))

    def total(cuts):
        ends = [0, *cuts, len(links)]
        return sum(cost(links[a:b], reaches[a]) for a, b in pairwise(ends))

    every = [c for n in range(len(links)) for c in combinations(range(1, len(links)), n)]
    found = cheapest(links, reaches[0])
    assert [a for a, _ in found][1:] == list(min(every, key=total))
