"""The synthetic generator: what the class may depend on, and what it may not."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.datasets import synthetic

CROSS_AREA = int(synthetic.STENCILS["cross"].sum())
BACKGROUND = synthetic.to_bytes(np.array(synthetic.BACKGROUND))


@pytest.fixture(scope="module")
def dataset() -> synthetic.Dataset:
    return synthetic.generate(600, seed=3)


def test_a_seed_fixes_every_array(dataset: synthetic.Dataset) -> None:
    again = synthetic.generate(600, seed=3)
    np.testing.assert_array_equal(again.pixels, dataset.pixels)
    np.testing.assert_array_equal(again.truths, dataset.truths)
    np.testing.assert_array_equal(again.crosses, dataset.crosses)


def test_another_seed_draws_other_images(dataset: synthetic.Dataset) -> None:
    assert not np.array_equal(synthetic.generate(600, seed=4).pixels, dataset.pixels)


def test_a_label_is_positive_exactly_where_the_truth_has_pixels(
    dataset: synthetic.Dataset,
) -> None:
    np.testing.assert_array_equal(dataset.labels == 1, dataset.truths.any(axis=(1, 2)))
    assert dataset.labels.sum() == len(dataset) // 2


def test_truth_holds_every_pixel_of_every_cross(dataset: synthetic.Dataset) -> None:
    # Overlapping or clipped crosses would leave fewer pixels than their areas add up to.
    np.testing.assert_array_equal(dataset.truths.sum(axis=(1, 2)), CROSS_AREA * dataset.crosses)


def test_crosses_are_painted_where_the_truth_says() -> None:
    sample = synthetic.draw(np.random.default_rng(0), 3, total=3)
    painted = (synthetic.to_bytes(sample.image) != BACKGROUND).any(axis=0)
    np.testing.assert_array_equal(painted, sample.truth)


@pytest.mark.parametrize("total", [1, 12, 30])
def test_shapes_lie_apart_and_inside(total: int) -> None:
    covered = np.zeros((synthetic.HEIGHT, synthetic.WIDTH), dtype=int)
    for row, column in synthetic.place(np.random.default_rng(total), total):
        covered[row : row + synthetic.SIDE, column : column + synthetic.SIDE] += 1
    assert covered.max() == 1
    assert covered.sum() == total * synthetic.SIDE**2


def test_positives_have_one_to_six_crosses_about_evenly(dataset: synthetic.Dataset) -> None:
    counts = np.bincount(dataset.crosses, minlength=7)[1:]
    assert len(counts) == synthetic.MAX_CROSSES
    # 300 draws over 6 values: 50 each, standard deviation 6.5.
    assert np.all(abs(counts - 50) < 4 * 6.5)


def test_the_number_of_shapes_does_not_tell_the_class() -> None:
    rng = np.random.default_rng(0)
    positive = [synthetic.draw_total(rng, int(rng.integers(1, 7))) for _ in range(4000)]
    negative = [synthetic.draw_total(rng, 0) for _ in range(4000)]
    histograms = [
        np.bincount(totals, minlength=synthetic.MAX_SHAPES + 1) for totals in (positive, negative)
    ]
    np.testing.assert_allclose(histograms[0], histograms[1], atol=4 * np.sqrt(2 * 4000 * 0.15))
    assert abs(np.mean(positive) - np.mean(negative)) < 0.25


def test_colours_of_crosses_follow_the_same_law_as_the_others() -> None:
    def mean_colour(crosses: int) -> np.ndarray:
        rng = np.random.default_rng(1)
        drawn = [
            synthetic.to_bytes(synthetic.draw(rng, crosses, total=6).image) for _ in range(200)
        ]
        painted = [pixels[:, (pixels != BACKGROUND).any(axis=0)].mean(axis=1) for pixels in drawn]
        return np.mean(painted, axis=0)

    # Six random colours average out to a standard deviation of about 35 per image, 2.5 over 200.
    np.testing.assert_allclose(mean_colour(6), mean_colour(0), atol=4 * 2.5 * np.sqrt(2))


def test_bytes_survive_the_round_trip_through_floats(dataset: synthetic.Dataset) -> None:
    levels = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(synthetic.to_bytes(synthetic.to_float(levels)), levels)
    images = dataset.part(slice(2)).images
    assert images.dtype == np.float32
    assert images.shape == (2, 3, 100, 120)


@pytest.mark.parametrize(("noise", "textured"), [(8.0, False), (0.0, True)])
def test_variants_change_the_look_but_not_the_truth(noise: float, textured: bool) -> None:
    sample = synthetic.draw(np.random.default_rng(5), 2, total=4, noise=noise, textured=textured)
    assert sample.truth.sum() == 2 * CROSS_AREA
    assert len(np.unique(sample.image)) > 20
    assert 0 <= sample.image.min() <= sample.image.max() <= 1


def test_more_crosses_than_shapes_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"crosses=3, total=2"):
        synthetic.draw(np.random.default_rng(0), 3, total=2)


def test_splits_cut_one_generated_set() -> None:
    parts = synthetic.splits(0, sizes=(5, 3, 2))
    assert [len(part) for part in parts] == [5, 3, 2]
    joined = np.concatenate([part.pixels for part in parts])
    np.testing.assert_array_equal(joined, synthetic.generate(10, 0).pixels)
