# ruff: noqa: INP001, a script
"""Write the listing of src/hshap into CONTRIBUTING.md: each module with the first line of its text.

python scripts/floor_plan.py           write it
python scripts/floor_plan.py --check   exit code 1 if it is not up to date
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
START, END = "<!-- floor plan -->\n", "<!-- /floor plan -->"
ORDER = (
    "explainer",
    "formats",
    "partitions",
    "baselines",
    "evaluators",
    "games",
    "explanation",
    "plot",
    "metrics",
    "export",
    "testing",
    "demo",
    "cli",
    "_util",
    "errors.py",
)
WIDTH = 34


def listing(package: Path) -> str:
    """Return the tree of a package, one line for each module and folder."""
    known = [name for name in ORDER if (package / name).exists()]
    others = sorted(path.name for path in _shown(package) if path.name not in known)
    lines = ["src/hshap/"]
    for name in (*known, *others):
        lines += _lines(package / name, 1)
    return "\n".join(lines) + "\n"


def with_listing(text: str, package: Path) -> str:
    """Return the text with a fresh listing between its markers."""
    before, rest = text.split(START)
    _, after = rest.split(END)
    return f"{before}{START}```\n{listing(package)}```\n{END}{after}"


def _lines(path: Path, depth: int) -> list[str]:
    name = "  " * depth + path.name
    if path.is_file():
        return [f"{name:<{WIDTH}} {_first_line(path)}"]
    first = _first_line(path / "__init__.py")
    lines = [f"{name + '/':<{WIDTH}} {first}".rstrip()]
    for inner in _shown(path):
        lines += _lines(inner, depth + 1)
    return lines


def _shown(folder: Path) -> list[Path]:
    """Return the modules and packages of a folder, files first."""
    found = [
        path
        for path in folder.iterdir()
        if (path.suffix in {".py", ".js"} and not path.name.startswith("__"))
        or (path / "__init__.py").exists()
        or path.name == "assets"
    ]
    return sorted(found, key=lambda path: (path.is_dir(), path.name))


def _first_line(path: Path) -> str:
    if not path.exists():
        return ""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".js":
        return text.split("\n", 1)[0].strip("/* ").rstrip(".")
    return (ast.get_docstring(ast.parse(text)) or "").split("\n", 1)[0].rstrip(".")


def main() -> None:
    """Write the listing, or check it."""
    path = ROOT / "CONTRIBUTING.md"
    before = path.read_text(encoding="utf-8")
    after = with_listing(before, ROOT / "src" / "hshap")
    if "--check" in sys.argv[1:]:
        sys.exit(before != after and "CONTRIBUTING.md: run python scripts/floor_plan.py")
    path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
