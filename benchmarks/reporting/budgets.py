"""h-Shap at 10 to 500 evaluations, against all methods that take no more.

Made from the committed rows. Methods that see outputs only are compared among themselves: the
control that shows one cell after another is a rival, grids and trees of ours are not. A method's
evaluations are its median. The rival of a line is the best method by that line's measure, chosen
with the test images in view, which favours it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.core import markdown
from benchmarks.core.comparison import MEASURES, by_method, compared, evaluations, within
from benchmarks.core.results import DRAWS, FEWEST
from benchmarks.core.tasks import SEED
from benchmarks.methods import EVERY
from benchmarks.methods.ours import AT, BUDGETS, FAMILY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from numpy.typing import NDArray

    Rows = Mapping[str, Mapping[str, Mapping[str, Any]]]

OURS = {method.name for method in EVERY if method.family == FAMILY}
GRADIENTS = {method.name for method in EVERY if method.gradients}
AT_BUDGETS = [method.name for method in AT]
OUTPUTS_ONLY = "outputs only"
ALONE = "spots alone smoothed"


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one line for each budget and measure: ours, the best rival, and the difference."""
    by = by_method(rows)
    control = [_control(by[ALONE])] if ALONE in by else []
    return "\n\n".join([_lines(by, _rivals(by)), *control])


def every(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return one line for each budget and rival: the differences in all measures."""
    by = by_method(rows)
    return _differences(by, _rivals(by))


def _rivals(by: Rows) -> list[str]:
    """Return the methods of others that see outputs only."""
    return [method for method in by if method not in OURS | GRADIENTS]


def _differences(by: Rows, rivals: Sequence[str]) -> str:
    lines = [
        (f"{budget} ({len(by[method])} images)", rival, *_against(by, method, rival))
        for budget, method in zip(BUDGETS, AT_BUDGETS, strict=True)
        if method in by
        for rival in within(by, rivals, budget)
        if by[method].keys() <= by[rival].keys()
    ]
    return markdown.table([OUTPUTS_ONLY, "rival", *MEASURES.values()], lines)


def _against(by: Rows, method: str, rival: str) -> list[str]:
    """Return the difference to a rival in each measure; **bold** if the interval leaves out 0."""
    cells: list[str] = []
    for measure in MEASURES:
        pairs = [(by[method][image], by[rival][image]) for image in sorted(by[method])]
        apart = np.array([float(one[measure]) - float(other[measure]) for one, other in pairs])
        low, high = np.quantile(apart[_resampled(len(apart))].mean(axis=1), [0.025, 0.975])
        shown = f"{apart.mean():+.2f} [{low:+.2f}, {high:+.2f}]"
        told = len(apart) >= FEWEST and not low <= 0 <= high
        cells.append(f"**{shown}**" if told else shown)
    return cells


@cache
def _resampled(images: int) -> NDArray[np.intp]:
    """Return the draws of `hshap.metrics.paired_bootstrap`, made once for thousands of pairs."""
    rng = np.random.default_rng(SEED)
    return np.stack([rng.integers(0, images, images) for _ in range(DRAWS)])


def _lines(by: Rows, rivals: Sequence[str]) -> str:
    lines: list[tuple[object, ...]] = []
    images = max((len(by[method]) for method in AT_BUDGETS if method in by), default=0)
    left_out: set[str] = set()
    for budget, method in zip(BUDGETS, AT_BUDGETS, strict=True):
        if method not in by:
            continue
        fewer = f" ({len(by[method])} images)" if len(by[method]) < images else ""
        close = within(by, rivals, budget)
        # A rival must have explained all images that ours has.
        able = [rival for rival in close if by[method].keys() <= by[rival].keys()]
        left_out |= set(close) - set(able)
        lines += [
            (f"{budget}{fewer}", title, *compared(by, method, able, measure))
            for measure, title in MEASURES.items()
        ]
    header = [
        f"{OUTPUTS_ONLY}, {images} images",
        "measure",
        "h-shap",
        "best rival that asks no more",
    ]
    made = markdown.table([*header, "difference", ""], lines)
    if not left_out:
        return made
    methods = f"{len(left_out)} method{'s' * (len(left_out) != 1)}"
    return f"{made}\n\nLeft out for want of rows on all {images} images: {methods}."


def _control(rows: Mapping[str, Mapping[str, Any]]) -> str:
    means = {
        title: sum(float(row[name]) for row in rows.values()) / len(rows)
        for name, title in MEASURES.items()
    }
    told = ", ".join(f"{title} {mean:.2f}" for title, mean in means.items())
    return (
        f"Our control, one cell of `Spots` after another, {evaluations(rows):.0f} evaluations: "
        f"{told}."
    )
