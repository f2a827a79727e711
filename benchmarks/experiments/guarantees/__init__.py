"""The guarantees of findings, tried on simulations with known truth and on four data sets.

Run `benchmarks/run guarantees`. A part that is in the results already is not made again; delete its
entry to make it anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from benchmarks.core import markdown, results
from benchmarks.core.provenance import provenance, versions
from benchmarks.experiments.guarantees import conformal, shortcuts, simulated

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS: dict[str, Callable[[], Any]] = {
    "p-values": simulated.p_values,
    "power": simulated.power,
    "conformal": conformal.splits,
    "conformal, half of the images clean": conformal.half_clean,
    "conformal, broken on purpose": conformal.broken,
    "shortcuts": shortcuts.judged,
    "error rates": simulated.error_rates,
}


def run() -> None:
    """Make the parts that the results lack, and write them with a table."""
    path = results.folder("guarantees") / "summary.json"
    content = json.loads(path.read_text()) if path.exists() else {"task": "guarantees", "parts": {}}
    for name, make in PARTS.items():
        if name not in content["parts"]:
            content["parts"][name] = {"rows": make(), **provenance()}
            results.write_experiment(content | {"versions": versions()}, page(content["parts"]))


def page(parts: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    told = []
    for name, part in parts.items():
        told.append(f"## {name[0].upper()}{name[1:]}")
        told += _tables(part["rows"])
        told.append(f"Commit {part['commit']}, {part['date']}.")
    return "\n\n".join(told) + "\n"


def _tables(rows: Any) -> list[str]:
    if isinstance(rows, dict):
        head = f"{rows['count']} null regions, {rows['rounds']} rounds each."
        kinds = {name: row for name, row in rows.items() if isinstance(row, dict)}
        return [head, _table([{"draws": name, **row} for name, row in kinds.items()])]
    if "planted" in rows[0]:
        return [_found(rows), _table(rows)]
    return [_table(rows)]


def _found(rows: list[dict[str, Any]]) -> str:
    told = []
    for planted, words in ((True, "a planted shortcut"), (False, "no shortcut")):
        those = [row for row in rows if row["planted"] is planted]
        found = sum(bool(row["suspicious"]) for row in those)
        told.append(f"{found} of {len(those)} networks with {words} are called suspicious.")
    return " ".join(told)


def _table(rows: list[dict[str, Any]]) -> str:
    return markdown.table(list(rows[0]), [[_cell(row[key]) for key in rows[0]] for row in rows])


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)
