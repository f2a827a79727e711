"""Some peers with their maps smoothed as ours at a budget are: what smoothing alone does for them.

Not their packages' settings, so rows of their own.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.methods import bpt, cells, gradients, partition
from benchmarks.methods.ours import SMOOTH
from hshap.smoothing import gaussian

if TYPE_CHECKING:
    from benchmarks.protocol import Image, Map, Method, Subject


def _explain(subject: Subject, image: Image, method: Method) -> Map:
    found = method.explain(subject, image)
    return gaussian(found, subject.size / SMOOTH, range(found.ndim))


def _smoothed(method: Method) -> Method:
    explain = partial(_explain, method=method)
    return replace(method, name=f"{method.name} smoothed", explain=explain)


METHODS = tuple(
    map(
        _smoothed,
        (
            *(method for method in gradients.METHODS if method.name == "Grad-CAM"),
            partition.default_at(500),
            partition.default_at(100),
            bpt.at(500),
            *(method for method in cells.METHODS if method.name == "captum FeatureAblation"),
        ),
    )
)
