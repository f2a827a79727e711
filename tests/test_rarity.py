"""Rare colours guide maps of models without gradients: the rule, its limits, and exact sums."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hshap
from hshap.evaluators.evidence import FAILED, MOST_PIXELS, Guide
from hshap.explainer.rarity import guides_by_rarity, rarity, unless_refuted
from hshap.explanation.nearby import levels_nearby, weighted

NONE = Guide(None, "none: the evaluator gives no gradients")


def smear(seed=0, grid=(40, 50), channels=3):
    """A bright ground with noise, a common disc, and one small spot of another colour."""
    rng = np.random.default_rng(seed)
    image = 0.8 + 0.02 * rng.normal(size=(channels, *grid))
    rows, columns = np.indices(grid)
    image[:, np.hypot(rows - 20, columns - 15) < 12] *= 0.6
    image[0, 30:33, 40:43] -= 0.5
    return image


def by_hand(image):
    """The rule once more, pixel after pixel, without its functions."""
    values = image.reshape(len(image), -1)
    low, high = np.quantile(values, 0.001, axis=1), np.quantile(values, 0.999, axis=1)
    values = np.clip(values.T, 2 * low - high, 2 * high - low).T
    centred = (values.T - values.mean(axis=1)).T
    variances, axes = np.linalg.eigh(np.cov(values, bias=True).reshape(len(image), -1))
    axes = [(axes[:, i], v) for i, v in enumerate(variances) if v > 1e-4 * variances.max()][-3:]
    cells = []
    for pixel in centred.T:
        places = [float(pixel @ axis) / v**0.5 for axis, v in axes]
        cells.append(tuple(round(8 * min(1.0, max(-1.0, p / 4.0))) for p in places))
    counted = {cell: cells.count(cell) for cell in set(cells)}
    kernel = np.exp(-0.5 * np.arange(-4, 5) ** 2)
    kernel /= kernel.sum()

    def mirrored(step):
        """A histogram ends at its borders, and is mirrored there."""
        return step if abs(step) <= 8 else int(np.sign(step)) * 17 - step

    def density(cell):
        total = 0.0
        for offset in product(range(-4, 5), repeat=len(cell)):
            near = tuple(mirrored(c + o) for c, o in zip(cell, offset, strict=True))
            total += counted.get(near, 0) * float(np.prod([kernel[o + 4] for o in offset]))
        return total

    found = {cell: density(cell) for cell in counted}
    shares = {
        cell: sum(counted[other] for other in counted if found[other] <= found[cell] + 1e-12)
        for cell in counted
    }
    heat = [1.0 / (shares[cell] / len(cells) + 0.003) for cell in cells]
    return np.array(heat).reshape(image.shape[1:])


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_the_rule_agrees_with_one_written_by_hand(channels):
    image = smear(channels, (14, 15), channels)
    assert rarity(image) == pytest.approx(by_hand(image), rel=1e-9)


def test_a_spot_of_a_rare_colour_outweighs_larger_things():
    heat = rarity(smear())
    spot = heat[30:33, 40:43]
    assert spot.min() > 5 * np.median(heat)
    assert spot.min() > heat[12:28, 8:22].mean()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_moved_pixels_keep_their_weights(seed, channels):
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 5, (channels, 9, 11)).astype(float)
    order = rng.permutation(99)
    moved = image.reshape(channels, -1)[:, order].reshape(image.shape)
    one, other = rarity(image), rarity(moved)
    if one is None:
        assert other is None
    else:
        # A colour on the edge of two cells may fall to either side.
        near = np.isclose(one.ravel()[order], other.ravel())
        assert near.mean() > 0.9


def test_brightness_and_contrast_change_nothing():
    image = smear()
    assert np.isclose(rarity(image), rarity(3.0 * image - 7.0)).mean() > 0.99


@pytest.mark.parametrize(
    "image",
    [
        np.full((3, 6, 6), 0.3),
        np.zeros((1, 1, 1)),
        np.where(np.eye(6)[None] > 0, np.nan, 1.0),
        np.where(np.eye(6)[None] > 0, np.inf, 1.0),
    ],
    ids=["one colour", "one pixel", "nan", "infinite"],
)
def test_nothing_is_rare_without_two_finite_colours(image):
    assert rarity(image) is None
    assert guides_by_rarity(image, [NONE]) == (NONE,)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, bool])
def test_images_of_any_type_have_rare_colours(dtype):
    image = np.zeros((1, 12, 12), dtype)
    image[0, 3, 4] = 1
    before = image.copy()
    heat = rarity(image)
    assert np.unravel_index(heat.argmax(), heat.shape) == (3, 4)
    assert np.array_equal(image, before)


@pytest.mark.parametrize("scale", [1e-170, 1e-40, 1e40, 1e160])
def test_very_small_and_very_large_numbers_are_no_trouble(scale):
    assert np.isclose(rarity(smear()), rarity(scale * smear())).mean() > 0.99


def test_missing_values_do_not_hide_a_spot():
    image = 0.5 + 0.05 * np.random.default_rng(0).normal(size=(1, 64, 64))
    image[0, 30:34, 30:34] = 1.0
    before = rarity(image)
    image[0, 0, :3] = -9999.0
    after = rarity(image)
    for heat in (before, after):
        assert heat[31, 31] > 50 * np.median(heat)


def test_the_noise_of_a_camera_is_no_colour():
    rng = np.random.default_rng(0)
    grey = rng.normal(0.5, 0.2, size=(40, 40))
    image = np.stack([grey + 0.001 * rng.normal(size=grey.shape) for _ in range(3)])
    one, other = rarity(image), rarity(grey[None])
    assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.9


def game(shares):
    """A game over the two halves of 4 x 8 pixels."""
    halves = hshap.Box((0, 0), (4, 4)), hshap.Box((0, 4), (4, 8))
    values = np.array([0.0, *shares, sum(shares)])
    whole = hshap.Box((0, 0), (4, 8))
    return hshap.Game(whole, halves, values, hshap.shapley(values), np.zeros(2))


def rare_on_the_left():
    found = np.full((4, 8), 51, np.uint8)
    found[1, 1] = 255
    return Guide(found, "rare colours", 3)


@pytest.mark.parametrize(
    ("shares", "times", "stays"),
    [
        ([1.0, 0.0], 1, True),
        ([0.0, 1.0], 1, True),  # log(0.28 / 0.5) = -0.57: one game may do so by chance
        ([0.0, 1.0], 2, False),
        ([0.5, 0.5], 3, True),
        ([0.5, 0.5], 9, False),
        ([0.0, 0.0], 9, True),
        ([-1.0, -1.0], 9, True),
    ],
)
def test_games_refute_rare_colours_if_areas_foretell_scores_twice_as_well(shares, times, stays):
    guide = rare_on_the_left()
    found = unless_refuted(guide, [game(shares)] * times)
    if stays:
        assert found is guide
    else:
        assert found == Guide(None, "none: the scores do not follow rare colours", 3)


def test_guides_of_the_model_are_not_refuted():
    guide = rare_on_the_left()._replace(origin="gradients")
    assert unless_refuted(guide, [game([0.0, 1.0])] * 9) is guide


def test_an_object_of_the_common_colour_is_not_ranked_below_its_surroundings():
    rows, columns = np.indices((128, 128))
    rng = np.random.default_rng(0)
    inside = np.hypot(rows - 64, columns - 64) < 55
    image = 0.5 + 0.03 * rng.normal(size=(3, 128, 128))
    image[:, ~inside] = 0.5 * rng.random((3, int((~inside).sum())))
    found = hshap.Explainer(
        hshap.Batched(
            lambda batch: (np.abs(batch - 0.5).max(1) < 0.12).mean((1, 2)), check_batches=False
        ),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(8),
        search=hshap.DepthFirst(max_evaluations=30),
        evidence="auto",
    ).explain(image, target=0)
    assert found.evidence is None
    assert found.settings["evidence"] == "none: the scores do not follow rare colours"
    assert found.settings.nearby
    heat = found.attribution()
    assert heat[inside].sum() > 0.6 * heat.sum()


def test_guides_that_are_there_and_failures_stay():
    own = Guide(np.ones((40, 50), np.uint8), "gradients", 4)
    failed = Guide(None, f"{FAILED} with RuntimeError", 1)
    found = guides_by_rarity(smear(), [own, failed, NONE._replace(evaluations=2)])
    assert found[:2] == (own, failed)
    assert found[2].levels is not None
    assert found[2][1:] == ("rare colours", 2)


def test_signals_and_large_images_have_no_guide():
    assert guides_by_rarity(np.arange(8.0)[None], [NONE]) == (NONE,)
    side = int(MOST_PIXELS**0.5) + 1
    large = np.broadcast_to(np.arange(side, dtype=np.float32), (1, side, side))
    assert guides_by_rarity(large, [NONE]) == (NONE,)
    bands = np.broadcast_to(np.arange(1400, dtype=np.float32), (9, 1400, 1400))
    assert bands[0].size < MOST_PIXELS
    assert guides_by_rarity(bands, [NONE]) == (NONE,)


def dark_spot(batch):
    """A model without gradients that looks for the spot."""
    return 1.0 - batch[:, 0].min(axis=(1, 2))


def explained(**options):
    return hshap.Explainer(
        hshap.Batched(dark_spot, check_batches=False), baseline=hshap.Constant(0.8), **options
    ).explain(smear(), target=0)


def test_a_small_budget_points_at_the_spot():
    pytest.importorskip("higra")
    found = explained(search=hshap.DepthFirst(max_evaluations=6))
    heat = found.attribution()
    row, column = np.unravel_index(heat.argmax(), heat.shape)
    assert 30 <= row < 33
    assert 40 <= column < 43
    for leaf in found.leaves:
        assert heat[leaf.index].sum() == pytest.approx(found.parts[leaf].share, abs=1e-9)


def test_a_file_and_a_reading_keep_the_guide(tmp_path):
    found = explained(partition=hshap.Bisection(4), evidence="auto")
    found.save(tmp_path / "found.npz")
    loaded = hshap.Explanation.load(tmp_path / "found.npz")
    assert np.array_equal(loaded.attribution(), found.attribution())
    coarse = loaded.at(min_size=12)
    heat = coarse.attribution()
    for leaf in coarse.leaves:
        assert heat[leaf.index].sum() == pytest.approx(coarse.parts[leaf].share, abs=1e-9)


def test_the_map_is_smoothed_inside_leaves_as_leaves_nearby_are():
    found = explained(partition=hshap.Bisection(8), evidence="auto")
    shares = {leaf: found.parts[leaf].share for leaf in found.leaves}
    width = max(1.0, min(0.25 * found.leaves[0].area ** 0.5, (40 * 50) ** 0.5 / 50))
    assert found.usual_width == width
    rare = weighted(found.leaves, shares.__getitem__, found.evidence)
    expected = weighted(found.leaves, shares.__getitem__, levels_nearby(rare, width))
    assert np.array_equal(found.attribution(), expected)
    assert not np.allclose(expected, rare)


@pytest.mark.parametrize("most", [10, 40])
def test_rows_of_functions_stay_small_and_are_read_as_they_were(tmp_path, most):
    pytest.importorskip("higra")
    pytest.importorskip("pyarrow")
    rng = np.random.default_rng(0)
    images = [rng.random((3, 224, 224)).astype(np.float32) for _ in range(12)]
    for number, image in enumerate(images):
        image[0, 100:112, 10 * number : 10 * number + 12] = 3.0
    explainer = hshap.Explainer(
        lambda batch: batch[:, 0].max(axis=(1, 2))[:, None],
        baseline=hshap.Constant(0.5),
        search=hshap.DepthFirst(max_evaluations=most),
    )
    hshap.runs.explain_dataset(explainer, images, tmp_path / "run", target=0)
    run = hshap.runs.open(tmp_path / "run")
    assert run.row_bytes < 6000  # a shard of 12 rows has 10 kB of its own
    here = explainer.explain(images[0], target=0)
    assert here.settings["evidence"] == "rare colours"
    coarse = {"min_area": 20000}
    for reading in (lambda one: one, lambda one: one.at(**coarse)):
        expected = reading(here).attribution()
        found = [reading(row).attribution() for row in run]
        assert any(np.allclose(one, expected, rtol=1e-9, atol=1e-15) for one in found)


def test_the_repr_of_the_choice_says_rare_colours():
    pytest.importorskip("higra")
    assert "maps inside regions follow rare colours" in explained().settings.chosen
