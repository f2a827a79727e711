"""Every method keeps the contract: a finite map, nothing changed, the same again."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn

from benchmarks.core.protocol import Cannot, Subject
from benchmarks.core.reference import TARGET, VERSION
from benchmarks.methods import METHODS, named
from benchmarks.methods.guided import gradient_times_difference
from benchmarks.methods.rules import GlobalMax, LogSumExp, with_rules

IMPORTS = {"grad-cam": "pytorch_grad_cam", "shap-bpt": "shap_bpt"}
# They depend on torchvision, which can replace torch by a build for CUDA of several gigabytes.
WITH_TORCHVISION = {
    package: f"{package} needs torchvision, which is left out of the tests; install "
    "benchmarks/requirements.txt"
    for package in IMPORTS
}
GRID, SPOT, SIZE = (32, 32), (slice(8, 12), slice(24, 28)), 4
# Some controls look elsewhere, LIME's default takes so small an image for one segment, and 16
# evaluations end before the regions are as small as the spot.
NOT_POINTING = {"random", "blurred random", "centre", "LIME", "PartitionExplainer 16"}
pytestmark = pytest.mark.benchmarks
each = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
each_pointing = pytest.mark.parametrize(
    "method",
    [method for method in METHODS if method.name not in NOT_POINTING],
    ids=lambda method: method.name,
)
both = pytest.mark.parametrize("channels", [1, 3])
theirs = pytest.mark.filterwarnings("ignore")  # packages' own, which are not ours to mend


class Spots(nn.Module):
    """Say "present" where a patch of 3 x 3 pixels is bright; what no patch shows says nothing."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(channels, 1, 3, padding=1)
        self.pool = nn.AdaptiveMaxPool2d(1)
        nn.init.constant_(self.patch.weight, 1 / (9 * channels))
        nn.init.constant_(self.patch.bias, -0.4)

    def forward(self, images):
        found = self.pool(torch.relu(self.patch(images))).flatten(1)
        return torch.cat([torch.full_like(found, 2.0), 12 * found], dim=1)


def subject_of(channels, seed=0):
    model = Spots(channels).eval()
    rng = np.random.default_rng(1)
    background = rng.uniform(0, 0.2, (6, channels, *GRID)).astype(np.float32)
    return Subject(model, model.patch, background.mean(axis=0), background, SIZE, seed)


def image_of(channels):
    image = np.random.default_rng(2).uniform(0, 0.2, (channels, *GRID)).astype(np.float32)
    image[:, *SPOT] = 1.0
    return image


def skip_if_missing(method):
    if method.package == "h-shap":
        if not TARGET.exists():
            pytest.skip(f"h-shap {VERSION} is not installed; benchmarks/run speed installs it")
    elif method.package:
        # Not imported here: its warnings belong to the tests that ignore them.
        name = IMPORTS.get(method.package, method.package)
        if find_spec(name) is None:
            pytest.skip(
                WITH_TORCHVISION.get(
                    method.package,
                    f"{method.package} is not installed; scripts/setup dev installs it",
                )
            )


@each
@both
@theirs
def test_methods_give_maps_and_change_nothing(method, channels):
    skip_if_missing(method)
    subject, image = subject_of(channels), image_of(channels)
    image.flags.writeable = False
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    np.random.seed(7)
    torch.manual_seed(7)
    expected = np.random.random(), torch.rand(1)
    np.random.seed(7)
    torch.manual_seed(7)
    heat = method.explain(subject, image)
    assert (np.random.random(), torch.rand(1)) == expected
    assert np.array_equal(heat, method.explain(subject, image))
    assert heat.shape == GRID
    assert np.isfinite(heat).all()
    after = subject.model.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    assert not any(module._forward_hooks for module in subject.model.modules())
    assert np.array_equal(image, image_of(channels))


@each_pointing
@theirs
def test_methods_point_at_the_spot(method):
    skip_if_missing(method)
    heat = method.explain(subject_of(3), image_of(3))
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    reach = 1  # a patch reaches one pixel further
    assert SPOT[0].start - reach <= row < SPOT[0].stop + reach
    assert SPOT[1].start - reach <= column < SPOT[1].stop + reach


@pytest.mark.parametrize(
    "name", ["h-shap quadtree tau=0", "h-shap 0.1.6 tau=0", "h-shap 0.1.6 tau=70%"]
)
@theirs
def test_nothing_found_is_a_map_of_zeros(name):
    (method,) = named([name])
    skip_if_missing(method)
    subject = subject_of(1)
    assert not method.explain(subject, subject.baseline.copy()).any()


@pytest.mark.parametrize("budget", [500, 64, 32, 16])
@theirs
def test_partition_explainer_keeps_its_budget_for_each_new_baseline(budget):
    pytest.importorskip("shap")
    (method,) = named([f"PartitionExplainer {budget}"])
    rows = []
    for subject in (subject_of(3), subject_of(3)):
        handle = subject.model.register_forward_pre_hook(lambda _, given: rows.append(given[0]))
        method.explain(subject, image_of(3))
        handle.remove()
        assert 2 < sum(map(len, rows)) <= budget
        # Its first row is the bare baseline, and never one of an earlier call.
        assert np.array_equal(rows[0][0].numpy(), subject.baseline)
        rows.clear()


@pytest.mark.parametrize(
    ("name", "module"),
    [("LIME", "lime"), ("DeepExplainer", "shap"), ("captum KernelShap", "captum")],
)
def test_a_missing_package_is_named(name, module, monkeypatch):
    for loaded in [key for key in sys.modules if key.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(sys, "path", [])
    (method,) = named([name])
    with pytest.raises(Cannot, match=f"{module} is not installed"):
        method.explain(subject_of(1), image_of(1))


@theirs
def test_grad_cam_refuses_a_layer_of_another_model():
    (method,) = named(["Grad-CAM"])
    skip_if_missing(method)
    subject = subject_of(1)
    stranger = Subject(subject.model, nn.ReLU(), subject.baseline, subject.background, SIZE, seed=0)
    with pytest.raises(Cannot, match="not a part"):
        method.explain(stranger, image_of(1))


class Counting(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.count = model, 0

    def forward(self, images):
        self.count += len(images)
        return self.model(images)


class Smooth(nn.Module):
    def __init__(self, *, method):
        super().__init__()
        self.convolution, self.method = nn.Conv2d(1, 2, 3), method
        self.cut = nn.ReLU(inplace=True)

    def forward(self, images):
        places = self.cut(self.convolution(images)).relu().flatten(2)
        return places.logsumexp(dim=2) if self.method else torch.logsumexp(places, 2)


@pytest.mark.parametrize("method", [True, False])
def test_models_with_rules_compute_the_same(method):
    model = Smooth(method=method).eval()
    images = torch.rand(3, 1, 8, 9)
    with with_rules(model) as other:
        assert torch.allclose(other(images), model(images), atol=1e-6)
        kinds = [type(module) for module in other.modules()]
    assert kinds.count(nn.ReLU) >= 2
    assert LogSumExp in kinds


def test_a_model_that_cannot_be_traced_gets_rules_inside_and_is_itself_again_after():
    inner = Spots(1).eval()
    model = Counting(inner)
    with with_rules(model) as other:
        assert other is model
        assert any(isinstance(module, GlobalMax) for module in model.modules())
        model(torch.rand(3, 1, *GRID))
    assert model.count == 3
    assert model.model is inner


@pytest.mark.parametrize("make", [lambda: Spots(1), lambda: Smooth(method=True)])
@theirs
def test_deep_explainer_adds_up(make):
    pytest.importorskip("shap")
    (method,) = named(["DeepExplainer"])
    model = make().eval()
    spots = subject_of(1)
    subject = Subject(model, model, spots.baseline, spots.background, SIZE, seed=0)
    image = image_of(1)
    with torch.no_grad():
        there, elsewhere = (
            model(torch.tensor(images))[:, 1].mean().item()
            for images in (image[None], subject.background)
        )
    assert method.explain(subject, image).sum() == pytest.approx(there - elsewhere, abs=1e-4)


@both
def test_gradient_times_difference_is_zero_where_the_image_is_the_baseline(channels):
    subject, image = subject_of(channels), image_of(channels)
    image[:, :9] = subject.baseline[:, :9]
    heat = gradient_times_difference(subject, image)
    assert heat[:9].max() == 0.0
    assert heat[9:].max() > 0.0
