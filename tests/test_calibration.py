"""Calibration: the promised loss holds over random splits, is not vacuous, and refuses too few."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

import hshap
from hshap import ArgumentError, Bisection, Calibration, Constant, Explainer, FormatError, calibrate
from hshap.explanation.guarantees.closeness import closeness, steps_to
from hshap.explanation.guarantees.losses import steps_of
from hshap.explanation.guarantees.risk_control import (
    corrected,
    highest_limit,
    images_needed,
    loss_at,
)
from hshap.export.page.tables import tabulate

SIDE = 24
LOSSES = ("missed area", "missed objects", "false area")


def explained(seed, blur=1):
    """Return an explanation of an image with one to three squares, and their boxes.

    The model sees only the corner of each square, so that findings are smaller than objects.
    """
    rng = np.random.default_rng(seed)
    image, boxes = np.zeros((1, SIDE, SIDE)), []
    for _ in range(rng.integers(1, 4)):
        side = int(rng.integers(2, 6))
        top, left = rng.integers(0, SIDE - side, 2).tolist()
        image[0, top : top + blur, left : left + blur] = rng.uniform(0.5, 1.0)
        boxes.append(((top, left), (top + side, left + side)))
    explainer = Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3)),
        baseline=Constant(0.0),
        partition=Bisection(min_size=2),
    )
    return explainer.explain(image, target=0), boxes


@pytest.fixture(scope="module")
def images():
    return [explained(seed) for seed in range(120)]


def test_steps_are_distances_along_the_axes():
    rng = np.random.default_rng(0)
    for shape in ((7,), (5, 6), (3, 4, 5)):
        there = rng.uniform(size=shape) < 0.1
        there.flat[int(rng.integers(there.size))] = True
        places = np.argwhere(there)
        for place, steps in np.ndenumerate(steps_to(there)):
            assert steps == np.abs(places - place).sum(axis=1).min()


def test_closeness_orders_all_pixels_and_is_lowest_without_findings(images):
    near = closeness(images[0][0])
    assert near.max() == 1.0
    assert near.min() >= -1.0
    assert (near[images[0][0].saliency() > 0] > 0).all()
    empty = replace(images[0][0], leaves=())
    assert (closeness(empty) == -1.0).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_of_an_area_is_that_of_its_definition(images, loss):
    rng = np.random.default_rng(1)
    for explanation, boxes in images[:10]:
        near = closeness(explanation)
        truth = np.zeros((SIDE, SIDE), dtype=bool)
        for start, stop in boxes:
            truth[start[0] : stop[0], start[1] : stop[1]] = True
        steps = steps_of(loss, near, boxes)
        for limit in rng.choice(near.ravel(), 8):
            area = near > limit if loss == "false area" else near >= limit
            shares = [area[a[0] : b[0], a[1] : b[1]].mean() for a, b in boxes]
            direct = {
                "missed area": 1 - area[truth].mean(),
                "missed objects": np.mean([share < 0.5 for share in shares]),
                "false area": area[~truth].mean(),
            }[loss]
            given = -limit if loss == "false area" else limit
            assert loss_at(steps, given) == pytest.approx(direct)


def test_the_limit_is_the_best_of_all_that_keep_the_corrected_mean_loss():
    rng = np.random.default_rng(2)
    for _ in range(20):
        steps = [(np.sort(rng.uniform(size=4)), np.arange(1, 5) / 4) for _ in range(12)]
        every = np.unique(np.concatenate([rises for rises, _ in steps]))
        fine = [limit for limit in every if corrected(steps, limit) <= 0.3]
        assert highest_limit(steps, 0.3) == max(fine)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("level", [0.1, 0.25])
def test_over_random_splits_the_mean_loss_is_at_most_the_level_and_at_least_half(
    images, loss, level
):
    rng = np.random.default_rng(3)
    steps = [steps_of(loss, closeness(made), boxes) for made, boxes in images]
    losses = []
    for _ in range(150):
        order = rng.permutation(len(steps))
        limit = highest_limit([steps[i] for i in order[:60]], level)
        losses.append(np.mean([loss_at(steps[i], limit) for i in order[60:]]))
    assert np.mean(losses) <= level + 0.01
    assert np.mean(losses) >= level / 2


def test_calibrate_gives_the_area_whose_loss_was_promised(images):
    explanations, truths = zip(*images[:60], strict=True)
    made = calibrate(explanations, truths, level=0.2)
    missed = []
    for explanation, boxes in images[60:]:
        truth = np.zeros((SIDE, SIDE), dtype=bool)
        for start, stop in boxes:
            truth[start[0] : stop[0], start[1] : stop[1]] = True
        missed.append(1 - made.area(explanation)[truth].mean())
    assert 0.05 < np.mean(missed) < 0.3
    assert str(made) == "80 % of object area expected inside, calibrated on 60 images"
    assert 0 < made.mean_area < 0.9


def test_images_that_are_not_drawn_alike_break_the_promise(images):
    explanations, truths = zip(*images[:60], strict=True)
    made = calibrate(explanations, truths, level=0.2)
    # New images whose findings lie in the opposite corner of the image.
    missed = []
    for explanation, boxes in images[60:]:
        truth = np.zeros((SIDE, SIDE), dtype=bool)
        for start, stop in boxes:
            truth[start[0] : stop[0], start[1] : stop[1]] = True
        missed.append(1 - made.area(explanation)[truth[::-1, ::-1]].mean())
    assert np.mean(missed) > 0.3


@pytest.mark.parametrize("level", [0.3, 0.2, 0.1, 0.05, 0.01])
def test_too_few_images_are_refused_with_the_number_that_is_needed(images, level):
    needed = images_needed(level)
    # The fewest images for which a single new one, with a loss of 1, fits into the level.
    assert 1 / (needed + 1) <= level + 1e-9
    assert 1 / needed > level - 1e-9
    explanations, truths = zip(*images[: min(needed - 1, 120)], strict=True)
    message = f"takes at least {needed} images, but there are {len(truths)}; pass"
    with pytest.raises(ArgumentError, match=message):
        calibrate(explanations, truths, level=level)


def test_a_calibration_is_saved_as_json_and_read_back(images, tmp_path):
    explanations, truths = zip(*images[:20], strict=True)
    for loss in LOSSES:
        made = calibrate(explanations, truths, loss=loss)
        made.save(tmp_path / "made.json")
        assert Calibration.load(tmp_path / "made.json") == made
    other = '{"format": "hshap calibration", "version": 9}'
    for text in ("", "[]", "{}", other, "\xff", "[" * 200_000, "9" * 5000):
        (tmp_path / "bad.json").write_text(text, encoding="latin-1")
        with pytest.raises(FormatError, match=r"bad\.json is not a"):
            Calibration.load(tmp_path / "bad.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="pipe is not a regular file"):
        Calibration.load(tmp_path / "pipe")


def test_an_explanation_applies_shows_and_stores_its_calibration(images, tmp_path):
    explanations, truths = zip(*images[:20], strict=True)
    made = calibrate(explanations, truths)
    explanation = images[30][0].calibrated(made)
    assert (explanation.marked_area() == made.area(images[30][0])).all()
    assert "90 % of object area expected inside, calibrated on 20 images" in repr(explanation)
    explanation.save(tmp_path / "one.npz")
    loaded = hshap.Explanation.load(tmp_path / "one.npz")
    assert loaded.calibration == made
    assert (loaded.marked_area() == explanation.marked_area()).all()


def test_the_page_marks_the_calibrated_area_and_tells_its_promise(images):
    explanations, truths = zip(*images[:20], strict=True)
    made = calibrate(explanations, truths)
    plain, calibrated = images[30][0], images[30][0].calibrated(made)
    table, _ = tabulate("a", {"with": calibrated, "without": plain}, None)
    first, second = table["classes"]
    assert second["marked"] is None
    marked = calibrated.marked_area()
    area = sum(size for size, inside in zip(table["areas"], first["marked"], strict=True) if inside)
    assert area == marked.sum()
    assert "expected inside, calibrated on 20 images" in first["missed"]
    # A truth besides does not take the place of the area.
    both, _ = tabulate("a", {"with": calibrated}, np.eye(SIDE, dtype=bool))
    pairs = zip(both["areas"], both["classes"][0]["marked"], both["truth"], strict=True)
    found = [(size, inside, true) for size, inside, true in pairs]
    assert sum(size for size, inside, _ in found if inside) == marked.sum()
    assert sum(size for size, _, true in found if true) == SIDE


def test_mistakes_with_calibrations_get_one_line(images):
    explanations, truths = zip(*images[:20], strict=True)
    made = calibrate(explanations, truths)
    other = Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3)),
        baseline=Constant(0.0),
        partition=hshap.Dyadic(min_size=2),
    ).explain(np.ones((1, 4, 4)), target=0)
    with pytest.raises(ArgumentError, match="made with Dyadic, DepthFirst, but the calibration"):
        other.calibrated(made)
    with pytest.raises(ArgumentError, match=r"pass one from hshap\.calibrate"):
        other.marked_area()
    with pytest.raises(ArgumentError, match="loss is 'recall'; pass one of"):
        calibrate(explanations, truths, loss="recall")
    with pytest.raises(ArgumentError, match="explanations has 20 entries and truths has 2"):
        calibrate(explanations, truths[:2])
    with pytest.raises(ArgumentError, match="for missed objects, pass a list"):
        calibrate(explanations, [np.ones((SIDE, SIDE), bool)] * 20, loss="missed objects")
    with pytest.raises(ArgumentError, match="calibration is 3; pass the result"):
        other.calibrated(3)
