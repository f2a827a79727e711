"""The maps of an explanation: shares by the rule in words, smoothing, and ignored pixels.

The rules are written out here once more, from the games that an explanation holds.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import any_marked, marked
from scipy import ndimage

import hshap
from hshap.explanation.heatmaps import ignored

ZERO = hshap.Constant(0.0)


def explain(model, image, partition, search=None):
    evaluator = hshap.Batched(model, check_batches=False)
    explainer = hshap.Explainer(evaluator, ZERO, partition, search or hshap.DepthFirst())
    return explainer.explain(image, target=0)


def weighed(seed, grid):
    """Return a model that adds up pixels by random weights, some of them below 0, and pairs."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(0.3, 1.0, np.prod(grid))
    other = rng.permutation(len(weights))

    def model(batch):
        flat = batch.reshape(len(batch), -1)
        return flat @ weights + 0.3 * (flat * flat[:, other]) @ weights

    return model, rng.random((1, *grid))


def weighted_orders(values, weights):
    """Average gains over orders in which the next part is drawn by its weight, among those left."""

    @cache
    def onward(shown):
        left = [i for i in range(len(weights)) if not shown >> i & 1]
        gains = np.zeros(len(weights))
        for i in left:
            chance = weights[i] / sum(weights[j] for j in left)
            gains[i] += chance * (values[shown | 1 << i] - values[shown])
            gains += chance * onward(shown | 1 << i)
        return gains

    return onward(0)


def sources_by_rule(games):
    """Count the sources of the score in each region: one, where it was not split.

    Else those of its parts, each as far as the part alone has the score of the region; at least 1.
    """
    held = {}
    for game in reversed(games):
        gain = game.values[-1] - game.values[0]
        if gain and len(game.children) > 1:
            shares = [
                (game.values[1 << i] - game.values[0]) / gain for i in range(len(game.children))
            ]
            counts = [held.get(part, 1.0) for part in game.children]
            held[game.region] = max(1.0, np.clip(shares, 0, 1) @ counts)
    return held


def shares_by_rule(found):
    """Divide each share by positive values of the parts; the image's in one context by all values.

    Values are Shapley values, summed over all contexts. Where parts stand in for each other, having
    more alone than together, orders are drawn by the number of sources in each. In contexts, values
    have the sign of their total.
    """
    root, held = found.games[0].region, sources_by_rule(found.games)
    share = {root: found.score - found.baseline_score}
    for game in found.games:
        counts, phi = [held.get(part, 1.0) for part in game.children], 0.0
        for values in (game.values, *(one.values for one in game.contexts)):
            singles = sum(values[1 << i] - values[0] for i in range(len(counts)))
            gain = values[-1] - values[0]
            stand_in = (singles - gain) * gain > 0
            phi = phi + weighted_orders(tuple(values), counts if stand_in else [1.0] * len(counts))
        weights = np.maximum(phi * np.sign(phi.sum()) if game.contexts else phi, 0.0)
        ratios = weights / (weights.sum() or 1.0)
        is_first = game.region == root and not game.contexts
        divided = phi if is_first else share[game.region] * ratios
        share.update(zip(game.children, divided, strict=True))
    return share


def even(values, grid):
    heat = np.zeros(grid)
    for region, value in values.items():
        heat[region.index] = value / region.area
    return heat


GRIDS = st.sampled_from([(30,), (6, 7), (8, 8), (3, 4, 5)])


@settings(max_examples=30)
@given(st.integers(0, 2**31), GRIDS, st.sampled_from([hshap.Dyadic(2), hshap.Bisection(1)]))
def test_maps_show_shares_of_leaves(seed, grid, partition):
    model, image = weighed(seed, grid)
    found = hshap.Explainer(model, ZERO, partition, hshap.DepthFirst(0.05)).explain(
        image, target=0, layout="C" + "ZYX"[-len(grid) :]
    )
    share = shares_by_rule(found)
    assert {part.region: part.share for part in found.parts.values()} == pytest.approx(share)
    expected = even({leaf: share[leaf] for leaf in found.leaves}, grid)
    kept = ~ignored(found)
    assert found.attribution()[kept] == pytest.approx(expected[kept])
    gained = found.attribution().sum() + found.residual
    assert gained == pytest.approx(found.score - found.baseline_score)
    own = {p: phi for g in found.games for p, phi in zip(g.children, g.coefficients, strict=True)}
    for leaf in found.leaves:
        assert (found.coefficients()[leaf.index] == own[leaf]).all()
    saliency = found.saliency()
    assert (saliency > 0).sum() == sum(leaf.area for leaf in found.leaves)
    assert len(np.unique(saliency[saliency > 0])) <= 1
    assert saliency.sum() == pytest.approx(1.0 if found.leaves else 0.0)


@pytest.mark.parametrize("search", [None, hshap.BestFirst(40, contexts=2)])
def test_parts_are_the_tree_of_the_run(search):
    """Numbered from the image on, each with its parent, its depth and what it adds alone."""
    model, image = weighed(1, (8, 8))
    found = explain(model, image, hshap.Dyadic(1), search)
    parts = list(found.parts.values())
    assert [part.number for part in parts] == list(range(len(parts)))
    root = parts[0]
    gain = found.score - found.baseline_score
    assert (root.region, root.parent, root.depth) == (found.games[0].region, -1, 0)
    assert (root.coefficient, root.error, root.share, root.alone) == (gain, 0.0, gain, gain)
    for game in found.games:
        for i, child in enumerate(game.children):
            part = found.parts[child]
            assert parts[part.parent].region == game.region
            assert part.depth == found.parts[game.region].depth + 1
            assert part.coefficient == game.coefficients[i]
            assert part.alone == game.values[1 << i] - game.values[0]


@pytest.mark.parametrize(
    ("weights", "tolerance", "expected", "residual"),
    [
        (np.arange(1.0, 17.0).reshape(4, 4), 0.0, np.arange(1.0, 17.0).reshape(4, 4), 0.0),
        ([[3.0, 0.0, -4.0, 0.0]], 0.0, [[3, 0, 0, 0]], -4.0),  # nothing speaks against itself
        ([[0.5, 0.3], [0.15, 0.05]], 0.2, [[0.5, 0.3], [0, 0]], 0.2),  # the rest was dropped
    ],
)
def test_sums_get_their_terms(weights, tolerance, expected, residual):
    weights = np.array(weights)
    model = lambda batch: (batch[:, 0] * weights).sum(axis=(1, 2))
    image = np.ones((1, *weights.shape))
    found = explain(model, image, hshap.Bisection(1), hshap.DepthFirst(tolerance))
    np.testing.assert_allclose(found.attribution(), expected, atol=1e-12)
    assert found.residual == pytest.approx(residual, abs=1e-12)


# Smoothing


@pytest.mark.parametrize("grid", [(512,), (32, 32), (8, 8, 8)])
@pytest.mark.parametrize("budget", [20, 60, 260, 520])
def test_auto_is_the_mean_of_all_sizes(grid, budget):
    """At each size, regions have a Gaussian of half their side, as another library does it."""
    budget = max(budget, 2**2 ** len(grid))
    weights = np.random.default_rng(0).random(grid)
    axes = tuple(range(1, len(grid) + 1))
    model = lambda batch: (batch[:, 0] * weights).sum(axis=axes)
    search = hshap.BestFirst(budget, contexts=2)
    found = explain(model, np.ones((1, *grid)), hshap.Dyadic(1), search)
    assert found.unfinished
    parts = {game.region: game.children for game in found.games}
    finest = even(
        {one: share for one, share in shares_by_rule(found).items() if one not in parts}, grid
    )
    octaves = int(np.log2(weights.size))
    expected, sides = np.zeros(grid), set()
    for octave in range(octaves):
        regions = [found.games[0].region]
        while large := [one for one in regions if one in parts and one.area > 2 ** (octave + 0.5)]:
            regions = [one for one in regions if one not in large]
            regions += [part for one in large for part in parts[one]]
        for side in {one.shape[0] for one in regions}:
            same = [one for one in regions if one.shape[0] == side]
            flat = even({one: float(finest[one.index].sum()) for one in same}, grid)
            expected += ndimage.gaussian_filter(flat, side / 2, mode="reflect", truncate=4)
            sides.add(side)
    expected /= octaves
    found_heat = found.attribution()
    assert found_heat.sum() == pytest.approx(expected.sum())
    # Filters of 8 pixels and more work on a coarser copy.
    exact = max(sides) < 16
    np.testing.assert_allclose(found_heat, expected, rtol=1e-9 if exact else 0.25)


def test_auto_is_the_default_in_contexts_only():
    model, image = weighed(0, (20, 24))
    several = explain(model, image, hshap.Bisection(4), hshap.BestFirst(40))
    assert np.array_equal(several.attribution(), several.attribution(smooth="auto"))
    assert not np.array_equal(several.attribution(), several.attribution(smooth=0))
    paper = explain(model, image, hshap.Bisection(4))
    assert np.array_equal(paper.attribution(), paper.attribution(smooth=0))
    softened = paper.attribution(smooth="auto")
    assert not np.array_equal(softened, paper.attribution())
    assert softened.sum() == pytest.approx(paper.attribution().sum())
    # A score that is divided to the end has nothing to soften.
    whole = explain(
        model, image[:, :4, :4].repeat(5, 1).repeat(6, 2), hshap.Bisection(5), hshap.BestFirst(5000)
    )
    assert not whole.unfinished
    assert np.array_equal(whole.attribution(), whole.attribution(smooth=0))


@pytest.mark.parametrize("budget", [12, 40, 200])
@pytest.mark.parametrize("context", [None, "alone", "missing"])
def test_smoothing_keeps_the_total(budget, context):
    for grid in ((40,), (20, 24), (9, 10, 12)):
        model, image = weighed(1, grid)
        found = explain(model, image, hshap.Bisection(1), hshap.BestFirst(budget))
        plain = found.attribution(smooth=0, context=context)
        for width in ("auto", 0.3, 4.0, 1e9):
            soft = found.attribution(smooth=width, context=context)
            assert soft.sum() == pytest.approx(plain.sum())


@pytest.mark.parametrize("smooth", ["wide", -1.0, float("nan"), True])
def test_other_widths_are_refused(smooth):
    model, image = weighed(0, (8, 8))
    with pytest.raises(hshap.ArgumentError, match="smooth") as refused:
        explain(model, image, hshap.Bisection(4)).attribution(smooth=smooth)
    assert len(str(refused.value).splitlines()) == 1


def test_spins_show_the_mean_map():
    model, image = weighed(0, (20, 24))
    explainer = hshap.Explainer(model, ZERO, hshap.Bisection(8))
    spin = hshap.cycle_spin(explainer, image, target=0, shifts=[0, 2])
    for smooth in ("auto", 2.0, None):
        expected = np.mean([one.attribution(smooth=smooth) for one in spin.members], axis=0)
        assert spin.attribution(smooth=smooth) == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(4))
def test_findings_are_where_the_map_is_strong(seed):
    """Leaves have a fifth of the strongest mean, and their area's part of the score or more."""
    rng = np.random.default_rng(seed)
    weights = rng.random((16, 16)) ** 6
    weights[:, 8:] *= 0.02
    model = lambda batch: np.tanh((batch[:, 0] * weights).sum((1, 2)) / 20)
    found = explain(model, np.ones((1, 16, 16)), hshap.Bisection(1), hshap.BestFirst(120))
    share, split = shares_by_rule(found), {game.region for game in found.games}
    left = {one: share[one] for one in share.keys() - split}
    heat = np.zeros((16, 16))
    for area in {one.area for one in left}:
        same = even({one: left[one] for one in left if one.area == area}, heat.shape)
        heat += ndimage.gaussian_filter(same, area**0.5 / 2, mode="reflect", truncate=4)
    least = sum(left.values()) / heat.size
    means = {one: heat[one.index].mean() for one in left if left[one] >= least * one.area}
    strong = [one for one, mean in means.items() if mean >= 0.2 * max(means.values())]
    assert 0 < len(strong) < len(left)
    assert list(found.leaves) == sorted(strong, key=means.get, reverse=True)


# Ignored pixels: only the model speaks in a map.


def null_pixels(found):
    """The pixels of all null players, by the definition: no coalition's value depends on them.

    In games of several contexts, this holds in each that was played.
    """
    out = np.zeros(found.grid, dtype=bool)
    for game in found.games:
        players = range(len(game.children))
        played = [game.values, *(one.values for one in game.contexts)]
        for player in players:
            others = [1 << other for other in players if other != player]
            gains = [
                values[sum(some) + (1 << player)] - values[sum(some)]
                for values in played
                for size in range(len(players))
                for some in combinations(others, size)
            ]
            if np.abs(gains).max() <= 1e-12 * np.abs(played).max():
                out[game.children[player].index] = True
    return out


def discs(rng, grid, count):
    """A noisy ground with discs of one colour, and where each disc is."""
    rows, columns = np.indices(grid)
    image = 0.5 + 0.02 * rng.normal(size=(3, *grid))
    centres = [[rng.integers(7, side - 7) for side in grid] for _ in range(count)]
    places = [np.hypot(rows - row, columns - column) < 5 for row, column in centres]
    for place in places:
        image[:, place] = np.array([0.2, 0.7, 0.3])[:, None]
    return image.astype(np.float32), places


def green(weights, pool=np.sum):
    """Return a model of how green pixels are: those with a weight of 0 are ignored."""

    def model(batch):
        seen = np.maximum(batch[:, 1].astype(float) - batch[:, 0] - 0.2, 0.0) * weights
        return pool(seen, axis=(1, 2))[:, None]

    return hshap.Batched(model, check_batches=False)


def maps(found):
    return {
        "attribution": found.attribution(),
        "smooth": found.attribution(smooth=3.0),
        "even": found.attribution(smooth=0.0),
    }


@pytest.mark.parametrize("budget", [10, 50, None])
@pytest.mark.parametrize("kind", ["no weight in a region", "one quadrant", "one object"])
@settings(max_examples=2)
@given(seed=st.integers(0, 10**6))
def test_ignored_parts_have_no_weight(kind, budget, seed):
    rng, grid = np.random.default_rng(seed), (48, 56)
    image, places = discs(rng, grid, 7)
    weights = rng.random(grid)
    if kind == "one quadrant":
        weights[grid[0] // 2 :] = weights[:, grid[1] // 2 :] = 0.0
    else:
        top, left = rng.integers(0, 20, 2)
        weights[top : top + 24, left : left + 30] = 0.0
    model = green(places[0], np.max) if kind == "one object" else green(weights)
    weights = places[0] if kind == "one object" else weights
    search = None if budget is None else hshap.BestFirst(budget)
    found = hshap.Explainer(model, search=search).explain(image, target=0)
    null = null_pixels(found)
    assert np.array_equal(ignored(found), null)
    for game in found.games:
        for part in game.children:
            assert weights[part.index].any() or null[part.index].all()
    for name, heat in maps(found).items():
        assert np.abs(heat[null]).max(initial=0.0) <= 1e-6 * np.abs(heat).max(), name
    total = found.attribution().sum()
    assert found.attribution(smooth=3.0).sum() == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("budget", [20, None])
def test_ignored_dots_are_never_strongest(budget):
    """Beside a disc that the model sees, or a difference from a template, a brighter dot lies."""
    search, cells = None if budget is None else hshap.BestFirst(budget), 0
    rows, columns = np.indices((96, 96))
    for seed in range(6):
        rng = np.random.default_rng(seed)
        image, places = discs(rng, (96, 96), 12)
        near = np.argwhere(places[0]).mean(0)
        free = ~np.any(places, axis=0) & (np.hypot(rows - near[0], columns - near[1]) < 20)
        row, column = rng.choice(np.argwhere(free))
        dot = (np.abs(rows - row) <= 1) & (np.abs(columns - column) <= 1) & ~places[0]
        image[:, dot] = np.array([1.0, 1.0, 0.0])[:, None]
        found = hshap.Explainer(green(places[0]), search=search).explain(image, target=0)
        assert not any(dot.flat[heat.argmax()] for heat in maps(found).values())
        template = np.kron(rng.random((3, 12, 12)) * 0.3 + 0.3, np.ones((8, 8))).astype(np.float32)
        row, column = rng.integers(20, 76, 2)
        place = np.hypot(rows - row, columns - column) < 4
        dot = (np.abs(rows - row) <= 1) & (np.abs(columns - column - 7) <= 1)
        image = template.copy()
        image[1, place] = image[0, place] + 0.4
        image[:, dot] = 3.0
        found = hshap.Explainer(green(place), hshap.Fixed(template), search=search).explain(
            image, target=0
        )
        cells += found.settings["partition"]["type"] == "Spots"
        read = maps(found)
        del read["smooth"]  # a width of the caller's choice spreads any cell from its middle
        assert not any(dot.flat[heat.argmax()] for heat in read.values())
    assert cells > 3


def test_ignored_parts_of_a_leaf_have_no_weight():
    """Three quarters act together, so the automatic rule ends at the image; the last is ignored."""
    quarters = [(slice(0, 4), slice(0, 4)), (slice(0, 4), slice(4, 8)), (slice(4, 8), slice(0, 4))]

    def together(batch):
        return np.min([batch[:, 0, *quarter].mean((1, 2)) for quarter in quarters], axis=0)

    image = np.random.default_rng(0).random((1, 8, 8))
    found = explain(together, image, hshap.Dyadic("auto"))
    assert [leaf.area for leaf in found.leaves] == [64]
    heat = found.attribution()
    assert not heat[4:, 4:].any()
    assert heat.sum() == pytest.approx(found.score - found.baseline_score)
    assert len(np.unique(heat[heat > 0])) == 1


@pytest.mark.parametrize("search", [None, hshap.BestFirst(40)])
def test_smoothing_stays_out_of_ignored_pixels(search):
    """The right half is ignored, and the left one is smoothed by another library's filter."""
    image = np.random.default_rng(0).random((1, 16, 32))
    model = lambda batch: batch[:, 0, :, :16].sum((1, 2))
    found = explain(model, image, hshap.Bisection(4), search)
    left = np.tile(np.arange(32) < 16, (16, 1))
    assert np.array_equal(ignored(found), ~left)
    auto = found.attribution(smooth="auto")
    assert not auto[~left].any()
    assert auto.sum() == pytest.approx(found.score - found.baseline_score)
    plain, smooth = found.attribution(smooth=0), found.attribution(smooth=2.0)
    room = ndimage.gaussian_filter(left.astype(float), 2.0)
    divided = np.where(left, plain / np.where(left, room, 1.0), 0.0)
    wanted = np.where(left, ndimage.gaussian_filter(divided, 2.0), 0.0)
    np.testing.assert_allclose(smooth, wanted, atol=1e-12)
    assert smooth.sum() == pytest.approx(plain.sum())


def test_nothing_found_gives_empty_maps():
    found = explain(any_marked, marked((8, 8), []), hshap.Dyadic(1))
    assert found.leaves == ()
    views = (found.saliency, found.coefficients, found.attribution)
    for view in views:
        assert view().shape == (8, 8)
        assert not view().any()
    assert not found.attribution(smooth="auto").any()
    assert found.boxes() == []
    assert found.complete
    assert "nothing relevant" in repr(found)
    assert found.at(min_size=4).leaves == ()
