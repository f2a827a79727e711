"""Bags of tiles give the numbers of the model that sees all tiles."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from hshap import (
    ArgumentError,
    Bags,
    Bisection,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Fixed,
    References,
    Superpixels,
)
from hshap.errors import ModelFailedError

RNG = np.random.default_rng(0)
SHAPE = (6, 9, 14)
WEIGHTS = RNG.normal(size=(6, 3))


def tiles_of(batch):
    return np.moveaxis(batch.reshape(*batch.shape[:2], -1), 1, 2)


def mean_model(batch):
    return np.tanh(tiles_of(batch).mean(axis=1) @ WEIGHTS)


def attention_model(batch):
    tiles = tiles_of(batch)
    weights = np.exp(tiles[..., :1])
    return (weights * tiles).sum(axis=1) / weights.sum(axis=1) @ WEIGHTS


def max_model(batch):
    return (tiles_of(batch) @ WEIGHTS).max(axis=1)


BAGS = {
    "mean": (
        mean_model,
        Bags(
            lambda tiles: np.concatenate([tiles, np.ones((len(tiles), 1))], axis=1),
            lambda bags: np.tanh(bags[:, :-1] / bags[:, -1:] @ WEIGHTS),
        ),
    ),
    "attention": (
        attention_model,
        Bags(
            lambda tiles: np.concatenate(
                [np.exp(tiles[:, :1]) * tiles, np.exp(tiles[:, :1])], axis=1
            ),
            lambda bags: bags[:, :-1] / bags[:, -1:] @ WEIGHTS,
        ),
    ),
    "max": (max_model, Bags(lambda tiles: tiles @ WEIGHTS, lambda bags: bags, pool="max")),
}


BASELINES = Constant(0.1), Fixed(RNG.random(SHAPE)), References(RNG.random((3, *SHAPE)))


@pytest.mark.parametrize("name", BAGS)
@pytest.mark.parametrize("partition", [Bisection(2), Dyadic(3), Superpixels(4)], ids=str)
def test_bags_give_the_values_of_the_full_model(name, partition):
    model, bags = BAGS[name]
    image = RNG.random(SHAPE)
    for baseline in BASELINES:
        dense, quick = (
            Explainer(made, baseline=baseline, partition=partition).explain(image, target=1)
            for made in (model, bags)
        )
        assert [game.region for game in dense.games] == [game.region for game in quick.games]
        for one, other in zip(dense.games, quick.games, strict=True):
            assert np.allclose(one.values, other.values, atol=1e-12)


def test_many_slides_of_several_sizes_are_embedded_once():
    model, bags = BAGS["mean"]
    embedded = []
    counted = Bags(lambda tiles: (embedded.append(1), bags.embed(tiles))[1], bags.head)
    images = [RNG.random((6, *side)) for side in ((8, 8), (5, 12), (8, 8), (4, 4), (4, 4))]
    explainer = Explainer(counted, Constant(0.0), Bisection(2))
    for made in explainer.explain_many((image, 0) for image in images):
        dense = Explainer(model, Constant(0.0), Bisection(2)).explain(images[made.position], 0)
        assert np.allclose(made.attribution(), dense.attribution())
    assert len(embedded) == 5 + 3  # and the baseline of each size


def test_a_hundred_thousand_tiles():
    image = RNG.random((16, 316, 317), dtype=np.float32) * 0.1
    image[0, 200:203, 77:80] = 5.0
    bags = Bags(lambda tiles: tiles[:, :1], lambda bags: bags, pool="max")
    found = Explainer(bags, Constant(0.0), Bisection(4), DepthFirst(1.0)).explain(image, target=0)
    assert 0 < (found.saliency() > 0).sum() <= 64
    assert (found.saliency() > 0)[201, 78]


def test_mistakes_are_answered():
    with pytest.raises(ArgumentError, match="pool must be one of sum, max, got 'mean'"):
        Bags(np.abs, np.abs, pool="mean")
    with pytest.raises(ArgumentError, match="embed must be a function of arrays, got 3"):
        Bags(3, np.abs)
    wrong = Bags(lambda tiles: tiles[:3], lambda bags: bags)
    with pytest.raises(ArgumentError, match=r"embed returned shape \(3, 6\) for 126 tiles"):
        Explainer(wrong, Constant(0.0), Bisection(2)).explain(RNG.random(SHAPE), target=0)


@pytest.mark.parametrize("part", ["embed", "head"])
def test_a_failing_function_is_named_with_its_inputs(part):
    def fails(array):
        message = "mine"
        raise KeyError(message)

    functions = {"embed": np.abs, "head": np.abs} | {part: fails}
    explainer = Explainer(Bags(**functions), Constant(0.0), Bisection(2))
    with pytest.raises(
        ModelFailedError, match=r"from image 0 of the run: KeyError: 'mine'"
    ) as told:
        explainer.explain(RNG.random(SHAPE), target=0)
    assert isinstance(told.value.__cause__, KeyError)


def test_functions_that_write_to_their_input_do_no_harm():
    def spoils(tiles):
        made = tiles.copy()
        tiles *= 0
        return made

    def empties(bags):
        scores = bags[:, :1].copy()
        bags *= 0
        return scores

    image = np.random.default_rng(0).random((3, 8, 8))
    kept = image.copy()
    found, sound = (
        Explainer(Bags(embed, head), baseline=Constant(0.0), partition=Dyadic(2)).explain(image, 0)
        for embed, head in ((spoils, empties), (np.array, lambda bags: bags[:, :1]))
    )
    assert np.array_equal(image, kept)
    assert np.array_equal(found.attribution(), sound.attribution())


# Rounding: every value is compared with sums that are rounded once, by math.fsum.


def attention(tiles):
    weights = np.exp(tiles[:, :1])
    return np.concatenate([weights * tiles[:, 1:], weights], axis=1)


def exact(batch):
    """Return the attention of each slide, from sums that are rounded once."""
    found = []
    for tiles in tiles_of(batch.astype(np.float64)):
        *sums, weight = (math.fsum(column) for column in attention(tiles).T)
        found.append([one / weight for one in sums])
    return np.array(found)


def test_sums_keep_their_digits_at_any_attention():
    bags = Bags(attention, lambda made: made[:, :-1] / made[:, -1:])
    for logit, other in product([-80, -40, -10, 0, 10, 40, 80], [-80, 0, 40, 80]):
        rng = np.random.default_rng(3)
        image, behind = rng.random((2, 3, 8, 8))
        image[0] += rng.normal(size=(8, 8))
        image[0, 2, 3] = logit
        behind[0, 5, 1] = behind[0, 2, 3] = other
        settings = {"baseline": Fixed(behind), "partition": Dyadic(1), "search": DepthFirst(1e-9)}
        found, full = (Explainer(one, **settings).explain(image, 0) for one in (bags, exact))
        assert len(found.games) == len(full.games) > 1
        for one, other_game in zip(found.games, full.games, strict=True):
            assert one.region == other_game.region
            np.testing.assert_allclose(one.values, other_game.values, rtol=1e-13)
