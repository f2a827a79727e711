"""One test for each claim of the paper, each with an oracle of its own.

Sections and equations are those of "Fast Hierarchical Games for Image Explanations".
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import any_marked, by_definition, marked

from hshap import Bisection, BreadthFirst, Constant, DepthFirst, Dyadic, Explainer, shapley
from hshap.games.theory import cost_bound, expected_visited, similarity_bound, simulate_visited

ZERO = Constant(0.0)
EVERYTHING = DepthFirst(0.0)


def explain(image, partition, search=EVERYTHING, model=any_marked):
    explainer = Explainer(model, baseline=ZERO, partition=partition, search=search)
    return explainer.explain(image, target=0)


def literal_theorem_1(n, gamma, rho):
    """Write theorem 1 out as it stands in the paper, top down."""

    def p(size, *, root):
        none = (1 - rho) ** (size / gamma)
        if root:
            return none
        return none * (1 - (1 - rho) ** (size * (gamma - 1) / gamma)) / (1 - (1 - rho) ** size)

    def visited(size, *, root=False):
        if size == 1:
            return 1.0
        return 1 + gamma * (1 - p(size, root=root)) * visited(size // gamma)

    return visited(n, root=True)


@pytest.mark.parametrize(("gamma", "n"), [(2, 2), (2, 64), (4, 64), (4, 4096), (8, 512), (3, 81)])
@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.1, 0.5, 0.9, 1.0])
def test_theorem_1_formula_is_the_paper_s(gamma, n, rho):
    assert np.isclose(expected_visited(n, gamma, rho), literal_theorem_1(n, gamma, rho))


@pytest.mark.parametrize(("gamma", "n"), [(2, 64), (4, 256), (8, 512)])
@pytest.mark.parametrize("rho", [0.002, 0.02, 0.1, 0.4])
def test_theorem_1_formula_agrees_with_simulation(gamma, n, rho):
    visited = simulate_visited(n, gamma, rho, trials=4000, seed=1)
    error = visited.std(ddof=1) / np.sqrt(len(visited))
    assert abs(visited.mean() - expected_visited(n, gamma, rho)) < 4 * error + 1e-9


@pytest.mark.parametrize(
    ("grid", "partition", "gamma"),
    [((64,), Dyadic(1), 2), ((8, 8), Dyadic(1), 4), ((8, 8), Bisection(1), 2)],
)
def test_theorem_1_counts_the_nodes_that_the_explainer_visits(grid, partition, gamma):
    rng = np.random.default_rng(2)
    rho, counts = 0.05, []
    for _ in range(300):
        points = np.flatnonzero(rng.random(64) < rho)
        found = explain(marked(grid, points), partition)
        # Visited are the root and all parts that matter: games but the root's, and leaves.
        counts.append(len(found.games) + len(found.leaves))
    error = np.std(counts, ddof=1) / np.sqrt(len(counts))
    assert abs(np.mean(counts) - expected_visited(64, gamma, rho)) < 4 * error


def test_theorem_1_at_its_ends():
    assert expected_visited(64, 2, 0.0) == 1
    assert expected_visited(64, 4, 1.0) == 1 + 4 + 16 + 64
    assert expected_visited(1, 4, 0.3) == 1
    tiny = expected_visited(4**10, 4, 1e-14)
    assert np.isclose(tiny - 1, 10 * 4**10 * 1e-14, rtol=1e-3)


@given(st.data(), st.sampled_from([(64,), (8, 8), (4, 4, 4)]))
def test_theorem_2_bounds_the_cosine_for_every_leaf_size(data, grid):
    side = data.draw(st.sampled_from([1, 2, grid[0]]))
    points = data.draw(st.sets(st.integers(0, 63), min_size=1))
    k, s = len(points), side ** len(grid)
    exact = marked(grid, points)[0].astype(float) / k
    ours = explain(marked(grid, points), Dyadic(side)).saliency()
    cosine = (exact * ours).sum() / np.sqrt((exact**2).sum() * (ours**2).sum())
    assert cosine >= similarity_bound(s, k, 64) - 1e-12


def test_theorem_2_is_tight():
    # One feature in each leaf, and all leaves full: the two ends of the bound.
    alone = explain(marked((8, 8), [0]), Dyadic(2)).saliency()
    assert np.isclose(alone[0, 0] / np.sqrt((alone**2).sum()), similarity_bound(4, 1, 64))
    assert similarity_bound(4, 64, 64) == 1.0


@given(st.sampled_from([(64,), (8, 8), (4, 4, 4)]), st.sets(st.integers(0, 63)))
def test_the_cost_never_exceeds_the_remark_s_bound(grid, points):
    found = explain(marked(grid, points), Dyadic(1))
    gamma = 2 ** len(grid)
    assert found.evaluations <= cost_bound(64, gamma, len(points))
    # The paper counts all coalitions of each game anew.
    assert 2**gamma * len(found.games) <= cost_bound(64, gamma, len(points))


@pytest.mark.parametrize(
    ("grid", "partition"),
    [
        ((11,), Dyadic(1)),
        ((3, 4), Dyadic(1)),
        ((3, 4), Bisection(1)),
        ((2, 2, 3), Dyadic(1)),
        ((1, 12), Bisection(1)),
    ],
)
def test_under_the_or_rule_the_map_is_the_exact_shapley_value(grid, partition, rng):
    n = int(np.prod(grid))
    for points in ([], [0], [n - 1], [0, 1], sorted(rng.choice(n, 5, replace=False).tolist())):
        worth = [any(c >> p & 1 for p in points) for c in range(2**n)]
        exact = shapley(np.array(worth, dtype=float)).reshape(grid)
        ours = explain(marked(grid, points), partition).saliency()
        np.testing.assert_allclose(ours, exact, atol=1e-12)


def test_the_exact_values_are_1_over_k_by_the_definition_itself():
    # Equation 5, straight from equation 1, with no code of ours.
    relevant = {1, 4, 6}
    exact = by_definition(lambda kept: float(bool(kept & relevant)), 8)
    np.testing.assert_allclose(exact, [1 / 3 if i in relevant else 0 for i in range(8)])


@pytest.mark.parametrize("side", [16, 64, 256, 1024])
@pytest.mark.parametrize("k", [1, 4, 10, 30])
def test_relevant_pixels_are_found_exactly_at_the_promised_cost(side, k, rng):
    points = rng.choice(side * side, k, replace=False)
    image = marked((side, side), points)
    quad, half = explain(image, Dyadic(1)), explain(image, Bisection(1))
    for found, per_game in ((quad, 14), (half, 2)):
        assert {leaf.start[0] * side + leaf.start[1] for leaf in found.leaves} == set(points)
        assert all(leaf.area == 1 for leaf in found.leaves)
        assert (found.saliency() == image[0].astype(float) / k).all()
        assert found.evaluations == 2 + per_game * len(found.games)
    assert half.evaluations <= 0.30 * 16 * len(quad.games)


@pytest.mark.parametrize("search", [DepthFirst(0.0), BreadthFirst(0.0)])
def test_nullity_a_region_without_the_concept_is_never_entered(search):
    image = marked((16, 16), [0, 1, 250])
    found = explain(image, Dyadic(1), search)
    for game in found.games:
        for part, phi in zip(game.children, game.coefficients, strict=True):
            holds = image[0][part.index].any()
            assert (phi == 0.0) == (not holds)
    assert all(image[0][game.region.index].any() for game in found.games)


def test_symmetry_parts_with_the_concept_share_alike():
    found = explain(marked((16, 16), [0, 1, 17, 250, 12]), Dyadic(1))
    for game in found.games:
        positive = game.coefficients[game.coefficients > 0]
        np.testing.assert_allclose(positive, 1 / len(positive), atol=1e-15)


@given(st.integers(0, 2**31))
def test_efficiency_each_game_shares_out_what_its_region_adds(seed):
    rng = np.random.default_rng(seed)
    model = lambda batch: np.sin(batch.reshape(len(batch), -1) @ np.arange(1.0, 65.0))
    found = explain(rng.random((1, 8, 8)), Dyadic(2), DepthFirst(0.01), model)
    for game in found.games:
        assert np.isclose(game.coefficients.sum(), game.total)


def test_a_game_of_quadrants_takes_sixteen_evaluations_of_which_fourteen_are_new():
    found = explain(marked((4, 4), [5]), Dyadic(1))
    assert [len(game.values) for game in found.games] == [16, 16]
    assert found.evaluations == 16 + 14


def test_depth_first_at_tolerance_0_and_size_1_visits_all_relevant_nodes_and_no_other():
    points = [3, 77, 78, 200]
    found = explain(marked((16, 16), points), Dyadic(1))
    relevant = set()
    for y, x in (divmod(p, 16) for p in points):
        relevant |= {(side, y // side, x // side) for side in (16, 8, 4, 2, 1)}
    visited = {
        (r.shape[0], r.start[0] // r.shape[0], r.start[1] // r.shape[0])
        for r in (*(game.region for game in found.games), *found.leaves)
    }
    assert visited == relevant


def test_multi_label_each_class_is_explained_by_its_own_evidence(rng):
    # Section 5.3: two concepts that do not exclude each other, told apart by channel.
    def model(batch):
        return (batch > 0.5).any(axis=(2, 3)).astype(float)

    image = np.zeros((2, 16, 16))
    image[0, 2, 3] = image[1, 9, 9] = image[1, 15, 0] = 1.0
    explainer = Explainer(model, baseline=ZERO, partition=Dyadic(1))
    first, second = explainer.explain(image, target=[0, 1])
    assert {leaf.start for leaf in first.leaves} == {(2, 3)}
    assert {leaf.start for leaf in second.leaves} == {(9, 9), (15, 0)}


def test_the_map_breaks_down_when_leaves_are_smaller_than_the_concept():
    # Section 5.1: a concept of 4 x 4 pixels, seen only if at least half of it is visible.
    def model(batch):
        return ((batch[:, 0] > 0.5).sum(axis=(1, 2)) >= 8).astype(float)

    image = np.zeros((1, 16, 16), np.float32)
    image[0, 4:8, 4:8] = 1.0
    truth = image[0] > 0
    assert ((explain(image, Dyadic(4), model=model).saliency() > 0) == truth).all()
    assert explain(image, Dyadic(1), model=model).leaves == ()
    kept = explain(image, Dyadic(1), DepthFirst(0.0, keep_whole=True), model)
    assert ((kept.saliency() > 0)[truth]).all()


def test_a_linear_model_makes_the_mean_baseline_the_expectation(rng):
    # Section 5.2: for a linear model, averaging over references equals their mean as baseline.
    from hshap import Mean, References

    weights, references = rng.normal(size=(1, 8, 8)), rng.normal(size=(20, 1, 8, 8))
    model = lambda batch: (batch * weights).sum(axis=(1, 2, 3))
    image = rng.normal(size=(1, 8, 8))
    one, other = (
        Explainer(model, baseline=baseline, partition=Dyadic(2)).explain(image, target=0)
        for baseline in (Mean(references), References(references))
    )
    np.testing.assert_allclose(one.games[0].coefficients, other.games[0].coefficients)


def test_simulation_repeats_with_its_seed():
    one, same = (simulate_visited(64, 4, 0.1, trials=50, seed=3) for _ in range(2))
    assert np.array_equal(one, same)
