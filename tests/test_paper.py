"""One test for each claim of the paper, each with an oracle of its own.

Sections and equations are those of "Fast Hierarchical Games for Image Explanations".
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import any_marked, by_definition, marked

from hshap import (
    Bisection,
    BreadthFirst,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Mean,
    References,
    theory,
)

ZERO = Constant(0.0)


def explain(image, partition, search=None, model=any_marked):
    explainer = Explainer(model, baseline=ZERO, partition=partition, search=search or DepthFirst())
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


@pytest.mark.parametrize(("gamma", "n"), [(2, 2), (2, 64), (4, 4096), (8, 512), (3, 81)])
@pytest.mark.parametrize("rho", [1e-4, 0.1, 0.9, 1.0])
def test_theorem_1_is_the_papers(gamma, n, rho):
    assert np.isclose(theory.expected_visited(n, gamma, rho), literal_theorem_1(n, gamma, rho))


def test_theorem_1_holds_at_its_ends():
    assert theory.expected_visited(64, 2, 0.0) == 1
    assert theory.expected_visited(64, 4, 1.0) == 1 + 4 + 16 + 64
    assert theory.expected_visited(1, 4, 0.3) == 1
    tiny = theory.expected_visited(4**10, 4, 1e-14)
    assert np.isclose(tiny - 1, 10 * 4**10 * 1e-14, rtol=1e-3)


@pytest.mark.parametrize(("gamma", "n", "rho"), [(2, 64, 0.02), (4, 256, 0.1), (8, 512, 0.002)])
def test_theorem_1_agrees_with_simulation(gamma, n, rho):
    visited = theory.simulate_visited(n, gamma, rho, trials=4000, seed=1)
    error = visited.std(ddof=1) / np.sqrt(len(visited))
    assert abs(visited.mean() - theory.expected_visited(n, gamma, rho)) < 4 * error + 1e-9
    again = theory.simulate_visited(n, gamma, rho, trials=4000, seed=1)
    assert np.array_equal(visited, again)


@pytest.mark.parametrize(
    ("grid", "partition", "gamma"), [((8, 8), Dyadic(1), 4), ((64,), Bisection(1), 2)]
)
def test_theorem_1_counts_visited_nodes(grid, partition, gamma):
    rng = np.random.default_rng(2)
    rho, counts = 0.05, []
    for _ in range(200):
        points = np.flatnonzero(rng.random(64) < rho)
        found = explain(marked(grid, points), partition)
        # Visited are the root and all parts that matter: games but the root's, and leaves.
        counts.append(len(found.games) + len(found.leaves))
    error = np.std(counts, ddof=1) / np.sqrt(len(counts))
    assert abs(np.mean(counts) - theory.expected_visited(64, gamma, rho)) < 4 * error


@given(st.data(), st.sampled_from([(64,), (8, 8), (4, 4, 4)]))
def test_theorem_2_bounds_the_cosine(data, grid):
    side = data.draw(st.sampled_from([1, 2, grid[0]]))
    points = data.draw(st.sets(st.integers(0, 63), min_size=1))
    k, s = len(points), side ** len(grid)
    exact = marked(grid, points)[0].astype(float) / k
    ours = explain(marked(grid, points), Dyadic(side)).saliency()
    cosine = (exact * ours).sum() / np.sqrt((exact**2).sum() * (ours**2).sum())
    assert cosine >= theory.similarity_bound(s, k, 64) - 1e-12


def test_theorem_2_is_tight():
    # One feature in each leaf, and all leaves full: the two ends of the bound.
    alone = explain(marked((8, 8), [0]), Dyadic(2)).saliency()
    assert np.isclose(alone[0, 0] / np.sqrt((alone**2).sum()), theory.similarity_bound(4, 1, 64))
    assert theory.similarity_bound(4, 64, 64) == 1.0


@given(st.sampled_from([(64,), (8, 8), (4, 4, 4)]), st.sets(st.integers(0, 63)))
def test_the_cost_stays_below_the_remark(grid, points):
    found = explain(marked(grid, points), Dyadic(1))
    gamma = 2 ** len(grid)
    # The paper counts all coalitions of each game anew.
    assert found.evaluations <= 2**gamma * len(found.games)
    assert 2**gamma * len(found.games) <= theory.cost_bound(64, gamma, len(points))


def test_equation_5_follows_from_equation_1():
    # With no code of ours: k relevant players have 1 / k each.
    relevant = {1, 4, 6}
    exact = by_definition(lambda kept: float(bool(kept & relevant)), 8)
    np.testing.assert_allclose(exact, [1 / 3 if i in relevant else 0 for i in range(8)])


@pytest.mark.parametrize("side", [16, 256])
@pytest.mark.parametrize("k", [1, 4, 30])
def test_relevant_pixels_have_their_exact_value(side, k, rng):
    """The map is that of equation 5, at the promised cost: 2 evaluations, and some a game."""
    points = rng.choice(side * side, k, replace=False)
    image = marked((side, side), points)
    quad, half = explain(image, Dyadic(1)), explain(image, Bisection(1))
    for found, per_game in ((quad, 14), (half, 2)):
        assert {leaf.start[0] * side + leaf.start[1] for leaf in found.leaves} == set(points)
        assert all(leaf.area == 1 for leaf in found.leaves)
        assert (found.saliency() == image[0].astype(float) / k).all()
        np.testing.assert_allclose(found.attribution(), image[0].astype(float) / k, atol=1e-12)
        assert found.evaluations == 2 + per_game * len(found.games)
    assert half.evaluations <= 0.30 * 16 * len(quad.games)


@pytest.mark.parametrize("search", [DepthFirst(0.0), BreadthFirst(0.0)])
@given(points=st.sets(st.integers(0, 255), min_size=1, max_size=9))
def test_null_regions_are_never_entered(search, points):
    """Nullity, symmetry and efficiency of each game, and no game of a region without a mark."""
    image = marked((16, 16), points)
    found = explain(image, Dyadic(1), search)
    for game in found.games:
        holds = np.array([image[0][part.index].any() for part in game.children])
        assert ((game.coefficients == 0.0) == ~holds).all()
        np.testing.assert_allclose(game.coefficients[holds], 1 / holds.sum(), atol=1e-15)
        assert image[0][game.region.index].any()
    relevant = {(16 // n, y * n // 16, x * n // 16) for y, x in (divmod(p, 16) for p in points)
                for n in (1, 2, 4, 8, 16)}  # fmt: skip
    regions = [*(game.region for game in found.games), *found.leaves]
    side = [region.shape[0] for region in regions]
    visited = {(s, r.start[0] // s, r.start[1] // s) for s, r in zip(side, regions, strict=True)}
    assert visited == relevant


@given(st.integers(0, 2**31))
def test_each_game_shares_out_its_gain(seed):
    rng = np.random.default_rng(seed)
    model = lambda batch: np.sin(batch.reshape(len(batch), -1) @ np.arange(1.0, 65.0))
    found = explain(rng.random((1, 8, 8)), Dyadic(2), DepthFirst(0.01), model)
    for game in found.games:
        assert np.isclose(game.coefficients.sum(), game.values[-1] - game.values[0])


def test_each_class_has_its_own_evidence():
    # Section 5.3: two concepts that do not exclude each other, told apart by channel.
    image = np.zeros((2, 16, 16))
    image[0, 2, 3] = image[1, 9, 9] = image[1, 15, 0] = 1.0
    model = lambda batch: (batch > 0.5).any(axis=(2, 3)).astype(float)
    explainer = Explainer(model, baseline=ZERO, partition=Dyadic(1))
    first, second = explainer.explain(image, target=[0, 1])
    assert {leaf.start for leaf in first.leaves} == {(2, 3)}
    assert {leaf.start for leaf in second.leaves} == {(9, 9), (15, 0)}


def test_leaves_below_the_concept_find_nothing():
    # Section 5.1: a concept of 4 x 4 pixels, seen only if at least half of it is visible.
    model = lambda batch: ((batch[:, 0] > 0.5).sum(axis=(1, 2)) >= 8).astype(float)
    image = np.zeros((1, 16, 16), np.float32)
    image[0, 4:8, 4:8] = 1.0
    truth = image[0] > 0
    assert ((explain(image, Dyadic(4), model=model).saliency() > 0) == truth).all()
    assert explain(image, Dyadic(1), model=model).leaves == ()
    kept = explain(image, Dyadic(1), DepthFirst(0.0, keep_whole=True), model)
    assert ((kept.saliency() > 0)[truth]).all()


def test_linear_models_need_only_the_mean(rng):
    # Section 5.2: for a linear model, averaging over references equals their mean as baseline.
    weights, references = rng.normal(size=(1, 8, 8)), rng.normal(size=(20, 1, 8, 8))
    model = lambda batch: (batch * weights).sum(axis=(1, 2, 3))
    image = rng.normal(size=(1, 8, 8))
    one, other = (
        Explainer(model, baseline=baseline, partition=Dyadic(2)).explain(image, target=0)
        for baseline in (Mean(references), References(references))
    )
    np.testing.assert_allclose(one.games[0].coefficients, other.games[0].coefficients)
