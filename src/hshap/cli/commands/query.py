"""`hshap query`: SQL over the tables of a run folder. No model is called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hshap._util.visible import as_text
from hshap.cli.faults import Code, Refusal
from hshap.cli.options import AsJson
from hshap.cli.output import print_csv, print_json, table
from hshap.runs import open as open_run

if TYPE_CHECKING:
    from hshap._util.types import Json

LONGEST = 60
"""Letters of a cell in a printed table."""


def query(
    run: Annotated[str, typer.Argument(help="Run folder, as hshap run wrote it.")],
    sql: Annotated[
        str, typer.Argument(help="Query over the tables explanations, negatives, errors.")
    ],
    *,
    json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV and nothing else.")] = False,
) -> None:
    """Print the rows of an SQL query over a run; DuckDB runs it without access to other files."""
    if json and as_csv:
        raise Refusal(Code.USAGE, "--json and --csv exclude each other; pass one of them")
    found = open_run(run).query(sql)
    names = list(found[0]) if found else []
    if json:
        print_json({"rows": [{name: _as_json(row[name]) for name in names} for row in found]})
    elif as_csv:
        print_csv([names, *(list(row.values()) for row in found)])
    else:
        table(names or ["no rows"], [[_cell(value) for value in row.values()] for row in found])


def _cell(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return as_text(text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}...")


def _as_json(value: object) -> Json:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _as_json(item) for name, item in value.items()}
    return str(value)
