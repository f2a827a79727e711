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
MEASURES = [metrics.f1, metrics.iou, metrics.precision, metrics.recall]


@st.composite
def maps_and_truths(draw, grid=GRID):
    """Draw a map and a truth that marks a pixel."""
    truth = draw(arrays(np.bool_, grid).filter(np.any))
    return draw(arrays(np.float64, grid, elements=LEVELS)), truth


@pytest.fixture
def tied(rng):
    """A map with many ties and a truth that it knows something about."""
    truth = rng.random((20, 30)) < 0.2
    return np.round(rng.random((20, 30)) + 0.3 * truth, 1), truth


# Masks


@pytest.mark.parametrize("threshold", [-0.7, 1e-6, 0.25, 5.0])
@given(maps_and_truths())
def test_measures_of_masks_agree_with_scikit_learn(threshold, pair):
    learn = pytest.importorskip("sklearn.metrics")
    heat, truth = pair
    found, there = (heat > threshold).ravel(), truth.ravel()
    for ours, theirs in [
        (metrics.f1, learn.f1_score),
        (metrics.iou, learn.jaccard_score),
        (metrics.precision, learn.precision_score),
        (metrics.recall, learn.recall_score),
    ]:
        expected = theirs(there, found, zero_division=0)
        assert ours(heat, truth, threshold) == pytest.approx(expected, abs=1e-15)


@given(maps_and_truths())
def test_f1_is_the_dice_coefficient(pair):
    heat, truth = pair
    found = heat > 0.25
    dice = 2 * (found & truth).sum() / (found.sum() + truth.sum())
    assert metrics.f1(heat, truth, 0.25) == dice


@pytest.mark.parametrize("measure", MEASURES)
def test_nothing_found_where_something_is_there_scores_zero(measure):
    assert measure(np.zeros(GRID), np.ones(GRID, bool)) == 0.0


@pytest.mark.parametrize(
    "measure",
    [
        *MEASURES,
        metrics.best_score,
        metrics.average_precision,
        metrics.roc_auc,
        metrics.pointing_game,
        metrics.energy_pointing_game,
    ],
)
@pytest.mark.parametrize("truth", [np.zeros(GRID, bool), []])
@pytest.mark.parametrize("level", [0.0, 1.0])
def test_a_clean_image_is_neither_success_nor_failure(measure, truth, level):
    with pytest.raises(ArgumentError, match="truth marks no pixel, so there is nothing to find"):
        measure(np.full(GRID, level), truth)


def test_best_threshold_names_the_clean_image():
    heat, truth = np.array([0.1, 0.5]), np.array([False, True])
    with pytest.raises(ArgumentError, match=r"truths\[1\] marks no pixel.*leave this image out"):
        metrics.best_threshold([heat, heat], [truth, ~truth & truth])


def test_froc_counts_findings_on_clean_images_as_false_positives():
    box = ((0, 0), (2, 2))
    curve = metrics.froc([[(*box, 0.9)], [(*box, 0.5)]], [[box], []])
    assert (curve.sensitivity[-1], curve.false_positives[-1]) == (1.0, 0.5)


def test_the_threshold_of_the_paper_is_the_default_and_is_not_passed_by_itself():
    truth = np.array([True, True])
    assert metrics.recall(np.array([1e-6, 2e-6]), truth) == 0.5


@pytest.mark.parametrize("measure", MEASURES)
@given(maps_and_truths())
def test_several_thresholds_give_what_each_gives_alone(measure, pair):
    thresholds = np.array([-1.0, 0.0, 0.3, 9.0])
    together = measure(*pair, thresholds)
    assert together.tolist() == [measure(*pair, float(limit)) for limit in thresholds]


@pytest.mark.parametrize("measure", MEASURES)
def test_one_threshold_gives_a_python_float(measure):
    assert type(measure(np.ones(GRID), np.ones(GRID, bool))) is float


def test_truth_may_be_a_list_of_masks_and_boxes():
    truth = np.zeros(GRID, bool)
    truth[1:3, 2:5] = truth[0, 0] = True
    heat = np.arange(42.0).reshape(GRID)
    corner = np.zeros(GRID, bool)
    corner[0, 0] = True
    for given_truth in ([((1, 2), (3, 5)), corner], ([(1, 2), (3, 5)], ((0, 0), (1, 1)))):
        assert metrics.iou(heat, given_truth, 9.0) == metrics.iou(heat, truth, 9.0)


def test_maps_may_be_tensors_integers_and_masks(tied):
    torch = pytest.importorskip("torch")
    heat, truth = tied
    expected = metrics.f1(heat > 0.5, truth)
    assert metrics.f1((heat > 0.5).astype(np.uint8), truth) == expected
    assert metrics.f1(torch.tensor(heat > 0.5), torch.tensor(truth)) == expected


# Thresholds


def every_mask(heat):
    """Return all masks that a threshold can make, by comparing with it."""
    return [heat > limit for limit in [-math.inf, *heat.ravel()]]


def overlap(found, truth):
    return (found & truth).sum() / (found | truth).sum()


def dice(found, truth):
    return 2 * (found & truth).sum() / (found.sum() + truth.sum())


@pytest.mark.parametrize(("measure", "oracle"), [(metrics.f1, dice), (metrics.iou, overlap)])
@given(maps_and_truths())
def test_best_score_is_the_best_of_all_thresholds(measure, oracle, pair):
    heat, truth = pair
    expected = max(oracle(found, truth) for found in every_mask(heat))
    assert metrics.best_score(heat, truth, measure) == pytest.approx(expected, abs=1e-15)


def test_best_score_takes_pixels_of_equal_value_together():
    # The best three of four equal pixels would score 1.
    assert metrics.best_score([0.0, 0.5, 0.5, 0.5, 0.5], np.arange(5) > 1, metrics.iou) == 0.75


def test_best_score_of_a_constant_map_is_the_share_of_the_truth():
    assert metrics.best_score(np.full(4, -3.0), np.arange(4) > 0, metrics.iou) == 0.75


@pytest.mark.parametrize(("measure", "oracle"), [(metrics.f1, dice), (metrics.iou, overlap)])
@given(st.lists(maps_and_truths((3, 4)), min_size=1, max_size=4))
def test_best_threshold_maximises_the_mean_over_images(measure, oracle, pairs):
    heats, truths = zip(*pairs, strict=True)
    mean = lambda limit: np.mean([oracle(h > limit, t) for h, t in pairs])
    expected = max(mean(limit) for limit in [-math.inf, *np.concatenate(heats).ravel()])
    found = metrics.best_threshold(heats, truths, measure)
    assert mean(found) == pytest.approx(expected, abs=1e-12)


def test_best_threshold_is_the_lowest_of_several():
    heat, truth = np.array([0.1, 0.5, 0.9]), np.array([False, True, True])
    assert metrics.best_threshold([heat], [truth], metrics.precision) == 0.1


def test_best_threshold_takes_images_of_different_sizes(rng):
    heats = [rng.random(shape) for shape in [(4, 5), (7, 3)]]
    assert 0.5 < metrics.best_threshold(heats, [heat > 0.6 for heat in heats]) <= 0.6


def test_too_many_candidates_are_thinned_to_quantiles(rng):
    heat = rng.random((100, 100)) ** 4
    truth = heat > np.quantile(heat, 0.8)
    found = metrics.best_threshold([heat, heat], [truth, truth], candidates=100)
    assert metrics.best_threshold([heat], [truth], candidates=10_000) == heat[~truth].max()
    assert 0 < abs((heat <= found).mean() - 0.8) < 0.01


# Rankings


@given(maps_and_truths())
def test_average_precision_agrees_with_scikit_learn(pair):
    learn = pytest.importorskip("sklearn.metrics")
    heat, truth = pair
    expected = learn.average_precision_score(truth.ravel(), heat.ravel())
    assert metrics.average_precision(heat, truth) == pytest.approx(expected, abs=1e-12)


@given(maps_and_truths())
def test_roc_auc_agrees_with_scikit_learn(pair):
    learn = pytest.importorskip("sklearn.metrics")
    heat, truth = pair
    if not truth.all():
        expected = learn.roc_auc_score(truth.ravel(), heat.ravel())
        assert metrics.roc_auc(heat, truth) == pytest.approx(expected, abs=1e-12)


@given(maps_and_truths())
def test_roc_auc_counts_pairs(pair):
    heat, truth = pair
    if not truth.all():
        pairs = list(itertools.product(heat[truth], heat[~truth]))
        won = np.mean([(one > other) + (one == other) / 2 for one, other in pairs])
        assert metrics.roc_auc(heat, truth) == pytest.approx(won, abs=1e-12)


@pytest.mark.parametrize("measure", [metrics.average_precision, metrics.roc_auc])
@given(maps_and_truths())
def test_rankings_see_only_the_order(measure, pair):
    heat, truth = pair
    if not truth.all():
        assert measure(np.exp(heat), truth) == measure(heat, truth)


def test_image_level_auc():
    assert metrics.roc_auc([0.9, 0.2, 0.7, 0.4], np.array([True, False, False, True])) == 0.75


@given(maps_and_truths())
def test_pointing_game_is_the_chance_of_a_random_highest_pixel(pair):
    heat, truth = pair
    highest = [place for place in np.ndindex(GRID) if heat[place] == heat.max()]
    expected = np.mean([truth[place] for place in highest]) if heat.max() > 0 else 0.0
    assert metrics.pointing_game(heat, truth) == pytest.approx(expected, abs=1e-15)


@given(maps_and_truths())
def test_energy_is_the_share_of_positive_mass(pair):
    heat, truth = pair
    total = sum(value for value in heat.ravel() if value > 0)
    inside = sum(value for value in heat[truth] if value > 0)
    expected = inside / total if total else 0.0
    assert metrics.energy_pointing_game(heat, truth) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("measure", [metrics.pointing_game, metrics.energy_pointing_game])
@pytest.mark.parametrize("level", [0.0, -1.0])
def test_a_map_without_positive_values_points_nowhere(measure, level):
    assert measure(np.full(GRID, level), np.ones(GRID, bool)) == 0.0


@pytest.mark.parametrize("scale", [1e-310, 1e307])
def test_energy_bears_tiny_and_huge_values(scale):
    truth = np.arange(42).reshape(GRID) < 21
    assert metrics.energy_pointing_game(np.full(GRID, scale), truth) == pytest.approx(0.5)


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
def test_froc_agrees_with_a_count_at_every_threshold(hits, oracle, images):
    total = sum(len(objects) for _, objects in images)
    if not total:
        return
    curve = metrics.froc(*zip(*images, strict=True), hits)
    for threshold, false, sensitivity in zip(*curve, strict=True):
        expected = by_hand(images, threshold, oracle)
        assert (sensitivity * total, false * len(images)) == pytest.approx(expected)


@given(IMAGES)
def test_froc_starts_at_nothing_and_never_falls(images):
    if not any(objects for _, objects in images):
        return
    curve = metrics.froc(*zip(*images, strict=True))
    assert [axis[0] for axis in curve] == [math.inf, 0.0, 0.0]
    assert (np.diff(curve.thresholds) < 0).all()
    assert (np.diff(curve.false_positives) >= 0).all()
    assert (np.diff(curve.sensitivity) >= 0).all()


def test_a_second_finding_on_an_object_is_no_false_positive():
    target = ((0, 0), (4, 4))
    curve = metrics.froc([[(*target, 0.9), (*target, 0.5)]], [[target]])
    assert curve.false_positives.tolist() == [0, 0, 0]
    assert curve.sensitivity.tolist() == [0, 1, 1]


def test_one_finding_finds_one_object():
    crowd = [((0, 0), (9, 9)), ((2, 2), (7, 7))]
    curve = metrics.froc([[(*crowd[1], 1.0)]], [crowd])
    assert curve.sensitivity[-1] == 0.5


def test_a_finding_takes_the_object_that_it_overlaps_most():
    around, inner = ((0, 0), (9, 9)), ((3, 3), (6, 6))
    corner = ((0, 0), (2, 2))
    curve = metrics.froc([[(*corner, 0.5), (*inner, 0.9)]], [[around, inner]])
    assert curve.sensitivity.tolist() == [0, 0.5, 1]


def test_froc_takes_the_findings_of_an_explanation():
    finding = Finding((2, 2), (4, 4), np.float32(0.5))
    assert metrics.froc([[finding]], [[((0, 0), (8, 8))]]).sensitivity[-1] == 1.0


def test_sensitivity_at_a_rate_of_false_positives():
    curve = Froc(*map(np.array, ([math.inf, 2, 1, 0], [0, 0.5, 1.0, 3.0], [0, 0.2, 0.6, 0.9])))
    assert [curve.at(rate) for rate in (0, 0.5, 2, 8)] == [0, 0.2, 0.6, 0.9]


@given(IMAGES)
def test_bins_of_size_add_up_to_the_whole(images):
    findings, objects = zip(*images, strict=True)
    bins = metrics.recall_by_size(findings, objects, edges=[3, 8])
    assert sum(part.found for part in bins) == by_hand(images, -math.inf, centre_by_hand)[0]
    sizes = [painted(item).sum() for image in objects for item in image]
    for part in bins:
        assert part.objects == sum(part.low <= size < part.high for size in sizes)


def test_recall_of_an_empty_bin_is_not_a_number():
    assert math.isnan(SizeBin(0.0, 4.0, found=0, objects=0).recall)
    assert SizeBin(0.0, 4.0, found=1, objects=4).recall == 0.25


@given(BOXES, BOXES)
def test_overlap_of_boxes_is_that_of_their_masks(one, other):
    exact = overlap(painted(one), painted(other))
    assert metrics.overlaps(exact - 1e-9 if exact else 0.0)(one, other)
    assert exact == 1 or not metrics.overlaps(exact + 1e-9)(one, other)


# Ablation


def total(batch):
    return batch.sum(axis=tuple(range(1, batch.ndim)))


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_ablation_replaces_the_highest_pixels_one_by_one(rng, batch_size):
    image, heat, reference = rng.random((3, *GRID)), rng.random(GRID), rng.random((3, *GRID))
    counts = [0, 1, 5, 40, 42]
    curve = metrics.ablation_curve(total, image, heat, reference, counts, batch_size=batch_size)
    order = sorted(np.ndindex(GRID), key=lambda place: -heat[place])
    for count, score in zip(*curve, strict=True):
        changed = image.copy()
        for place in order[:count]:
            changed[:, *place] = reference[:, *place]
        assert score == pytest.approx(changed.sum())


def test_default_counts_are_none_and_then_even_on_a_log_scale():
    counts = metrics.ablation_curve(total, np.ones((1, 100, 120)), np.ones((100, 120)), 0.0).counts
    assert counts[:3].tolist() == [0, 1, 2]
    assert counts[-1] == 12_000
    np.testing.assert_allclose(np.diff(np.log(counts[-8:])), np.log(12_000) / 29, atol=1e-2)


def test_ties_come_in_an_order_that_the_seed_fixes():
    image = np.arange(42.0).reshape(1, *GRID)
    curves = [
        metrics.ablation_curve(total, image, np.zeros(GRID), 0.0, [10], seed=seed).scores[0]
        for seed in (0, 0, 1)
    ]
    assert curves[0] == curves[1] != curves[2]


def test_pixels_that_are_not_relevant_come_last():
    heat = np.zeros(GRID)
    heat[2, 3], heat[4, 4] = 1.0, -1.0
    image = (heat == 0).astype(float)[None]
    scores = metrics.ablation_curve(total, image, heat, 5.0, [0, 1, 41, 42]).scores
    assert scores.tolist() == [40, 45, 40 * 5 + 5, 42 * 5]


def test_the_model_sees_batches_of_the_image_s_own_type():
    shapes = []

    def score(batch):
        shapes.append((batch.shape, batch.dtype))
        return np.zeros(len(batch))

    image = np.zeros((2, *GRID), np.float32)
    metrics.ablation_curve(score, image, image[0], np.float64(0.1), range(5), batch_size=3)
    assert shapes == [((3, 2, *GRID), np.float32), ((2, 2, *GRID), np.float32)]


def test_a_score_may_be_a_tensor_and_the_baseline_one_number_for_each_channel():
    torch = pytest.importorskip("torch")
    curve = metrics.ablation_curve(
        lambda batch: torch.from_numpy(batch).sum((1, 2, 3)),
        np.zeros((2, *GRID)),
        np.ones(GRID),
        np.array([1.0, 2.0])[:, None, None],
        [0, 2],
    )
    assert curve.scores.tolist() == [0, 6]


def test_deletion_and_insertion_are_each_other_s_mirror_for_a_sum(rng):
    image, heat = rng.random((1, *GRID)), rng.random(GRID)
    gone = metrics.deletion(total, image, heat, 0.0, steps=6)
    come = metrics.insertion(total, image, heat, 0.0, steps=6)
    assert gone.counts.tolist() == come.counts.tolist() == [0, 7, 14, 21, 28, 35, 42]
    np.testing.assert_allclose(gone.scores + come.scores, image.sum())


def test_the_true_order_has_the_best_areas(rng):
    image = rng.random((1, *GRID))
    for heat in (rng.random(GRID), -image[0]):
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
def test_imputed_pixels_are_close_to_the_solution_at_the_default_tolerance(removed):
    image = np.random.default_rng(1).random((1, 5, 9))
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


def test_a_channel_that_needs_no_work_waits_for_the_others(rng):
    image, removed = rng.random((2, *GRID)), rng.random(GRID) < 0.5
    image[0] = 0.0
    np.testing.assert_allclose(
        metrics.impute(image, removed), imputed_by_sparse_solve(image, removed), atol=5e-3
    )


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


def test_road_leaves_a_pixel_even_of_four():
    image = np.arange(4.0).reshape(1, 2, 2)
    curve = metrics.road(total, image, -image[0], shares=[0.9], noise=0.0)
    assert curve.counts.tolist() == [3]
    assert curve.scores.tolist() == pytest.approx([4 * 3.0])


def test_a_map_that_knows_falls_faster_than_the_control():
    image = np.zeros((1, 40, 40))
    image[0, 10:16, 20:26] = 1.0
    known = metrics.area_under(metrics.road(total, image, image[0]))
    for seed in range(5):
        control = metrics.blurred_random((40, 40), sigma=3.0, seed=seed)
        assert known < metrics.area_under(metrics.road(total, image, control))


def test_blurred_random_agrees_with_scipy():
    noise = np.random.default_rng(4).random((20, 30))
    expected = ndimage.gaussian_filter(noise, 2.0, mode="wrap", truncate=8)
    expected = (expected - expected.min()) / np.ptp(expected)
    ours = metrics.blurred_random((20, 30), sigma=2.0, seed=4)
    np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_a_single_random_pixel_is_a_map_too():
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


def test_paired_bootstrap_is_the_bootstrap_of_the_differences(rng):
    one, other = rng.random((2, 30))
    paired = metrics.paired_bootstrap(one, other, draws=200, seed=1, level=0.9)
    assert paired == metrics.bootstrap_mean(one - other, draws=200, seed=1, level=0.9)


@given(arrays(np.float64, 12, elements=st.floats(-1e3, 1e3)), st.integers(0, 9))
def test_a_bootstrap_interval_lies_within_the_values(values, seed):
    _, low, high = metrics.bootstrap_mean(values, draws=50, seed=seed)
    assert values.min() - 1e-9 <= low <= high <= values.max() + 1e-9


@pytest.mark.parametrize("level", [0.0, 0.8, 0.95, 0.999])
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
BOX = ((0, 0), (2, 2))


def ablate(**changes):
    settings = {"score": total, "image": IMAGE, "heat": HEAT, "baseline": 0.0, **changes}
    return metrics.ablation_curve(**settings)


# What is done, the argument that the message names, the value it shows, and the fix it gives.
CASES = {
    "map with NaN": (lambda: metrics.f1([np.nan], [True]), "heat", "nan at (0,)", "nan_to_num"),
    "map of words": (lambda: metrics.f1(["a"], TRUTH), "heat", "<U1", "array of floats"),
    "empty map": (lambda: metrics.iou([], TRUTH), "heat", "(0,)", "at least one"),
    "truth of another shape": (
        lambda: metrics.f1(HEAT, TRUTH.T),
        "truth",
        "(7, 6)",
        "the map's shape (6, 7)",
    ),
    "truth of integers": (lambda: metrics.f1(HEAT, TRUTH * 1), "truth", "int64", "truth > 0"),
    "truth of plain numbers": (lambda: metrics.f1(HEAT, [1, 0]), "truth", "int64", "truth > 0"),
    "truth of inverted boxes": (
        lambda: metrics.f1(HEAT, [((2, 2), (0, 0))]),
        "truth",
        "((2, 2), (0, 0))",
        "start below stop",
    ),
    "truth of boxes off the grid": (
        lambda: metrics.f1(HEAT, [((0, 0), (6, 8))]),
        "truth",
        "((0, 0), (6, 8))",
        "clip it",
    ),
    "truth of boxes before the grid": (
        lambda: metrics.f1(HEAT, [((-1, 0), (6, 7))]),
        "truth",
        "((-1, 0), (6, 7))",
        "clip it",
    ),
    "truth of boxes with another axis": (
        lambda: metrics.f1(HEAT, [((0,), (2,))]),
        "truth",
        "((0,), (2,))",
        "the grid (6, 7)",
    ),
    "truth of fractional boxes": (
        lambda: metrics.f1(HEAT, [((0, 0.5), (2, 2))]),
        "truth",
        "0.5",
        "round",
    ),
    "threshold that is NaN": (lambda: metrics.f1(HEAT, TRUTH, np.nan), "threshold", "nan", "one"),
    "threshold in words": (lambda: metrics.f1(HEAT, TRUTH, "a"), "threshold", "'a'", "pass an"),
    "threshold that is a flag": (
        lambda: metrics.iou(HEAT, TRUTH, True),
        "threshold",
        "True",
        "one",
    ),
    "measure of one number": (
        lambda: metrics.best_score(HEAT, TRUTH, lambda *_: 1.0),
        "measure",
        "shape ()",
        "one number for each",
    ),
    "more maps than truths": (
        lambda: metrics.best_threshold([HEAT], []),
        "heats",
        "truths has 0",
        "for every image",
    ),
    "no maps": (lambda: metrics.best_threshold([], []), "heats", "has 0", "at least one image"),
    "one candidate": (
        lambda: metrics.best_threshold([HEAT], [TRUTH], candidates=1),
        "candidates",
        "1",
        "2 or more",
    ),
    "precision without truth": (
        lambda: metrics.average_precision(HEAT, ~TRUTH),
        "truth",
        "no pixel",
        "leave this image out",
    ),
    "AUC without truth": (
        lambda: metrics.roc_auc(HEAT, ~TRUTH),
        "truth",
        "no pixel",
        "leave this image out",
    ),
    "AUC with nothing but truth": (
        lambda: metrics.roc_auc(HEAT, TRUTH),
        "truth",
        "every pixel",
        "leave this image out",
    ),
    "finding without score": (
        lambda: metrics.froc([[BOX]], [[BOX]]),
        "findings_per_image",
        "((0, 0), (2, 2))",
        "(start, stop, score)",
    ),
    "finding with a score of NaN": (
        lambda: metrics.froc([[(*BOX, np.nan)]], [[BOX]]),
        "findings_per_image",
        "nan",
        "finite score",
    ),
    "findings of one image alone": (
        lambda: metrics.froc([(*BOX, 0.5)], [[BOX]]),
        "findings_per_image",
        "0",
        "(start, stop)",
    ),
    "objects that are names": (
        lambda: metrics.froc([[]], [["cell"]]),
        "objects_per_image",
        "'cell'",
        "(start, stop)",
    ),
    "objects in a dictionary": (
        lambda: metrics.froc([[]], [[{"start": 0}]]),
        "objects_per_image",
        "{'start': 0}",
        "(start, stop)",
    ),
    "fewer images of objects": (
        lambda: metrics.froc([[], []], [[BOX]]),
        "findings_per_image",
        "has 2",
        "for every image",
    ),
    "no objects": (lambda: metrics.froc([[]], [[]]), "objects_per_image", "no object", "pass some"),
    "boxes of different axes": (
        lambda: metrics.froc([[((0,), (1,), 0.5)]], [[BOX]]),
        "findings_per_image",
        "[1, 2] axes",
        "same number",
    ),
    "overlap in per cent": (lambda: metrics.overlaps(50), "least", "50", "from 0 to 1"),
    "negative rate": (
        lambda: metrics.froc([[]], [[BOX]]).at(-1),
        "false_positives",
        "-1",
        "of 0 or more",
    ),
    "falling edges": (
        lambda: metrics.recall_by_size([[]], [[BOX]], [9, 4]),
        "edges",
        "[9, 4]",
        "sort them",
    ),
    "single edge": (lambda: metrics.recall_by_size([[]], [[BOX]], 9), "edges", "()", "one number"),
    "map of another grid": (
        lambda: ablate(heat=HEAT.T),
        "heat",
        "(7, 6), but the image has (1, 6, 7)",
        "shape (6, 7)",
    ),
    "image of integers": (lambda: ablate(image=IMAGE.astype(int)), "image", "int64", "float32"),
    "baseline of another shape": (
        lambda: ablate(baseline=np.zeros(3)),
        "baseline",
        "(3,)",
        "a number or an array of the image's shape",
    ),
    "too many pixels": (lambda: ablate(counts=[0, 43]), "counts", "[0, 43]", "leave out"),
    "falling counts": (lambda: ablate(counts=[2, 1]), "counts", "[2, 1]", "sort them"),
    "no counts": (lambda: ablate(counts=[]), "counts", "[]", "at most 42"),
    "negative count": (lambda: ablate(counts=[-1]), "counts", "-1", "0 or more"),
    "empty batch": (lambda: ablate(batch_size=0), "batch_size", "0", "1 or more"),
    "negative seed": (lambda: ablate(seed=-1), "seed", "-1", "0 or more"),
    "score of a wrong shape": (
        lambda: ablate(score=lambda batch: batch, counts=[0, 1]),
        "score",
        "(2, 1, 6, 7)",
        "shape (2,)",
    ),
    "score that is NaN": (
        lambda: ablate(score=lambda batch: np.full(len(batch), np.nan), counts=[0]),
        "score",
        "ndarray of shape (1,)",
        "finite number",
    ),
    "no steps": (
        lambda: metrics.deletion(total, IMAGE, HEAT, 0.0, steps=0),
        "steps",
        "0",
        "1 or more",
    ),
    "curve of one point": (
        lambda: metrics.area_under(Curve(np.array([3]), np.array([1.0]))),
        "curve",
        "[3.0]",
        "two different counts",
    ),
    "shares in per cent": (
        lambda: metrics.road(total, IMAGE, HEAT, [10, 50]),
        "shares",
        "[10, 50]",
        "sort them",
    ),
    "negative noise": (
        lambda: metrics.road(total, IMAGE, HEAT, noise=-1),
        "noise",
        "-1",
        "of 0 or more",
    ),
    "nothing left to impute from": (
        lambda: metrics.impute(IMAGE, TRUTH),
        "removed",
        "42 pixels",
        "leaves at least one",
    ),
    "removed of another shape": (
        lambda: metrics.impute(IMAGE, TRUTH[0]),
        "removed",
        "(7,)",
        "shape (6, 7)",
    ),
    "tolerance of zero": (
        lambda: metrics.impute(IMAGE, ~TRUTH, tolerance=0),
        "tolerance",
        "0",
        "or more",
    ),
    "negative blur": (lambda: metrics.blurred_random(GRID, sigma=-1), "sigma", "-1", "or more"),
    "grid with no pixels": (lambda: metrics.blurred_random((0, 3)), "grid", "0", "1 or more"),
    "no values": (lambda: metrics.bootstrap_mean([]), "values", "(0,)", "at least one"),
    "table of values": (lambda: metrics.bootstrap_mean(HEAT), "values", "(6, 7)", "one number"),
    "no draws": (lambda: metrics.bootstrap_mean([1.0], draws=0), "draws", "0", "1 or more"),
    "level in per cent": (lambda: metrics.bootstrap_mean([1.0], level=95), "level", "95", "from 0"),
    "values of different images": (
        lambda: metrics.paired_bootstrap([1.0], [1.0, 2.0]),
        "one",
        "other has 2",
        "for every image",
    ),
    "more successes than trials": (
        lambda: metrics.wilson(3, 2),
        "successes",
        "successes=3",
        "pass at most 2",
    ),
    "no trials": (lambda: metrics.wilson(0, 0), "trials", "0", "1 or more"),
    "certainty": (lambda: metrics.wilson(1, 2, level=1.0), "level", "1.0", "from 0 to 0.999999"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_answered_in_one_line(case):
    act, name, value, fix = CASES[case]
    with pytest.raises(ArgumentError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    assert name in message.partition(";")[0], message
    assert value in message, message
    assert fix in message, message


def test_inputs_are_left_alone(tied):
    heat, truth = tied
    before = heat.copy(), truth.copy()
    for array in (heat, truth):
        array.flags.writeable = False
    metrics.best_score(heat, truth)
    metrics.average_precision(heat, [truth, ((0, 0), (3, 3))])
    metrics.road(total, heat[None], heat, [0.5])
    metrics.insertion(total, heat[None], heat, heat)
    assert np.array_equal(heat, before[0])
    assert np.array_equal(truth, before[1])


def test_everything_public_is_exported_in_order_and_documented():
    assert metrics.__all__ == sorted(metrics.__all__)
    for name in metrics.__all__:
        assert getattr(metrics, name).__doc__
