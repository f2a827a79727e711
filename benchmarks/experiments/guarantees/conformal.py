"""Conformal risk control on five sets of images: the mean loss over random splits."""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np

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
            steps = [steps_of(loss, heat, truth) for heat, truth in zip(near, truths, strict=True)]
            for level in LEVELS:
                rows += _losses(group, loss, level, steps, near)
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


def _inside(boxes: Any, grid: tuple[int, ...]) -> list[Any]:
    """Return boxes that lie on the grid."""
    clipped = [
        (tuple(max(a, 0) for a in start), tuple(map(min, stop, grid))) for start, stop in boxes
    ]
    return [box for box in clipped if all(a < b for a, b in zip(*box, strict=True))]
