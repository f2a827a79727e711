"""Which methods a figure names, by rules that are computed from the results.

A kind is a family of other methods, or one partition of ours. A kind is shown at its best: by the
setting with the best score on the very images of the figure, so every kind gains alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.core.results import PAIRED_WITH
from benchmarks.reporting.figures.style import FAMILIES, OURS, ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Entries = Mapping[str, dict[str, Any]]

MEASURE = "f1_validated"
PAPER = PAIRED_WITH  # the paper's own method is always named


def kind(method: str) -> str:
    """Return the family of a method; of ours, also the partition ("h-shap at 50" is "at")."""
    family = FAMILIES.get(method, method)
    return f"{family} {method.split()[1]}" if family == OURS else family


def is_ours(method: str) -> bool:
    return FAMILIES.get(method) == OURS


def is_blind(entry: Mapping[str, Any]) -> bool:
    """Tell whether a method never evaluates the model: its cost then says nothing."""
    return entry["evaluations"][0] <= 0


def best_settings(entries: Entries, measure: str = MEASURE) -> list[str]:
    """Return the best setting of each kind and the paper's own method, the highest score first."""
    scores = {method: entry[measure][0] for method, entry in entries.items()}
    best = {*leaders(scores), *({PAPER} & scores.keys())}
    return sorted(ordered(best), key=lambda name: -scores[name])


def leaders(scores: Mapping[str, float]) -> list[str]:
    """Return the method with the highest score of each kind, the best kind first.

    Of equal scores, the first in the order of the tables is returned.
    """
    found: dict[str, str] = {}
    for method in sorted(ordered(scores), key=lambda name: -scores[name]):
        found.setdefault(kind(method), method)
    return list(found.values())


def named(
    scores: Mapping[str, float], ours: int, others: int, keep: Callable[[str], bool] = bool
) -> list[str]:
    """Return the best kinds of ours, the paper's own method and the best other families.

    `keep` tells which methods may be named; at most `ours + others + 1` are.
    """
    best = leaders({method: score for method, score in scores.items() if keep(method)})
    mine = [method for method in best if is_ours(method)][:ours]
    paper = [PAPER] if PAPER in scores and PAPER not in mine else []
    return [*mine, *paper, *[method for method in best if not is_ours(method)][:others]]
