"""Games in several contexts: exact scores and shares, both sides of a finding, and budgets."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import oracle
import pytest

import hshap
from hshap.protocols import Box

SIDES = ("alone", "missing")


def explained(model, image, partition=None, **options):
    search = hshap.BestFirst(**options)
    return hshap.Explainer(
        model, hshap.Constant(0.0), partition or hshap.Bisection(1), search
    ).explain(image, target=0)


def interacting(seed, pixels):
    """Return a model with products of random pixels, so that contexts matter."""
    pairs = np.random.default_rng(seed).random((pixels, pixels)) - 0.2

    def model(batch):
        flat = batch.reshape(len(batch), -1)
        return np.tanh(np.einsum("ni,ij,nj->n", flat, pairs, flat) / pixels)[:, None]

    return model


def score_of(model, grid, regions):
    shown = np.zeros((1, 1, *grid))
    for region in regions:
        shown[(0, 0, *region.index)] = 1.0
    return float(np.ravel(model(shown))[0])


def contexts_of(made):
    """Return the regions shown around each region in each context, from the root down."""
    around = {}
    played = {game.region: game for game in made.games}
    for game in made.games:
        for part in game.children:
            for one in played[part].contexts if part in played else ():
                siblings = [s for j, s in enumerate(game.children) if one.shown >> j & 1]
                assert part not in siblings
                outside = around.get((game.region, one.number), ())
                around[part, one.number] = (*outside, *siblings)
    return around


@pytest.mark.parametrize("partition", [hshap.Bisection(1), hshap.Dyadic(1)])
@pytest.mark.parametrize("contexts", [2, 6, None])
def test_games_in_contexts_are_exact(partition, contexts):
    """Every score is the model's with the siblings shown that the context names."""
    image, model, checked = np.ones((1, 4, 4)), interacting(3, 16), 0
    made = explained(model, image, partition, contexts=contexts, max_evaluations=300)
    around = contexts_of(made)
    for game in made.games[1:]:
        siblings = next(one.children for one in made.games if game.region in one.children)
        others = {part for part in siblings if part != game.region}
        for one in game.contexts:
            outside = around[game.region, one.number]
            assert one.word == ("alone", "missing", "mixed")[min(one.number, 2)]
            assert one.number != 0 or not outside
            assert one.number != 1 or others <= set(outside)
            for coalition in range(2 ** len(game.children)):
                inside = [p for i, p in enumerate(game.children) if coalition >> i & 1]
                score = score_of(model, (4, 4), [*outside, *inside])
                assert one.values[coalition] == pytest.approx(score, abs=1e-12)
                checked += 1
        # An even context and the odd one after it show complementary siblings.
        mixed = {one.number: one.shown for one in game.contexts if one.number > 1}
        for number, shown in mixed.items():
            if number % 2 == 0 and number + 1 in mixed:
                own = 1 << siblings.index(game.region)
                assert shown | mixed[number + 1] == 2 ** len(siblings) - 1 - own
                assert not shown & mixed[number + 1]
    assert checked >= 50


def owen_values(worth, orders):
    """Average contributions over all orders in which every split keeps its parts together."""
    totals = np.zeros(4)
    for order in orders:
        for place, player in enumerate(order):
            totals[player] += worth(order[: place + 1]) - worth(order[:place])
    return totals / len(orders)


def test_mixed_contexts_estimate_owen_values():
    """Orders that keep the halves of halves of four pixels together: 2 x 2 x 2 of them."""
    model = interacting(7, 4)
    orders = [
        [*a, *b]
        for one, other in permutations([[0, 1], [2, 3]])
        for a, b in product(permutations(one), permutations(other))
    ]
    pixels = [Box((i,), (i + 1,)) for i in range(4)]
    exact = owen_values(lambda kept: score_of(model, (4,), [pixels[i] for i in kept]), orders)
    made = explained(model, np.ones((1, 4)), contexts=2000, max_evaluations=20_000)
    by_region = {game.region: game for game in made.games}
    for first, region in (
        (0, Box((0,), (2,))),
        (2, Box((2,), (4,))),
    ):
        mixed = [one for one in by_region[region].contexts if one.number >= 2]
        found = np.mean([oracle.by_permutations(one.values) for one in mixed], axis=0)
        assert found == pytest.approx(exact[first : first + 2], abs=0.03)


@pytest.mark.parametrize("most", [16, 20, 60, 200, 1000])
@pytest.mark.parametrize("partition", [hshap.Bisection(1), hshap.Dyadic(1)])
def test_the_map_adds_up(most, partition):
    """To what the image adds, within the budget, and with all of the image left or split."""
    made = explained(interacting(1, 64), np.ones((1, 8, 8)), partition, max_evaluations=most)
    total = made.score - made.baseline_score
    assert made.evaluations <= most
    for smooth in (None, 0.0, 2.0):
        assert made.attribution(smooth=smooth).sum() == pytest.approx(total)
    split = {game.region for game in made.games}
    left = [part for region, part in made.parts.items() if region not in split]
    assert sum(part.region.area for part in left) == 64
    assert sum(part.share for part in left) == pytest.approx(total)


def test_a_larger_budget_begins_the_same():
    model, image = interacting(2, 256), np.ones((1, 16, 16))
    small, large = (explained(model, image, max_evaluations=most) for most in (60, 400))
    assert len(small.games) < len(large.games)
    assert [g.region for g in small.games] == [g.region for g in large.games[: len(small.games)]]


@pytest.mark.parametrize(
    "weights", [np.arange(1.0, 17.0)[::-1] ** 3, np.random.default_rng(0).random(64) ** 4]
)
def test_large_shares_are_split_first(weights):
    """Of an additive model, shares are sums of weights: a share times the root of the area."""
    model = lambda batch: (batch[:, 0] * weights).sum(axis=1)
    made = explained(model, np.ones((1, len(weights))), contexts=2, max_evaluations=1000)
    waiting, order = [made.games[0].region], [game.region for game in made.games]
    urgent = lambda region: weights[region.index].sum() * region.area**0.5
    while order:
        waiting.sort(key=urgent, reverse=True)
        now = [region for region in waiting if region.split()][:4]  # at most four at once
        assert order[: len(now)] == now
        order = order[len(now) :]
        waiting = [one for one in waiting if one not in now]
        waiting += [part for region in now for part in region.split()]
    assert made.attribution(smooth=0.0) == pytest.approx(weights)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("partition", [hshap.Bisection(1), hshap.Dyadic(1), hshap.Dyadic("auto")])
def test_detectors_get_the_papers_answer(seed, partition):
    rng = np.random.default_rng(seed)
    image = oracle.marked((16, 16), rng.choice(256, size=rng.integers(1, 6), replace=False))
    made = explained(oracle.any_marked, image, partition, max_evaluations=1000)
    given = (oracle.any_marked, hshap.Constant(0.0), partition)
    paper = hshap.Explainer(*given).explain(image, target=0)
    assert set(made.leaves) == set(paper.leaves)
    assert made.evaluations <= 1.05 * paper.evaluations
    assert np.array_equal(made.saliency(), paper.saliency())
    # With the check for a detector left out, shares are still those of the paper's games.
    one, other = (
        explained(oracle.any_marked, image, partition, contexts=contexts, max_evaluations=5000)
        for contexts in (6, 1)
    )
    one, other = (
        {p.region: p.share for p in each.parts.values() if p.share} for each in (one, other)
    )
    assert one == pytest.approx(other)


@pytest.mark.parametrize(
    ("high", "is_detector"), [(1.0, True), (0.96, True), (0.94, False), (0.5, False)]
)
def test_detectors_have_clear_scores(high, is_detector):
    """One of two marks scores a little less alone than both do: 5 % are clear, more is not."""
    image = oracle.marked((8, 8), [9, 54])
    model = lambda batch: (
        batch[:, 0].sum(axis=(1, 2)).clip(0, 2) * (1 - high)
        + (2 * high - 1) * batch[:, 0].max(axis=(1, 2))
    )
    made = explained(model, image, max_evaluations=400)
    assert (made.settings.search_name == "DepthFirst") == is_detector


@pytest.mark.parametrize("most", [7, 49, 50, 199, 900])
def test_contexts_grow_with_the_evaluations(most):
    """A pair from the start, one more from 50 evaluations on, and one from 200 on."""
    made = explained(interacting(2, 256), np.ones((1, 16, 16)), max_evaluations=most)
    numbers = {one.number for game in made.games for one in game.contexts}
    assert max(numbers, default=1) <= 1 + 2 * (most >= 50) + 2 * (most >= 200) + 2 * (most >= 800)
    assert most < 199 or max(numbers) >= 3


def test_random_baselines_count_their_draws():
    references = hshap.References(np.random.default_rng(0).random((3, 1, 8, 8)))
    made = hshap.Explainer(
        interacting(4, 64), references, hshap.Bisection(1), hshap.BestFirst(120)
    ).explain(np.ones((1, 8, 8)), target=0)
    assert 100 < made.evaluations <= 120
    assert made.attribution().sum() == pytest.approx(made.score - made.baseline_score)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"contexts": 3}, "contexts is 3; pass 1, or an even number"),
        ({"max_evaluations": 0}, "max_evaluations"),
        ({"max_evaluations": None}, "max_evaluations"),
        ({"max_evaluations": 3}, "max_evaluations=3 is less than the 4"),
    ],
)
def test_mistakes_get_one_line(options, said):
    with pytest.raises(hshap.ArgumentError, match=said):
        explained(lambda batch: batch[:, 0, 0, 0], np.ones((1, 4, 4)), **options)


# Both sides of an explanation: enough alone, and not to be missing.

SIDE, FIRST, SECOND = 16, (1, 1), (14, 14)


def seen(batch):
    """Return whether each of two places is shown."""
    return batch[:, 0, 1, 1], batch[:, 0, 14, 14]


def two_places(model, contexts=4):
    return explained(model, np.ones((1, SIDE, SIDE)), contexts=contexts)


def additive(batch):
    return 2 * seen(batch)[0] + seen(batch)[1]


@pytest.mark.parametrize(
    ("model", "alone", "missing"),
    [
        (lambda batch: np.maximum(*seen(batch)), {FIRST: 0.5, SECOND: 0.5}, {}),
        (lambda batch: np.multiply(*seen(batch)), {}, {FIRST: 0.5, SECOND: 0.5}),
        (additive, {FIRST: 2, SECOND: 1}, {FIRST: 2, SECOND: 1}),
    ],
    ids=["either", "both", "sum"],
)
def test_each_side_has_its_findings(model, alone, missing, tmp_path):
    """Either place is enough and neither is missed; of both, none is enough; sums have both."""
    explanation = two_places(model)
    assert {leaf.start for leaf in explanation.leaves} == {FIRST, SECOND}
    explanation.save(tmp_path / "it.npz")
    for one in (explanation, hshap.Explanation.load(tmp_path / "it.npz")):
        for side, expected in zip(SIDES, (alone, missing), strict=True):
            assert {box.start: box.score for box in one.boxes(context=side)} == expected
            heat = one.attribution(context=side)
            assert heat.sum() == pytest.approx(sum(expected.values()))
            assert {tuple(place) for place in np.argwhere(heat).tolist()} == set(expected)
        assert np.array_equal(one.attribution(), explanation.attribution())


def test_needed_places_share_the_score():
    made = explained(lambda batch: np.multiply(*seen(batch)), np.ones((1, SIDE, SIDE)))
    assert made.attribution(smooth=0.0)[FIRST] == made.attribution(smooth=0.0)[SECOND] == 0.5
    assert made.how_sure.word == "supported"


def test_boxes_of_a_side_add_up():
    explanation = two_places(lambda batch: batch[:, 0, 4:6, 8:12].sum(axis=(1, 2)))
    (box,) = explanation.boxes(context="alone")
    assert box == ((4, 8), (6, 12), 8.0)
    pixels = explanation.boxes(context="alone", merge=False)
    assert sum(one.score for one in pixels) == 8.0
    assert [one.score for one in pixels] == sorted((one.score for one in pixels), reverse=True)
    placed = explanation.placed((10 * SIDE, 10 * SIDE))
    assert placed.boxes(context="alone") == [((40, 80), (60, 120), 8.0)]
    assert placed.boxes(context="alone", original=False) == [box]


def test_sides_of_an_unfinished_run():
    """Their boxes lie where the map is strong, and have no more than the score."""
    rng = np.random.default_rng(0)
    weights = np.where(rng.random((SIDE, SIDE)) < 0.05, rng.random((SIDE, SIDE)), 0.0)
    model = lambda batch: np.tanh(0.1 * (batch[:, 0] * weights).sum(axis=(1, 2)))
    explanation = explained(model, np.ones((1, SIDE, SIDE)), max_evaluations=80)
    assert explanation.unfinished
    for context in SIDES:
        heat = explanation.attribution(context=context)
        boxes = explanation.boxes(context=context, merge=False)
        inside = np.zeros(heat.shape, dtype=bool)
        for box in boxes:
            inside[tuple(map(slice, box.start, box.stop))] = True
        assert heat[inside].mean() >= heat.mean()
        assert 0 < sum(box.score for box in boxes) <= explanation.score


def test_sides_need_contexts_and_names():
    paper = hshap.Explainer(additive, hshap.Constant(0.0), hshap.Bisection(1))
    for made in (two_places(additive, 1), paper.explain(np.ones((1, SIDE, SIDE)), target=0)):
        assert not made.settings.has_contexts
        for view in (made.attribution, made.boxes):
            with pytest.raises(hshap.ArgumentError, match=r"BestFirst\(contexts=2\)"):
                view(context="alone")
    made = two_places(additive)
    for view in (made.attribution, made.boxes):
        with pytest.raises(hshap.ArgumentError, match='pass "alone", "missing" or None'):
            view(context="mixed")
