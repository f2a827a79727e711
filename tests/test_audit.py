"""How far a model is from the paper's rule, and what is known of what was dropped."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import any_marked, marked

from hshap import (
    Bisection,
    Box,
    BreadthFirst,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Explanation,
    Superpixels,
)
from hshap.explanation.audit import FAR, filled_by
from hshap.explanation.gaps import monotone_gaps, or_gaps


def by_sets(players):
    return chain.from_iterable(combinations(range(players), r) for r in range(1, players + 1))


@given(st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_or_gap_is_by_definition(players, random):
    values = [random.random() for _ in range(2**players)]
    gap = max(
        abs(values[sum(1 << i for i in kept)] - max(values[1 << i] for i in kept))
        for kept in by_sets(players)
    )
    assert or_gaps(np.array([values, values])).tolist() == [gap] * 2


@given(st.integers(1, 8), st.randoms(use_true_random=False))
def test_the_monotone_gap_is_by_definition(players, random):
    values = [random.random() for _ in range(2**players)]
    falls = [
        values[c] - values[c | 1 << i]
        for c in range(2**players)
        for i in range(players)
        if not c >> i & 1
    ]
    found = monotone_gaps(np.array([values, values]))
    assert found.tolist() == [max(0.0, *falls)] * 2


def explain(image, model, partition=None, search=None):
    explainer = Explainer(
        model,
        baseline=Constant(0.0),
        partition=partition or Bisection(1),
        search=search or DepthFirst(),
    )
    return explainer.explain(image, target=0)


def needs_two(batch):
    """Score 1 only if two pixels are marked: neither is enough alone."""
    return ((batch[:, 0] > 0.5).reshape(len(batch), -1).sum(axis=1) >= 2).astype(float)


def test_an_or_model_has_no_gap():
    audit = explain(marked((8, 8), [3, 40]), any_marked).audit
    assert audit.gap == 0.0
    assert set(audit.gaps) == {0.0}
    assert audit.failures == 0.0
    assert "OR gap 0.00" in str(audit)


def test_a_model_that_needs_two_at_once_is_told():
    found = explain(marked((8, 8), [3, 40]), needs_two)
    assert found.audit.gap == 1.0
    assert "OR gap 1.00" in str(found.audit)
    assert "do not trust: areas act together" in repr(found)
    assert "do not trust" not in repr(explain(marked((8, 8), [3]), any_marked))
    assert 0 < FAR < 1


def test_each_game_has_its_own_number():
    # Two marks side by side at the end: parts say nothing alone only where these are parted.
    found = explain(marked((8,), [6, 7]), needs_two)
    by_size = {
        game.region.area: gap for game, gap in zip(found.games, found.audit.gaps, strict=True)
    }
    assert by_size == {8: 0.0, 4: 0.0, 2: 1.0}


def test_a_model_that_falls_when_more_is_shown_is_told():
    def first_but_not_last(batch):
        return batch[:, 0, 0] - 0.5 * batch[:, 0, -1]

    found = explain(np.ones((1, 8)), first_but_not_last)
    assert found.audit.failures > 0
    assert found.audit.fall == 0.5  # of what the first part alone adds
    told = "of the games one more part lowered the score, by up to 50.0% of it"
    assert told in str(found.audit)


def test_parts_that_cancel_out_are_told():
    def either(batch):
        first, last = (batch[:, 0, place] > 0.5 for place in (0, -1))
        return (first ^ last).astype(float)

    found = explain(np.ones((1, 8)), either)
    assert found.games[0].total == 0
    assert found.audit.gap == found.audit.cancelled == found.audit.doubt == 1.0
    assert "The whole image lacks 100% of the score that parts have." in str(found.audit)


def test_rounding_is_no_failure_but_more_is():
    for fall, failures in ((1e-6, 0.0), (1e-3, 1.0)):
        model = lambda batch, fall=fall: batch[:, 0, 0] - fall * batch[:, 0, -1]
        found = explain(np.ones((1, 2)), model)
        assert found.audit.failures == failures
        assert found.audit.fall == pytest.approx(fall)


def test_a_root_that_plays_alone_can_be_dropped():
    found = explain(
        np.full((1, 8), 0.3), lambda b: b.mean(axis=(1, 2)), Bisection(8), DepthFirst(0.5)
    )
    assert not found.leaves
    assert found.audit.dropped_at_most == pytest.approx(0.3)
    assert np.allclose(found.dropped_at_most(), 0.3)


def test_gaps_do_not_depend_on_the_unit_of_the_score():
    image = marked((8, 8), [3, 4, 40])
    one, ten = (explain(image, lambda b, k=k: k * needs_two(b)).audit for k in (1.0, 10.0))
    assert one.gaps == ten.gaps
    assert one.gap == ten.gap


def test_nothing_at_all_has_no_gap():
    audit = explain(np.zeros((1, 8)), any_marked).audit
    assert (audit.gap, audit.failures, audit.fall, audit.dropped_at_most) == (0.0, 0.0, 0.0, 0.0)
    assert (audit.carried, audit.doubt) == (1.0, 0.0)


def product_of_shares(audit):
    unlike = (1 - audit.alike) ** 2
    found = min(audit.carried, audit.alone) * (1 - audit.covered)
    return found * (1 - unlike) * (1 - audit.cancelled**2) * (1 - (1 - audit.filled) ** 4)


def test_what_is_found_carries_the_score_or_does_not():
    def parts_of_the_score(batch):
        return 0.6 * batch[:, 0, 1] + 0.25 * batch[:, 0, 4] + 0.15 * batch[:, 0, 7]

    found = [
        explain(np.ones((1, 8)), parts_of_the_score, search=DepthFirst(tolerance))
        for tolerance in (0.0, 0.16, 0.3, 0.7)
    ]
    carried = [one.audit.carried for one in found]
    assert carried == pytest.approx([1.0, 0.85, 0.6, 0.0])
    for one in found:
        assert one.audit.carried == pytest.approx(one.attribution().sum())
        assert one.audit.doubt == pytest.approx(1 - product_of_shares(one.audit))
    for one in found[:-1]:
        assert f"carry {one.audit.carried:.0%} of the score that the image adds" in str(one.audit)
    assert "There are no findings." in str(found[-1].audit)


def test_all_that_is_found_is_carried_though_parts_lower_the_score():
    def one_against_the_other(batch):
        return batch[:, 0, 0] - 0.5 * batch[:, 0, 1]

    found = explain(np.ones((1, 8)), one_against_the_other)
    assert found.residual == pytest.approx(0)
    assert found.audit.carried == 1.0


def test_rounding_is_nothing_to_carry():
    rng = np.random.default_rng(0)
    found = explain(np.ones((1, 8)), lambda b: 5.0 + 1e-7 * rng.random(len(b)))
    assert found.audit.carried == 1.0


def test_little_that_is_carried_is_told_in_the_line():
    def some_in_the_first(batch):
        return 0.4 * batch[:, 0, 1] + 0.6 * batch[:, 0].mean(axis=1)

    found = explain(np.ones((1, 8)), some_in_the_first, search=DepthFirst(0.3))
    share = found.audit.carried
    assert share < 0.5
    line = f"the findings carry only {share:.0%} of the score that the image adds"
    assert f"look twice: {line}" in repr(found)


def test_findings_that_cover_much_of_the_image_are_told():
    halves = Superpixels.from_labels(np.repeat([[0, 0, 0, 1]], 4, axis=0))
    found = explain(marked((4, 4), [0]), any_marked, halves)
    assert (found.audit.gap, found.audit.carried) == (0.0, 1.0)
    assert found.audit.covered == 0.75
    assert found.audit.filled == pytest.approx(1 / 12)
    assert found.audit.doubt == pytest.approx(1 - 0.25 * (1 - (11 / 12) ** 4))
    assert "cover 75% of the image" in str(found.audit)
    small = explain(marked((4, 4), [0]), any_marked)
    assert small.audit.covered == 1 / 16
    assert "cover 6% of the image" in str(small.audit)


def test_a_region_that_a_budget_left_unsplit_adds_its_score_to_the_others():
    def total(batch):
        return batch.sum(axis=(1, 2, 3))

    image = marked((8, 8), [0, 63]) * np.linspace(1.0, 0.5, 8)
    partial = 0
    for most in range(4, 30):
        search = DepthFirst(max_evaluations=most, width=1)
        found = explain(image, total, Bisection(1), search=search)
        partial += 0 < len(found.unfinished) < len(found.leaves)
        assert found.audit.alone == pytest.approx(1.0)
    assert partial


def test_a_region_that_a_budget_left_unsplit_is_no_large_finding():
    found = explain(marked((8, 8), [0]), any_marked, search=DepthFirst(max_evaluations=4))
    assert found.unfinished
    assert (found.audit.covered, found.audit.alone) == (0.0, 1.0)


def test_findings_that_are_not_enough_alone_are_told():
    def three(batch, together):
        seen = batch[:, 0, [1, 4, 7]]
        return (seen * [0.2, 0.1, 0.1]).sum(axis=1) + together * seen.prod(axis=1)

    found = explain(np.ones((1, 8)), lambda batch: three(batch, 0.6))
    assert found.audit.alone == pytest.approx(0.4)
    assert found.audit.doubt >= 0.6
    assert "The findings, each by itself, add up to 40% of the score." in str(found.audit)
    assert explain(np.ones((1, 8)), lambda batch: three(batch, 0.0)).audit.alone == 1.0
    assert explain(marked((8, 8), [3, 40]), any_marked).audit.alone == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_leaves_of_an_additive_model_and_of_an_or_model_are_alike(worth, random):
    worth = [one + 0.1 for one in worth] + [0.0] * (8 - len(worth))
    random.shuffle(worth)
    worth = np.array(worth)
    models = (
        lambda b: (b[:, 0] * worth).sum(axis=1),
        lambda b: (b[:, 0] * (worth > 0)).max(axis=1),
    )
    for model in models:
        audit = explain(np.ones((1, 8)), model).audit
        assert audit.alike == pytest.approx(1.0)
        assert audit.cancelled == pytest.approx(0.0)
        assert audit.doubt == pytest.approx(audit.covered)


def test_leaves_of_which_one_has_the_score_and_others_little_are_told():
    def one_and_helpers(batch):
        first, second, *helpers = (batch[:, 0, place] for place in (0, 2, 4, 5, 7))
        return np.maximum(np.maximum(first, second), 0.1 * sum(helpers)) + 0.1 * sum(helpers)

    found = explain(np.ones((1, 8)), one_and_helpers)
    alone = np.array([found.parts[leaf].alone for leaf in found.leaves]) / found.games[0].total
    assert len(alone) == 5
    by_hand = max(np.median(alone) / alone.max(), 1 - min(abs(alone.sum() - 1), 1))
    assert found.audit.alike == pytest.approx(by_hand)
    assert found.audit.alike < 0.5
    assert found.audit.doubt >= FAR
    assert "others have far less" in str(found.audit) + repr(found)


def thin_cross(partition, enough):
    """Explain a cross one pixel wide; this share of it is enough for the whole score."""
    image = np.zeros((1, 40, 40))
    image[0, range(10, 21), range(10, 21)] = image[0, range(10, 21), range(20, 9, -1)] = 1.0
    total = image.sum()
    model = lambda batch: np.minimum(batch.sum(axis=(1, 2, 3)) / (enough * total), 1.0) ** 2
    return explain(image, model, partition), image[0] > 0


@pytest.mark.parametrize("enough", [0.2, 0.9])
def test_a_thin_line_that_went_with_the_background_raises_the_doubt(enough):
    labels = np.zeros((40, 40), dtype=int)
    labels[30:, 30:] = 1  # the cross is in the other segment, which is the background
    found, truth = thin_cross(Superpixels.from_labels(labels), enough)
    (leaf,) = found.leaves
    assert truth.sum() / leaf.area < 0.06
    assert found.audit.doubt >= FAR
    whole, _ = thin_cross(Superpixels.from_labels(truth.astype(int)), enough)
    assert whole.audit.doubt < FAR / 3


@given(st.integers(1, 30), st.integers(0, 30), st.floats(0.01, 10.0), st.integers(1, 3))
def test_filled_is_the_share_of_pixels_that_differ(line, flat, contrast, draws):
    image = np.zeros((2, 1, line + flat))
    image[:, 0, :line] = contrast
    leaf = Box((0, 0), (1, line + flat))
    stand_ins = [np.zeros_like(image)] * draws
    assert filled_by([leaf], image, stand_ins) == pytest.approx(line / (line + flat))
    assert filled_by([], image, stand_ins) == 1.0
    assert filled_by([leaf], image, [image]) == 0.0
    assert filled_by([leaf], image, [np.full_like(image, np.nan)]) is None


def test_filled_is_the_mean_over_leaves_by_area_whatever_their_contrast():
    image = np.zeros((1, 40))
    image[0, :10], image[0, 20] = 0.1, 1e200
    leaves = [Box((0,), (10,)), Box((20,), (40,))]
    assert filled_by(leaves, image, [np.zeros_like(image)]) == pytest.approx((10 + 1) / 30)


@pytest.mark.parametrize("partition", [Bisection(8), Superpixels.from_labels(np.arange(40) // 8)])
def test_a_leaf_that_is_much_larger_than_the_line_in_it_is_told(partition, tmp_path):
    image = np.zeros((1, 40))
    image[0, 17] = 1.0
    found = explain(image, any_marked, partition)
    (leaf,) = found.leaves
    assert found.audit.filled == pytest.approx(1 / leaf.area)
    assert found.audit.loose >= FAR > found.audit.covered
    assert "changes about" in str(found.audit)
    assert "they may be much larger than the object" in repr(found)
    found.save(tmp_path / "it.npz")
    assert Explanation.load(tmp_path / "it.npz").audit == found.audit
    exact = explain(image, any_marked, Bisection(1)).audit
    assert (exact.filled, exact.loose) == (1.0, 0.0)


def test_filled_is_not_known_if_stand_ins_depend_on_the_shown_pixels():
    def mirrored(image):
        return lambda kept: np.zeros((1, *image.shape)) + 0.0 * len(kept)

    explainer = Explainer(any_marked, baseline=mirrored, partition=Bisection(8))
    found = explainer.explain(marked((8, 8), [3]), target=0)
    assert (found.filled, found.audit.filled) == (None, 1.0)


def test_a_thin_line_cut_with_the_background_raises_the_doubt():
    rows, columns = np.indices((40, 40)) // 8
    found, truth = thin_cross(Superpixels.from_labels(rows * 5 + columns), 0.9)
    covered = found.saliency() > 0
    assert (covered & truth).sum() / covered.sum() < 0.3
    assert found.audit.covered < FAR
    assert found.audit.doubt >= FAR


def test_several_small_lacks_add_up_to_a_doubt():
    def lacking(batch):  # a quarter of the image has four fifths of the score
        seen = batch[:, 0]
        return 0.8 * seen[:, :4].mean(axis=1) + 0.2 * seen[:, 4:].mean(axis=1)

    found = explain(np.ones((1, 16)), lacking, search=DepthFirst(0.1))
    audit = found.audit
    assert max(audit.gap, 1 - audit.carried, 1 - audit.alone, 1 - audit.alike, audit.covered) < FAR
    assert audit.doubt >= FAR
    assert found.how_sure.word == "supported"  # the doubt sorts runs, and is no verdict


def test_a_score_below_the_baseline_has_no_share_alone():
    assert explain(np.ones((1, 8)), lambda b: -b[:, 0, 0]).audit.alone == 1.0


def monotone_model(rng, pixels):
    """Draw a monotone set function: each set is worth at least what the sets in it are."""
    worth = rng.exponential(size=2**pixels) * (rng.random(2**pixels) < 0.3)
    worth[0] = rng.random() * (rng.random() < 0.5)
    for i in range(pixels):
        with_i = np.arange(2**pixels) >> i & 1 == 1
        worth[with_i] = np.maximum(worth[with_i], worth[~with_i])
    return worth


def model_of(worth):
    def model(batch):
        bits = (batch[:, 0] > 0.5).reshape(len(batch), -1)
        return worth[bits @ (1 << np.arange(bits.shape[1]))]

    return model


def subsets(flat):
    return (
        sum(1 << int(i) for i in kept)
        for kept in chain.from_iterable(combinations(flat, r) for r in range(len(flat) + 1))
    )


SEARCHES = [DepthFirst(0.0), DepthFirst(0.1), DepthFirst(0.3), BreadthFirst(70)]


@pytest.mark.parametrize("seed", range(1000))
def test_nothing_in_what_was_dropped_adds_more_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    grid = [(8,), (2, 4), (9,), (3, 3)][seed % 4]
    pixels = int(np.prod(grid))
    worth = monotone_model(rng, pixels)
    labels = rng.integers(0, 5, grid)
    partitions = [Bisection(1), Dyadic(1), Superpixels.from_labels(labels), Bisection(2)]
    partition, search = partitions[seed // 4 % 4], SEARCHES[seed // 16 % 4]
    found = explain(np.ones((1, *grid)), model_of(worth), partition, search)
    assert found.audit.failures == 0.0
    bounds = found.dropped_at_most()
    played = {game.region for game in found.games}
    checked = 0
    for game in found.games:
        for part in game.children:
            if part in played or part in found.leaves:
                continue
            flat = np.flatnonzero(_inside(part, grid))
            bound = float(bounds[part.index].ravel()[0])
            most = max(worth[kept] for kept in subsets(flat)) - worth[0]
            assert most <= bound + 1e-9
            assert bound <= found.audit.dropped_at_most
            checked += 1
    if isinstance(search, DepthFirst):
        players = max(len(game.children) for game in found.games)
        assert found.audit.dropped_at_most <= players * search.tolerance + 1e-9
    everything = np.isnan(bounds).sum() + sum(
        part.area
        for game in found.games
        for part in game.children
        if part not in played and part not in found.leaves
    )
    assert everything == pixels
    assert checked or np.isnan(bounds).all()


def _inside(region, grid):
    out = np.zeros(grid, dtype=bool)
    out[region.index] = True
    return out


def test_the_audit_survives_a_file(tmp_path):
    found = explain(marked((8, 8), [3, 40]), needs_two)
    found.save(tmp_path / "e.npz")
    assert Explanation.load(tmp_path / "e.npz").audit == found.audit
