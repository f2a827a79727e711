"""h-Shap at 50, 100, 200 and 500 evaluations, against all methods that take no more.

Made from the committed rows. A method's evaluations are its median; Grad-CAM takes one, so it is a
rival at every budget. The rival of a line is the best method by that line's measure. It is chosen
with the test images in view, which favours it. Our own control, which shows one cell after another
and plays no games, has a line of its own.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING

from benchmarks.core import markdown, results
from benchmarks.core.tasks import SEED
from benchmarks.methods import EVERY
from benchmarks.methods.ours import BUDGETS
from hshap.metrics import paired_bootstrap

if TYPE_CHECKING:
    from collections.abc import Sequence

MEASURES = {
    "average_precision": "AUPRC",
    "iou_best": "best IoU",
    "f1_validated": "F1 validated",
}
HEADER = ("evaluations", "measure", "h-shap", "best rival that asks no more", "difference", "")
OVER = 1.05  # some peers end a little above their budget
ALONE = "spots alone smoothed"
OURS = {ALONE} | {method.name for method in EVERY if method.family == "hshap"}


def table(rows: Sequence[dict[str, str]]) -> str:
    """Return one line for each budget and measure: ours, the best rival, and the difference."""
    by: defaultdict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in rows:
        by[row["method"]][f"{row['group']}/{row['image']}"] = row
    spent = {m: median(float(r["evaluations"]) for r in mine.values()) for m, mine in by.items()}
    if missing := {f"h-shap at {budget}" for budget in BUDGETS} - by.keys():
        return f"No rows of {', '.join(sorted(missing))}: run the task again."
    lines: list[tuple[object, ...]] = []
    for budget in BUDGETS:
        rivals = [m for m in by if m not in OURS and spent[m] <= OVER * budget]
        for name, title in MEASURES.items():
            lines.append((budget, title, *_compared(by, f"h-shap at {budget}", rivals, name)))
    return markdown.table(HEADER, lines) + (_control(by[ALONE]) if ALONE in by else "")


def _control(rows: dict[str, dict[str, str]]) -> str:
    told = ", ".join(
        f"{title} {fmean(float(row[name]) for row in rows.values()):.2f}"
        for name, title in MEASURES.items()
    )
    asked = median(float(row["evaluations"]) for row in rows.values())
    return f"\n\nOur control, one cell of `Spots` after another, {asked:.0f} evaluations: {told}."


def _compared(
    by: dict[str, dict[str, dict[str, str]]], ours: str, rivals: Sequence[str], measure: str
) -> tuple[str, ...]:
    def scores(method: str) -> list[float]:
        return [float(by[method][image][measure]) for image in sorted(by[ours])]

    best = max(rivals, key=lambda method: fmean(scores(method)))
    own, theirs = scores(ours), scores(best)
    middle, low, high = paired_bootstrap(own, theirs, draws=results.DRAWS, seed=SEED)
    verdict = "leads" if low > 0 else "behind" if high < 0 else "not told apart"
    difference = f"{middle:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"{fmean(own):.2f}", f"{fmean(theirs):.2f} ({best})", difference, verdict
