"""Sources: what parts have in common is divided by how many sources of the score each holds."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import oracle
import pytest

import hshap
from hshap.export.documents import coco
from hshap.export.placed_findings import found_in
from hshap.games.shapley import weighted_shapley
from hshap.games.tree import sources

GRID = (4, 4)


def any_of(*points):
    """A model that one of some pixels is enough for."""
    return lambda batch: batch[:, 0][(slice(None), *np.transpose(points))].max(
        axis=1, keepdims=True
    )


def flat_shapley(score, pixels):
    """Shapley values of single pixels from their definition: the mean gain over all orders."""
    gains = np.zeros(len(pixels))
    orders = list(permutations(range(len(pixels))))
    for order in orders:
        image, before = np.zeros((1, 1, *GRID)), 0.0
        for number in order:
            image[(0, 0, *pixels[number])] = 1.0
            after = float(score(image)[0, 0])
            gains[number] += after - before
            before = after
    return gains / len(orders)


@pytest.mark.parametrize("search", [hshap.DepthFirst(), hshap.BestFirst(2000, contexts=4)])
@pytest.mark.parametrize("partition", [hshap.Bisection(1), hshap.Dyadic(1)])
@pytest.mark.parametrize("seed", range(4))
def test_findings_show_alike_wherever_they_lie(seed, partition, search):
    """Under the OR rule the map is that of the game of all pixels, whatever tree is used."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    pixels = [divmod(int(one), GRID[1]) for one in rng.choice(16, count, replace=False)]
    score = any_of(*pixels)
    explainer = hshap.Explainer(score, hshap.Constant(0.0), partition, search)
    heat = explainer.explain(np.ones((1, *GRID)), target=0).attribution(smooth=0)
    exact = flat_shapley(score, pixels)
    assert heat[tuple(np.transpose(pixels))] == pytest.approx(exact)
    assert heat.sum() == pytest.approx(exact.sum())


@pytest.mark.parametrize("seed", range(3))
def test_weighted_values_are_means_over_weighted_orders(seed):
    rng = np.random.default_rng(seed)
    players = seed + 2
    values, weights = rng.normal(size=2**players), rng.uniform(0.5, 4, players)
    expected = np.zeros(players)
    for order in permutations(range(players)):
        chance, coalition, left = 1.0, 0, weights.sum()
        gains = np.zeros(players)
        for player in order:
            chance *= weights[player] / left
            left -= weights[player]
            gains[player] = values[coalition | 1 << player] - values[coalition]
            coalition |= 1 << player
        expected += chance * gains
    assert weighted_shapley(values, weights) == pytest.approx(expected)
    assert weighted_shapley(values, np.ones(players)) == pytest.approx(hshap.shapley(values))


def test_an_additive_model_keeps_its_terms():
    """Parts that add up have nothing in common to divide."""
    terms = np.random.default_rng(0).random(GRID)
    explainer = hshap.Explainer(
        lambda batch: (batch[:, 0] * terms).sum((1, 2))[:, None],
        hshap.Constant(0.0),
        hshap.Bisection(1),
        hshap.DepthFirst(),
    )
    found = explainer.explain(np.ones((1, *GRID)), target=0)
    assert found.attribution() == pytest.approx(terms)


def test_a_share_without_positive_parts_is_told_as_residual():
    image = oracle.marked((8, 8), [3, 40])
    found = hshap.Explainer(
        oracle.any_marked, hshap.Constant(0.0), hshap.Bisection(2), hshap.DepthFirst()
    ).explain(image, target=0)
    assert found.attribution().sum() + found.residual == pytest.approx(1.0)


def one_of_three_with_another(batch):
    """Three pixels of which one is enough for a fifth; one of them has the rest with a fourth."""
    shown = batch[:, 0]
    enough = np.max([shown[:, 2, 0], shown[:, 3, 1], shown[:, 2, 3]], axis=0)
    return 0.2 * enough + 0.8 * shown[:, 0, 0] * shown[:, 2, 3]


def test_what_cannot_be_missing_is_divided_by_the_scores_with_all_else_shown():
    search = hshap.BestFirst(2000, contexts=2)
    explainer = hshap.Explainer(
        one_of_three_with_another, hshap.Constant(0.0), hshap.Bisection(1), search
    )
    found = explainer.explain(np.ones((1, *GRID)), target=0)
    (game,) = (one for one in found.games if one.region == hshap.protocols.Box((2, 0), (4, 4)))
    (counts,) = (c for one, c in zip(found.games, sources(found.games), strict=True) if one is game)
    assert sorted(counts) == [1, 2]
    (missing,) = (one.values for one in game.contexts if one.word == "missing")
    assert missing - missing[0] == pytest.approx([0, 0.2, 1, 1])
    heat = found.attribution(context="missing", smooth=0)
    expected = weighted_shapley([0, 0.2, 1, 1], counts)
    half = found.parts[game.region].coefficient
    assert heat[2:, 2:].sum() == pytest.approx(half * expected[1])
    assert heat[2:, :2].sum() == 0  # it changes too little to be divided there
    boxes = found.boxes(context="missing", merge=False)
    assert boxes
    for box in boxes:
        inside = tuple(slice(a, b) for a, b in zip(box.start, box.stop, strict=True))
        assert box.score == pytest.approx(heat[inside].sum())


def test_exports_score_findings_as_boxes_do():
    """Two places are needed at once: neither has a coefficient alone, and each has half."""
    search = hshap.BestFirst(contexts=2)
    found = hshap.Explainer(
        lambda batch: batch[:, 0, 0, 0] * batch[:, 0, 3, 3] + 0.1 * batch[:, 0, 0, 3],
        hshap.Constant(0.0),
        hshap.Bisection(1),
        search,
    ).explain(np.ones((1, *GRID)), target=0)
    scores = [box.score for box in found.boxes()]
    assert len(scores) >= 2
    assert [each.score for each in found_in(found)] == pytest.approx(scores)
    assert [each.share for each in found_in(found)] == pytest.approx(scores)
    annotations = coco({"x.png": found})["annotations"]
    apart = [box.score for box in found.boxes(merge=False)]
    assert sorted(one["score"] for one in annotations) == pytest.approx(sorted(apart))


def test_boxes_of_one_context_have_its_shares():
    """All that cannot be missing is in two pixels; the budget left larger regions of the rest."""

    def model(batch):
        shown = batch[:, 0]
        return shown[:, 4, 3] * shown[:, 2, 7] + np.maximum(shown[:, 3, 2], shown[:, 7, 0]) / 2

    search = hshap.BestFirst(56, contexts=2)
    explainer = hshap.Explainer(model, hshap.Constant(0.0), hshap.Bisection(1), search)
    found = explainer.explain(np.ones((1, 8, 8)), target=0)
    assert found.attribution() != pytest.approx(found.attribution(smooth=0))
    heat = found.attribution(context="missing", smooth=0)
    strongest = np.sort(found.attribution(context="missing").ravel())[-2]
    assert found.attribution(context="missing")[[2, 4], [7, 3]].min() == strongest
    scores = {box.start: box.score for box in found.boxes(context="missing")}
    assert scores == pytest.approx({(2, 7): heat[2, 7], (4, 3): heat[4, 3]})
    assert heat[2, 7] > 0


def test_rounding_is_no_source():
    """A place is needed with one of two others; around one of those, the score has a last digit."""

    def model(batch, digit):
        shown = batch[:, 0]
        needed = shown[:, 0, 0] * np.maximum(shown[:, 2, 0], shown[:, 2, 2])
        return needed + digit * shown[:, 2:, :2].max(axis=(1, 2))

    heats = [
        hshap.Explainer(
            lambda batch, digit=digit: model(batch, digit),
            hshap.Constant(0.0),
            hshap.Bisection(1),
            hshap.BestFirst(2000, contexts=2),
        )
        .explain(np.ones((1, *GRID)), target=0)
        .attribution(smooth=0)
        for digit in (0.0, 1e-12)
    ]
    assert heats[0][2, 0] == pytest.approx(heats[0][2, 2])
    assert heats[1] == pytest.approx(heats[0], abs=1e-6)
