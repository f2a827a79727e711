"""Games in several contexts: exact values, sums, the paper's case, and runs that are prefixes."""

from itertools import permutations, product

import numpy as np
import oracle
import pytest

import hshap
from hshap.explanation.maps import regions_left
from hshap.games.contexts import context_count, siblings_shown
from hshap.games.tree import shares


def explained(model, image, partition=None, **options):
    return hshap.Explainer(
        model,
        baseline=hshap.Constant(0.0),
        partition=partition or hshap.Bisection(1),
        search=hshap.BestFirst(**options),
    ).explain(image, target=0)


def interacting(seed, pixels):
    """Return a model with products of random pixels, so that contexts matter."""
    rng = np.random.default_rng(seed)
    pairs = rng.random((pixels, pixels)) - 0.2

    def model(batch):
        flat = batch.reshape(len(batch), -1)
        return np.tanh(np.einsum("ni,ij,nj->n", flat, pairs, flat) / pixels)[:, None]

    return model


def shown_pixels(grid, regions):
    mask = np.zeros((1, *grid))
    for region in regions:
        mask[(slice(None), *region.index)] = 1.0
    return mask


def contexts_of(made):
    """Return the regions shown around each region, by its number of context."""
    around = {(made.games[0].region, n): () for n in range(99)}
    around |= {(game.region, 0): () for game in made.games}  # alone
    for game in made.games:
        numbers = {one.number for other in made.games for one in other.contexts if one.number}
        for number in numbers:
            for i, part in enumerate(game.children):
                for other in made.games:
                    for one in other.contexts:
                        if other.region == part and one.number == number:
                            outside = around[game.region, number]
                            siblings = [
                                s for j, s in enumerate(game.children) if one.shown >> j & 1
                            ]
                            assert part not in siblings, i
                            around[part, number] = (*outside, *siblings)
    return around


@pytest.mark.parametrize("seed", range(3))
def test_games_in_contexts_are_scores_of_the_model(seed):
    image, model = np.ones((1, 4, 4)), interacting(seed, 16)
    made = explained(model, image, max_evaluations=150)
    around, checked = contexts_of(made), 0
    for game in made.games[1:]:
        for one in game.contexts:
            outside = around[game.region, one.number]
            for coalition in range(2 ** len(game.children)):
                inside = [p for i, p in enumerate(game.children) if coalition >> i & 1]
                score = model(shown_pixels((4, 4), [*outside, *inside])[None])[0, 0]
                assert one.values[coalition] == pytest.approx(score, abs=1e-12)
                checked += 1
    assert checked >= 8


def owen_values(worth, order_of):
    """Average contributions over all orders in which every split keeps its parts together."""
    totals, count = {}, 0
    for order in order_of:
        count += 1
        shown = []
        for player in order:
            totals[player] = totals.get(player, 0.0) + worth([*shown, player]) - worth(shown)
            shown.append(player)
    return {player: total / count for player, total in totals.items()}


def test_mixed_contexts_estimate_the_owen_value():
    """Orders that keep the halves of halves of four pixels together: 2 x 2 x 2 of them."""
    model, image = interacting(7, 4), np.ones((1, 4))
    halves = [[0, 1], [2, 3]]
    orders = [
        [*a, *b]
        for one, other in permutations(halves)
        for a, b in product(permutations(one), permutations(other))
    ]

    def worth(shown):
        batch = np.zeros((1, 1, 4))
        batch[0, 0, shown] = 1.0
        return float(model(batch)[0, 0])

    exact = owen_values(worth, orders)
    made = explained(model, image, contexts=4000, max_evaluations=40_000)
    by_region = {game.region: game for game in made.games}
    for place, region in ((0, hshap.Box((0,), (2,))), (2, hshap.Box((2,), (4,)))):
        mixed = [one for one in by_region[region].contexts if one.number >= 2]
        found = np.mean([oracle.by_permutations(one.values) for one in mixed], axis=0)
        assert found[0] == pytest.approx(exact[place], abs=0.02)
        assert found[1] == pytest.approx(exact[place + 1], abs=0.02)


@pytest.mark.parametrize("most", [4, 20, 60, 200, 1000])
@pytest.mark.parametrize("partition", [hshap.Bisection(1), hshap.Dyadic(1)])
def test_the_map_adds_up(most, partition):
    if most == 4 and isinstance(partition, hshap.Dyadic):
        most = 16
    made = explained(interacting(1, 64), np.ones((1, 8, 8)), partition, max_evaluations=most)
    total = made.score - made.baseline_score
    assert made.evaluations <= most
    assert made.attribution().sum() == pytest.approx(total)
    assert made.attribution(smooth=0.0).sum() == pytest.approx(total)
    assert sum(shares(made.games)[region] for region in regions_left(made.games)) == (
        pytest.approx(total)
    )


def test_a_larger_budget_begins_with_the_same_games():
    model, image = interacting(2, 256), np.ones((1, 16, 16))
    small, large = (explained(model, image, max_evaluations=most) for most in (60, 400))
    assert len(small.games) < len(large.games)
    assert [g.region for g in small.games] == [g.region for g in large.games[: len(small.games)]]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("partition", [hshap.Bisection(1), hshap.Dyadic(1)])
def test_of_a_detector_the_answer_is_the_papers(seed, partition):
    rng = np.random.default_rng(seed)
    points = rng.choice(256, size=rng.integers(1, 6), replace=False)
    image = oracle.marked((16, 16), points)
    made = explained(oracle.any_marked, image, partition, max_evaluations=1000)
    paper = hshap.Explainer(
        oracle.any_marked, baseline=hshap.Constant(0.0), partition=partition
    ).explain(image, target=0)
    assert set(made.leaves) == set(paper.leaves)
    assert made.evaluations <= 1.05 * paper.evaluations
    assert np.array_equal(made.saliency(), paper.saliency())


@pytest.mark.parametrize("seed", range(4))
def test_in_contexts_shares_under_the_or_rule_are_the_papers(seed):
    """The reduction that the theory page proves, with the check for a detector left out."""
    rng = np.random.default_rng(seed)
    image = oracle.marked((8, 8), rng.choice(64, size=3, replace=False))
    made = explained(oracle.any_marked, image, contexts=6, max_evaluations=3000)
    alone = explained(oracle.any_marked, image, contexts=1, max_evaluations=3000)
    one, other = shares(made.games), shares(alone.games)
    found = {region: share for region, share in one.items() if share}
    assert found == pytest.approx({region: share for region, share in other.items() if share})


def test_two_places_that_are_needed_together_share_the_score():
    made = explained(lambda batch: batch[:, 0, 1, 2] * batch[:, 0, 13, 9], np.ones((1, 16, 16)))
    heat = made.attribution(smooth=0.0)
    assert heat[1, 2] == heat[13, 9] == 0.5
    assert {leaf.start for leaf in made.leaves} == {(1, 2), (13, 9)}
    assert made.how_sure.word == "supported"


def test_an_additive_model_gets_its_terms():
    weights = np.random.default_rng(0).random((8, 8))
    made = explained(
        lambda batch: (batch[:, 0] * weights).sum((1, 2)), np.ones((1, 8, 8)), max_evaluations=2000
    )
    assert made.attribution(smooth=0.0) == pytest.approx(weights)


def test_stored_contexts_give_the_same_maps(tmp_path):
    made = explained(interacting(3, 64), np.ones((1, 8, 8)))
    made.save(tmp_path / "made.npz")
    again = hshap.Explanation.load(tmp_path / "made.npz")
    for options in ({}, {"context": "alone"}, {"context": "missing"}, {"smooth": 2.0}):
        assert np.array_equal(again.attribution(**options), made.attribution(**options))


def test_a_random_baseline_counts_its_draws():
    references = hshap.References(np.random.default_rng(0).random((3, 1, 8, 8)))
    made = hshap.Explainer(
        interacting(4, 64), references, hshap.Bisection(1), hshap.BestFirst(120)
    ).explain(np.ones((1, 8, 8)), target=0)
    assert 100 < made.evaluations <= 120
    assert made.attribution().sum() == pytest.approx(made.score - made.baseline_score)


def test_it_keeps_the_contract_of_searches():
    assert hshap.testing.check_search(hshap.BestFirst(), exact=False).passed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"contexts": 3}, "contexts is 3; pass 1, or an even number"),
        ({"max_evaluations": 0}, "max_evaluations"),
        ({"max_evaluations": None}, "max_evaluations"),
    ],
)
def test_mistakes_get_one_line(options, said):
    with pytest.raises(hshap.ArgumentError, match=said):
        hshap.BestFirst(**options)


def test_a_budget_below_the_first_game_is_refused():
    with pytest.raises(hshap.ArgumentError, match="max_evaluations=3 is less than the 4"):
        explained(lambda batch: batch[:, 0, 0, 0], np.ones((1, 4, 4)), max_evaluations=3)


@pytest.mark.parametrize(("number", "parts"), [(2, 2), (3, 2), (4, 4), (5, 4)])
def test_a_pair_of_contexts_is_complementary(number, parts):
    one, other = (siblings_shown(n, parts, (5,)) for n in (number - number % 2, number | 1))
    every = (1 << parts) - 1
    for part in range(parts):
        assert one[part] | other[part] == every ^ 1 << part
        assert not one[part] & other[part]


def test_contexts_grow_with_the_evaluations():
    counts = [context_count(spent) for spent in range(0, 5000, 10)]
    assert counts == sorted(counts)
    assert counts[0] == 2


def test_sides_need_games_in_contexts():
    made = hshap.demo.example()
    with pytest.raises(hshap.ArgumentError, match="BestFirst"):
        made.attribution(context="alone")
