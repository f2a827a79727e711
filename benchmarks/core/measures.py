"""Measures of a map: against the truth, and against the model that it explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from skimage.measure import label, regionprops

from hshap import metrics

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Corners, Image, Map, Subject

# Thresholds as shares of a map's maximum, among which the best on validation is chosen. The paper's
# 1e-6 is absolute and stands apart.
SHARES = np.concatenate([[0.0], np.geomspace(1e-3, 0.95, 20)])
FINDING = 0.5  # a finding is a connected region above this share of the maximum
MOST_FINDINGS = 100
STEPS = 12  # of each curve
BATCH = 32


def against_truth(
    heat: Map, truth: NDArray[np.bool_], objects: tuple[Corners, ...]
) -> dict[str, Any]:
    """Compare a map with the mask and the boxes of the true objects."""
    values = np.asarray(heat, np.float64)
    found = findings(values)
    sensitivity = metrics.froc([found], [objects])
    at_shares = metrics.f1(values, truth, _limits(values))
    return {
        "f1": metrics.f1(values, truth),
        "f1_best": metrics.best_score(values, truth),
        "iou_best": metrics.best_score(values, truth, metrics.iou),
        "average_precision": metrics.average_precision(values, truth),
        "pointing": metrics.pointing_game(values, truth),
        "energy": metrics.energy_pointing_game(values, truth),
        "objects": len(objects),
        "objects_found": round(float(sensitivity.sensitivity[-1]) * len(objects)),
        "false_positives": round(float(sensitivity.false_positives[-1])),
        "f1_at_shares": [round(float(score), 5) for score in at_shares],
    }


def findings(heat: NDArray[np.float64]) -> list[tuple[Any, Any, float]]:
    """Return the highest connected regions above half of the maximum, each with its peak."""
    peak = float(heat.max())
    if peak <= 0:
        return []
    regions = regionprops(label(heat > FINDING * peak, connectivity=2), intensity_image=heat)
    boxes = [
        (tuple(map(int, region.bbox[:2])), tuple(map(int, region.bbox[2:])), region.intensity_max)
        for region in regions
    ]
    boxes.sort(key=lambda box: (-box[2], box[0]))
    return boxes[:MOST_FINDINGS]


def against_model(heat: Map, image: Image, subject: Subject) -> dict[str, Any]:
    """Remove pixels, or put them back, in the map's order, and measure the model's scores."""
    values = np.asarray(heat, np.float64)

    def margin(batch: NDArray[Any]) -> NDArray[np.float64]:
        return margins(subject.model, batch)

    def probability(batch: NDArray[Any]) -> NDArray[np.float64]:
        return 1 / (1 + np.exp(-margin(batch)))

    given = {"batch_size": BATCH, "seed": subject.seed}
    counts = np.unique(np.rint([0, *np.geomspace(1, values.size, STEPS)]).astype(int)).tolist()
    ablation = metrics.ablation_curve(margin, image, values, subject.baseline, counts, **given)
    spent = {"steps": STEPS, **given}
    deletion = metrics.deletion(probability, image, values, subject.baseline, **spent)
    insertion = metrics.insertion(probability, image, values, subject.baseline, **spent)
    return {
        "deletion": metrics.area_under(deletion),
        "insertion": metrics.area_under(insertion),
        "ablation_counts": counts,
        "ablation": [round(float(score), 4) for score in ablation.scores],
    }


@torch.no_grad()
def margins(model: torch.nn.Module, images: NDArray[Any]) -> NDArray[np.float64]:
    """Return logit(present) - logit(absent) of each image."""
    logits = [
        model(torch.from_numpy(np.ascontiguousarray(images[i : i + BATCH], np.float32))).double()
        for i in range(0, len(images), BATCH)
    ]
    both = torch.cat(logits).numpy()
    return both[:, 1] - both[:, 0]


def _limits(heat: NDArray[np.float64]) -> NDArray[np.float64]:
    # A map that calls nothing relevant finds nothing, whatever the share.
    return SHARES * heat.max() if heat.max() > 0 else np.full(len(SHARES), np.inf)
