"""Methods at equal evaluations, for photographs: ours, and peers with and without smoothing.

Our maps at a budget are smoothed, and on boards they are made of cells where the image differs from
its template. So peers are given both: their maps smoothed, by an eighth of the size, and at 10 and
20 evaluations also by half of it, since their regions are large then (not their packages' settings,
so rows of their own), and the same cells to hide or to show, one at a time. Rare colours, a map of
the image alone, is a control.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.core.protocol import Method
from benchmarks.methods import bpt, cells, gradients, ours, partition
from benchmarks.methods.common import PRESENT, scores
from benchmarks.methods.controls import difference, rare_colours
from benchmarks.methods.ours import BUDGETS, SMOOTH
from hshap import Spots
from hshap._util.smoothing import gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image, Map, Subject


SMOOTHED = " smoothed"
"""Ends the names of smoothed maps."""

WIDELY, WIDE = " widely smoothed", 2
"""The same for maps that are smoothed by half of the size."""


def _smooth(subject: Subject, image: Image, method: Method, part: int = SMOOTH) -> Map:
    found = method.explain(subject, image)
    return gaussian(found, subject.size / part, range(found.ndim))


def smoothed(method: Method) -> Method:
    """Return the method with its maps smoothed by an eighth of the size."""
    explain = partial(_smooth, method=method)
    return replace(method, name=f"{method.name}{SMOOTHED}", explain=explain)


def widely_smoothed(method: Method) -> Method:
    """Return the method with its maps smoothed by half of the size, as large regions need it."""
    explain = partial(_smooth, method=method, part=WIDE)
    return replace(method, name=f"{method.name}{WIDELY}", explain=explain)


def _ablated(subject: Subject, image: Image) -> Map:
    mask = torch.from_numpy(_spots(subject, image))[None, None]
    return cells.explain(subject, image, kind="FeatureAblation", mask=mask)


def _alone(subject: Subject, image: Image, budget: int | None = None) -> Map:
    """Show each cell by itself: no game at all, one evaluation a cell and one of the baseline.

    With a budget, the cells that differ most from the baseline in total are shown.
    """
    labels = _spots(subject, image)
    differing = abs(image - subject.baseline).sum(axis=0)
    total = np.bincount(labels.ravel(), differing.ravel())
    most = len(total) if budget is None else budget - 1
    bare = float(scores(subject.model, subject.baseline[None])[0, PRESENT])
    found = np.zeros(len(total))
    for cell in np.argsort(-total, kind="stable")[:most]:
        shown = np.where(labels == cell, image, subject.baseline)
        found[cell] = float(scores(subject.model, shown[None])[0, PRESENT]) - bare
    return (found / np.bincount(labels.ravel()))[labels]


def _spots(subject: Subject, image: Image) -> NDArray[np.intp]:
    """Return the number of each pixel's cell."""
    return Spots(subject.size).tree(image, subject.baseline).labels


def _of(methods: tuple[Method, ...], name: str) -> Method:
    return next(method for method in methods if method.name == name)


OLD = {method.name for method in (*partition.METHODS, *bpt.METHODS)}
PEERS = (*map(partition.default_at, BUDGETS), *map(bpt.at, BUDGETS))
FEW, FEWEST = (10, 20, 50), (10, 20)
ABLATION = Method("captum FeatureAblation spots", "captum", _ablated, package="captum")
ALONE = Method("spots alone", "control", _alone)
ALONE_AT = tuple(Method(f"spots alone {n}", "control", partial(_alone, budget=n)) for n in FEW)
RARE = Method("rare colours", "control", rare_colours)
METHODS = (
    *ours.AT,
    *(method for method in PEERS if method.name not in OLD),
    *map(smoothed, PEERS),
    *map(widely_smoothed, (*map(partition.default_at, FEWEST), *map(bpt.at, FEWEST), RARE)),
    *map(
        smoothed,
        (
            partition.at(64),
            _of(gradients.METHODS, "Grad-CAM"),
            _of(cells.METHODS, "captum FeatureAblation"),
            ABLATION,
            *ALONE_AT,
            ALONE,
            Method("difference", "control", difference),
            RARE,
        ),
    ),
)
