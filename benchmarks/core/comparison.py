"""Ours against the best of other methods, image by image.

The rival is the best by the very measure and images of the comparison, which favours it.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from benchmarks.core.results import DRAWS, FEWEST
from benchmarks.core.tasks import SEED
from hshap.metrics import paired_bootstrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = Mapping[str, Any]
    Rows = Mapping[str, Mapping[str, Row]]  # by method and image


def by_method(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    """Return the rows by method and image."""
    by: defaultdict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        by[row["method"]][f"{row.get('group', '')}/{row['image']}"] = row
    return dict(by)


def of_common_images(by: Mapping[str, Mapping[str, Row]]) -> dict[str, dict[str, Row]]:
    """Return the rows of the images that every method has."""
    common = frozenset.intersection(*map(frozenset, by.values()))
    return {name: {image: rows[image] for image in sorted(common)} for name, rows in by.items()}


def evaluations(rows: Mapping[str, Row]) -> float:
    """Return the median of a method's evaluations."""
    return median(float(row["evaluations"]) for row in rows.values())


def compared(by: Rows, ours: str, rivals: Sequence[str], measure: str) -> tuple[str, ...]:
    """Return the cells of a line: our mean, the best rival's, the difference, and a verdict."""

    def scores(method: str) -> list[float]:
        return [float(by[method][image][measure]) for image in sorted(by[ours])]

    best = max(rivals, key=lambda method: fmean(scores(method)))
    own, theirs = scores(ours), scores(best)
    middle, low, high = paired_bootstrap(own, theirs, draws=DRAWS, seed=SEED)
    verdict = "leads" if low > 0 else "behind" if high < 0 else "not told apart"
    if len(own) < FEWEST:
        verdict = "too few images"
    difference = f"{middle:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"{fmean(own):.2f}", f"{fmean(theirs):.2f} ({best})", difference, verdict
