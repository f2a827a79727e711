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
    Conditional,
    Constant,
    Dyadic,
    Explainer,
    Fixed,
    Mean,
    References,
    Similar,
)
from hshap.protocols import Box, Still

IMAGE = np.linspace(0, 1, 2 * 6 * 5).reshape(2, 6, 5)


def stand_ins(baseline, image=IMAGE, kept=()):
    return baseline(image)(kept)


def test_constant_and_fixed_give_what_they_were_given():
    assert (stand_ins(Constant(0.5)) == 0.5).all()
    per_channel = stand_ins(Constant([0.1, 0.9]))
    assert [set(channel.ravel()) for channel in per_channel[0]] == [{0.1}, {0.9}]
    assert stand_ins(Constant(0.5), np.zeros((3, 500, 500))).strides[-3:] == (0, 0, 0)
    filled = stand_ins(Fixed(np.full(IMAGE.shape, 0.3)), IMAGE.astype(np.float32))
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


def test_mean_keeps_its_precision_and_reads_once(rng):
    source = OneByOne(rng.random((5, 2, 6, 5)))
    Mean(source)
    assert source.reads == 1
    images = np.full((3000, 1, 2, 2), 0.1, np.float32)
    np.testing.assert_allclose(Mean(images).image, np.float64(np.float32(0.1)), rtol=1e-12)
    batches = [np.zeros((3, 1, 4, 4)), np.ones((1, 1, 4, 4))]
    assert Mean(batches, batched=True).image.mean() == 0.25


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


def test_recipes_with_arrays_print_compare_and_pickle(rng):
    image = rng.random((2, 6, 5))
    assert repr(Fixed(image)) == "Fixed(image=array(2, 6, 5))"
    assert Fixed(image) == Fixed(image.copy()) != Fixed(image + 1)
    assert hash(Fixed(image)) == hash(Fixed(image.copy()))
    assert pickle.loads(pickle.dumps(Mean([image, image]))) == Mean([image, image])  # noqa: S301


def test_the_whole_image_is_scored_once_whatever_the_draws(rng):
    seen = []

    def model(batch):
        seen.extend(batch.copy())
        return batch.max(axis=(1, 2, 3))

    image = marked((4, 4), [1], np.float64)
    baseline = References(rng.random((5, 1, 4, 4)) / 2)
    found = Explainer(model, baseline=baseline, partition=Dyadic(2)).explain(image, target=0)
    assert found.evaluations == 1 + 5 + 14 * 5
    assert len(seen) == found.evaluations + 3  # inputs run again, alone, as a check
    assert 1 <= sum(np.array_equal(shown, image) for shown in seen) <= 2
    assert all(found.parts[leaf].error > 0 for leaf in found.leaves)
    fixed = Explainer(model, baseline=Constant(0.0), partition=Dyadic(1)).explain(image, target=0)
    assert not any(part.error for part in fixed.parts.values())


def test_draws_are_decided_by_the_seed_and_the_kept_pixels(rng):
    images = rng.random((20, 2, 6, 5))
    one, same, other = (stand_ins(References(images, 4, seed)) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    sampler = lambda image, visible, draws, rng: rng.random((draws, *image.shape))
    one, other = Conditional(sampler, draws=2)(IMAGE), Conditional(sampler, draws=2)(IMAGE)
    kept = (Box((0, 0), (2, 2)),)
    other(())
    assert np.array_equal(one(kept), other(kept))
    assert not np.array_equal(one(kept), one(()))
    assert not np.array_equal(one(kept), Conditional(sampler, draws=2, seed=1)(IMAGE)(kept))


def test_similarity_of_half_precision_images_does_not_overflow(rng):
    images = (rng.random((4, 1, 8, 8)) * 1000).astype(np.float16)
    assert np.isfinite(Similar(images)(images[0], np.ones((8, 8), bool), 5, rng)).all()


def test_stand_ins_of_ever_new_shapes_do_not_fill_the_memory():
    made = []

    class Own(np.ndarray):
        """An array that can be referred to weakly."""

    def baseline(image):
        stand_in = np.zeros((1, *image.shape)).view(Own)
        made.append(weakref.ref(stand_in))
        return Still(stand_in)

    explainer = Explainer(any_marked, baseline=baseline, partition=Dyadic(2))
    pairs = ((np.zeros((1, side, 4)), 0) for side in range(4, 80))
    for _ in explainer.explain_many(pairs):
        assert sum(one() is not None for one in made) < 40
    assert len(made) == 76


def test_any_callable_can_be_a_baseline():
    def explained(fill):
        explainer = Explainer(any_marked, lambda image: lambda kept: fill(image), Dyadic(1))
        return explainer.explain(marked((4, 4), [7]), target=0)

    found = explained(lambda image: np.zeros((2, *image.shape), image.dtype))
    assert [leaf.start for leaf in found.leaves] == [(1, 3)]
    with pytest.raises(ArgumentError, match=r"baseline gave stand-ins of shape \(2, 1, 3, 3\)"):
        explained(lambda image: np.zeros((2, 1, 3, 3)))
