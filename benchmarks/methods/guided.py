"""Maps with gradients: the default call with a budget, its evidence alone, and those of peers.

All are smoothed in the same way. They stand apart from methods that see only outputs.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

import hshap
from benchmarks.core.protocol import Method
from benchmarks.methods import gradients
from benchmarks.methods.budgeted import smoothed
from benchmarks.methods.common import PRESENT, as_batch, probability
from benchmarks.methods.controls import rare_colours
from benchmarks.methods.gradients import grad_cam
from benchmarks.methods.ours import FAMILY, SMOOTH, grids_at, spin_evenly
from hshap._util.smoothing import gaussian
from hshap.evaluators.evidence import weights

if TYPE_CHECKING:
    from benchmarks.core.protocol import Image, Map, Subject

BUDGETS = (10, 20, 50, 100, 200, 500)
SHORT = 24  # evaluations of the default call in a joined map
FEWEST_FOR_GRIDS = 100  # with fewer evaluations, a joined map has no grids
GRIDS_WEIGH = 1 / 3  # in the geometric mean of the call and grids
COLOURS_WEIGH = 1 / 2  # in the control with rare colours: the best of four weights
COLOURS_SMOOTH = 2  # the part of the size that rare colours are smoothed by


def _explained(subject: Subject, image: Image, budget: int) -> hshap.Explanation:
    """Explain by the default call; where the image has a template, over cells where they differ."""
    return hshap.Explainer(
        hshap.Batched(subject.model, check_batches=False),
        baseline=hshap.Fixed(subject.baseline),
        partition=hshap.Spots(subject.size) if subject.template else None,
        search=hshap.DepthFirst(max_evaluations=budget),
        evidence="auto",
    ).explain(image, target=probability)


def _at(subject: Subject, image: Image, budget: int) -> Map:
    if subject.template:
        return _ranked(subject, image, budget)  # as without gradients (decision 22)
    return _explained(subject, image, budget).attribution(smooth=subject.size / SMOOTH)


def _ranked(subject: Subject, image: Image, budget: int) -> Map:
    return _smooth(subject, _explained(subject, image, budget).ranking())


def _joined(subject: Subject, image: Image, budget: int) -> Map:
    """Rank by a short default call, and by grids that the rest of the budget pays for.

    The call's map is hardly better with more evaluations than a few. Grids tell something else:
    their games ask about places that the gradients leave out. The part of the budget and the weight
    were chosen on images of training and validation (decision 22).
    """
    if budget < FEWEST_FOR_GRIDS:
        return _ranked(subject, image, budget)
    ranked, grids = _ranked(subject, image, SHORT), grids_at(subject, budget)
    spun = spin_evenly(subject, image, grids, budget - SHORT).attribution(smooth="auto")
    return np.maximum(spun, 0.0) ** GRIDS_WEIGH * ranked ** (1 - GRIDS_WEIGH)


def _evidence(subject: Subject, image: Image) -> Map:
    levels = _explained(subject, image, budget=8).evidence
    return np.zeros(image.shape[1:]) if levels is None else weights(levels)


def gradient_times_difference(subject: Subject, image: Image) -> Map:
    """Return the gradient of the logit times the difference from the baseline, without sign."""
    given = as_batch(image).requires_grad_()
    with torch.enable_grad():
        (slope,) = torch.autograd.grad(subject.model(given)[0, PRESENT], given)
    difference = torch.as_tensor(image - subject.baseline)
    return (slope[0] * difference).abs().sum(0).numpy()


def both(subject: Subject, image: Image) -> Map:
    """Return the geometric mean of Grad-CAM and the smoothed gradient times difference."""
    smooth = subject.size / SMOOTH
    maps = (grad_cam(subject, image), _smooth(subject, gradient_times_difference(subject, image)))
    cam, fine = (heat / max(float(heat.max()), 1e-12) for heat in maps)
    return gaussian(np.sqrt(cam * fine), smooth, range(2))


def both_and_colours(subject: Subject, image: Image) -> Map:
    """Return the mean of both with rare colours, a guess about the image: a control."""
    rare = gaussian(rare_colours(subject, image), subject.size / COLOURS_SMOOTH, range(2))
    return rare**COLOURS_WEIGH * both(subject, image) ** (1 - COLOURS_WEIGH)


def _smooth(subject: Subject, heat: Map) -> Map:
    return gaussian(heat, subject.size / SMOOTH, range(heat.ndim))


DIFFERENCE = Method("gradient x difference", "one pass", gradient_times_difference, gradients=True)
PEERS = tuple(map(smoothed, (*gradients.METHODS, DIFFERENCE)))
BOTH = Method("mean of both", "one pass", both, gradients=True)
COLOURED = Method("mean of both and rare colours", "one pass", both_and_colours, gradients=True)
EVIDENCE = Method("our evidence alone", "evidence", _evidence, gradients=True)
AT = tuple(
    Method(f"h-shap guided at {n}", FAMILY, partial(_at, budget=n), gradients=True) for n in BUDGETS
)
RANKED = tuple(
    Method(f"h-shap ranked at {n}", FAMILY, partial(_ranked, budget=n), gradients=True)
    for n in BUDGETS
)
JOINED = tuple(
    Method(f"h-shap joined at {n}", FAMILY, partial(_joined, budget=n), gradients=True)
    for n in BUDGETS
)
METHODS = (*PEERS, BOTH, COLOURED, EVIDENCE, *AT, *RANKED, *JOINED)
RIVALS = tuple(method.name for method in (*PEERS, BOTH, COLOURED))
