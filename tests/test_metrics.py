"""Metrics: each measure against an oracle of a few lines, or another library; every mistake."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import ndimage, sparse, stats

from hshap import ArgumentError, Finding, metrics
from hshap.metrics import Curve, Froc, SizeBin

GRID = (6, 7)
# Few distinct values, so that ties are common, negative ones among them.
LEVELS = st.sampled_from([-0.5, 0.0, 1e-7, 1e-6, 0.25, 0.5, 2.0])


@st.composite
def maps_and_truths(draw, grid=GRID):
    """Draw a map and a truth that marks a pixel."""
    truth = draw(arrays(np.bool_, grid).filter(np.any))
    return draw(arrays(np.float64, grid, elements=LEVELS)), truth


def overlap(found, truth):
    return (found & truth).sum() / (found | truth).sum()


def dice(found, truth):
    return 2 * (found & truth).sum() / (found.sum() + truth.sum())


def correct(found, truth):
    return (found & truth).sum() / found.sum() if found.any() else 0.0


def covered(found, truth):
    return (found & truth).sum() / truth.sum()


OF_MASKS = {
    metrics.f1: dice,
    metrics.iou: overlap,
    metrics.precision: correct,
    metrics.recall: covered,
}


# Of a map and a truth.


def ranked_precision(heat, truth):
    """Sum precision over steps of recall, pixels of equal value together."""
    limits = sorted(set(heat.ravel().tolist()), reverse=True)
    recalls = [0.0, *(covered(heat >= limit, truth) for limit in limits)]
    steps = zip(limits, np.diff(recalls), strict=True)
    return sum(step * correct(heat >= limit, truth) for limit, step in steps)


def pairs_won(heat, truth):
    pairs = list(itertools.product(heat[truth], heat[~truth]))
    return np.mean([(one > other) + (one == other) / 2 for one, other in pairs])


def chance_of_the_highest(heat, truth):
    return truth[heat == heat.max()].mean() if heat.max() > 0 else 0.0


def positive_mass(heat, truth):
    positive = np.maximum(heat, 0.0)
    return positive[truth].sum() / positive.sum() if positive.any() else 0.0


OF_MAPS = {
    metrics.average_precision: ranked_precision,
    metrics.roc_auc: pairs_won,
    metrics.pointing_game: chance_of_the_highest,
    metrics.energy_pointing_game: positive_mass,
}


@given(maps_and_truths())
def test_measures_equal_their_definitions(pair):
    heat, truth = pair
    for measure, oracle in OF_MASKS.items():
        thresholds = [-0.7, 1e-6, 0.25, 5.0]
        expected = [oracle(heat > limit, truth) for limit in thresholds]
        assert [measure(heat, truth, limit) for limit in thresholds] == pytest.approx(expected)
        assert measure(heat, truth, np.array(thresholds)).tolist() == pytest.approx(expected)
        assert measure(heat, truth) == pytest.approx(expected[1])  # the paper's threshold
    for measure, oracle in OF_MAPS.items():
        if measure is not metrics.roc_auc or not truth.all():
            assert measure(heat, truth) == pytest.approx(oracle(heat, truth), abs=1e-12)
            if measure in {metrics.average_precision, metrics.roc_auc}:
                assert measure(np.exp(heat), truth) == measure(heat, truth)


@pytest.mark.frameworks
@given(maps_and_truths())
def test_measures_agree_with_scikit_learn(pair):
    learn = pytest.importorskip("sklearn.metrics")
    heat, truth = pair
    found, there = (heat > 0.25).ravel(), truth.ravel()
    theirs = (learn.f1_score, learn.jaccard_score, learn.precision_score, learn.recall_score)
    for ours, other in zip(OF_MASKS, theirs, strict=True):
        expected = other(there, found, zero_division=0)
        assert ours(heat, truth, 0.25) == pytest.approx(expected, abs=1e-15)
    expected = learn.average_precision_score(there, heat.ravel())
    assert metrics.average_precision(heat, truth) == pytest.approx(expected, abs=1e-12)
    if not truth.all():
        expected = learn.roc_auc_score(there, heat.ravel())
        assert metrics.roc_auc(heat, truth) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("measure", [*OF_MASKS, *OF_MAPS, metrics.best_score])
@pytest.mark.parametrize("truth", [np.zeros(GRID, bool), []])
def test_clean_images_are_left_out(measure, truth):
    with pytest.raises(ArgumentError, match="truth marks no pixel, so there is nothing to find"):
        measure(np.full(GRID, 1.0), truth)


def test_no_finding_scores_zero():
    everywhere = np.ones(GRID, bool)
    for measure in OF_MASKS:
        assert measure(np.zeros(GRID), everywhere) == 0.0
        assert type(measure(np.ones(GRID), everywhere)) is float
    for measure, level in itertools.product(list(OF_MAPS)[2:], (0.0, -1.0)):
        assert measure(np.full(GRID, level), everywhere) == 0.0
    half = np.arange(42).reshape(GRID) < 21
    for scale in (1e-310, 1e307):
        assert metrics.energy_pointing_game(np.full(GRID, scale), half) == pytest.approx(0.5)


def test_maps_and_truths_take_many_forms(rng):
    torch = pytest.importorskip("torch")
    truth = np.zeros(GRID, bool)
    truth[1:3, 2:5] = truth[0, 0] = True
    heat, corner = np.arange(42.0).reshape(GRID), np.zeros(GRID, bool)
    corner[0, 0] = True
    for given_truth in ([((1, 2), (3, 5)), corner], ([(1, 2), (3, 5)], ((0, 0), (1, 1)))):
        assert metrics.iou(heat, given_truth, 9.0) == metrics.iou(heat, truth, 9.0)
    found = rng.random(GRID) > 0.5
    expected = metrics.f1(found, truth)
    assert metrics.f1(found.astype(np.uint8), truth) == expected
    assert metrics.f1(torch.tensor(found), torch.tensor(truth)) == expected
    assert metrics.roc_auc([0.9, 0.2, 0.7, 0.4], np.array([True, False, False, True])) == 0.75


# Thresholds


@pytest.mark.parametrize("measure", [metrics.f1, metrics.iou])
@given(st.lists(maps_and_truths((3, 4)), min_size=1, max_size=4))
def test_best_thresholds_are_the_best_of_all(measure, pairs):
    oracle = OF_MASKS[measure]
    heats, truths = zip(*pairs, strict=True)
    mean = lambda limit: np.mean([oracle(h > limit, t) for h, t in pairs])
    expected = max(mean(limit) for limit in [-math.inf, *np.concatenate(heats).ravel()])
    assert mean(metrics.best_threshold(heats, truths, measure)) == pytest.approx(expected)
    heat, truth = pairs[0]
    best = max(oracle(heat > limit, truth) for limit in [-math.inf, *heat.ravel()])
    assert metrics.best_score(heat, truth, measure) == pytest.approx(best)


def test_best_thresholds_break_ties(rng):
    """The lowest of several; images of different sizes; many candidates become quantiles."""
    heat, truth = np.array([0.1, 0.5, 0.9]), np.array([False, True, True])
    assert metrics.best_threshold([heat], [truth], metrics.precision) == 0.1
    with pytest.raises(ArgumentError, match=r"truths\[1\] marks no pixel.*leave this image out"):
        metrics.best_threshold([heat, heat], [truth, ~truth & truth])
    heats = [rng.random(shape) for shape in [(4, 5), (7, 3)]]
    assert 0.5 < metrics.best_threshold(heats, [heat > 0.6 for heat in heats]) <= 0.6
    heat = rng.random((100, 100)) ** 4
    truth = heat > np.quantile(heat, 0.8)
    found = metrics.best_threshold([heat, heat], [truth, truth], candidates=100)
    assert metrics.best_threshold([heat], [truth], candidates=10_000) == heat[~truth].max()
    assert 0 < abs((heat <= found).mean() - 0.8) < 0.01


# Objects

SIDES = st.tuples(st.integers(0, 6), st.integers(1, 4))
BOXES = st.tuples(SIDES, SIDES).map(
    lambda sides: (tuple(a for a, _ in sides), tuple(a + n for a, n in sides))
)
FINDINGS = st.tuples(BOXES, st.sampled_from([0.1, 0.5, 0.9])).map(lambda f: (*f[0], f[1]))
IMAGES = st.lists(
    st.tuples(st.lists(FINDINGS, max_size=5), st.lists(BOXES, max_size=3)), min_size=1, max_size=3
)


def painted(box):
    mask = np.zeros((12, 12), bool)
    mask[tuple(map(slice, box[0], box[1]))] = True
    return mask


def by_hand(images, threshold, hits):
    """Count found objects and false positives among the findings that reach a threshold."""
    found = false = 0
    for findings, objects in images:
        free = list(range(len(objects)))
        kept = [finding for finding in findings if finding[2] >= threshold]
        for finding in sorted(kept, key=lambda finding: finding[2], reverse=True):
            touched = [i for i in range(len(objects)) if hits(finding, objects[i])]
            fresh = [i for i in touched if i in free]
            if fresh:
                fits = [overlap(painted(finding), painted(objects[i])) for i in fresh]
                free.remove(fresh[int(np.argmax(fits))])
                found += 1
            false += not touched
    return found, false


def centre_by_hand(finding, target):
    return all(
        2 * low <= first + last <= 2 * high
        for first, last, low, high in zip(finding[0], finding[1], *target, strict=True)
    )


def half_by_hand(finding, target):
    return overlap(painted(finding), painted(target)) >= 0.5


@pytest.mark.parametrize(
    ("hits", "oracle"),
    [(metrics.centre_inside, centre_by_hand), (metrics.overlaps(0.5), half_by_hand)],
)
@given(IMAGES)
def test_froc_counts_at_every_threshold(hits, oracle, images):
    total = sum(len(objects) for _, objects in images)
    if not total:
        return
    curve = metrics.froc(*zip(*images, strict=True), hits)
    assert [axis[0] for axis in curve] == [math.inf, 0.0, 0.0]
    assert (np.diff(curve.thresholds) < 0).all()
    for threshold, false, sensitivity in zip(*curve, strict=True):
        expected = by_hand(images, threshold, oracle)
        assert (sensitivity * total, false * len(images)) == pytest.approx(expected)
    bins = metrics.recall_by_size(*zip(*images, strict=True), edges=[3, 8])
    assert sum(part.found for part in bins) == by_hand(images, -math.inf, centre_by_hand)[0]
    sizes = [painted(item).sum() for _, objects in images for item in objects]
    for part in bins:
        assert part.objects == sum(part.low <= size < part.high for size in sizes)


BOX, AROUND = ((0, 0), (2, 2)), ((0, 0), (9, 9))
INNER = ((3, 3), (6, 6))


@pytest.mark.parametrize(
    ("findings", "objects", "sensitivity", "false"),
    [
        ([[(*BOX, 0.9)], [(*BOX, 0.5)]], [[BOX], []], [0, 1, 1], [0, 0, 0.5]),  # a clean image
        ([[(*BOX, 0.9), (*BOX, 0.5)]], [[BOX]], [0, 1, 1], [0, 0, 0]),  # found twice
        ([[(*INNER, 1.0)]], [[AROUND, ((2, 2), (7, 7))]], [0, 0.5], [0, 0]),  # one finds one
        ([[(*BOX, 0.5), (*INNER, 0.9)]], [[AROUND, INNER]], [0, 0.5, 1], [0, 0, 0]),  # best fit
        ([[Finding(*INNER, np.float32(0.5))]], [[INNER]], [0, 1], [0, 0]),  # of an explanation
    ],
)
def test_froc_of_known_cases(findings, objects, sensitivity, false):
    curve = metrics.froc(findings, objects)
    assert curve.sensitivity.tolist() == sensitivity
    assert curve.false_positives.tolist() == false


def test_rates_and_bins_are_read():
    curve = Froc(*map(np.array, ([math.inf, 2, 1, 0], [0, 0.5, 1.0, 3.0], [0, 0.2, 0.6, 0.9])))
    assert [curve.at(rate) for rate in (0, 0.5, 2, 8)] == [0, 0.2, 0.6, 0.9]
    assert math.isnan(SizeBin(0.0, 4.0, found=0, objects=0).recall)
    assert SizeBin(0.0, 4.0, found=1, objects=4).recall == 0.25


@given(BOXES, BOXES)
def test_overlaps_are_those_of_masks(one, other):
    exact = overlap(painted(one), painted(other))
    assert metrics.overlaps(exact - 1e-9 if exact else 0.0)(one, other)
    assert exact == 1 or not metrics.overlaps(exact + 1e-9)(one, other)


# Ablation


def total(batch):
    return batch.sum(axis=tuple(range(1, batch.ndim)))


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_ablation_replaces_the_highest_pixels(rng, batch_size):
    image, heat, reference = rng.random((3, *GRID)), rng.random(GRID), rng.random((3, *GRID))
    counts = [0, 1, 5, 40, 42]
    curve = metrics.ablation_curve(total, image, heat, reference, counts, batch_size=batch_size)
    order = sorted(np.ndindex(GRID), key=lambda place: -heat[place])
    for count, score in zip(*curve, strict=True):
        changed = image.copy()
        for place in order[:count]:
            changed[:, *place] = reference[:, *place]
        assert score == pytest.approx(changed.sum())


def test_default_counts_are_even_on_a_log_scale():
    counts = metrics.ablation_curve(total, np.ones((1, 100, 120)), np.ones((100, 120)), 0.0).counts
    assert counts[:3].tolist() == [0, 1, 2]
    assert counts[-1] == 12_000
    np.testing.assert_allclose(np.diff(np.log(counts[-8:])), np.log(12_000) / 29, atol=1e-2)


def test_ablation_breaks_ties_by_a_seed():
    """Pixels that are not relevant come last."""
    image = np.arange(42.0).reshape(1, *GRID)
    first, same, other = (
        metrics.ablation_curve(total, image, np.zeros(GRID), 0.0, [10], seed=seed).scores[0]
        for seed in (0, 0, 1)
    )
    assert first == same != other
    heat = np.zeros(GRID)
    heat[2, 3], heat[4, 4] = 1.0, -1.0
    image = (heat == 0).astype(float)[None]
    scores = metrics.ablation_curve(total, image, heat, 5.0, [0, 1, 41, 42]).scores
    assert scores.tolist() == [40, 45, 40 * 5 + 5, 42 * 5]


def test_models_of_ablation_see_plain_batches():
    """Of the image's own type; scores may be tensors, and baselines one number a channel."""
    torch = pytest.importorskip("torch")
    shapes = []

    def score(batch):
        shapes.append((batch.shape, batch.dtype))
        return torch.from_numpy(batch).sum((1, 2, 3))

    image, per_channel = np.zeros((2, *GRID), np.float32), np.array([1.0, 2.0])[:, None, None]
    curve = metrics.ablation_curve(score, image, np.ones(GRID), per_channel, range(5), batch_size=3)
    assert shapes == [((3, 2, *GRID), np.float32), ((2, 2, *GRID), np.float32)]
    assert curve.scores.tolist() == [0, 3, 6, 9, 12]


def test_deletion_mirrors_insertion(rng):
    """For a sum; and the true order has the best areas."""
    image, heat = rng.random((1, *GRID)), rng.random(GRID)
    gone = metrics.deletion(total, image, heat, 0.0, steps=6)
    come = metrics.insertion(total, image, heat, 0.0, steps=6)
    assert gone.counts.tolist() == come.counts.tolist() == [0, 7, 14, 21, 28, 35, 42]
    np.testing.assert_allclose(gone.scores + come.scores, image.sum())
    for curve, sign in ((metrics.deletion, 1), (metrics.insertion, -1)):
        best = metrics.area_under(curve(total, image, image[0], 0.0))
        assert sign * best < sign * metrics.area_under(curve(total, image, heat, 0.0))


def test_area_is_the_mean_height_on_any_spacing():
    counts = np.array([0, 1, 10, 100])
    assert metrics.area_under(Curve(counts, np.full(4, 0.3))) == pytest.approx(0.3)
    assert metrics.area_under(Curve(counts, counts / 100)) == pytest.approx(0.5)
    assert metrics.area_under(Curve(counts[2:], np.ones(2))) == 1.0


# ROAD


def imputed_by_sparse_solve(image, removed):
    """Solve the equations of Rong et al. (2022) with scipy, one row for each removed pixel."""
    places = [tuple(place) for place in np.argwhere(removed)]
    row = {place: i for i, place in enumerate(places)}
    matrix = sparse.lil_matrix((len(places), len(places)))
    right = np.zeros((len(places), len(image)))
    for place, i in row.items():
        for step in itertools.product((-1, 0, 1), repeat=2):
            near = (place[0] + step[0], place[1] + step[1])
            if step == (0, 0) or not all(0 <= near[a] < removed.shape[a] for a in (0, 1)):
                continue
            weight = 1 / 12 if all(step) else 1 / 6
            matrix[i, i] += weight
            if near in row:
                matrix[i, row[near]] = -weight
            else:
                right[i] += weight * image[:, *near]
    out = image.copy()
    out[:, removed] = sparse.linalg.spsolve(matrix.tocsc(), right).reshape(len(places), -1).T
    return out


@pytest.mark.parametrize("share", [0.02, 0.5, 0.95])
@pytest.mark.parametrize("blur", [0.0, 3.0])
@pytest.mark.parametrize("grid", [(23, 31), (1, 40), (16, 16)])
def test_imputation_agrees_with_a_sparse_solve(rng, share, blur, grid):
    image = rng.random((2, *grid))
    heat = ndimage.gaussian_filter(rng.random(grid), blur)
    removed = heat > np.quantile(heat, 1 - share)
    ours = metrics.impute(image, removed, tolerance=1e-12)
    np.testing.assert_allclose(ours, imputed_by_sparse_solve(image, removed), atol=1e-8)


@given(arrays(np.bool_, (5, 9)).filter(lambda removed: not removed.all()))
def test_the_usual_tolerance_is_close(removed):
    image = np.random.default_rng(1).random((2, 5, 9))
    image[0] = 0.0  # a channel that needs no work waits for the other
    ours = metrics.impute(image, removed)
    assert np.array_equal(ours[:, ~removed], image[:, ~removed])
    if removed.any():
        np.testing.assert_allclose(ours, imputed_by_sparse_solve(image, removed), atol=5e-3)


def test_a_wide_hole_is_filled_from_its_rim():
    # Started from the mean, it would be off by 0.1: far from the rim nothing seems amiss.
    ramp = np.broadcast_to(np.linspace(0.0, 1.0, 400), (1, 400, 400))
    removed = np.zeros((400, 400), bool)
    removed[5:-5, 5:-5] = True
    np.testing.assert_allclose(metrics.impute(ramp, removed, tolerance=1e-3), ramp, atol=0.03)


@pytest.mark.parametrize("grid", [(30,), (6, 7, 8)])
def test_imputation_works_on_any_number_of_axes(rng, grid):
    # A ramp is its own weighted mean wherever all neighbours exist.
    ramp = np.indices(grid).sum(axis=0).astype(float)[None]
    removed = np.zeros(grid, bool)
    removed[(slice(2, -2),) * len(grid)] = True
    np.testing.assert_allclose(metrics.impute(ramp, removed, tolerance=1e-10), ramp, atol=1e-6)


def test_road_shows_the_model_imputed_images(rng):
    image, heat, seen = rng.random((2, *GRID)).astype(np.float32), rng.random(GRID), []

    def score(batch):
        seen.extend(batch)
        return total(batch)

    curve = metrics.road(score, image, heat, shares=[0.0, 0.5], noise=0.0)
    removed = heat > np.quantile(heat, 0.5)
    assert curve.counts.tolist() == [0, 21]
    assert np.array_equal(seen[0], image)
    assert seen[1].dtype == np.float32
    np.testing.assert_allclose(seen[1], imputed_by_sparse_solve(image, removed), atol=5e-3)


def test_road_adds_noise_to_imputed_pixels_only(rng):
    image, heat, seen = rng.random((1, 50, 60)), rng.random((50, 60)), []
    for noise in (0.0, 0.1):
        score = lambda batch: seen.append(batch[0]) or total(batch)
        metrics.road(score, image, heat, shares=[0.5], noise=noise)
    grain = (seen[1] - seen[0])[0]
    removed = heat > np.quantile(heat, 0.5)
    assert not grain[~removed].any()
    assert grain[removed].std() == pytest.approx(0.1, rel=0.1)


def test_road_knows_good_maps_from_noise():
    """Of four pixels, one is left; a map that knows falls faster than blurred noise."""
    image = np.arange(4.0).reshape(1, 2, 2)
    curve = metrics.road(total, image, -image[0], shares=[0.9], noise=0.0)
    assert curve.counts.tolist() == [3]
    assert curve.scores.tolist() == pytest.approx([4 * 3.0])
    image = np.zeros((1, 40, 40))
    image[0, 10:16, 20:26] = 1.0
    known = metrics.area_under(metrics.road(total, image, image[0]))
    for seed in range(3):
        control = metrics.blurred_random((40, 40), sigma=3.0, seed=seed)
        assert known < metrics.area_under(metrics.road(total, image, control))


def test_blurred_random_agrees_with_scipy():
    noise = np.random.default_rng(4).random((20, 30))
    expected = ndimage.gaussian_filter(noise, 2.0, mode="wrap", truncate=8)
    expected = (expected - expected.min()) / np.ptp(expected)
    ours = metrics.blurred_random((20, 30), sigma=2.0, seed=4)
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    assert metrics.blurred_random((1,)).tolist() == [0.0]


# Intervals


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_bootstrap_agrees_with_scipy(rng, level):
    values = rng.random(25)
    ours = metrics.bootstrap_mean(values, draws=500, seed=3, level=level)
    theirs = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=500,
        method="percentile",
        confidence_level=level,
        rng=np.random.default_rng(3),
    ).confidence_interval
    assert ours == pytest.approx((values.mean(), *theirs), abs=1e-12)


def test_paired_bootstrap_takes_differences(rng):
    one, other = rng.random((2, 30))
    paired = metrics.paired_bootstrap(one, other, draws=200, seed=1, level=0.9)
    assert paired == metrics.bootstrap_mean(one - other, draws=200, seed=1, level=0.9)


@pytest.mark.parametrize("level", [0.0, 0.95, 0.999])
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_agrees_with_scipy(level, counts):
    value, low, high = metrics.wilson(*counts, level=level)
    theirs = stats.binomtest(*counts).proportion_ci(level, method="wilson")
    assert value == counts[0] / counts[1]
    assert 0 <= low <= value <= high <= 1
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


# Mistakes

HEAT, TRUTH = np.zeros(GRID), np.ones(GRID, bool)
IMAGE = np.zeros((1, *GRID))


def ablate(**changes):
    settings = {"score": total, "image": IMAGE, "heat": HEAT, "baseline": 0.0, **changes}
    return metrics.ablation_curve(**settings)


# What is done; the argument that the message names, the value it shows, and maybe the fix.
MISTAKES = [
    (lambda: metrics.f1([np.nan], [True]), "heat | nan at (0,) | nan_to_num"),
    (lambda: metrics.f1(["a"], TRUTH), "heat | <U1 | array of floats"),
    (lambda: metrics.iou([], TRUTH), "heat | (0,) | at least one"),
    (lambda: metrics.f1(HEAT, TRUTH.T), "truth | (7, 6) | the map's shape (6, 7)"),
    (lambda: metrics.f1(HEAT, TRUTH * 1), "truth | int64 | truth > 0"),
    (lambda: metrics.f1(HEAT, [((2, 2), (0, 0))]), "truth | ((2, 2), (0, 0)) | start below stop"),
    (lambda: metrics.f1(HEAT, [((0, 0), (6, 8))]), "truth | ((0, 0), (6, 8)) | clip it"),
    (lambda: metrics.f1(HEAT, [((0,), (2,))]), "truth | ((0,), (2,)) | the grid (6, 7)"),
    (lambda: metrics.f1(HEAT, [((0, 0.5), (2, 2))]), "truth | 0.5 | round"),
    (lambda: metrics.f1(HEAT, TRUTH, np.nan), "threshold | nan | one"),
    (lambda: metrics.iou(HEAT, TRUTH, True), "threshold | True | one"),
    (lambda: metrics.best_score(HEAT, TRUTH, lambda *_: 1.0), "measure | shape ()"),
    (lambda: metrics.best_threshold([HEAT], []), "heats | truths has 0 | for every image"),
    (lambda: metrics.best_threshold([HEAT], [TRUTH], candidates=1), "candidates | 1 | 2 or more"),
    (lambda: metrics.roc_auc(HEAT, TRUTH), "truth | every pixel | leave this image out"),
    (lambda: metrics.froc([[BOX]], [[BOX]]), "findings_per_image | ((0, 0), (2, 2))"),
    (lambda: metrics.froc([[(*BOX, np.nan)]], [[BOX]]), "findings_per_image | nan | finite score"),
    (lambda: metrics.froc([(*BOX, 0.5)], [[BOX]]), "findings_per_image | 0 | (start, stop)"),
    (lambda: metrics.froc([[]], [["cell"]]), "objects_per_image | 'cell' | (start, stop)"),
    (lambda: metrics.froc([[], []], [[BOX]]), "findings_per_image | has 2 | for every image"),
    (lambda: metrics.froc([[]], [[]]), "objects_per_image | no object | pass some"),
    (lambda: metrics.froc([[((0,), (1,), 0.5)]], [[BOX]]), "findings_per_image | [1, 2] axes"),
    (lambda: metrics.overlaps(50), "least | 50 | from 0 to 1"),
    (lambda: metrics.froc([[]], [[BOX]]).at(-1), "false_positives | -1 | of 0 or more"),
    (lambda: metrics.recall_by_size([[]], [[BOX]], [9, 4]), "edges | [9, 4] | sort them"),
    (lambda: metrics.recall_by_size([[]], [[BOX]], 9), "edges | () | one number"),
    (lambda: ablate(heat=HEAT.T), "heat | (7, 6), but the image has (1, 6, 7) | shape (6, 7)"),
    (lambda: ablate(image=IMAGE.astype(int)), "image | int64 | float32"),
    (lambda: ablate(baseline=np.zeros(3)), "baseline | (3,)"),
    (lambda: ablate(counts=[0, 43]), "counts | [0, 43] | leave out"),
    (lambda: ablate(counts=[2, 1]), "counts | [2, 1] | sort them"),
    (lambda: ablate(batch_size=0), "batch_size | 0 | 1 or more"),
    (lambda: ablate(seed=-1), "seed | -1 | 0 or more"),
    (lambda: ablate(score=lambda batch: batch, counts=[0, 1]), "score | (2, 1, 6, 7) | shape (2,)"),
    (
        lambda: ablate(score=lambda batch: np.full(len(batch), np.nan), counts=[0]),
        "score | ndarray of shape (1,)",
    ),
    (lambda: metrics.deletion(total, IMAGE, HEAT, 0.0, steps=0), "steps | 0 | 1 or more"),
    (lambda: metrics.area_under(Curve(np.array([3]), np.array([1.0]))), "curve | [3.0]"),
    (lambda: metrics.road(total, IMAGE, HEAT, [10, 50]), "shares | [10, 50] | sort them"),
    (lambda: metrics.road(total, IMAGE, HEAT, noise=-1), "noise | -1 | of 0 or more"),
    (lambda: metrics.impute(IMAGE, TRUTH), "removed | 42 pixels | leaves at least one"),
    (lambda: metrics.impute(IMAGE, TRUTH[0]), "removed | (7,) | shape (6, 7)"),
    (lambda: metrics.impute(IMAGE, ~TRUTH, tolerance=0), "tolerance | 0 | or more"),
    (lambda: metrics.blurred_random(GRID, sigma=-1), "sigma | -1 | or more"),
    (lambda: metrics.blurred_random((0, 3)), "grid | 0 | 1 or more"),
    (lambda: metrics.bootstrap_mean([]), "values | (0,) | at least one"),
    (lambda: metrics.bootstrap_mean(HEAT), "values | (6, 7) | one number"),
    (lambda: metrics.bootstrap_mean([1.0], draws=0), "draws | 0 | 1 or more"),
    (lambda: metrics.paired_bootstrap([1.0], [1.0, 2.0]), "one | other has 2 | for every image"),
    (lambda: metrics.wilson(3, 2), "successes | successes=3 | pass at most 2"),
    (lambda: metrics.wilson(0, 0), "trials | 0 | 1 or more"),
    (lambda: metrics.wilson(1, 2, level=1.0), "level | 1.0 | from 0 to 0.999999"),
]


@pytest.mark.parametrize(("act", "told"), MISTAKES)
def test_mistakes_are_answered_in_one_line(act, told):
    name, *parts = told.split(" | ")
    with pytest.raises(ArgumentError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    assert name in message.partition(";")[0], message
    assert all(part in message for part in parts), message


def test_inputs_are_left_alone(rng):
    heat, truth = rng.random((20, 30)), rng.random((20, 30)) < 0.2
    for array in (heat, truth):
        array.flags.writeable = False
    metrics.best_score(heat, truth)
    metrics.average_precision(heat, [truth, ((0, 0), (3, 3))])
    metrics.road(total, heat[None], heat, [0.5])
    metrics.insertion(total, heat[None], heat, heat)
