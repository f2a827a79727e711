"""How well `hshap cost` predicts: evaluations and CPU time of runs, beside those that it expects.

Run `benchmarks/run predictions`. `cost_runs` explains every image by itself. A formula predicts
from the number of objects, as a user may guess it. A sample of the images, as `hshap cost IMAGES`
takes it, predicts the others: single images, and a run of all of them. That is tried on random
orders of the images. A folder holds images with one number of objects, or, where it is mixed, with
1 and with 6. No constant was chosen on the judged images, nor by these tables.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.markdown import table
from benchmarks.core.provenance import provenance, versions
from benchmarks.core.results import write_experiment
from benchmarks.experiments.cost_runs import SIZE, runs
from hshap.cli.costs.formulas import predicted
from hshap.explainer.predicting import FIRST, MOST, NEXT, enough, of_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WITHIN = 0.3
ORDERS = 20
GRID = (100, 120)
LEAST = 3
"""Images of a run, at least; the others may be in the sample."""

SHARES = ("formula", "formula_run", "single", "run", "mixed_run", "run_seconds", "in_range")
HEAD = (
    "partition",
    "search",
    "folders",
    "formula, an image",
    "formula, a run",
    "sample, an image",
    "sample, a run",
    "sample, a run of a mixed folder",
    "sample, CPU time of a run",
    "the range holds a run",
)

Row = dict[str, Any]


def run() -> None:
    """Explain, compare and write the tables."""
    rows = list(runs())
    found = summary(rows)
    content = {"task": "predictions", **provenance(), "versions": versions(), "rows": found}
    write_experiment(content | {"runs": rows}, page(found))


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return the share of predictions within 30 %, for each partition and search, and the mean."""
    found = [
        {"partition": partition, "search": search, **_shares(own)}
        for (partition, search), own in _grouped(rows, "partition", "search")
    ]
    means = {name: float(np.mean([row[name] for row in found])) for name in SHARES}
    return [*found, {"partition": "all", "search": "all", "folders": None, **means}]


def page(rows: Sequence[Row]) -> str:
    """Return the table as Markdown."""
    lines = [
        (
            row["partition"],
            row["search"],
            row["folders"] or "",
            *(f"{row[name]:.0%}" for name in SHARES),
        )
        for row in rows
    ]
    about = (
        "Share of predictions of `hshap cost` within 30 % of the run, on crosses and on families "
        "of drawings that no constant was chosen on. A formula gets the number of objects. A "
        f"sample has {FIRST + NEXT} to {MOST} images of the folder, and predicts the others. The "
        "last column is the share of runs inside the range of 80 % that the command prints:"
    )
    return f"{about}\n\n{table(HEAD, lines)}\n"


def _shares(rows: Sequence[Row]) -> Row:
    folders = [own for _, own in _grouped(rows, "source", "findings")]
    mixed = [own for _, own in _grouped(rows, "source")]
    formulas = [_formula(own[0]) for own in folders]
    alike = [one for own in folders for one in _sampled(own)]
    return {
        "folders": len(folders),
        "formula": _mean(
            _near(expected, row["evaluations"])
            for expected, own in zip(formulas, folders, strict=True)
            for row in own
        ),
        "formula_run": _mean(
            _near(expected * len(own), _total(own, "evaluations"))
            for expected, own in zip(formulas, folders, strict=True)
        ),
        "single": _mean(one["single"] for one in alike),
        "run": _mean(one["run"] for one in alike),
        "mixed_run": _mean(one["run"] for own in mixed for one in _sampled(own)),
        "run_seconds": _mean(one["seconds"] for one in alike),
        "in_range": _mean(one["in_range"] for one in alike),
    }


def _formula(row: Row) -> float:
    way = "group" if row["search"] == "GroupTesting" else "games"
    percentile = 70 if row["search"] == "BreadthFirst" else None
    return predicted(GRID, row["partition"], SIZE, row["findings"], way, percentile).expected


def _sampled(rows: Sequence[Row]) -> list[Row]:
    """Predict a folder from samples of it, by random orders; say how near each came."""
    rng = np.random.default_rng(0)
    return [_one([rows[i] for i in rng.permutation(len(rows))]) for _ in range(ORDERS)]


def _one(rows: Sequence[Row]) -> Row:
    size, most = FIRST + NEXT, min(MOST, len(rows) - LEAST)
    counts = [row["evaluations"] for row in rows]
    while size + NEXT <= most and not enough(counts[:size]):
        size += NEXT
    sample, others = rows[:size], rows[size:]
    expected = of_many(counts[:size], len(others))
    total, warm = _total(others, "evaluations"), sample[FIRST:]
    each = _total(warm, "seconds") / _total(warm, "evaluations")
    return {
        "single": _mean(_near(expected[0] / len(others), row["evaluations"]) for row in others),
        "run": _near(expected[0], total),
        "seconds": _near(expected[0] * each, _total(others, "seconds")),
        "in_range": expected.low <= total <= expected.high,
    }


def _grouped(rows: Iterable[Row], *names: str) -> list[tuple[tuple[Any, ...], list[Row]]]:
    def key(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in names)

    return [(name, list(own)) for name, own in groupby(sorted(rows, key=key), key)]


def _total(rows: Iterable[Row], name: str) -> float:
    return float(sum(row[name] for row in rows))


def _near(expected: float, measured: float) -> bool:
    return abs(expected / measured - 1) <= WITHIN


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
