"""The default call at small budgets against other maps with gradients, on photographs.

Run `benchmarks/run guided`. Test images of each set; validation images choose the threshold of F1.
The evidence and the rule that ends branches were chosen on images of training and validation
(decision 22). `MOST` limits the test images of a set.

Rows of a method on a set that are in the results already are not made again; delete the results to
make all of them anew. A run that was stopped continues where it was.
"""

from __future__ import annotations

import json
from statistics import fmean
from typing import TYPE_CHECKING, Any

from benchmarks.core import markdown, results
from benchmarks.core.comparison import MEASURES, by_method, compared, evaluations, within
from benchmarks.core.provenance import versions
from benchmarks.core.truth_rows import rows_of
from benchmarks.methods.guided import (
    AT,
    BUDGETS,
    COLOURED,
    EVIDENCE,
    JOINED,
    METHODS,
    RANKED,
    RIVALS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.core.protocol import Method

    Row = dict[str, Any]

SETS = ("boards", "platelets", "malaria", "malaria-made")
MADE = ("malaria-made",)  # no photographs: parasites pasted into smears
MOST = {"malaria-made": 20}  # test images; all, where a set is not named


def run(sets: Sequence[str] = SETS) -> None:
    """Make the rows that the results lack, set after set, and write the tables."""
    content = stored()
    for name in sets:
        rows = content["rows"].setdefault(name, [])
        done = {row["method"] for row in rows}
        lacking = tuple(method for method in methods_of(name) if method.name not in done)
        if lacking:
            rows += rows_of("guided", name, lacking, MOST.get(name), MOST.get(name))
            results.write_experiment(content | {"versions": versions()}, page(content))


def methods_of(name: str) -> tuple[Method, ...]:
    """Return the methods of a set.

    Boards have a template, and so cells instead of grids. Their map at a budget is `ranking()`.
    """
    others = (*JOINED, *RANKED, COLOURED)
    return tuple(m for m in METHODS if name != "boards" or m not in others)


def stored() -> dict[str, Any]:
    """Return the committed results, or empty ones."""
    path = results.folder("guided") / "summary.json"
    return json.loads(path.read_text()) if path.exists() else {"task": "guided", "rows": {}}


def page(content: dict[str, Any]) -> str:
    """Return the results as Markdown: every method, and ours against the best other map."""
    there = [name for name in SETS if name in content["rows"]]
    parts = [part for name in there for part in _tables(name, content["rows"][name])]
    rows = [row for name in there for row in content["rows"][name]]
    commits, dates = (", ".join(sorted({row[key] for row in rows})) for key in ("commit", "date"))
    return "\n\n".join([*parts, f"Commit {commits}, {dates}. Means over images."]) + "\n"


def _tables(name: str, rows: list[Row]) -> tuple[str, ...]:
    by = by_method(rows)
    lines = [
        (
            method.name,
            *(f"{fmean(r[measure] for r in by[method.name].values()):.2f}" for measure in MEASURES),
            f"{evaluations(by[method.name]):.0f}",
        )
        for method in METHODS
        if method.name in by
    ]
    images = f"{len(by[EVIDENCE.name])} {'made images' if name in MADE else 'images'}"
    every = markdown.table([f"{name}, {images}", *MEASURES.values(), "evaluations"], lines)
    ours = {EVIDENCE.name: evaluations(by[EVIDENCE.name])}
    ours |= {
        method.name: budget
        for methods in (AT, RANKED, JOINED)
        for method, budget in zip(methods, BUDGETS[-len(methods) :], strict=True)
        if method.name in by
    }
    against = [
        (method, title, *compared(by, method, within(by, RIVALS, budget), measure))
        for method, budget in ours.items()
        for measure, title in MEASURES.items()
    ]
    header = [name, "measure", "ours", "best other map that asks no more", "difference", ""]
    return every, markdown.table(header, against)


if __name__ == "__main__":
    run()
