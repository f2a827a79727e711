from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import any_marked, marked, same_explanation

import hshap
from hshap import (
    ArgumentError,
    Bisection,
    Box,
    BreadthFirst,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    References,
)
from hshap.games.search.budget import Budget


def explain(image, search, partition=None, model=any_marked, baseline=None):
    explainer = Explainer(
        model,
        baseline=baseline or Constant(0.0),
        partition=partition or Dyadic(1),
        search=search,
    )
    return explainer.explain(image, target=0)


def bright(batch):
    """Score the mean brightness: every pixel counts, and each quadrant by what it holds."""
    return batch.reshape(len(batch), -1).mean(axis=1)


def needs_both_halves(batch):
    """Score 1 only if the left and the right half are both marked: no part is enough alone."""
    half = batch.shape[-1] // 2
    left = (batch[..., :half] > 0.5).reshape(len(batch), -1).any(1)
    return (left & (batch[..., half:] > 0.5).reshape(len(batch), -1).any(1)).astype(float)


@given(st.sets(st.integers(0, 63), max_size=8), st.integers(1, 70))
def test_depth_first_finds_the_same_leaves_at_any_width(points, width):
    image = marked((8, 8), points)
    wide, narrow = (explain(image, DepthFirst(width=w)) for w in (1000, width))
    assert set(wide.leaves) == set(narrow.leaves)
    assert wide.evaluations == narrow.evaluations


@given(st.integers(0, 2**31), st.floats(0, 0.05))
def test_depth_first_is_algorithm_1(seed, tolerance):
    image = np.random.default_rng(seed).random((1, 8, 8))
    found = explain(image, DepthFirst(tolerance), model=bright)

    def paper(region):
        """Follow algorithm 1 literally, games by definition."""
        from oracle import by_permutations

        parts = region.split()
        masked = []
        for c in range(2 ** len(parts)):
            shown = np.zeros_like(image)
            for i, part in enumerate(parts):
                if c >> i & 1:
                    shown[(slice(None), *part.index)] = image[(slice(None), *part.index)]
            masked.append(bright(shown[None])[0])
        for phi, part in zip(by_permutations(masked), parts, strict=True):
            if phi > tolerance + 1e-12:
                yield from paper(part) if part.split() else (part,)

    assert set(found.leaves) == set(paper(Dyadic(1)(image)))


def test_breadth_first_keeps_the_percentile_of_each_level(rng):
    image = rng.random((1, 4, 4))
    found = explain(image, BreadthFirst(percentile=50), model=bright)
    quadrants = {part: image[0][part.index].sum() for part in Dyadic(1)(image).split()}
    kept = [part for part, total in quadrants.items() if total >= np.median([*quadrants.values()])]
    pixels = {p: image[0][p.index].item() for part in kept for p in part.split()}
    cut = np.percentile([*pixels.values()], 50)
    assert set(found.leaves) == {pixel for pixel, value in pixels.items() if value >= cut}


def test_breadth_first_at_percentile_zero_is_depth_first_at_tolerance_zero():
    image = marked((8, 8), [3, 40, 41])
    one, other = explain(image, BreadthFirst(0)), explain(image, DepthFirst(0))
    assert set(one.leaves) == set(other.leaves)


def test_breadth_first_drops_what_is_not_positive():
    found = explain(marked((8, 8), []), BreadthFirst(0))
    assert found.leaves == ()
    assert not found.saliency().any()


@pytest.mark.parametrize("search", [DepthFirst(), BreadthFirst(0)])
@pytest.mark.parametrize("most", [16, 17, 40, 100, 10_000])
def test_a_budget_of_evaluations_is_kept_and_told(search, most):
    image = marked((16, 16), [0, 60, 130, 255])
    limited = type(search)(0.0, max_evaluations=most)
    found = explain(image, limited)
    full = explain(image, search)
    assert found.evaluations <= most
    assert found.complete == (most >= full.evaluations)
    # What is not yet split stays as it is: nothing relevant is lost.
    assert ((found.saliency() > 0) >= (full.saliency() > 0)).all()
    assert set(found.unfinished) <= set(found.leaves)
    assert ("incomplete" in repr(found)) != found.complete


def test_a_budget_counts_draws():
    image = marked((8, 8), [5])
    references = References(np.zeros((3, 1, 8, 8), np.float32))
    first = 1 + 3 + 14 * 3
    found = explain(image, DepthFirst(max_evaluations=first + 41), baseline=references)
    assert found.evaluations == first
    with pytest.raises(ArgumentError, match=f"max_evaluations={first - 1} .* pass {first}"):
        explain(image, DepthFirst(max_evaluations=first - 1), baseline=references)


def test_a_budget_goes_to_the_most_relevant_region_first():
    image = np.zeros((1, 4, 4), np.float32)
    image[0, 0, 0], image[0, 3, 3] = 0.2, 0.9
    found = explain(
        image, DepthFirst(max_evaluations=30, width=1), model=lambda b: b.sum(axis=(1, 2, 3))
    )
    assert {leaf.start for leaf in found.leaves} == {(0, 0), (3, 3)}
    assert [leaf.start for leaf in found.unfinished] == [(0, 0)]


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
def test_a_budget_of_seconds_ends_a_slow_run(search):
    def slow(batch):
        time.sleep(0.002 * len(batch))
        return np.ones(len(batch)) * batch.mean(axis=(1, 2, 3))

    found = explain(np.ones((1, 64, 64), np.float32), search(0.0, max_seconds=1.0), model=slow)
    assert not found.complete
    # In a second, a model this slow scores 500 inputs at most; the full run has about 20,000.
    assert 16 < found.evaluations < 2000
    # All pixels matter, so the whole image stays covered.
    assert (found.saliency() > 0).all()


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
def test_a_budget_of_seconds_is_not_overshot_by_asking_for_too_much(search):
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


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
def test_no_seconds_at_all_still_play_the_first_game(search):
    found = explain(marked((8, 8), [3]), search(0.0, max_seconds=0.0))
    assert len(found.games) == 1
    assert not found.complete


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
@pytest.mark.parametrize("partition", [Dyadic, Bisection])
def test_a_concept_that_no_part_shows_is_dropped_or_kept_whole(search, partition):
    image = marked((16, 16), [7 * 16 + 7, 7 * 16 + 8])
    dropped = explain(image, search(0.0), partition(1), needs_both_halves)
    kept = explain(image, search(0.0, keep_whole=True), partition(1), needs_both_halves)
    # Each half has a coefficient of 1/2, but no part of one shows anything on the bare baseline.
    assert dropped.leaves == ()
    covered = kept.saliency() > 0
    assert covered[7, 7]
    assert covered[7, 8]


def test_keeping_whole_changes_nothing_where_parts_are_enough():
    image = marked((8, 8), [1, 50])
    kept, dropped = explain(image, DepthFirst(keep_whole=True)), explain(image, DepthFirst())
    assert same_explanation(kept, dropped)


@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
def test_what_does_not_matter_is_not_kept_whole_either(search):
    assert explain(marked((8, 8), []), search(0.0, keep_whole=True)).leaves == ()
    harmful = lambda batch: -any_marked(batch)
    image = marked((8, 8), [3])
    assert explain(image, search(0.0, keep_whole=True), model=harmful).leaves == ()


def test_a_budget_goes_to_what_is_large_before_what_is_small():
    # One mark to the left, three to the right: the right half holds more of the score.
    image = marked((64,), [3, 40, 50, 60])
    total = lambda batch: batch.sum(axis=(1, 2))
    found = explain(image, DepthFirst(max_evaluations=8, width=1), Bisection(1), model=total)
    split = [(game.region.start[0], game.region.stop[0]) for game in found.games]
    assert split[:2] == [(0, 64), (32, 64)]
    # Then a quarter with two marks goes before the half with one, although its share of the whole
    # is but twice as large: 2 on 16 pixels against 1 on 32.
    assert split[2] == (48, 64)


@pytest.mark.parametrize("width", [1, 64])
def test_a_budget_is_not_spent_on_what_hardly_matters(width):
    image = np.full((1, 64, 64), 0.01)
    image[0, 5, 5] = 100.0
    total = lambda batch: batch.sum(axis=(1, 2, 3))
    found = explain(image, DepthFirst(max_evaluations=200, width=width), model=total)
    assert found.boxes(merge=False)[0][:2] == ((5, 5), (6, 6))


def test_numbers_from_numpy_are_stored_as_plain_ones():
    search = DepthFirst(np.float32(0.0), width=np.int64(8), max_evaluations=np.int32(500))
    found = explain(marked((8, 8), [3]), search)
    assert found.settings["search"]["width"] == 8
    assert set(found.at(min_size=4).leaves) == {Box((0, 0), (4, 4))}


def test_unfinished_leaves_come_the_most_relevant_first():
    image = np.zeros((1, 4, 4), np.float32)
    image[0, 0, 0], image[0, 0, 3], image[0, 3, 0], image[0, 3, 3] = 0.4, 0.8, 0.2, 0.6
    total = lambda batch: batch.sum(axis=(1, 2, 3))
    for search in (DepthFirst(max_evaluations=16), BreadthFirst(0, max_evaluations=16)):
        found = explain(image, search, model=total)
        assert [leaf.start for leaf in found.unfinished] == [(0, 2), (2, 2), (0, 0), (2, 0)]


def test_the_root_itself_can_be_kept_whole():
    image = marked((2, 2), [0, 3])
    model = lambda b: (
        (b.reshape(len(b), -1).sum(1) >= 2).astype(float)
        - 0.6 * (b.reshape(len(b), -1).sum(1) == 1)
    )
    # Alone, either pixel lowers the score; together they raise it: the coefficients are 0.5 each.
    found = explain(image, DepthFirst(tolerance=0.6, keep_whole=True), model=model)
    assert [leaf.area for leaf in found.leaves] == [4]
    assert found.coefficients()[0, 0] == 1.0
    assert explain(image, DepthFirst(tolerance=0.6), model=model).leaves == ()


def test_an_image_no_larger_than_min_size_plays_alone():
    found = explain(marked((4, 4), [3]), DepthFirst(), Dyadic(4))
    assert [leaf.area for leaf in found.leaves] == [16]
    assert found.evaluations == 2
    assert explain(marked((4, 4), []), DepthFirst(), Dyadic(9)).leaves == ()


def shared(of, share, weights, **options):
    """Explain a row of pixels that add up to the score, with the two kinds of shares."""
    image = np.asarray(weights, dtype=float)[None]
    return hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(1),
        search=hshap.Share(share, of=of, **options),
    ).explain(image, 0)


def test_a_share_of_the_strongest_finding_follows_the_strongest_parts():
    # Halves add 8 and 9; on the way to the strongest leaf the smallest coefficient is 5.
    found = shared("finding", 0.2, [3, 5, 0.5, -0.5, 4, 5, 0.9, -0.9])
    assert found.settings.search.tolerance == pytest.approx(0.2 * 5)
    assert shared("image", 0.2, [3, 5, 0.5, -0.5, 4, 5, 0.9, -0.9]).settings.search.tolerance == (
        pytest.approx(0.2 * 17)
    )


@pytest.mark.parametrize("of", ["image", "finding"])
@pytest.mark.parametrize("seed", range(6))
def test_a_share_finds_what_depth_first_finds_at_its_tolerance(of, seed):
    weights = np.random.default_rng(seed).normal(size=32)
    found = shared(of, 0.1, weights)
    again = hshap.Explainer(
        lambda batch: batch.sum(axis=(1, 2)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(1),
        search=found.settings.search,
    ).explain(weights[None], 0)
    assert set(found.leaves) == set(again.leaves)
    assert found.evaluations == again.evaluations
    assert found.at(tolerance=2.0).leaves == again.at(tolerance=2.0).leaves


@pytest.mark.parametrize("most", [4, 6, 10, 20, 40])
def test_a_share_keeps_its_budget_and_drops_nothing_if_it_reaches_no_finding(most):
    weights = np.random.default_rng(0).random(64) + 1
    found = shared("finding", 0.2, weights, max_evaluations=most)
    assert found.evaluations <= most
    assert not found.complete
    if most * 0.25 < 2 + 2 * 6:  # the way to a leaf has six games
        assert found.settings.search.tolerance == 0.0
    assert sum(leaf.area for leaf in found.leaves) == 64


def test_a_share_ends_by_the_automatic_rule_and_without_a_score():
    nothing = shared("finding", 0.2, np.zeros(8))
    assert nothing.settings.search.tolerance == 0.0
    assert nothing.leaves == ()
    lower = shared("finding", 0.2, -np.ones(8))
    assert lower.leaves == ()
    with pytest.raises(hshap.ArgumentError, match='of is \'leaf\'; pass "image" or "finding"'):
        hshap.Share(0.2, of="leaf")
