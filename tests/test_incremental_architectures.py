"""Later architectures run on patches as far as exactness allows; the report says where they end."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from benchmarks.models import modern
from hshap import Batched, Bisection, Constant, CostPolicy, Explainer, Incremental, models
from hshap.evaluators.incremental.function_rules import function_rule
from hshap.evaluators.incremental.patches import Patch
from hshap.evaluators.incremental.traced_network import Network

SHAPE = (3, 64, 80)
GATE = "its other argument changes with the input"


def narrow():
    torch.manual_seed(0)
    widths = (8, 12, 16)
    made = {
        "ConvNeXt, written out": modern.convnext(widths, (1, 2, 1), modern.PlaceNorm, 4),
        "ConvNeXt, permuted": modern.convnext(widths, (1, 2, 1), modern.PermutedNorm, 4),
        "RegNetX": modern.regnet(widths, (1, 1, 2), 4, "X", 4),
        "RegNetY": modern.regnet(widths, (1, 1, 2), 4, "Y", 4),
        "MobileNet-v3": modern.mobilenet_v3(0.2, 4),
        "EfficientNet": modern.efficientnet(0.1, 4),
        "group norm": modern.group_norm_resnet(widths, 4),
    }
    for network in made.values():
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.running_mean, std=0.3)
                nn.init.uniform_(part.running_var, 0.5, 2.0)
    return {name: network.eval() for name, network in made.items()}


NETWORKS = narrow()
ENDS = {
    "RegNetY": ("mul", GATE),
    "MobileNet-v3": ("mul", GATE),
    "EfficientNet": ("mul", GATE),
    "group norm": ("_1", "its statistics are those of all places"),
}
"""The first step that runs in full, and why; other networks run on patches to the end."""


def scores(made):
    return getattr(made, "logits", made)


def compare_with_full_passes(model, shape=SHAPE, cases=6):
    """Compare random rectangles, many at the border, with full passes, to 1e-5."""
    network = Network(model, shape)
    assert not network.reason
    rng, numbers = np.random.default_rng(0), torch.Generator().manual_seed(0)
    anchor = torch.rand(1, *shape, generator=numbers)
    with torch.inference_mode():
        activations, output = network.activations(anchor.clone())
        expected = scores(model(anchor))
        assert torch.allclose(output, expected, rtol=1e-5, atol=1e-5 * expected.abs().max())
        for _ in range(cases):
            size = tuple(int(rng.integers(1, n)) for n in shape[1:])
            starts = tuple(
                tuple(int(rng.choice([0, n - m, rng.integers(n - m + 1)])) for n, m in ends)
                for ends in [list(zip(shape[1:], size, strict=True))] * 3
            )
            data = torch.rand(3, shape[0], *size, generator=numbers)
            patch = Patch(data, starts, anchor)
            expected = scores(model(patch.full()))
            found = network.run(patch, activations)
            assert torch.allclose(found, expected, rtol=1e-5, atol=1e-5 * expected.abs().max())
    return network


@pytest.mark.parametrize("name", NETWORKS)
def test_patches_give_the_outputs_of_full_passes(name):
    compare_with_full_passes(NETWORKS[name])


@pytest.mark.parametrize("name", NETWORKS)
def test_the_report_says_where_patches_end_and_why(name):
    table, last = Incremental(NETWORKS[name]).report(SHAPE).split("\n\n")
    lines = table.splitlines()
    assert "of the multiplications of a\nfull pass" in last
    if name not in ENDS:
        assert last.startswith("Patches run to the end.")
        assert not any(line.split()[2] == "full" and len(line.split()) > 4 for line in lines)
        return
    step, why = ENDS[name]
    assert last.startswith(f"Patches end at {step}.")
    assert why in next(line for line in lines if line.split()[0] == step)


@pytest.mark.parametrize("name", ["ConvNeXt, permuted", "MobileNet-v3", "group norm"])
def test_explanations_are_those_of_full_passes(name):
    image = np.random.default_rng(1).random(SHAPE, dtype=np.float32)
    always = Incremental(NETWORKS[name], cost_policy=CostPolicy.always())
    dense, quick = (
        Explainer(way, Constant(0.2), Bisection(24)).explain(image, target=1)
        for way in (Batched(NETWORKS[name]), always)
    )
    games = {game.region: game.values for game in dense.games}
    for game in quick.games:  # rounding may decide which games are played
        values = games.get(game.region, game.values)
        assert np.allclose(game.values, values, rtol=1e-5, atol=1e-5 * np.abs(values).max())
    assert dense.games[0].region == quick.games[0].region
    assert quick.audit.provenance.incremental > 0


class LastAxis(nn.Module):
    """Puts channels last, and leaves them there in ways of its own."""

    def __init__(self, ending):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.LayerNorm(6)
        self.linear, self.ending = nn.Linear(6, 5), ending
        self.scale = nn.Parameter(torch.rand(5))
        self.register_buffer("wide", torch.rand(1, 1, 1, 5))

    def forward(self, x):  # noqa: PLR0911, one for each ending
        last = self.linear(self.norm(self.conv(x).permute(0, 2, 3, 1)))
        if self.ending == "mean":
            return nn.functional.gelu(last * self.scale).mean((1, 2))
        if self.ending == "largest":
            return (last - self.wide).amax((1, 2))
        if self.ending == "both":
            return last.permute(0, 3, 1, 2).mean((2, 3)) + last.amax((1, 2))
        if self.ending == "in place":
            last.mul_(0.5)
            return last.permute(0, 3, 1, 2).mean((2, 3))
        if self.ending == "another order":
            return last.permute(0, 2, 1, 3).mean((1, 2))
        if self.ending == "softmax":
            return last.permute(0, 3, 1, 2).softmax(1).mean((2, 3))
        turned = torch.permute(last, (0, 3, 1, 2)) / (1.0 + last.abs()).permute(0, 3, 1, 2)
        return turned.mean((2, 3))


@pytest.mark.parametrize(
    "ending", ["mean", "largest", "both", "another order", "softmax", "two ways"]
)
def test_channels_last_is_exact_whatever_follows(ending):
    torch.manual_seed(1)
    compare_with_full_passes(LastAxis(ending).eval(), (3, 20, 26), cases=20)


def test_a_write_to_a_tensor_with_channels_last_is_not_missed():
    model = LastAxis("in place").eval()
    image = np.random.default_rng(0).random((3, 32, 32), dtype=np.float32)
    with pytest.warns(RuntimeWarning, match="overwritten"):
        found = Explainer(
            Incremental(model, cost_policy=CostPolicy.always()), Constant(0.0), Bisection(8)
        ).explain(image, target=1)
    dense = Explainer(model, Constant(0.0), Bisection(8)).explain(image, target=1)
    assert np.allclose(found.attribution(), dense.attribution(), atol=1e-6)


class Reshaped(nn.Module):
    """Looks at the shape of its input: refuses, pads to even sides, and reads the rows."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 4, 3, 2), nn.Linear(4, 3)

    def forward(self, x, label=None, scale=1.0):
        rows, channels, height, width = x.shape
        if channels != 3:
            message = "three channels"
            raise ValueError(message)
        x = nn.functional.pad(x, (0, int(width % 2), 0, height % 2))
        x = torch.relu(self.conv(x)) * scale
        made = {"logits": self.last(x.mean((2, 3)).reshape(rows, -1))}
        return made if label is None else (label, made)


def test_a_network_that_looks_at_shapes_is_traced_for_one_shape():
    model = Reshaped().eval()
    network = Network(model, (3, 21, 27))
    assert not network.reason
    anchor = torch.rand(1, 3, 21, 27)
    activations, _ = network.activations(anchor)
    patch = Patch(torch.rand(3, 3, 5, 6), ((0, 0), (16, 21), (7, 9)), anchor)
    found = network.run(patch, activations)
    assert torch.allclose(found, model(patch.full())["logits"], rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"traced for images of shape \(3, 21, 27\) alone"):
        network.activations(torch.rand(1, 3, 20, 20))
    assert "cannot be traced" in Network(model).reason


def test_a_branch_on_the_rows_of_a_batch_is_not_traced():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3)

        def forward(self, x):
            return self.conv(x).mean((2, 3)) * (2.0 if x.shape[0] > 1 else 1.0)

    assert "cannot be traced" in Network(Counting().eval(), (3, 20, 20)).reason


def test_images_of_several_shapes_still_have_the_scores_of_full_passes():
    model, rng = Reshaped().eval(), np.random.default_rng(0)
    images = [rng.random((3, n, n), dtype=np.float32) for n in (41, 64, 41)]
    always = Incremental(model, cost_policy=CostPolicy.always())
    with pytest.warns(RuntimeWarning, match="alone"):
        found = list(
            Explainer(always, Constant(0.1), Bisection(8)).explain_many((i, 1) for i in images)
        )
    for one in found:
        dense = Explainer(model, Constant(0.1), Bisection(8)).explain(
            images[one.position], target=1
        )
        assert np.allclose(one.attribution(), dense.attribution(), atol=1e-6)


def test_stochastic_depth_of_torchvision_does_nothing_outside_of_training():
    def stochastic_depth(x, p, mode, training=True):
        return x * 0.0 if training else x

    stochastic_depth.__module__ = "torchvision.ops.stochastic_depth"
    args, spatial = [None, 0.1, "row", False], [True, False, False, False]
    assert function_rule(stochastic_depth, args, {}, spatial) is not None
    assert function_rule(stochastic_depth, args[:3], {}, spatial[:3]) is None
    assert function_rule(stochastic_depth, [*args[:3], True], {}, spatial) is None


@pytest.mark.parametrize(
    ("name", "options", "ends"),
    [
        ("ConvNext", {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 2, 1]}, ""),
        ("ConvNextV2", {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 2, 1]}, "norm"),
        ("RegNet", {"layer_type": "x"}, ""),
        ("RegNet", {"layer_type": "y"}, GATE),
        ("ResNet", {}, ""),
        ("MobileNetV2", {"depth_multiplier": 0.2}, ""),
        ("Bit", {"embedding_size": 8, "num_groups": 2}, "its statistics are those of all places"),
    ],
)
def test_models_of_transformers_run_on_patches_as_they_come(name, options, ends):
    """They check the shape of their input, take several inputs and return an object."""
    transformers = pytest.importorskip("transformers")
    small = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
    sizes = small if name in {"RegNet", "ResNet", "Bit"} else {}
    extra = {"groups_width": 4} if name == "RegNet" else {}
    config = getattr(transformers, f"{name}Config")(**sizes | extra | options)
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForImageClassification")(config).eval()
    compare_with_full_passes(model, (3, 64, 64), cases=3)
    report = Incremental(model).report((3, 64, 64))
    assert ends in report
    assert ("Patches run to the end." in report) == (not ends)


@pytest.mark.parametrize("name", ["ConvNext", "ResNet"])
def test_models_of_transformers_run_on_patches_behind_their_preparation(name):
    """Mean and std are buffers around a network that is recorded for one shape."""
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1]}
    extra = {"num_stages": 2} if name == "ConvNext" else {"embedding_size": 8}
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**sizes | extra)
    model = getattr(transformers, f"{name}ForImageClassification")(config).eval()
    processor = transformers.ViTImageProcessorPil(image_mean=[0.4, 0.5, 0.6], image_std=[0.2] * 3)
    ready = models.transformers(model, processor, resize=False)
    compare_with_full_passes(ready, (3, 64, 64), cases=3)
    assert "Patches run to the end." in Incremental(ready).report((3, 64, 64))
