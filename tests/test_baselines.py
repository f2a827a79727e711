from __future__ import annotations

import pickle
import weakref

import numpy as np
import pytest
from oracle import any_marked, by_permutations, marked

from hshap import (
    ArgumentError,
    Bisection,
    Blur,
    Box,
    Conditional,
    Constant,
    Dyadic,
    Explainer,
    Fixed,
    Mean,
    References,
    Similar,
)

IMAGE = np.linspace(0, 1, 2 * 6 * 5).reshape(2, 6, 5)


def stand_ins(baseline, image=IMAGE, kept=()):
    return baseline(image)(kept)


def test_constant_takes_one_value_or_one_for_each_channel():
    assert (stand_ins(Constant(0.5)) == 0.5).all()
    per_channel = stand_ins(Constant([0.1, 0.9]))
    assert (per_channel[0, 0] == 0.1).all()
    assert (per_channel[0, 1] == 0.9).all()


def test_constant_takes_no_memory():
    assert stand_ins(Constant(0.5), np.zeros((3, 500, 500))).strides[-3:] == (0, 0, 0)


def test_fixed_gives_the_reference_in_the_type_of_the_image():
    reference = np.full(IMAGE.shape, 0.3)
    filled = stand_ins(Fixed(reference), IMAGE.astype(np.float32))
    assert filled.dtype == np.float32
    assert np.allclose(filled[0], 0.3)


class OneByOne:
    """An iterable that can be read once, and notes how many images were alive at a time."""

    def __init__(self, images):
        self.images, self.reads = images, 0

    def __iter__(self):
        self.reads += 1
        return (image.copy() for image in self.images)


@pytest.mark.parametrize(
    "source",
    [
        lambda images: images,
        list,
        lambda images: (image for image in images),
        lambda images: ((image, label) for label, image in enumerate(images)),
        OneByOne,
    ],
    ids=["array", "list", "generator", "pairs", "iterable"],
)
def test_mean_of_any_source_is_the_mean(source, rng):
    images = rng.random((130, 2, 6, 5))
    baseline = Mean(source(images))
    np.testing.assert_allclose(baseline.image, images.mean(0), rtol=1e-12)
    assert baseline.count == 130
    assert stand_ins(baseline).shape == (1, 2, 6, 5)


def test_mean_reads_its_source_once(rng):
    source = OneByOne(rng.random((5, 2, 6, 5)))
    Mean(source)
    assert source.reads == 1


def test_mean_never_holds_all_images():
    alive = peak = 0

    class Counted(np.ndarray):
        def __del__(self):
            nonlocal alive
            alive -= 1

    def images():
        nonlocal alive, peak
        for _ in range(200):
            image = np.ones((1, 8, 8)).view(Counted)
            alive += 1
            peak = max(peak, alive)
            yield image

    Mean(images())
    # Views of an image count as well; all 200 images would show.
    assert peak < 20


def test_mean_of_batches():
    batches = [np.zeros((3, 1, 4, 4)), np.ones((1, 1, 4, 4))]
    assert Mean(batches, batched=True).image.mean() == 0.25


def test_mean_of_float32_keeps_its_precision():
    images = np.full((3000, 1, 2, 2), 0.1, np.float32)
    np.testing.assert_allclose(Mean(images).image, np.float64(np.float32(0.1)), rtol=1e-12)


def test_mean_takes_a_data_loader(rng):
    torch = pytest.importorskip("torch")
    images = torch.from_numpy(rng.random((10, 2, 6, 5)))
    data = torch.utils.data.TensorDataset(images, torch.arange(10))
    single = torch.utils.data.DataLoader(data, batch_size=None)
    for source in (torch.utils.data.DataLoader(data, batch_size=4), single, data, images):
        np.testing.assert_allclose(Mean(source).image, images.numpy().mean(0))


@pytest.mark.parametrize("sigma", [0.7, 2.0, 9.0])
@pytest.mark.parametrize("grid", [(31,), (12, 7), (5, 6, 7)])
def test_blur_agrees_with_scipy(sigma, grid, rng):
    ndimage = pytest.importorskip("scipy.ndimage")
    image = rng.random((2, *grid))
    theirs = ndimage.gaussian_filter(image, (0, *(sigma,) * len(grid)), mode="reflect")
    np.testing.assert_allclose(stand_ins(Blur(sigma), image)[0], theirs, atol=1e-12)


def test_references_give_the_mean_game_and_its_standard_error(rng):
    references, image = rng.random((2, 7, 1, 4, 4))
    image = image[0]
    explainer = Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)),
        baseline=References(references),
        partition=Dyadic(2),
    )
    game = explainer.explain(image, target=0).games[0]
    by_hand = []
    for reference in references:
        values = []
        for c in range(16):
            shown = reference.copy()
            for i, part in enumerate(game.children):
                if c >> i & 1:
                    shown[(slice(None), *part.index)] = image[(slice(None), *part.index)]
            values.append(shown.max())
        by_hand.append(by_permutations(values))
    np.testing.assert_allclose(game.coefficients, np.mean(by_hand, axis=0), atol=1e-12)
    expected = np.std(by_hand, axis=0, ddof=1) / np.sqrt(7)
    np.testing.assert_allclose(game.errors, expected, atol=1e-12)


def test_the_whole_image_is_scored_once_whatever_the_draws():
    seen = []

    def model(batch):
        seen.extend(batch.copy())
        return any_marked(batch)

    references = References(np.zeros((5, 1, 4, 4), np.float32))
    image = marked((4, 4), [1])
    found = Explainer(model, baseline=references, partition=Dyadic(2)).explain(image, target=0)
    assert found.evaluations == 1 + 5 + 14 * 5
    assert len(seen) == found.evaluations + 3  # inputs run again, alone, as a check
    assert sum(np.array_equal(shown, image) for shown in seen[:6]) == 1


def test_coefficients_of_a_fixed_baseline_have_no_error():
    found = Explainer(any_marked, baseline=Constant(0.0), partition=Dyadic(1)).explain(
        marked((4, 4), [1]), target=0
    )
    assert not any(game.errors.any() for game in found.games)
    assert not found.errors().any()


def test_errors_are_shown_as_a_map(rng):
    explainer = Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)),
        baseline=References(rng.random((6, 1, 4, 4))),
        partition=Dyadic(1),
    )
    found = explainer.explain(marked((4, 4), [5], np.float64), target=0)
    assert (found.errors()[found.saliency() > 0] > 0).all()


def test_fewer_draws_are_picked_by_the_seed(rng):
    images = rng.random((20, 2, 6, 5))
    one, same, other = (stand_ins(References(images, 4, seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_a_conditional_sampler_sees_what_is_kept():
    calls = []

    def sampler(image, visible, draws, rng):
        calls.append(visible.copy())
        return np.zeros((draws, *image.shape))

    fill = Conditional(sampler, draws=3)(IMAGE)
    fill((Box((0, 0), (2, 2)), Box((4, 4), (6, 5))))
    expected = np.zeros((6, 5), bool)
    expected[:2, :2] = expected[4:, 4:] = True
    assert np.array_equal(calls[0], expected)


def test_conditional_draws_depend_on_the_kept_pixels_alone(rng):
    sampler = lambda image, visible, draws, rng: rng.random((draws, *image.shape))
    one, other = Conditional(sampler, draws=2)(IMAGE), Conditional(sampler, draws=2)(IMAGE)
    kept = (Box((0, 0), (2, 2)),)
    other(())
    assert np.array_equal(one(kept), other(kept))
    assert not np.array_equal(one(kept), one(()))
    again = Conditional(sampler, draws=2, seed=1)(IMAGE)
    assert not np.array_equal(one(kept), again(kept))


def test_a_conditional_baseline_explains_and_repeats_itself(rng):
    references = rng.random((30, 1, 8, 8)) * 0.4
    image = references[0].copy()
    image[0, 2, 2] = 1.0
    explainer = Explainer(
        any_marked, baseline=Conditional(Similar(references), draws=4), partition=Bisection(1)
    )
    found, again = explainer.explain(image, target=0), explainer.explain(image, target=0)
    assert [leaf.start for leaf in found.leaves] == [(2, 2)]
    assert found.evaluations == again.evaluations == 1 + 4 + 2 * 4 * len(found.games)


def test_every_coalition_is_painted_on_its_own_draws():
    def count_visible(image, visible, draws, rng):
        return np.full((draws, *image.shape), 100.0 + visible.sum()) + np.arange(draws).reshape(
            -1, *(1,) * image.ndim
        )

    seen = []

    def model(batch):
        seen.extend(batch.copy())
        return (batch[:, 0] == 1).reshape(len(batch), -1).any(1).astype(float)

    image = np.zeros((1, 8, 8))
    image[0, 2, 2] = image[0, 7, 1] = 1.0
    baseline = Conditional(count_visible, draws=3)
    Explainer(model, baseline=baseline, partition=Dyadic(1)).explain(image, target=0)
    for row in seen:
        hidden = row >= 100
        if hidden.any():
            assert set(row[hidden] - 100 - (~hidden).sum()) <= {0.0, 1.0, 2.0}
            assert len(set(row[hidden])) == 1


def test_similarity_of_half_precision_images_does_not_overflow(rng):
    images = (rng.random((4, 1, 8, 8)) * 1000).astype(np.float16)
    drawn = Similar(images)(images[0], np.ones((8, 8), bool), 5, rng)
    assert np.isfinite(drawn).all()


def test_images_of_ever_new_shapes_do_not_fill_the_memory():
    from hshap.evaluators.canvas import MOST_SHARED, Backdrop

    backdrop = Backdrop(Constant(0.0), lambda array: array)
    images = [np.zeros((1, side, 4)) for side in range(1, 50)]
    made = [weakref.ref(backdrop.behind(image)) for image in images]
    assert sum(one() is not None for one in made) == MOST_SHARED


def test_the_bandwidth_is_the_median_difference_by_default(rng):
    levels = np.array([0.0, 0.2, 0.7])
    images = np.ones((3, 1, 4, 4)) * levels.reshape(3, 1, 1, 1)
    everything = np.ones((4, 4), bool)
    drawn = Similar(images)(np.zeros((1, 4, 4)), everything, 4000, rng)[:, 0, 0, 0]
    weights = np.exp(-(levels**2) / (2 * 0.2**2))
    for level, weight in zip(levels, weights / weights.sum(), strict=True):
        assert abs((drawn == level).mean() - weight) < 0.03


def test_similar_prefers_references_that_look_alike_where_it_can_see(rng):
    dark, light = np.zeros((1, 4, 4)), np.ones((1, 4, 4))
    sampler = Similar(np.stack([dark, light]), bandwidth=0.3)
    visible = np.zeros((4, 4), bool)
    visible[0] = True
    image = np.full((1, 4, 4), 0.5)
    image[0, 0] = 0.9
    drawn = sampler(image, visible, 1000, rng)[:, 0, 3, 3]
    weights = np.exp(-np.square([0.9, 0.1]) / (2 * 0.3**2))
    assert abs(drawn.mean() - weights[1] / weights.sum()) < 0.02
    blind = sampler(image, np.zeros((4, 4), bool), 1000, rng)[:, 0, 3, 3]
    assert abs(blind.mean() - 0.5) < 0.05


def test_recipes_do_not_follow_the_caller_s_array(rng):
    images = rng.random((3, 2, 6, 5))
    fixed, references = Fixed(images[0]), References(images)
    before = images.copy()
    images += 1
    assert np.array_equal(stand_ins(fixed)[0], before[0])
    assert np.array_equal(stand_ins(references), before)


def test_recipes_with_arrays_print_compare_and_pickle(rng):
    image = rng.random((2, 6, 5))
    assert repr(Fixed(image)) == "Fixed(image=array(2, 6, 5))"
    assert Fixed(image) == Fixed(image.copy()) != Fixed(image + 1)
    assert hash(Fixed(image)) == hash(Fixed(image.copy()))
    assert pickle.loads(pickle.dumps(Mean([image, image]))) == Mean([image, image])  # noqa: S301


def test_any_callable_can_be_a_baseline():
    custom = lambda image: lambda kept: np.zeros((2, *image.shape), image.dtype)
    found = Explainer(any_marked, baseline=custom, partition=Dyadic(1)).explain(
        marked((4, 4), [7]), target=0
    )
    assert [leaf.start for leaf in found.leaves] == [(1, 3)]


def test_a_baseline_that_gives_another_shape_is_refused():
    custom = lambda image: lambda kept: np.zeros((2, 1, 3, 3))
    with pytest.raises(ArgumentError, match=r"baseline gave stand-ins of shape \(2, 1, 3, 3\)"):
        Explainer(any_marked, baseline=custom, partition=Dyadic(1)).explain(
            marked((4, 4), [7]), target=0
        )
