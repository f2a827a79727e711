"""The synthetic generator: what the class may depend on, and what it may not."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.datasets import synthetic

pytestmark = pytest.mark.benchmarks

CROSS_AREA = int(synthetic.STENCILS["cross"].sum())
BACKGROUND = synthetic.to_bytes(np.array(synthetic.BACKGROUND))


@pytest.fixture(scope="module")
def dataset():
    return synthetic.generate(600, seed=3)


def test_a_seed_fixes_every_array(dataset):
    again = synthetic.generate(600, seed=3)
    for name in ("pixels", "truths", "crosses"):
        np.testing.assert_array_equal(getattr(again, name), getattr(dataset, name))
    assert not np.array_equal(synthetic.generate(600, seed=4).pixels, dataset.pixels)
    parts = synthetic.splits(0, sizes=(5, 3, 2))
    joined = np.concatenate([part.pixels for part in parts])
    np.testing.assert_array_equal(joined, synthetic.generate(10, 0).pixels)
    assert dataset.part(slice(2)).images.dtype == np.float32


def test_labels_and_truths_are_those_of_the_crosses(dataset):
    np.testing.assert_array_equal(dataset.labels == 1, dataset.truths.any(axis=(1, 2)))
    assert dataset.labels.sum() == len(dataset) // 2
    # Overlapping or clipped crosses would leave fewer pixels than their areas add up to.
    np.testing.assert_array_equal(dataset.truths.sum(axis=(1, 2)), CROSS_AREA * dataset.crosses)
    sample = synthetic.draw(np.random.default_rng(0), 3, total=3)
    painted = (synthetic.to_bytes(sample.image) != BACKGROUND).any(axis=0)
    np.testing.assert_array_equal(painted, sample.truth)
    counts = np.bincount(dataset.crosses, minlength=7)[1:]
    assert len(counts) == synthetic.MAX_CROSSES
    assert np.all(abs(counts - 50) < 4 * 6.5)  # 300 draws over 6 values: 50 each, deviation 6.5


@pytest.mark.parametrize("total", [1, 12, 30])
def test_shapes_lie_apart_and_inside(total):
    covered = np.zeros((synthetic.HEIGHT, synthetic.WIDTH), dtype=int)
    for row, column in synthetic.place(np.random.default_rng(total), total):
        covered[row : row + synthetic.SIDE, column : column + synthetic.SIDE] += 1
    assert covered.max() == 1
    assert covered.sum() == total * synthetic.SIDE**2


def test_number_and_colours_do_not_tell_the_class():
    rng = np.random.default_rng(0)
    drawn = [
        [synthetic.draw_total(rng, crosses) for crosses in numbers]
        for numbers in (rng.integers(1, 7, 4000).tolist(), [0] * 4000)
    ]
    histograms = [np.bincount(totals, minlength=synthetic.MAX_SHAPES + 1) for totals in drawn]
    np.testing.assert_allclose(*histograms, atol=4 * np.sqrt(2 * 4000 * 0.15))

    def mean_colour(crosses):
        rng = np.random.default_rng(1)
        images = [synthetic.draw(rng, crosses, total=6).image for _ in range(200)]
        painted = map(synthetic.to_bytes, images)
        return np.mean([p[:, (p != BACKGROUND).any(axis=0)].mean(axis=1) for p in painted], axis=0)

    # Six random colours average out to a standard deviation of about 35 per image, 2.5 over 200.
    np.testing.assert_allclose(mean_colour(6), mean_colour(0), atol=4 * 2.5 * np.sqrt(2))


@pytest.mark.parametrize(("noise", "textured"), [(8.0, False), (0.0, True)])
def test_variants_change_the_look_alone(noise, textured):
    sample = synthetic.draw(np.random.default_rng(5), 2, total=4, noise=noise, textured=textured)
    assert sample.truth.sum() == 2 * CROSS_AREA
    assert len(np.unique(sample.image)) > 20
    assert 0 <= sample.image.min() <= sample.image.max() <= 1
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(synthetic.to_bytes(synthetic.to_float(levels)), levels)
    with pytest.raises(ValueError, match="crosses=3, total=2"):
        synthetic.draw(np.random.default_rng(0), 3, total=2)
