#!/usr/bin/env python3
"""Break lines of the kernel at random, one at a time, and see whether the fast tier notices.

    .venv/bin/python scripts/mutate.py             40 changes, drawn with seed 0
    .venv/bin/python scripts/mutate.py 100 7       100 changes, drawn with seed 7
    .venv/bin/python scripts/mutate.py 40 0 --list only show them
    .venv/bin/python scripts/mutate.py 40 0 --core the first stage alone

A change is a sign, a bound, an off by one, or one word for another (`min` for `max`). Each is made
in a copy of the tree. The tests of the core run there until their first failure; only if none
fails, the whole fast tier does. The table names each change and the test that caught it. A change
that can make no difference counts as one that got by: people say so beside the table, with the
reason. The exit code is 1 if more than one in twenty got by.
"""

from __future__ import annotations

import ast
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
KERNEL = (
    "games/*.py",
    "games/search/*.py",
    "partitions/regions.py",
    "partitions/grids.py",
    "evaluators/batched.py",
    "evaluators/canvas.py",
    "evaluators/painting.py",
    "explanation/maps.py",
)
# Theory draws numbers at random for a page, and none of it takes part in an explanation.
LEFT_OUT = ("__init__.py", "protocol.py", "theory.py")
OPERATORS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
WORDS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum"}
CORE = (
    "shapley",
    "search",
    "best_first",
    "group_testing",
    "partitions",
    "paper",
    "engine",
    "targets",
    "maps",
    "auto",
    "explanation",
    "spots",
    "audit",
    "superpixels",
    "testing",
)
"""Tests that run first, in this order: those of games, searches, regions and maps."""

SECONDS = 90
"""A test of the fast tier ends sooner, also on a busy machine: else a change makes it endless."""

PATIENCE = 4
"""All tests may take so many times as long as without a change."""


class Change(NamedTuple):
    """A change of one place: what stands there, and what takes its place."""

    file: Path
    line: int
    start: int
    stop: int
    old: str
    new: str

    def text(self) -> str:
        """Return the line of the file after the change."""
        line = self.file.read_text().splitlines()[self.line - 1]
        return line[: self.start] + self.new + line[self.stop :]


def changes(file: Path) -> list[Change]:
    """Return every change that can be made in a file, in the order of the text."""
    source = file.read_text()
    lines = source.splitlines()
    waiting: list[ast.AST] = [ast.parse(source)]
    found: list[Change] = []
    while waiting:
        node = waiting.pop()
        one = _operator(node, file, lines) or _number_or_word(node, file)
        if one and lines[one.line - 1][one.start : one.stop] == one.old:
            found.append(one)
        waiting += [c for c in ast.iter_child_nodes(node) if not _is_for_people(c, node)]
    return sorted(found)


def _operator(node: ast.AST, file: Path, lines: list[str]) -> Change | None:
    """Return the change of an operator between two operands on one line."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        left = node.left if isinstance(node, ast.BinOp) else node.target
        right = node.right if isinstance(node, ast.BinOp) else node.value
        kind: type = type(node.op)
    elif isinstance(node, ast.Compare):
        left, right, kind = node.left, node.comparators[0], type(node.ops[0])
    elif isinstance(node, ast.BoolOp):
        left, right, kind = node.values[0], node.values[1], type(node.op)
    else:
        return None
    if kind not in OPERATORS or left.end_lineno != right.lineno or left.end_col_offset is None:
        return None
    old, new = OPERATORS[kind]
    place = re.search(
        rf"(?<!\S){re.escape(old)}(?!\w)", lines[right.lineno - 1][left.end_col_offset :]
    )
    start = left.end_col_offset + (place.start() if place else 0)
    return Change(file, right.lineno, start, start + len(old), old, new)


def _number_or_word(node: ast.AST, file: Path) -> Change | None:
    """Return the change of a whole number by one, or of a word such as `min`."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        start, old, new = node.col_offset, str(node.value), str(node.value + 1)
        return Change(file, node.lineno, start, start + len(old), old, new)
    word = getattr(node, "id", None) or getattr(node, "attr", None)
    if isinstance(node, ast.Name | ast.Attribute) and word in WORDS and node.end_col_offset:
        stop, line = node.end_col_offset, node.end_lineno or node.lineno
        return Change(file, line, stop - len(word), stop, word, WORDS[word])
    return None


def _is_for_people(child: ast.AST, parent: ast.AST) -> bool:
    """Tell whether a part is an annotation, a message, a decorator, or changes nothing."""
    if isinstance(child, ast.JoinedStr | ast.Raise | ast.arguments):
        return True
    if isinstance(parent, ast.FunctionDef):
        return child in parent.decorator_list or child is parent.returns
    if isinstance(parent, ast.AnnAssign):
        return child is parent.annotation
    if isinstance(parent, ast.Call) and isinstance(child, ast.UnaryOp):
        return getattr(parent.func, "attr", "") == "reshape"  # -1 and -2 mean the same there
    if isinstance(parent, ast.Module) and isinstance(child, ast.Assign | ast.AnnAssign):
        return True  # sizes of batches and the like: benchmarks choose them, and no answer changes
    return isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING"


def drawn(count: int, seed: int) -> list[Change]:
    """Draw changes of different lines; every line that can be broken is as likely."""
    files = sorted({file for part in KERNEL for file in (ROOT / "src/hshap").glob(part)})
    every = [one for file in files if file.name not in LEFT_OUT for one in changes(file)]
    lines: dict[tuple[Path, int], list[Change]] = {}
    for one in every:
        lines.setdefault((one.file, one.line), []).append(one)
    rng = random.Random(seed)  # noqa: S311, a sample and no secret
    print(f"{len(every)} changes of {len(lines)} lines in {len(files)} files")
    return [rng.choice(lines[line]) for line in rng.sample(sorted(lines), count)]


def failed(copy: Path, files: list[str], seconds: float) -> str:
    """Run tests in a copy until one fails, and return its name; empty if all pass.

    Without files, it is the whole fast tier. A few files take one process: the first failure ends
    it sooner than workers have started.
    """
    workers = ["-n", "0"] if files else ["-n", "2", "--dist=worksteal"]
    ending = [f"faulthandler_timeout={SECONDS}", "faulthandler_exit_on_timeout=true"]
    asked = [sys.executable, "-m", "pytest", "-q", "-x", *workers]
    asked += [word for option in ending for word in ("-o", option)]
    env = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": ""}
    with subprocess.Popen(  # noqa: S603
        [*asked, "-p", "no:cacheprovider", *files],
        cwd=copy,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            told, _ = run.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)  # the workers, too: they may be in an endless loop
            return "the tests never ended"
    if run.returncode == 0:
        return ""
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)
    endless = re.search(r'File ".*/(tests/test_\w+\.py)", line \d+ in (test_\w+)', told)
    if not named and endless:
        return f"{endless[1]}::{endless[2]} (never ended)"
    return named[1] if named else f"pytest ended with {run.returncode}"


def caught_by(change: Change, copy: Path, stages: list[tuple[list[str], float]]) -> str:
    """Return the first test that fails with the change, or an empty text."""
    place = copy / change.file.relative_to(ROOT)
    whole = place.read_text()
    lines = whole.splitlines(keepends=True)
    lines[change.line - 1] = change.text() + "\n"
    place.write_text("".join(lines))
    try:
        return next(filter(None, (failed(copy, *stage) for stage in stages)), "")
    finally:
        place.write_text(whole)


def copied(folder: Path) -> Path:
    """Return a copy of all tracked files in a folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def timed(copy: Path, files: list[str]) -> tuple[list[str], float]:
    """Return tests with the seconds that they may take; they must pass without any change."""
    started = time.monotonic()
    broken = failed(copy, files, 3600)
    if broken:
        sys.exit(f"{broken} fails without any change")
    return files, PATIENCE * (time.monotonic() - started) + 60


def main(words: list[str]) -> int:
    """Make the changes one after the other, and print a table."""
    numbers = [int(word) for word in words if word.isdigit()]
    count, seed = (*numbers, 40, 0)[:2] if len(numbers) != 1 else (numbers[0], 0)
    chosen = drawn(count, seed)
    where = [f"{one.file.relative_to(ROOT / 'src/hshap')}:{one.line}" for one in chosen]
    if "--list" in words:
        for place, one in zip(where, chosen, strict=True):
            print(f"{place}: {one.text().strip()}")
        return 0
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder) / "hshap")
        named = [sorted(copy.glob(f"tests/test_{name}.py")) for name in CORE]
        core = [str(path.relative_to(copy)) for some in named for path in some]
        stages = [timed(copy, core)]
        if "--core" not in words:
            stages.append(timed(copy, []))
        print("| change | caught by |\n|---|---|", flush=True)
        for place, one in zip(where, chosen, strict=True):
            test = caught_by(one, copy, stages)
            missed += not test
            told = one.text().strip()
            change = f"`{place}`: `{one.old}` is `{one.new}` in `{told}`".replace("|", "\\|")
            print(f"| {change} | {test or '**not caught**'} |", flush=True)
    print(f"\n{count - missed} of {count} were caught")
    return int(missed > count / 20)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
