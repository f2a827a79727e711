"""Our own method: the default call, and the paper's at its two tolerances."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import hshap
from benchmarks.core.protocol import Method
from benchmarks.methods.common import probability

if TYPE_CHECKING:
    from benchmarks.core.protocol import Image, Map, Subject
    from hshap.games.search import Search

FAMILY = "hshap"
ALL = hshap.DepthFirst(0.0)
HIGH = hshap.BreadthFirst(percentile=70)


def _model(subject: Subject) -> hshap.Batched:
    # Evaluations are counted, and the check of batches would add one to each image.
    return hshap.Batched(subject.model, check_batches=False)


def _default(subject: Subject, image: Image) -> Map:
    """Explain the logits with no option set, as a user does; the default chooses all by itself."""
    return hshap.Explainer(_model(subject)).explain(image, target=1).attribution()


def _as_in_the_paper(subject: Subject, image: Image, search: Search) -> Map:
    """Explain on the quadtree, with the paper's map: 1 in total, spread evenly over the leaves."""
    partition = hshap.Dyadic(subject.size)
    explainer = hshap.Explainer(_model(subject), hshap.Fixed(subject.baseline), partition, search)
    return explainer.explain(image, target=probability).saliency()


METHODS = (
    Method("h-shap default", FAMILY, _default),
    Method("h-shap quadtree tau=0", FAMILY, partial(_as_in_the_paper, search=ALL)),
    Method("h-shap quadtree tau=70%", FAMILY, partial(_as_in_the_paper, search=HIGH)),
)
