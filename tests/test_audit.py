"""How far a model is from the paper's rule, and what is known of what was dropped."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import by_hand
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import any_marked, marked

from hshap import (
    Bisection,
    BreadthFirst,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Explanation,
    Share,
    Superpixels,
)
from hshap.explanation.audit import FAR, audit_many, dropped, filled_by
from hshap.protocols import Box


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


def gaps_by_hand(model, image, found):
    """Return each game's OR gap and largest fall, as shares of the largest change, and its size.

    The gap is how far a set of parts is from its best part alone, the fall what one more part
    lowers the score by.
    """
    rows = []
    for game in found.games:
        parts, values, _ = by_hand.game(model, image, game.region)
        bits = range(len(parts))
        sets = range(1, len(values))
        best = [max(values[1 << i] for i in bits if c >> i & 1) for c in sets]
        falls = [values[c] - values[c | 1 << i] for c in range(len(values)) for i in bits]
        gap = max(abs(values[c] - one) for c, one in zip(sets, best, strict=True))
        rows.append((gap, max(falls), np.abs(values - values[0]).max()))
    return np.array(rows)


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.sampled_from([Bisection(1), Dyadic(1)]))
def test_gaps_are_those_of_every_set(seed, partition):
    rng = np.random.default_rng(seed)
    worth, image = rng.random(2**16), np.ones((1, 4, 4))
    model = model_of(worth)
    found = explain(image, model, partition, DepthFirst(0.1))
    gaps, falls, changes = gaps_by_hand(model, image, found).T
    most = changes.max()
    assert found.audit.gaps == pytest.approx(gaps / most)
    assert found.audit.fall == pytest.approx(max(falls.max(), 0.0) / most)
    assert found.audit.failures == pytest.approx(np.mean(falls > 1e-5 * most))
    weights = changes / changes.sum()
    assert found.audit.gap == pytest.approx((gaps / most * weights).sum())
    ten = explain(image, lambda batch: 10 * model(batch), partition, DepthFirst(1.0))
    assert ten.audit.gaps == pytest.approx(found.audit.gaps)


def test_known_models_are_told():
    """An OR has no gap, needing two at once has all of it, and a part may lower the score."""
    audit = explain(marked((8, 8), [3, 40]), any_marked).audit
    assert set(audit.gaps) == {audit.gap, audit.failures} == {0.0}
    assert "OR gap 0.00" in str(audit)
    found = explain(marked((8, 8), [3, 40]), needs_two)
    assert found.audit.gap == 1.0
    assert "do not trust: areas act together" in repr(found)
    found = explain(np.ones((1, 8)), lambda batch: batch[:, 0, 0] - 0.5 * batch[:, 0, -1])
    assert found.audit.fall == 0.5  # of what the first part alone adds
    told = "of the games one more part lowered the score, by up to 50.0% of it"
    assert told in str(found.audit)
    either = lambda batch: (batch[:, 0, 0] > 0.5) ^ (batch[:, 0, -1] > 0.5)
    found = explain(np.ones((1, 8)), lambda batch: either(batch).astype(float))
    assert found.audit.gap == found.audit.cancelled == found.audit.doubt == 1.0
    assert "The whole image lacks 100% of the score that parts have." in str(found.audit)
    for fall, failures in ((1e-6, 0.0), (1e-3, 1.0)):  # rounding is no failure
        model = lambda batch, fall=fall: batch[:, 0, 0] - fall * batch[:, 0, -1]
        assert explain(np.ones((1, 2)), model).audit.failures == failures
    nothing = explain(np.zeros((1, 8)), any_marked).audit
    assert (nothing.gap, nothing.failures, nothing.dropped_at_most) == (0.0, 0.0, 0.0)
    assert (nothing.carried, nothing.doubt) == (1.0, 0.0)


def test_a_root_that_plays_alone_can_be_dropped():
    found = explain(
        np.full((1, 8), 0.3), lambda b: b.mean(axis=(1, 2)), Bisection(8), DepthFirst(0.5)
    )
    assert not found.leaves
    assert found.audit.dropped_at_most == pytest.approx(0.3)


def product_of_shares(audit):
    unlike = (1 - audit.alike) ** 2
    found = min(audit.carried, audit.alone) * (1 - audit.covered)
    return found * (1 - unlike) * (1 - audit.cancelled**2) * (1 - (1 - audit.filled) ** 4)


def test_findings_carry_the_score_or_not():
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

    found = explain(np.ones((1, 8)), lambda batch: batch[:, 0, 0] - 0.5 * batch[:, 0, 1])
    assert found.audit.carried == 1.0  # all that is found, though parts lower the score
    noise = np.random.default_rng(0)
    found = explain(np.ones((1, 8)), lambda b: 5.0 + 1e-7 * noise.random(len(b)))
    assert found.audit.carried == 1.0  # rounding is nothing to carry


def test_large_findings_are_told():
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


def test_unsplit_regions_add_their_score():
    def total(batch):
        return batch.sum(axis=(1, 2, 3))

    image = marked((8, 8), [0, 63]) * np.linspace(1.0, 0.5, 8)
    partial = 0
    for most in range(4, 30):
        search = DepthFirst(max_evaluations=most, width=1)
        found = explain(image, total, Bisection(1), search=search)
        partial += 0 < len(found.unfinished) < len(found.leaves)
        done = [one for one in found.leaves if one not in found.unfinished]
        assert found.audit.covered == sum(one.area for one in done) / 64
        assert found.audit.alone == pytest.approx(1.0)
    assert partial


def test_findings_may_lack_the_score_alone():
    def three(batch, together):
        seen = batch[:, 0, [1, 4, 7]]
        return (seen * [0.2, 0.1, 0.1]).sum(axis=1) + together * seen.prod(axis=1)

    found = explain(np.ones((1, 8)), lambda batch: three(batch, 0.6))
    assert found.audit.alone == pytest.approx(0.4)
    assert found.audit.doubt >= 0.6
    assert "The findings, each by itself, add up to 40% of the score." in str(found.audit)
    assert explain(np.ones((1, 8)), lambda batch: three(batch, 0.0)).audit.alone == 1.0
    assert explain(np.ones((1, 8)), lambda b: -b[:, 0, 0]).audit.alone == 1.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_sums_and_detectors_have_leaves_alike(worth, random):
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


def test_unlike_findings_are_told():
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
@pytest.mark.parametrize("cut", ["with the background", "into squares"])
def test_loose_segments_raise_the_doubt(enough, cut):
    """A thin line that went with the background, or was cut along with it; not the line alone."""
    rows, columns = np.indices((40, 40))
    segments = {
        "with the background": (rows >= 30) & (columns >= 30),
        "into squares": rows // 8 * 5 + columns // 8,
    }
    found, truth = thin_cross(Superpixels.from_labels(segments[cut].astype(int)), enough)
    covered = found.saliency() > 0
    assert (covered & truth).sum() / covered.sum() < 0.3
    if enough == 0.9 or cut == "with the background":
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


@pytest.mark.parametrize("partition", [Bisection(8), Superpixels.from_labels(np.arange(40) // 8)])
def test_loose_leaves_are_told(partition, tmp_path):
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


def test_filled_needs_fixed_stand_ins():
    def mirrored(image):
        return lambda kept: np.zeros((1, *image.shape)) + 0.0 * len(kept)

    explainer = Explainer(any_marked, baseline=mirrored, partition=Bisection(8))
    found = explainer.explain(marked((8, 8), [3]), target=0)
    assert (found.filled, found.audit.filled) == (None, 1.0)


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


@pytest.mark.parametrize("seed", range(128))
def test_dropped_parts_add_at_most_the_bound(seed):
    rng = np.random.default_rng(seed)
    grid = [(8,), (2, 4), (9,), (3, 3)][seed % 4]
    pixels = int(np.prod(grid))
    worth = monotone_model(rng, pixels)
    labels = rng.integers(0, 5, grid)
    partitions = [Bisection(1), Dyadic(1), Superpixels.from_labels(labels), Bisection(2)]
    partition, search = partitions[seed // 4 % 4], SEARCHES[seed // 16 % 4]
    found = explain(np.ones((1, *grid)), model_of(worth), partition, search)
    assert found.audit.failures == 0.0
    bounds = dict(dropped(found.games, found.leaves, found.certificate))
    played = {game.region for game in found.games}
    checked = 0
    for game in found.games:
        for part in game.children:
            if part in played or part in found.leaves:
                continue
            flat = np.flatnonzero(_inside(part, grid))
            bound = bounds[part]
            most = max(worth[kept] for kept in subsets(flat)) - worth[0]
            assert most <= bound + 1e-9
            assert bound <= found.audit.dropped_at_most
            checked += 1
    if isinstance(search, DepthFirst):
        players = max(len(game.children) for game in found.games)
        assert found.audit.dropped_at_most <= players * search.tolerance + 1e-9
    covered = sum(region.area for region in (*bounds, *found.leaves))
    assert covered == pixels
    assert checked == len(bounds)


def _inside(region, grid):
    out = np.zeros(grid, dtype=bool)
    out[region.index] = True
    return out


# Audits of many explanations at once.


def test_audits_together_are_those_alone():
    """Also beside an explanation whose games fail."""
    images = np.random.default_rng(0).random((5, 1, 16, 20))
    model = lambda batch: batch.max(axis=(1, 2, 3)) + batch.mean(axis=(1, 2, 3))
    search = Share(0.2, max_evaluations=60)
    explainer = Explainer(model, Constant(0.1), Dyadic(min_size=4), search)
    found = list(explainer.explain_many((image, 0) for image in images))
    alone = [replace(one).audit for one in found]
    broken = replace(found[0].games[0], values=found[0].games[0].values[:3])
    audit_many([*found[:3], replace(found[0], games=(broken, *found[0].games[1:]))])
    audit_many(found[3:])
    assert [one.audit for one in found] == alone
    assert all({"parts", "audit"} <= vars(one).keys() for one in found[3:])
