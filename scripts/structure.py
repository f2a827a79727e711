# ruff: noqa: INP001, a script
"""Measure how readable the code's structure is, and compare it with an earlier revision.

    python scripts/structure.py                     the working tree
    python scripts/structure.py --against v0.1.0    a second column with that revision
    python scripts/structure.py --check             exit code 1 if a limit is exceeded

Needs Python 3.11 and nothing else; `--against` needs git. The rules of each count:

- Entries: files and folders at the top, without `__init__.py`, `__main__.py`, `py.typed`,
  `__pycache__` and names that start with a dot.
- Import layers: the lines of the longest layers contract of import-linter in pyproject.toml.
- Words in 1000 lines: whole words in every Python file of src/hshap, comments, docstrings and
  messages included; *what* in any case. The page's files (.js, .html) are counted by themselves.
- Any or an alias of it: uses in code, not in imports and texts, of `Any` and of every name that is
  set to it (`Tensor: TypeAlias = Any`), since a name for an unchecked type is not a checked one.
- Rules off: the settings of basedpyright that start with `report` and are false or "none".
- Methods of `Explanation`: all functions in the body of the class, properties and private ones too.
- Patched names: see `patched_names`.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
LIMITS = {
    # 16 since files of hospitals and labs have a folder of their own.
    "entries at the top of src/hshap": 16,
    "import layers": 12,
    "typing imports left out of the contracts": 0,
    "Any in 1000 lines of src": 12,
    "Any or an alias of it, in 1000 lines": 12,
    "'what' in 1000 lines of src": 3,
    "'what' in 1000 lines of the page": 3,
    "checker rules off": 3,
    "private names patched in tests": 0,
    "entries at the top of benchmarks": 14,
}
NO_ENTRY = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
PATCHERS = {"setattr", "delattr", "setitem", "delitem"}


@dataclass(frozen=True)
class Measure:
    """One count, and a word on it: which module, or which names."""

    number: float
    note: str = ""

    def __str__(self) -> str:
        shown = f"{self.number:.1f}".removesuffix(".0")
        return f"{shown} ({self.note})" if self.note else shown


def measures(root: Path) -> dict[str, Measure]:
    """Return every measure of the tree at `root`, by its name."""
    package = root / "src" / "hshap"
    modules = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
    page = [
        path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*"))
        if path.suffix in {".js", ".html"}
    ]
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("tool", {})
    layers, typing_left_out = contracts(settings)
    public = public_names(package)
    patched = [
        f"{path.stem}:{name}"
        for path in sorted((root / "tests").glob("*.py"))
        for name in patched_names(path.read_text(encoding="utf-8"), public)
    ]
    return {
        "entries at the top of src/hshap": Measure(entries(package)),
        "import layers": Measure(layers),
        "typing imports left out of the contracts": Measure(int(typing_left_out)),
        "Any in 1000 lines of src": Measure(in_1000_lines(r"\bAny\b", modules.values())),
        "Any or an alias of it, in 1000 lines": any_with_aliases(modules.values()),
        "'what' in 1000 lines of src": Measure(in_1000_lines(r"(?i)\bwhat\b", modules.values())),
        "'what' in 1000 lines of the page": Measure(in_1000_lines(r"(?i)\bwhat\b", page)),
        "longest module": longest(modules, package),
        "checker rules off": Measure(rules_off(settings)),
        "methods of Explanation": methods("Explanation", modules.values()),
        "private names patched in tests": Measure(len(patched), ", ".join(patched)),
        "entries at the top of benchmarks": Measure(entries(root / "benchmarks")),
    }


def entries(folder: Path) -> int:
    """Count the files and folders that a reader sees first."""
    found = (path.name for path in folder.iterdir())
    return sum(not name.startswith(".") and name not in NO_ENTRY for name in found)


def contracts(settings: Mapping[str, dict]) -> tuple[int, bool]:
    """Return the number of import layers, and whether typing imports are not checked."""
    linter = settings.get("importlinter", {})
    layered = [c["layers"] for c in linter.get("contracts", []) if c["type"] == "layers"]
    return max(map(len, layered), default=0), linter.get("exclude_type_checking_imports", False)


def in_1000_lines(pattern: str, texts: Iterable[str]) -> float:
    """Count the matches of a pattern in 1000 lines; 0 if there are no lines."""
    whole = list(texts)
    lines = sum(len(text.splitlines()) for text in whole)
    return 1000 * sum(len(re.findall(pattern, text)) for text in whole) / max(lines, 1)


def any_with_aliases(texts: Iterable[str]) -> Measure:
    """Count the uses of `Any` and of names set to it in 1000 lines; the note lists the names."""
    whole = list(texts)
    nodes = [node for text in whole for node in ast.walk(ast.parse(text))]
    aliases = {
        ast.unparse(node.target)
        for node in nodes
        if isinstance(node, ast.AnnAssign) and node.value and ast.unparse(node.value) == "Any"
    }
    used = sum(isinstance(node, ast.Name) and node.id in {"Any", *aliases} for node in nodes)
    lines = sum(len(text.splitlines()) for text in whole)
    return Measure(1000 * used / max(lines, 1), ", ".join(sorted(aliases)))


def longest(modules: Mapping[Path, str], package: Path) -> Measure:
    """Return the lines of the longest module, and its name."""
    lines, path = max((len(text.splitlines()), path) for path, text in modules.items())
    return Measure(lines, path.relative_to(package).as_posix())


def rules_off(settings: Mapping[str, dict]) -> int:
    """Count the rules of the type checker that are switched off."""
    checker = settings.get("basedpyright", {})
    return sum(
        value in (False, "none") for key, value in checker.items() if key.startswith("report")
    )


def methods(name: str, texts: Iterable[str]) -> Measure:
    """Count the functions in the body of a class; the note tells how many are public."""
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.ClassDef) and node.name == name:
            found = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
            public = sum(not method.startswith("_") for method in found)
            return Measure(len(found), f"{public} of them public")
    return Measure(0, f"no class {name}")


def public_names(package: Path) -> set[str]:
    """Return `hshap.__all__`, read without an import: the tree may be of another revision."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def patched_names(text: str, public: set[str]) -> list[str]:
    """Return the private names that a test module replaces, once for each place.

    Looked at are `setattr`, `delattr`, `setitem` and `delitem` of pytest's monkeypatch (also in
    `with monkeypatch.context() as patch`), `patch`, `patch.object` and `patch.dict` of
    unittest.mock, and assignments to an attribute. A name is private if

    - it lies inside hshap, and is not `hshap.x` or `hshap.x.y` with `x` in `hshap.__all__`; the
      target may be a string, or an expression that starts with an imported name or with a variable
      that was set to `sys.modules["hshap..."]`; or
    - it starts with one underscore, wherever it lies, except in assignments, since an object of the
      test's own may have such attributes.
    """
    tree = ast.parse(text)
    known = _known_names(tree)
    found = [target for node in ast.walk(tree) for target in _targets(node, known)]
    return [path for path in found if _is_private(path, public)]


def _known_names(tree: ast.Module) -> dict[str, str]:
    """Return the full path of each name that is imported, or set to an entry of sys.modules."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                known[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module:
            known |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Assign):
            known |= dict(_from_sys_modules(node.targets[0], node.value))
    return known


def _from_sys_modules(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield (name, module) of `name = sys.modules["module"]`, also of several in one line."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):
            yield from _from_sys_modules(one, its)
    elif isinstance(target, ast.Name) and (module := _module_entry(value)):
        yield target.id, module


def _module_entry(node: ast.expr) -> str | None:
    """Return the module of `sys.modules["module"]`, or of `import_module("module")`."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "sys.modules":
        return _string(node.slice)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
        return _string(node.args[0])
    return None


def _targets(node: ast.AST, known: Mapping[str, str]) -> Iterator[str]:
    """Yield the full path of each name that a call or an assignment replaces."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            path = _path(target, known) if isinstance(target, ast.Attribute) else ""
            if path.startswith("hshap."):
                yield path
    elif isinstance(node, ast.Call) and node.args:
        function = ast.unparse(node.func)
        method = function.rpartition(".")[2]
        if isinstance(node.func, ast.Attribute) and method in PATCHERS:
            yield _patched(node.args, known, item=method.endswith("item"))
        elif re.search(r"(^|\.)patch(\.object|\.dict)?$", function):
            yield _patched(node.args, known, item=method == "dict")


def _patched(args: list[ast.expr], known: Mapping[str, str], *, item: bool) -> str:
    """Return the path of (target, name, ...) or of ("path", ...); of an item, its container's."""
    base = _string(args[0]) or _path(args[0], known)
    name = _string(args[1]) if len(args) > 1 else None
    if base == "sys.modules" and name:
        return name
    if item or name is None or _string(args[0]):
        return base
    return f"{base}.{name}"


def _path(node: ast.expr, known: Mapping[str, str]) -> str:
    """Return the full path of an expression such as `module.Class`; of others, their text."""
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value, known)}.{node.attr}"
    if isinstance(node, ast.Name):
        return known.get(node.id, node.id)
    return _module_entry(node) or ast.unparse(node)


def _string(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _is_private(path: str, public: set[str]) -> bool:
    parts = path.split(".")
    if re.match(r"_[^_]", parts[-1]):
        return True
    if parts[0] != "hshap":
        return False
    return len(parts) < 2 or parts[1] not in public or len(parts) > 3


def checkout(revision: str, folder: Path) -> None:
    """Write the files of a revision into an empty folder."""
    command = ["git", "-C", str(ROOT), "archive", revision]
    packed = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
    if packed.returncode:
        sys.exit(f"--against {revision!r}: {packed.stderr.decode().strip()}; pass a commit or tag")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def exceeded(found: Mapping[str, Measure]) -> list[str]:
    """Return one line for each limit that is not kept."""
    return [
        f"{name}: {found[name]}, at most {limit} allowed"
        for name, limit in LIMITS.items()
        if found[name].number > limit
    ]


def table(columns: Mapping[str, Mapping[str, Measure]]) -> str:
    """Return a Markdown table: a row for each measure, a column for each tree."""
    head = ["measure", "limit", *columns]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in next(iter(columns.values())):
        cells = [str(LIMITS.get(name, "")), *(_brief(found[name]) for found in columns.values())]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _brief(measure: Measure) -> str:
    """Leave out a note that is a long list; `--check` prints it."""
    return str(Measure(measure.number) if len(measure.note) > 40 else measure)


def main() -> None:
    """Print the table; with `--check`, fail if a limit is exceeded."""
    summary, _, _ = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--against", metavar="REVISION", help="compare with this commit or tag")
    parser.add_argument("--check", action="store_true", help="fail if a limit is exceeded")
    options = parser.parse_args()
    columns = {"now": measures(ROOT)}
    if options.against:
        with tempfile.TemporaryDirectory() as folder:
            checkout(options.against, Path(folder))
            columns = {options.against: measures(Path(folder)), **columns}
    sys.stdout.write(table(columns) + "\n")
    if options.check and (lines := exceeded(columns["now"])):
        sys.exit("\n".join(lines))


if __name__ == "__main__":
    main()
