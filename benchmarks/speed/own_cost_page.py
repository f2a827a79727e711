"""The page of `own_cost`: a summary of its measurements, the goals, and tables.

Imports nothing heavy, for the reason that `process` gives.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.core.markdown import table
from benchmarks.speed.cases import NOISY, OURS, RIVAL
from benchmarks.speed.goals import Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Row = dict[str, Any]

TIMES_LESS = 10.0
PEAK_MB = {"A": 1000.0, "B": 2000.0}
SHARE = 0.85
BUSY = 0.05
"""With more of the CPUs taken by other processes, the model's share is not judged.

torch's threads wait for each other: when one of them has no core, the model takes up to ten times
as long, and the time outside it seems small.
"""

SPREAD = (
    "total_seconds",
    "outside_seconds",
    "model_seconds",
    "outside_ms_per_evaluation",
    "peak_mb",
    "peak_above_start_mb",
    "share_inside_model",
    "others_cpu",
)

NOTES = """\
Seconds run from the finished image to the finished map: medians, with the range over the runs in
brackets. "Outside model" leaves out the time inside the oracle or the network. MB are 10^6 bytes.
The peak is that of the whole process, including torch and the two images that every method gets.

"Times less" is the reference's time outside the model, divided by that of hshap, with the reference
at threshold 0 and at threshold 1e-6. At 0, rounding in the reference's float32 weights gives parts
that add nothing coefficients of about 1e-8, so it does more work and marks more pixels. At 1e-6 it
is the fairer rival, and its marked pixels are compared with ours. The leaves have the same sizes:
75 x 100 in case A, 62 or 63 on each side in case B.

An evaluation is one input to the model. The reference spends 16 on each region; hshap knows two of
them already, and games of Bisection are smaller.

"Others' CPU" is the largest share of all CPUs that other processes took during a run. Far from 0,
times are too long, and in case C the model's share is too high: torch's threads wait for each
other, so the model is slowed more than the rest."""


def summarise(measurements: Sequence[Row]) -> list[Row]:
    """Return one row for each case and method: medians, ranges, and ratios to the reference."""

    def key(row: Row) -> tuple[str, str]:
        return row["case"], row.get("method") or row["share"]

    order = {key(row): place for place, row in reversed(list(enumerate(measurements)))}
    ordered = sorted(measurements, key=lambda row: order[key(row)])
    rows = [_summary(name, list(runs)) for name, runs in groupby(ordered, key)]
    return [row | _against_reference(row, rows) for row in rows]


def _summary(name: tuple[str, str], runs: list[Row]) -> Row:
    case, method = name
    row: Row = {"case": case, "name": method, "runs": len(runs)}
    failed = [run["failed"] for run in runs if "failed" in run]
    if failed:
        return row | {"failed": failed[0]}
    for field in SPREAD:
        values = [run[field] for run in runs if field in run]
        if values:
            row[field] = {"median": median(values), "min": min(values), "max": max(values)}
    fixed = ("evaluations", "support_pixels", "support_sha256", "tolerance", "weights")
    for field in fixed:
        # The same in every run, because the seed fixes everything; if not, the table shows it.
        values = sorted({run[field] for run in runs if field in run})
        if values:
            row[field] = values[0] if len(values) == 1 else values
    return row


def _against_reference(row: Row, rows: Sequence[Row]) -> Row:
    if row["name"] not in [method.name for method in OURS] or "failed" in row:
        return {}
    found: Row = {}
    for field, reference in (("times_less_than_noisy", NOISY), ("times_less_than_rival", RIVAL)):
        other = _find(rows, row["case"], reference.name)
        if other is not None:
            theirs, ours = other["outside_seconds"], row["outside_seconds"]
            found[field] = theirs["median"] / ours["median"]
            if reference is RIVAL:
                found["same_support"] = other["support_sha256"] == row["support_sha256"]
    return found


def _find(rows: Sequence[Row], case: str, name: str) -> Row | None:
    fits = (row for row in rows if row["case"] == case and row["name"] == name)
    row = next(fits, None)
    return None if row is None or "failed" in row else row


def goals(summary: Sequence[Row]) -> list[Goal]:
    """Return every goal with the outcome and the verdict."""
    found: list[Goal] = []
    for case, limit in PEAK_MB.items():
        ours = [row for row in summary if row["case"] == case and row["name"].startswith("hshap")]
        found += [
            _goal(
                case,
                f"at least {TIMES_LESS:g} times less time than the reference at 1e-6",
                [row.get("times_less_than_rival") for row in ours],
                lambda values: (min(values) >= TIMES_LESS, f"{min(values):.0f} times at least"),
            ),
            _goal(
                case,
                f"peak memory below {limit:.0f} MB",
                [row.get("peak_mb", {}).get("max") for row in ours],
                lambda values, limit=limit: (max(values) < limit, f"{max(values):.0f} MB at most"),
            ),
            _goal(
                case,
                "the same pixels as the reference at 1e-6",
                [row.get("same_support") for row in ours],
                lambda values: (all(values), "identical" if all(values) else "different"),
            ),
        ]
    return [*found, _share_goal([row for row in summary if row["case"] == "C"])]


def _share_goal(rows: Sequence[Row]) -> Goal:
    goal = _goal(
        "C",
        f"at least {SHARE:.0%} of the time inside the model",
        [row.get("share_inside_model", {}).get("median") for row in rows],
        lambda values: (min(values) >= SHARE, f"{min(values):.1%} at least"),
    )
    busy = max((row["others_cpu"]["max"] for row in rows if "others_cpu" in row), default=0.0)
    if goal.met is None or busy <= BUSY:
        return goal
    reached = f"{goal.reached}, but other processes took up to {busy:.0%} of the CPUs"
    return replace(goal, met=None, reached=reached)


def _goal(
    case: str,
    text: str,
    values: Sequence[Any],
    judge: Callable[[Sequence[Any]], tuple[bool, str]],
) -> Goal:
    if not values or None in values:
        return Goal(case, text, "not measured", met=None)
    met, reached = judge(values)
    return Goal(case, text, reached, met=met)


def plain(facts: Row, summary: Sequence[Row], verdicts: Sequence[Goal]) -> str:
    """Return everything as text with aligned columns."""
    parts = [_facts(facts)]
    for title, header, rows in _tables(summary):
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(
                # Names to the left, numbers to the right.
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in (header, *rows)
        ]
        parts.append("\n".join((title, *lines)))
    parts.append("\n".join(_verdict(goal) for goal in verdicts))
    return "\n\n".join(parts)


def markdown(facts: Row, summary: Sequence[Row], verdicts: Sequence[Goal]) -> str:
    """Return everything as a Markdown page."""
    parts = ["# The cost of the library outside the model", _facts(facts)]
    for title, header, rows in _tables(summary):
        parts += [f"## {title}", table(header, rows, right=True)]
    parts += ["## Goals", "\n".join(f"- {_verdict(goal)}" for goal in verdicts)]
    parts += ["## How to read this", NOTES]
    command = "`python -m benchmarks.speed.own_cost`"
    parts.append(f"Written by {command}; every measurement is in `own_cost.json`.")
    return "\n\n".join(parts) + "\n"


def _facts(facts: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value is not None)


def _verdict(goal: Goal) -> str:
    return f"{goal.case}: {goal.goal}: {goal.verdict} ({goal.reached})"


def _tables(summary: Sequence[Row]) -> list[tuple[str, list[str], list[list[str]]]]:
    titles = {
        "A": "Case A: 3 x 1200 x 1600, 10 marker pixels, s = 80",
        "B": "Case B: 3 x 4000 x 4000, 10 marker pixels, s = 80",
        "C": "Case C: ConvNet on 3 x 100 x 120, min_size = 4",
    }
    tables: list[tuple[str, list[str], list[list[str]]]] = []
    for case, title in titles.items():
        rows = [row for row in summary if row["case"] == case]
        columns = SHARE_COLUMNS if case == "C" else METHOD_COLUMNS
        cells = [[row["name"], *(_cell(row, show) for _, show in columns)] for row in rows]
        if cells:
            tables.append((title, ["", *(head for head, _ in columns)], cells))
    return tables


def _cell(row: Row, show: Callable[[Row], str]) -> str:
    if "failed" in row:
        return row["failed"]
    try:
        return show(row)
    except KeyError:
        return "-"


def _spread(field: str, form: str = ".3g") -> Callable[[Row], str]:
    def show(row: Row) -> str:
        middle, low, high = (format(row[field][part], form) for part in ("median", "min", "max"))
        return middle if row["runs"] == 1 else f"{middle} ({low}-{high})"

    return show


def _most(field: str) -> Callable[[Row], str]:
    return lambda row: f"{row[field]['max']:.0f}"


def _others(row: Row) -> str:
    return f"{row['others_cpu']['max']:.0%}"


METHOD_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("runs", lambda row: str(row["runs"])),
    ("total s", _spread("total_seconds")),
    ("outside model s", _spread("outside_seconds")),
    ("evaluations", lambda row: str(row["evaluations"])),
    ("outside ms/eval", _spread("outside_ms_per_evaluation")),
    ("peak MB", _most("peak_mb")),
    ("above start MB", _most("peak_above_start_mb")),
    ("times less (0)", lambda row: f"{row['times_less_than_noisy']:.0f}"),
    ("times less (1e-6)", lambda row: f"{row['times_less_than_rival']:.0f}"),
    ("marked pixels", lambda row: str(row["support_pixels"])),
    ("as reference (1e-6)", lambda row: "same" if row["same_support"] else "DIFFERENT"),
    ("others' CPU", _others),
)

SHARE_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("runs", lambda row: str(row["runs"])),
    ("weights", lambda row: str(row["weights"])),
    ("tolerance", lambda row: str(row["tolerance"])),
    ("total s", _spread("total_seconds")),
    ("outside model s", _spread("outside_seconds")),
    ("evaluations", lambda row: str(row["evaluations"])),
    ("outside ms/eval", _spread("outside_ms_per_evaluation")),
    ("inside the model", _spread("share_inside_model", ".1%")),
    ("others' CPU", _others),
)
