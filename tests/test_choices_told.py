"""Choices of the default call: baselines of users, spins and several targets get the truth told."""

from __future__ import annotations

import numpy as np
import pytest

import hshap
from hshap.errors import ArgumentError, ModelError
from hshap.evaluators.outputs import as_scores

torch = pytest.importorskip("torch")


def bright(batch):
    return 96.0 * (batch > 0.8).any(axis=(1, 2, 3))


def scene(shape=(1, 32, 32)):
    """An image that differs from its template in one spot."""
    template = np.random.default_rng(0).random(shape) * 0.5
    image = template.copy()
    image[..., 4:8, 5:9] = 1.0
    return image.astype(np.float32), template.astype(np.float32)


@pytest.mark.parametrize(
    "behind",
    [
        lambda image: torch.zeros((1, *image.shape), requires_grad=True),
        lambda image: torch.zeros((1, *image.shape), dtype=torch.bfloat16),
        lambda image: torch.zeros((1, *image.shape)),
    ],
    ids=["with gradient", "bfloat16", "tensor"],
)
def test_baselines_of_users_may_give_tensors(behind):
    image, _ = scene()
    found = hshap.Explainer(bright, lambda im: lambda kept: behind(im)).explain(image, 0)
    assert found.saliency()[5, 6] > 0


def test_a_baseline_that_is_not_a_number_is_no_template():
    image, _ = scene()
    model = lambda batch: np.nan_to_num(batch, nan=0.0).max(axis=(1, 2, 3))
    missing = lambda im: hshap.protocols.Still(np.full((1, *im.shape), np.nan))
    found = hshap.Explainer(model, missing).explain(image, 0)
    assert found.settings["partition"]["type"] == "Superpixels"
    assert found.filled is None
    assert np.isfinite(found.audit.doubt)


def test_stand_ins_of_another_shape_are_told_as_those_of_the_baseline():
    image, _ = scene()
    with pytest.raises(ArgumentError, match="baseline gave stand-ins of shape"):
        hshap.Explainer(bright, lambda im: lambda kept: im).explain(image, 0)


def test_spins_choose_for_themselves():
    """Over shifts no cells, which cannot move; over partitions, nothing is said of regions."""
    image, template = scene()
    explainer = hshap.Explainer(bright, hshap.Fixed(template))
    assert "Spots" in explainer.explain(image, 0).settings.chosen
    spin = hshap.cycle_spin(explainer, image, 0, shifts=[(0, 0), (3, 3)])
    assert all("Spots" not in member.settings.chosen for member in spin.members)
    partitions = [hshap.Superpixels(seed=0), hshap.Superpixels(seed=1)]
    for member in hshap.cycle_spin(explainer, image, 0, partitions=partitions).members:
        assert "regions are" not in member.settings.chosen
        assert "detector" in member.settings.chosen


def test_images_without_targets_are_told_as_no_pairs():
    image, _ = scene((3, 32, 32))
    match = r"pass \(image, target\) or \(image, target, baseline\) tuples"
    with pytest.raises(hshap.errors.PairsFailedError, match=match):
        list(hshap.Explainer(bright, hshap.Constant(0.0)).explain_many([image, image]))


def test_rounding_adds_no_pixel_to_a_box():
    grid, height, width = 224, 475, 738
    scale = grid / width
    start = -((grid - height * scale) / 2) / scale
    place = hshap.images.Placement(
        (grid, grid), (height, width), (start, 0), (start + grid / scale, width)
    )
    (top, _), _ = place.pixels((56, 0), (189, 224))
    # By fractions: (475 - 738) / 2 + 738 * 56 / 224 = 53, a whole pixel.
    assert top == 53


def test_a_shape_that_is_a_number_is_refused_in_one_line():
    image, _ = scene()
    found = hshap.Explainer(bright, hshap.Constant(0.0)).explain(image, 0)
    with pytest.raises(ArgumentError, match="shape"):
        found.placed(80)


@pytest.mark.parametrize("made", [np.ones, torch.ones], ids=["numpy", "torch"])
def test_the_fix_for_maps_of_scores_works(made):
    with pytest.raises(ModelError) as refused:
        as_scores(made((2, 3, 4, 4)), 2)
    fix = str(refused.value).partition("for example ")[2]
    fixed = eval(fix, {"model": lambda batch: made((2, 3, 4, 4))})  # noqa: S307
    assert as_scores(fixed(made((2, 1, 4, 4))), 2).shape == (2, 3)
    with pytest.raises(ModelError):  # two outputs are not two inputs
        as_scores([made((2, 1)), made((2, 1))], 2)
