"""How good a map is: against the truth, against the model, and with which uncertainty.

A map, `heat`, is an array of real numbers on the image's grid; more relevant pixels have larger
values. The truth is a bool mask on that grid, or a list of the objects on it, each a mask or a box
`(start, stop)`.

Scores against the truth are those of images with objects, and a truth without a pixel is refused:
a clean image is neither a success nor a failure. A score of 0 counts like any other. Findings on
clean images count as false positives in `froc`, which takes such images.

>>> import numpy as np
>>> heat, truth = np.array([[0.9, 0.0], [0.2, 0.0]]), np.array([[True, False], [False, False]])
>>> f1(heat, truth, threshold=0.5), average_precision(heat, truth)
(1.0, 1.0)
"""

from hshap.metrics.ablation import Curve, ablation_curve, area_under, deletion, insertion
from hshap.metrics.imputation import blurred_random, impute, road
from hshap.metrics.intervals import Interval, bootstrap_mean, paired_bootstrap, wilson
from hshap.metrics.masks import best_score, best_threshold, f1, iou, precision, recall
from hshap.metrics.objects import Froc, SizeBin, centre_inside, froc, overlaps, recall_by_size
from hshap.metrics.rankings import average_precision, energy_pointing_game, pointing_game, roc_auc

__all__ = [
    "Curve",
    "Froc",
    "Interval",
    "SizeBin",
    "ablation_curve",
    "area_under",
    "average_precision",
    "best_score",
    "best_threshold",
    "blurred_random",
    "bootstrap_mean",
    "centre_inside",
    "deletion",
    "energy_pointing_game",
    "f1",
    "froc",
    "impute",
    "insertion",
    "iou",
    "overlaps",
    "paired_bootstrap",
    "pointing_game",
    "precision",
    "recall",
    "recall_by_size",
    "road",
    "roc_auc",
    "wilson",
]
