"""The paper's searches and their budgets: leaves and costs equal those of a literal rerun."""

from __future__ import annotations

import time

import by_hand
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import any_marked, marked, same_explanation

import hshap
from hshap import (
    ArgumentError,
    Bisection,
    BreadthFirst,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    References,
    Share,
)
from hshap.games.search.frontier import Budget
from hshap.protocols import Box, Pixels


def explain(image, search, partition=None, model=any_marked, baseline=None):
    return Explainer(model, baseline or Constant(0.0), partition or Dyadic(1), search).explain(
        image, target=0
    )


def total(batch):
    return batch.sum(axis=tuple(range(1, batch.ndim)))


def drawn(seed, pixels):
    """Draw a model with weights of both signs and products of pixels, and its image."""
    rng = np.random.default_rng(seed)
    weights, pairs = rng.normal(0.2, 1.0, pixels), rng.normal(size=(pixels, pixels)) / pixels

    def model(batch):
        flat = batch.reshape(len(batch), -1)
        return flat @ weights + np.einsum("ni,ij,nj->n", flat, pairs, flat)

    return model, rng


GRIDS = st.sampled_from([((12,), Bisection), ((4, 4), Dyadic), ((3, 5), Bisection)])


@settings(max_examples=40)
@given(st.integers(0, 2**31), GRIDS, st.floats(0, 0.5), st.booleans(), st.integers(1, 9))
def test_depth_first_is_algorithm_1(seed, kind, tolerance, keep_whole, width):
    grid, partition = kind
    model, rng = drawn(seed, int(np.prod(grid)))
    image = rng.random((1, *grid))
    search = DepthFirst(tolerance, keep_whole=keep_whole, width=width)
    found = explain(image, search, partition(1), model)
    root = partition(1)(image)
    leaves, _, spent = by_hand.depth_first(model, image, root, tolerance, keep_whole=keep_whole)
    assert set(found.leaves) == leaves
    assert found.evaluations == spent


@settings(max_examples=40)
@given(st.integers(0, 2**31), GRIDS, st.sampled_from([0, 30, 70, 100]), st.booleans())
def test_breadth_first_keeps_a_percentile(seed, kind, percentile, keep_whole):
    grid, partition = kind
    model, rng = drawn(seed, int(np.prod(grid)))
    image = rng.random((1, *grid))
    search = BreadthFirst(percentile, keep_whole=keep_whole)
    found = explain(image, search, partition(1), model)
    root = partition(1)(image)
    leaves, spent = by_hand.breadth_first(model, image, root, percentile, keep_whole=keep_whole)
    assert set(found.leaves) == leaves
    assert found.evaluations == spent


@settings(max_examples=40)
@given(st.integers(0, 2**31), GRIDS, st.integers(16, 90))
def test_a_budget_goes_to_large_shares(seed, kind, most):
    """Share times the root of the area says which region is split next; the rest are leaves."""
    grid, partition = kind
    model, rng = drawn(seed, int(np.prod(grid)))
    image = rng.random((1, *grid))
    found = explain(image, DepthFirst(max_evaluations=most, width=1), partition(1), model)
    root = partition(1)(image)
    leaves, left, spent = by_hand.depth_first(model, image, root, most=most)
    assert set(found.leaves) == leaves
    assert list(found.unfinished) == left
    assert found.complete == (not left)
    assert found.evaluations == spent


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
@pytest.mark.parametrize("most", [16, 17, 40, 100, 10_000])
def test_a_budget_is_kept_and_told(search, most):
    image = marked((16, 16), [0, 60, 130, 255])
    found, full = explain(image, search(0.0, max_evaluations=most)), explain(image, search(0.0))
    assert found.evaluations <= most
    assert found.complete == (most >= full.evaluations)
    # What is not yet split stays as it is: nothing relevant is lost.
    assert ((found.saliency() > 0) >= (full.saliency() > 0)).all()
    assert set(found.unfinished) <= set(found.leaves)
    assert ("incomplete" in repr(found)) != found.complete


@pytest.mark.parametrize("draws", [2, 3])
def test_a_budget_counts_draws(draws):
    """One input for the image, and for each other coalition as many as there are draws."""
    image, first = marked((8, 8), [5]), 1 + 15 * draws
    references = References(np.zeros((draws, 1, 8, 8), np.float32))
    whole = explain(image, DepthFirst(), baseline=references)
    assert whole.evaluations == first + (len(whole.games) - 1) * 14 * draws
    most = first + 14 * draws - 1
    assert (
        explain(image, DepthFirst(max_evaluations=most), baseline=references).evaluations == first
    )
    for less in (1, first - 1):
        with pytest.raises(ArgumentError, match=f"max_evaluations={less} .* pass {first} or more"):
            explain(image, DepthFirst(max_evaluations=less), baseline=references)


@pytest.mark.parametrize("width", [1, 64])
def test_less_urgent_regions_wait(width):
    """Regions less than half as urgent as the first are not played with it, at any width."""
    image = np.full((1, 64, 64), 0.01)
    image[0, 5, 5] = 100.0
    found = explain(image, DepthFirst(max_evaluations=200, width=width), model=total)
    assert found.boxes(merge=False)[0][:2] == ((5, 5), (6, 6))


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
def test_unfinished_leaves_are_sorted(search):
    image = np.zeros((1, 4, 4), np.float32)
    image[0, 0, 0], image[0, 0, 3], image[0, 3, 0], image[0, 3, 3] = 0.4, 0.8, 0.2, 0.6
    found = explain(image, search(0.0, max_evaluations=16), model=total)
    assert [leaf.start for leaf in found.unfinished] == [(0, 2), (2, 2), (0, 0), (2, 0)]


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
def test_seconds_end_a_slow_run(search):
    def slow(batch):
        time.sleep(0.001 * len(batch))
        return batch.mean(axis=(1, 2, 3))

    found = explain(np.ones((1, 64, 64), np.float32), search(0.0, max_seconds=0.4), model=slow)
    assert not found.complete
    # A model this slow scores 400 inputs at most; the full run has about 20,000.
    assert 16 < found.evaluations < 1600
    assert (found.saliency() > 0).all()
    assert len(explain(marked((8, 8), [3]), search(0.0, max_seconds=0.0)).games) == 1


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
def test_seconds_are_not_overshot(search):
    seconds = 0.0

    def one_second_each(batch):
        nonlocal seconds
        seconds += len(batch)
        return batch.mean(axis=(1, 2, 3))

    def limited(root, draws):
        budget = Budget(None, 50.0, draws, clock=lambda: seconds)
        return search(0.0).steps(root, draws, budget=budget)

    found = explain(np.ones((1, 64, 64), np.float32), limited, model=one_second_each)
    # 16 for the first game and 14 for each further one: two more fit into 50 seconds. Three
    # more inputs check that scores do not depend on the batch.
    assert found.evaluations == 16 + 2 * 14
    assert seconds == found.evaluations + 3


def needs_both_halves(batch):
    """Score 1 only if the left and the right half are both marked: no part is enough alone."""
    half = batch.shape[-1] // 2
    left = (batch[..., :half] > 0.5).reshape(len(batch), -1).any(1)
    return (left & (batch[..., half:] > 0.5).reshape(len(batch), -1).any(1)).astype(float)


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
@pytest.mark.parametrize("partition", [Dyadic, Bisection])
def test_a_concept_is_dropped_or_kept(search, partition):
    image = marked((16, 16), [7 * 16 + 7, 7 * 16 + 8])
    dropped = explain(image, search(0.0), partition(1), needs_both_halves)
    kept = explain(image, search(0.0, keep_whole=True), partition(1), needs_both_halves)
    # Each half has a coefficient of 1/2, but no part of one shows anything on the bare baseline.
    assert dropped.leaves == ()
    assert (kept.saliency() > 0)[7, 7:9].all()
    # Where parts are enough, or nothing matters, it changes nothing.
    for points, model in (([1, 50], any_marked), ([], any_marked), ([3], lambda b: -any_marked(b))):
        one, other = (
            explain(marked((8, 8), points), search(0.0, keep_whole=k), partition(1), model)
            for k in (True, False)
        )
        assert same_explanation(one, other)


def test_the_root_can_be_kept_whole():
    """Either pixel lowers the score; both raise it: coefficients of 0.5 each."""
    model = lambda b: (total(b) >= 2).astype(float) - 0.6 * (total(b) == 1)
    image = marked((2, 2), [0, 3])
    found = explain(image, DepthFirst(tolerance=0.6, keep_whole=True), model=model)
    assert [leaf.area for leaf in found.leaves] == [4]
    assert found.coefficients()[0, 0] == 1.0
    assert explain(image, DepthFirst(tolerance=0.6), model=model).leaves == ()


def test_an_image_below_min_size_plays_alone():
    for search in (DepthFirst(), BreadthFirst(0), hshap.BestFirst(), hshap.GroupTesting()):
        found = explain(marked((4, 4), [3]), search, Dyadic(4))
        assert [leaf.area for leaf in found.leaves] == [16]
        assert found.evaluations == 2
    assert explain(marked((4, 4), []), DepthFirst(), Dyadic(9)).leaves == ()


def test_options_may_be_numbers_of_numpy():
    search = DepthFirst(np.float32(0.0), width=np.int64(8), max_evaluations=np.int32(500))
    found = explain(marked((8, 8), [3]), search)
    assert found.settings["search"]["width"] == 8
    assert set(found.at(min_size=4).leaves) == {Box((0, 0), (4, 4))}


# A tolerance that is a share of the score.


def shared(of, share, weights, **options):
    image = np.asarray(weights, dtype=float)[None]
    return explain(image, Share(share, of=of, **options), Bisection(1), total)


@pytest.mark.parametrize("of", ["image", "finding"])
@pytest.mark.parametrize("seed", range(8))
def test_a_share_is_a_tolerance(of, seed):
    """Of the image, or of the smallest coefficient on the way to the strongest finding."""
    weights = np.random.default_rng(seed).normal(0.1, size=24)
    image, root = weights[None], Bisection(1)(weights[None])
    found = shared(of, 0.1, weights)
    unit = by_hand.unit_of_share(total, image, root) if of == "finding" else max(weights.sum(), 0)
    assert found.settings.search.tolerance == pytest.approx(0.1 * unit)
    again = explain(image, found.settings.search, Bisection(1), total)
    assert set(found.leaves) == set(again.leaves)
    assert found.evaluations == again.evaluations
    assert found.at(tolerance=2.0).leaves == again.at(tolerance=2.0).leaves


@pytest.mark.parametrize("most", [4, 6, 10, 15, 16, 20, 40, 55, 56, 60])
def test_a_share_keeps_its_budget(most):
    """The way to a leaf has six games, and may take a quarter: else the tolerance is 0."""
    weights = np.random.default_rng(0).random(64) + 1
    found = shared("finding", 0.2, weights, max_evaluations=most)
    assert found.evaluations <= most
    assert not found.complete
    assert (found.settings.search.tolerance == 0.0) == (most / 4 < 4 + 2 * 5)
    assert sum(leaf.area for leaf in found.leaves) == 64


def test_a_share_of_no_score_is_nothing():
    for weights in (np.zeros(8), -np.ones(8)):
        found = shared("finding", 0.2, weights)
        assert (found.leaves, found.settings.search.tolerance) == ((), 0.0)
    with pytest.raises(ArgumentError, match='of is \'leaf\'; pass "image" or "finding"'):
        Share(0.2, of="leaf")


# Where no size is given.


def test_large_leaves_of_leaves_stay():
    """A large end is split further, unless its parts that matter are all leaves."""
    grid = (4, 12)
    pixels = lambda first, last: np.arange(48).reshape(grid)[:, first:last].ravel()
    leaf = lambda first, last, rule=None: Pixels(pixels(first, last), grid, rule, adaptive=True)
    ignored = lambda region: (leaf(8, 9), leaf(9, 10))
    acting = lambda region: (leaf(0, 4), leaf(4, 8), leaf(8, 10, ignored))
    singles = lambda region: tuple(
        Pixels(np.array([one]), grid, adaptive=True) for one in region.flat
    )
    columns = lambda region: tuple(leaf(at, at + 1, singles) for at in (10, 11))
    root = leaf(0, 12, lambda region: (leaf(0, 10, acting), leaf(10, 12, columns)))

    def model(batch):
        first, second = batch[:, 0, 0, 0], batch[:, 0, 0, 5]
        return first * second + batch[:, 0, 0, 10:].sum(axis=1)

    found = explain(np.ones((1, *grid)), DepthFirst(), lambda image: root, model)
    assert sorted(leaf.area for leaf in found.leaves) == [1, 1, 40]
    assert set(found.leaves) == by_hand.automatic_size(model, np.ones((1, *grid)), root)


@settings(max_examples=150)
@given(st.integers(0, 2**31), GRIDS, st.sampled_from([0.0, 0.02, 0.1]))
def test_automatic_leaves_end_by_the_rule(seed, kind, tolerance):
    """Of models that need products of two or three pixels, and some of single ones."""
    grid, partition = kind
    rng = np.random.default_rng(seed)
    pixels = int(np.prod(grid))
    sets = [
        rng.choice(pixels, rng.integers(1, 4), replace=False) for _ in range(rng.integers(1, 7))
    ]
    worth = rng.random(len(sets))

    def model(batch):
        flat = batch.reshape(len(batch), -1)
        return sum(one * flat[:, some].prod(axis=1) for one, some in zip(worth, sets, strict=True))

    image = np.ones((1, *grid))
    found = explain(image, DepthFirst(tolerance), partition("auto"), model)
    by_rule = by_hand.automatic_size(model, image, partition("auto")(image), tolerance)
    assert set(found.leaves) == by_rule
