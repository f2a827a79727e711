"""Calls of captum, shap and MONAI: shapes are theirs, and values where the two must agree."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import by_definition

import hshap
from hshap import ArgumentError, Bisection, Dyadic
from hshap.drop_ins import Attribution, OcclusionSensitivity, ShapExplainer

torch = pytest.importorskip("torch")

QUARTERS = torch.arange(2).repeat_interleave(4)
QUARTERS = (2 * QUARTERS[:, None] + QUARTERS)[None, None]


class Bright(torch.nn.Module):
    """Two scores that rise with bright pixels, not in proportion: quarters interact."""

    def forward(self, images):
        means = torch.nn.functional.avg_pool2d(images.mean(1, keepdim=True), 4).flatten(1)
        return torch.stack([means.square().sum(1).sqrt(), means.amax(1) + means.sum(1)], 1)


def batch(count=3, channels=3):
    torch.manual_seed(0)
    return torch.rand(count, channels, 8, 8) + 0.1


def quarter_sums(values):
    """Return the sum over each quarter of arrays (n, channels, 8, 8)."""
    values = np.asarray(values)
    return values.reshape(len(values), -1, 2, 4, 2, 4).sum((1, 3, 5)).reshape(len(values), 4)


def test_sums_over_quarters_are_shapley_values():
    model, inputs, target = Bright().eval(), batch(), [0, 1, 1]
    found = Attribution(model, partition=Dyadic(4)).attribute(inputs, target=torch.tensor(target))
    of_shap = ShapExplainer(model, partition=Dyadic(4)).shap_values(inputs.numpy())
    for row, (one, label) in enumerate(zip(inputs, target, strict=True)):

        def worth(kept, one=one, label=label):
            shown = sum((QUARTERS[0] == quarter for quarter in kept), torch.zeros(1, 8, 8))
            return float(model((one * shown)[None])[0, label].detach())

        expected = by_definition(worth, players=4)
        assert np.allclose(quarter_sums(found)[row], expected, atol=1e-5)
        assert np.allclose(quarter_sums(of_shap[..., label])[row], expected, atol=1e-5)


@pytest.mark.frameworks
def test_captum_shapley_values_of_quarters_are_ours(support):
    attr = pytest.importorskip("captum.attr")
    model, inputs, target = Bright().eval(), batch(), torch.tensor([0, 1, 1])
    own = attr.ShapleyValues(model).attribute(
        inputs, baselines=0, target=target, feature_mask=QUARTERS
    )
    method = Attribution(model, partition=Dyadic(4))
    found, delta = method.attribute(inputs, target=target, return_convergence_delta=True)
    assert found.shape == own.shape
    assert found.dtype == own.dtype
    apart = np.abs(quarter_sums(found) - own[:, 0, ::4, ::4].reshape(3, 4).numpy()).max()
    support(
        "drop-ins",
        library="captum",
        call="Attribution.attribute, as ShapleyValues.attribute",
        checked="sums over four groups against its exact values",
        difference=apart,
    )
    assert apart < 1e-5
    assert float(delta.abs().max()) < 1e-5


@pytest.mark.frameworks
def test_captum_baselines_may_differ_between_inputs():
    attr = pytest.importorskip("captum.attr")
    model, inputs = Bright().eval(), batch(2)
    behind = 0.05 * batch(2)
    own = attr.ShapleyValues(model).attribute(
        inputs, baselines=behind, target=1, feature_mask=QUARTERS
    )
    found = Attribution(model, partition=Dyadic(4)).attribute(inputs, behind, 1)
    assert np.allclose(quarter_sums(found), own[:, 0, ::4, ::4].reshape(2, 4), atol=1e-5)


@pytest.mark.frameworks
def test_shap_exact_values_of_quarters_are_ours(support):
    shap = pytest.importorskip("shap")
    model, image = Bright().eval(), batch(1)
    masks = (QUARTERS[0, 0].numpy()[None] == np.arange(4)[:, None, None]).astype(np.float32)

    def scores(rows):
        shown = np.einsum("nq,qhw->nhw", rows.astype(np.float32), masks)[:, None]
        with torch.no_grad():
            return model(image * torch.as_tensor(shown)).numpy()

    masker = shap.maskers.Independent(np.zeros((1, 4)), max_samples=1)
    own = shap.explainers.Exact(scores, masker)(np.ones((1, 4)))
    found = ShapExplainer(model, partition=Dyadic(4))(image.numpy())
    assert isinstance(found, shap.Explanation)
    sums = np.stack([quarter_sums(found.values[..., k])[0] for k in range(2)], -1)
    apart = np.abs(sums - own.values[0]).max()
    support(
        "drop-ins",
        library="shap",
        call="ShapExplainer(...)(images), as shap.Explainer",
        checked="sums over four groups against shap.explainers.Exact",
        difference=apart,
    )
    assert apart < 1e-5
    assert found.base_values.shape == own.base_values.shape == (1, 2)
    assert np.allclose(found.base_values, own.base_values, atol=1e-6)


@pytest.mark.frameworks
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_shap_shapes_are_those_of_its_partition_explainer(layout):
    shap = pytest.importorskip("shap")
    images = np.random.default_rng(0).random((2, 8, 8, 3)) + 0.1

    def last(rows):
        return np.stack([rows.mean((1, 2, 3)), rows.max((1, 2, 3))], 1)

    masker = shap.maskers.Image(np.zeros((8, 8, 3)), (8, 8, 3))
    own = shap.explainers.Partition(last, masker)(images, max_evals=20, silent=True)
    if layout == "CHW":
        images = np.moveaxis(images, -1, 1)
    explainer = ShapExplainer(last, partition=Dyadic(4), layout=layout, output_names=["a", "b"])
    found = explainer(images)
    expected = (2, 8, 8, 3, 2) if layout == "HWC" else (2, 3, 8, 8, 2)
    assert own.values.shape == (2, 8, 8, 3, 2)
    assert found.values.shape == explainer.shap_values(images).shape == expected
    assert found.base_values.shape == own.base_values.shape
    assert list(found.output_names) == ["a", "b"]
    assert found[..., 1].values.shape == expected[:-1]
    # Each value of an image and an output: score = base value + sum.
    totals = found.values.sum((1, 2, 3)) + found.base_values
    assert np.allclose(totals, last(images if layout == "HWC" else np.moveaxis(images, 1, -1)))


def test_shap_background_images_are_averaged_over():
    images = np.random.default_rng(0).random((1, 1, 8, 8)) + 1.0
    behind = np.stack([np.zeros((1, 8, 8)), np.full((1, 8, 8), 0.5)])
    found = ShapExplainer(lambda b: b.max((2, 3)), behind, Dyadic(4)).shap_values(images)
    assert found.sum() == pytest.approx(images.max() - 0.25)


class Spot(torch.nn.Module):
    """Scores of two classes, by the brightest pixel of a channel; for volumes, too."""

    def forward(self, images):
        top = images.flatten(2).amax(2)[:, :1] * 4
        return torch.cat([1 - top, top], 1)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("shape", "b_box"),
    [
        ((3, 32, 32), None),
        ((3, 32, 32), [4, 20, -1, -1]),
        ((1, 32, 32), None),
        ((1, 16, 16, 16), None),
        ((1, 16, 16, 16), [1, 9, 0, 12, -1, -1]),
    ],
    ids=str,
)
# MONAI indexes with lists, of which torch warns.
@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence:UserWarning")
def test_monai_maps_of_one_spot_are_ours(shape, b_box, support):
    visualize = pytest.importorskip("monai.visualize")
    model, x = Spot().eval(), torch.zeros(1, *shape)
    x[(0, 0, *(slice(9, 12),) * (len(shape) - 1))] = 1.0
    own, own_class = visualize.OcclusionSensitivity(
        model, mask_size=8, mode=0.0, overlap=0.0, verbose=False
    )(x, b_box)
    found, found_class = OcclusionSensitivity(model, mask_size=8)(x, b_box)
    assert found.shape == own.shape
    assert found_class.shape == own_class.shape
    if b_box is None:  # with a box, MONAI's windows begin at its corner
        apart = float((found - own).abs().max())
        support(
            "drop-ins",
            library="monai",
            call="OcclusionSensitivity, as monai.visualize",
            checked="maps of one object in one window",
            difference=apart,
        )
        assert apart < 1e-5
        assert torch.equal(found_class, torch.as_tensor(np.asarray(own_class)))


def test_monai_one_class_alone():
    x = torch.zeros(1, 3, 32, 32)
    x[0, 0, 9:12, 9:12] = 1.0
    method = OcclusionSensitivity(Spot().eval(), mask_size=8)
    every, _ = method(x)
    one, _ = method(x, class_idx=1)
    assert one.shape == (1, 1, 32, 32)
    assert torch.equal(one[:, 0], every[:, 1])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Attribution(Bright().eval()).attribute(np.zeros((1, 1, 8, 8))), "inputs"),
        (lambda: Attribution(Bright().eval()).attribute(batch(), target=[0, 1]), "target"),
        (lambda: Attribution(Bright().eval()).attribute(batch(), batch(2)), "baselines"),
        (lambda: ShapExplainer(len, partition=Dyadic(4)).shap_values(np.zeros((8, 8))), "X"),
        (lambda: ShapExplainer(len, np.zeros((8, 8))), "data"),
        (lambda: OcclusionSensitivity(len, mode="gaussian"), "mode"),
        (lambda: OcclusionSensitivity(len)(batch(2)), "x"),
        (lambda: OcclusionSensitivity(Spot().eval(), 4)(batch(1), [1, 2]), "b_box"),
    ],
)
def test_a_mistake_names_the_argument(call, words):
    with pytest.raises(ArgumentError, match=rf"^{words}[ =].*; pass"):
        call()


def test_defaults_choose_the_parts():
    inputs = torch.zeros(1, 3, 64, 64)
    inputs[0, 0, 20:30, 20:30] = 1.0
    found = Attribution(Spot().eval()).attribute(inputs, target=1)
    assert found.shape == inputs.shape
    inside = found[0, :, 18:32, 18:32].sum() / found.sum()
    assert float(inside) > 0.8
    assert hshap.drop_ins.Attribution(Spot().eval(), Bisection(4)) is not None
