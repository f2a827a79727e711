# ruff: noqa: INP001, a script
"""Write the tables of docs/support.md from the tests that note a row with the fixture `support`.

    python scripts/support_table.py             runs the tests, writes the tables
    python scripts/support_table.py --check     exit code 1 if a row is missing from the page

The page has a marker `<!-- support: NAME -->` before each table, and `<!-- /support -->` after it.
Rows with the same fields but numbers are one row, with the largest of their numbers. A table of the
page whose tests were not run keeps its rows.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "support.md"
TESTS = ROOT / "tests"
MARKED = re.compile(r"(<!-- support: (\S+) -->\n).*?(<!-- /support -->)", re.DOTALL)

Row: TypeAlias = "dict[str, str | float]"


def noted() -> list[Row]:
    """Run the tests that note rows, and return these."""
    files = sorted(
        path
        for path in TESTS.glob("test_*.py")
        if "(support" in path.read_text(encoding="utf-8")
        or ", support" in path.read_text(encoding="utf-8")
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-p", "no:cacheprovider"]
        env = {**os.environ, "HSHAP_SUPPORT": str(out)}
        done = subprocess.run([*command, *map(str, files)], cwd=ROOT, env=env, check=False)  # noqa: S603
        if done.returncode or not out.exists():
            message = "tests failed; correct them before the tables are written"
            raise SystemExit(message)
        return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]


def joined(rows: Iterable[Row]) -> list[Row]:
    """Return one row for each set of words, with the largest of the numbers."""
    found: dict[tuple[tuple[str, str | float], ...], Row] = {}
    for row in rows:
        words = tuple((name, value) for name, value in row.items() if isinstance(value, str))
        kept = found.setdefault(words, dict(row))
        for name, value in row.items():
            if not isinstance(value, str):
                kept[name] = max(float(kept[name]), float(value))
    return list(found.values())


def table(rows: list[Row]) -> str:
    """Return rows of the same fields as a table in Markdown."""
    names = [name for name in rows[0] if name != "table"]
    lines = ["| " + " | ".join(names) + " |", "|---" * len(names) + "|"]
    lines += ["| " + " | ".join(_shown(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def filled(page: str, rows: list[Row]) -> str:
    """Return the page with the rows of each table in its place."""
    tables: dict[str, list[Row]] = {}
    for row in joined(rows):
        tables.setdefault(str(row["table"]), []).append(row)

    def fill(match: re.Match[str]) -> str:
        own = tables.get(match[2])
        return match[0] if own is None else f"{match[1]}\n{table(own)}\n{match[3]}"

    return MARKED.sub(fill, page)


def missing(page: str, rows: Iterable[Row]) -> list[str]:
    """Return the rows whose words are not on the page."""
    lines = page.splitlines()
    words = [
        [str(v) for k, v in row.items() if isinstance(v, str) and k not in ("table", "library")]
        for row in joined(rows)
    ]
    return [" | ".join(row) for row in words if not any(all(w in ln for w in row) for ln in lines)]


def _shown(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return "0" if value == 0 else f"{value:.1e}" if value < 0.001 else f"{value:.3g}"


def main(arguments: Mapping[str, bool]) -> int:
    """Write or check the page."""
    page, rows = PAGE.read_text(encoding="utf-8"), noted()
    if arguments["check"]:
        lost = missing(page, rows)
        print("\n".join(f"not in docs/support.md: {row}" for row in lost))
        return 1 if lost else 0
    PAGE.write_text(filled(page, rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    raise SystemExit(main(vars(parser.parse_args())))
