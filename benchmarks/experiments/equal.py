"""Methods that see outputs only, at equal evaluations, on photographs: the rows that tables lack.

Run `benchmarks/run equal`. The main runs measure every map by the model as well, which takes most
of their time; here maps are compared with the truth alone. Test images of each set; a few
validation images choose the threshold of F1. `ASKED` has the budgets of each set, `MOST` limits its
images.

Rows of a method on a set that are in the results already are not made again; delete the results to
make all of them anew. A run that was stopped continues where it was.
"""

from __future__ import annotations

import json
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.core import markdown, results
from benchmarks.core.comparison import MEASURES, by_method, evaluations
from benchmarks.core.provenance import versions
from benchmarks.core.truth_rows import rows_of
from benchmarks.methods import EVERY
from benchmarks.methods.budgeted import FEW, FEWEST, SMOOTHED, WIDELY
from benchmarks.methods.ours import BUDGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.core.protocol import Method

    Row = dict[str, Any]

ASKED: dict[str, tuple[int, ...]] = {
    "malaria": (10, 20),
    "boards": (10, 20),
    "platelets": BUDGETS,
    "malaria-made": (10, 20, 50, 100),
}
MOST = {"malaria-made": 20}  # test images; all, where a set is not named
VALIDATION = {"boards": 4, "platelets": 4, "malaria-made": 4}  # images that choose thresholds


def run(sets: Sequence[str] = tuple(ASKED)) -> None:
    """Make the rows that the results lack, set after set, and write the tables."""
    content = stored()
    for name in sets:
        rows = content["rows"].setdefault(name, [])
        done = {row["method"] for row in rows}
        lacking = [method for method in methods_of(name) if method.name not in done]
        if lacking:
            rows += rows_of("equal", name, lacking, MOST.get(name), VALIDATION.get(name))
            results.write_experiment(content | {"versions": versions()}, page(content))


def methods_of(name: str) -> list[Method]:
    """Return the methods of a set: ours and those of peers at its budgets, and some at small ones.

    Maps over cells are smoothed as those of peers are, so boards need no wider smoothing.
    """
    own = ASKED[name] if name == "malaria-made" else BUDGETS
    at = [f"shap-bpt {n}" for n in ASKED[name]]
    at += [f"PartitionExplainer {n} default" for n in ASKED[name]]
    names = {*at, *(f"{one}{SMOOTHED}" for one in at), *(f"h-shap at {n}" for n in own)}
    names |= {f"spots alone {n}{SMOOTHED}" for n in FEW}
    if name != "boards":
        names |= {f"shap-bpt {n}{WIDELY}" for n in FEWEST}
        names |= {f"PartitionExplainer {n} default{WIDELY}" for n in FEWEST}
        names |= {f"rare colours{SMOOTHED}", f"rare colours{WIDELY}"}
    return [method for method in EVERY if method.name in names]


def stored() -> dict[str, Any]:
    """Return the committed results, or empty ones."""
    path = results.folder("equal") / "summary.json"
    return json.loads(path.read_text()) if path.exists() else {"task": "equal", "rows": {}}


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown: the means of every method."""
    there = [name for name in ASKED if content["rows"].get(name)]
    parts = [_table(name, content["rows"][name]) for name in there]
    rows = [row for name in there for row in content["rows"][name]]
    commits, dates = (", ".join(sorted({row[key] for row in rows})) for key in ("commit", "date"))
    return "\n\n".join([*parts, f"Commit {commits}, {dates}. Means over images."]) + "\n"


def _table(name: str, rows: list[Row]) -> str:
    by = by_method(rows)
    lines = [
        (
            method.name,
            *(f"{fmean(r[measure] for r in by[method.name].values()):.2f}" for measure in MEASURES),
            f"{evaluations(by[method.name]):.0f}",
        )
        for method in EVERY
        if method.name in by
    ]
    images = max(map(len, by.values()))
    return markdown.table([f"{name}, {images} images", *MEASURES.values(), "evaluations"], lines)


if __name__ == "__main__":
    run()
