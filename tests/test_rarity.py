"""Rare colours guide maps of models without gradients: the rule, its limits, and exact sums."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hshap
from hshap.evaluators.evidence import FAILED, MOST_PIXELS, Guide
from hshap.explainer.rarity import guides_by_rarity, rarity

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
    centred = (values.T - values.mean(axis=1)).T
    variances, axes = np.linalg.eigh(np.cov(values, bias=True).reshape(len(image), -1))
    axes = [(axes[:, i], v) for i, v in enumerate(variances) if v > 1e-9 * variances.max()][-3:]
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


def test_the_repr_of_the_choice_says_rare_colours():
    pytest.importorskip("higra")
    assert "maps inside regions follow rare colours" in explained().settings.chosen
