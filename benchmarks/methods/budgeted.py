"""Methods at equal evaluations, for photographs: ours, and peers with and without smoothing.

Our maps at a budget are smoothed, and on boards they are made of cells where the image differs from
its template. So peers are given both: their maps smoothed as ours are (not their packages'
settings, so rows of their own), and the same cells to hide or to show, one at a time.
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
from benchmarks.methods.controls import difference
from benchmarks.methods.ours import BUDGETS, SMOOTH
from hshap import Spots
from hshap._util.smoothing import gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.core.protocol import Image, Map, Subject


def _smooth(subject: Subject, image: Image, method: Method) -> Map:
    found = method.explain(subject, image)
    return gaussian(found, subject.size / SMOOTH, range(found.ndim))


def _smoothed(method: Method) -> Method:
    explain = partial(_smooth, method=method)
    return replace(method, name=f"{method.name} smoothed", explain=explain)


def _ablated(subject: Subject, image: Image) -> Map:
    mask = torch.from_numpy(_spots(subject, image))[None, None]
    return cells.explain(subject, image, kind="FeatureAblation", mask=mask)


def _alone(subject: Subject, image: Image) -> Map:
    """Show each cell by itself: no game at all, one evaluation a cell."""
    labels = _spots(subject, image)
    shown = (np.where(labels == n, image, subject.baseline) for n in range(labels.max() + 1))
    found = [float(scores(subject.model, one[None])[0, PRESENT]) for one in shown]
    bare = float(scores(subject.model, subject.baseline[None])[0, PRESENT])
    return (np.array(found) - bare)[labels] / np.bincount(labels.ravel())[labels]


def _spots(subject: Subject, image: Image) -> NDArray[np.intp]:
    """Return the number of each pixel's cell."""
    return Spots(subject.size).tree(image, subject.baseline).labels


def _of(methods: tuple[Method, ...], name: str) -> Method:
    return next(method for method in methods if method.name == name)


OLD = {method.name for method in (*partition.METHODS, *bpt.METHODS)}
PEERS = (*map(partition.default_at, BUDGETS), *map(bpt.at, BUDGETS))
ABLATION = Method("captum FeatureAblation spots", "captum", _ablated, package="captum")
ALONE = Method("spots alone", "control", _alone)
METHODS = (
    *ours.AT,
    *(method for method in PEERS if method.name not in OLD),
    *map(_smoothed, PEERS),
    *map(
        _smoothed,
        (
            partition.at(64),
            _of(gradients.METHODS, "Grad-CAM"),
            _of(cells.METHODS, "captum FeatureAblation"),
            ABLATION,
            ALONE,
            Method("difference", "control", difference),
        ),
    ),
)
