"""Conformal risk control on five sets of images: the mean loss over random splits.

Images of the sets have objects, all of them. Runs with clean images are simulated.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

import hshap
from benchmarks.experiments.guarantees.explained import SETS, explained
from hshap.explanation.guarantees.closeness import closeness
from hshap.explanation.guarantees.losses import steps_of
from hshap.explanation.guarantees.risk_control import highest_limit, images_needed, loss_at

SPLITS, LEVELS = 500, (0.1, 0.2)
LOSSES = ("missed area", "missed objects", "false area")
GROUPS = {
    "synthetic": ("synthetic",),
    "boards": ("boards",),
    "platelets": ("platelets",),
    "smears": ("malaria", "malaria-made"),
}


def splits() -> list[dict[str, Any]]:
    """Return the mean loss over random splits, for each set, loss and level."""
    rows: list[dict[str, Any]] = []
    for group, names in GROUPS.items():
        made = [one for name in names if name in SETS for one in explained(name)]
        near = [closeness(found) for found, _, _ in made]
        for loss in LOSSES:
            truths = [
                _inside(boxes, found.grid) if loss == "missed objects" else truth
                for found, truth, boxes in made
            ]
            pairs = [(steps_of(loss, *pair), pair[0]) for pair in zip(near, truths, strict=True)]
            counted = [(step, heat) for step, heat in pairs if step is not None]
            for level in LEVELS:
                rows += _losses(group, loss, level, *map(list, zip(*counted, strict=True)))
    return rows


def _losses(group: str, loss: str, level: float, steps: list[Any], near: list[Any]) -> Any:
    rng = np.random.default_rng(0)
    count = min(max(len(steps) // 2, images_needed(level), 50), len(steps) - 5)
    if count < images_needed(level):
        return
    found, areas = [], []
    for number in range(SPLITS):
        order = rng.permutation(len(steps))
        limit = highest_limit([steps[i] for i in order[:count]], level)
        found.append(fmean(loss_at(steps[i], limit) for i in order[count:]))
        if number < 20:
            sign = -1.0 if loss == "false area" else 1.0
            areas.append(fmean(float((near[i] >= sign * limit).mean()) for i in order[count:]))
    print(group, loss, level, count, fmean(found), flush=True)
    yield {
        "set": group,
        "loss": loss,
        "level": level,
        "images": len(steps),
        "calibrated on": count,
        "mean loss": fmean(found),
        "standard error": float(np.std(found) / np.sqrt(SPLITS)),
        "mean area": fmean(areas),
    }


def broken() -> list[dict[str, Any]]:
    """Return the loss where new images are not drawn as those of the calibration were."""
    made = explained("synthetic")
    # The first half has one cross in each image, the second half six.
    steps = [steps_of("missed area", closeness(found), truth) for found, truth, _ in made]
    one, six = steps[: len(steps) // 2], steps[len(steps) // 2 :]
    rows = []
    for told, calibration, new in (
        ("one cross, then one", one[::2], one[1::2]),
        ("one cross, then six", one, six),
        ("six crosses, then one", six, one),
    ):
        limit = highest_limit(calibration, 0.1)
        rows.append({"images": told, "level": 0.1, "loss": fmean(loss_at(s, limit) for s in new)})
    return rows


RUNS, EACH, NEW, SIDE, LEVEL = 200, 250, 50, 12, 0.1
BLIND = 0.02
"""Share of the images with objects on which the model finds nothing."""


def half_clean() -> list[dict[str, Any]]:
    """Return the loss on new images with objects after runs of which half the images are clean.

    Every run draws its images anew: one object each, of which the model sees a pixel at its corner
    or in its middle, or nothing. A fifth of the clean images has a bright pixel, too. The last
    column has the loss had clean images counted as a loss of 0.
    """
    rng = np.random.default_rng(0)
    found: dict[str, list[tuple[float, float]]] = {loss: [] for loss in LOSSES}
    for _ in range(RUNS):
        run = [_drawn(rng, clean=bool(n % 2)) for n in range(2 * EACH)]
        new = [_drawn(rng, clean=False) for _ in range(NEW)]
        for loss in LOSSES:
            made = hshap.calibrate(*zip(*run, strict=True), loss=loss, level=LEVEL)
            steps = [steps_of(loss, closeness(one), boxes) for one, boxes in run]
            none = (np.array([np.inf]), np.ones(1))
            sign = -1.0 if loss == "false area" else 1.0
            limit = sign * highest_limit([step or none for step in steps], LEVEL)
            means = (
                fmean(_loss(loss, one.area(image), box) for image, (box,) in new)
                for one in (made, replace(made, limit=limit))
            )
            found[loss].append((next(means), next(means)))
    return [
        {
            "loss": loss,
            "level": LEVEL,
            "runs": RUNS,
            "images with objects": EACH,
            "clean images": EACH,
            "mean loss": fmean(one for one, _ in pairs),
            "standard error": float(np.std([one for one, _ in pairs], ddof=1) / np.sqrt(RUNS)),
            "clean images as 0": fmean(other for _, other in pairs),
        }
        for loss, pairs in found.items()
    ]


def _drawn(rng: np.random.Generator, *, clean: bool) -> tuple[hshap.Explanation, list[Any]]:
    image, boxes = np.zeros((1, SIDE, SIDE)), []
    if clean:
        image[0, *rng.integers(0, SIDE, 2)] = rng.uniform() < 0.2
    else:
        side = int(rng.integers(2, 6))
        top, left = rng.integers(0, SIDE - side, 2).tolist()
        boxes.append(((top, left), (top + side, left + side)))
        shift = side // 2 if rng.uniform() < 0.5 else 0
        image[0, top + shift, left + shift] = rng.uniform() >= BLIND
    return EXPLAINER.explain(image, target=0), boxes


def _loss(loss: str, area: Any, box: Any) -> float:
    """Return the loss of an area by its definition."""
    (top, left), (bottom, right) = box
    inside = area[top:bottom, left:right]
    if loss == "missed area":
        return float(1 - inside.mean())
    if loss == "missed objects":
        return float(inside.mean() < 0.5)
    return float((area.sum() - inside.sum()) / (area.size - inside.size))


EXPLAINER = hshap.Explainer(
    lambda batch: batch.sum(axis=(1, 2, 3)),
    baseline=hshap.Constant(0.0),
    partition=hshap.Bisection(min_size=2),
)


def _inside(boxes: Any, grid: tuple[int, ...]) -> list[Any]:
    """Return boxes that lie on the grid."""
    clipped = [
        (tuple(max(a, 0) for a in start), tuple(map(min, stop, grid))) for start, stop in boxes
    ]
    return [box for box in clipped if all(a < b for a, b in zip(*box, strict=True))]
