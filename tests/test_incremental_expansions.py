"""A widening convolution of 1 x 1 and the one after it run as one layer, and agree with the module.

The oracle is the module on full inputs.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as f

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


def disagreement(module, grid, size, starts):
    network, anchor = Network(module), torch.rand(1, 4, *grid)
    with torch.inference_mode():
        activations, _ = network.activations(anchor)
        patch = Patch(torch.rand(len(starts), 4, *size), tuple(starts), anchor)
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
    assert "Conv2d x 2" in [step.kind for step in network.steps]
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


class ReadTwice(nn.Module):
    """Reads the wide tensor a second time."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(4, 12, 1), nn.Conv2d(12, 12, 3, padding=1)

    def forward(self, x):
        wide = self.first(x)
        return self.last(wide) + wide


class Function(nn.Module):
    """Has a function between the convolutions, which is not looked for."""

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
    "function": Function(),
    "reflecting": block(kernel_size=3, padding=1, padding_mode="reflect"),
    "two of 1 x 1": block(kernel_size=1),
    "hooked": hooked(),
    "not wider": nn.Sequential(nn.Conv2d(4, 6, 1), nn.Conv2d(6, 6, 3)),
    "with a stride": nn.Sequential(nn.Conv2d(4, 12, 1, 2), nn.Conv2d(12, 6, 3)),
}


@pytest.mark.parametrize("module", OTHERS.values(), ids=OTHERS)
def test_other_convolutions_stay_apart(module):
    module.eval()
    assert not any(kind.endswith("x 2") for kind in kinds(module))
    assert disagreement(module, (20, 18), (7, 7), [(0, 0), (13, 11)]) <= 1e-5


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
