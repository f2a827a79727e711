# ruff: noqa: INP001, a script
"""Measure how much there is to know: modules, lines, names used twice, imports, and four walks.

`.venv/bin/python scripts/house.py` prints a table, with `--json` all numbers. `--src DIR` measures
another checkout; run it by a Python in which that one is importable.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOT = Path(__file__).parents[1]
MODEL = """
def brightest(batch):
    return batch.max(axis=(1, 2, 3))
"""


def modules_of(src: Path) -> dict[str, Path]:
    """Return all modules of the package by their names."""
    found = {}
    for file in sorted(src.rglob("*.py")):
        parts = file.relative_to(src.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(tree: ast.Module, names: set[str]) -> set[str]:
    """Return the modules of the package that one of them imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in names else node.module)
    return found & names


def size(src: Path) -> dict[str, object]:
    """Count modules, lines, statements, names used twice and modules that one other imports."""
    modules = modules_of(src)
    texts = {name: file.read_text(encoding="utf-8") for name, file in modules.items()}
    trees = {name: ast.parse(text) for name, text in texts.items()}
    importers: Counter[str] = Counter()
    for name, tree in trees.items():
        importers.update(imported(tree, set(modules)) - {name})
    lines: Counter[str] = Counter()
    for name, text in texts.items():
        parts = modules[name].relative_to(src).parts
        lines[parts[0] if len(parts) > 1 else "(top)"] += text.count("\n")
    stems = Counter(file.stem for file in modules.values() if file.stem != "__init__")
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    functions = [n for n in nodes if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions]
    scripts = sum(file.read_text(encoding="utf-8").count("\n") for file in src.rglob("*.js"))
    return {
        "modules": len(modules),
        "lines": sum(lines.values()),
        "lines of JavaScript": scripts,
        "lines by folder": dict(sorted(lines.items(), key=lambda item: -item[1])),
        "statements": sum(isinstance(node, ast.stmt) for node in nodes),
        "functions": len(functions),
        "median lines of a function": statistics.median(lengths),
        "longest function": max(lengths),
        "modules with one importer": sum(count == 1 for count in importers.values()),
        "module names used twice": sorted(name for name, count in stems.items() if count > 1),
        "class names used twice": sorted(name for name, count in classes.items() if count > 1),
    }


def import_cost(src: Path, times: int = 9) -> dict[str, object]:
    """Compare `import hshap` with `import numpy`: modules, and seconds of CPU at best."""
    environment = {**os.environ, "PYTHONPATH": str(src.parent)}

    def run(code: str) -> str:
        timed = f"import sys, time; start = time.process_time(); {code}"
        loaded = "sum(m.split('.')[0] == 'hshap' for m in sys.modules)"
        told = f"print(time.process_time() - start, {loaded})"
        return subprocess.run(  # noqa: S603, our own code
            [sys.executable, "-c", f"{timed}; {told}"],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        ).stdout

    fastest = {
        code: min(float(run(code).split()[0]) for _ in range(times))
        for code in ("import numpy", "import hshap", "import hshap; hshap.Explainer")
    }
    names = run("import hshap")
    public = "import hshap; print(sum(not hasattr(getattr(hshap, n), '__path__') and "
    public += "type(getattr(hshap, n)).__name__ != 'module' for n in hshap.__all__))"
    return {
        "public names": int(run(public).split()[0]),
        "modules of hshap loaded by import hshap": int(names.split()[1]),
        "modules loaded by hshap.Explainer": int(run("import hshap; hshap.Explainer").split()[1]),
        "seconds": {code: round(value, 4) for code, value in fastest.items()},
        "import hshap over import numpy": round(
            fastest["import hshap"] / fastest["import numpy"], 2
        ),
        "hshap.Explainer over import numpy": round(
            fastest["import hshap; hshap.Explainer"] / fastest["import numpy"], 2
        ),
    }


class Walk:
    """Notes which functions of the package are called, and from which folder into which."""

    def __init__(self, src: Path) -> None:
        self._top = f"{src}{os.sep}"
        self.functions: set[tuple[str, str]] = set()
        self.calls: set[tuple[tuple[str, str], tuple[str, str]]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Note one event of `sys.setprofile`."""
        del argument
        here = self._name(frame) if event == "call" else None
        if here is None:
            return
        self.functions.add(here)
        caller = frame.f_back
        while caller is not None:
            before = self._name(caller)
            if before is not None:
                self.calls.add((before, here))
                return
            caller = caller.f_back

    def _name(self, frame: FrameType) -> tuple[str, str] | None:
        code = frame.f_code
        if not code.co_filename.startswith(self._top) or code.co_name.startswith("<"):
            return None
        return code.co_filename.removeprefix(self._top), code.co_qualname

    def counts(self) -> dict[str, int]:
        """Return modules, functions, and pairs of functions that call each other across folders."""
        crossing = [pair for pair in self.calls if _folder(pair[0][0]) != _folder(pair[1][0])]
        return {
            "modules": len({file for file, _ in self.functions}),
            "functions": len(self.functions),
            "changes of folder": len(crossing),
            "of calls": len(self.calls),
        }


def _folder(file: str) -> str:
    return os.path.dirname(file)  # noqa: PTH120, called often


def walked(src: Path, act: Callable[[], object]) -> dict[str, int]:
    """Follow one call."""
    walk = Walk(src)
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return walk.counts()


def command(*words: str) -> None:
    """Run the command in this process."""
    from hshap.__main__ import main  # noqa: PLC0415, from the checkout that is measured

    sys.argv = ["hshap", *words]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main()


def walks(src: Path) -> dict[str, dict[str, int]]:
    """Follow a default explanation, its map and boxes, and two commands; the second time."""
    sys.path.insert(0, str(src.parent))
    import hshap  # noqa: PLC0415, from the checkout that is measured

    network = hshap.demo.load()
    image = hshap.demo.bundled()["images"][3].astype("float32") / 255
    made = [hshap.Explainer(network).explain(image, 1) for _ in range(2)]
    made[0].attribution()
    made[0].boxes()
    found = {
        "Explainer(model).explain(image, 1)": walked(
            src, lambda: hshap.Explainer(network).explain(image, 1)
        ),
        ".attribution()": walked(src, made[1].attribution),
        ".boxes()": walked(src, made[1].boxes),
    }
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        os.chdir(folder)
        sys.path.insert(0, folder)
        Path("walked_model.py").write_text(MODEL, encoding="utf-8")
        _picture(Path("images"))
        for verb in ("explain", "run"):
            words = ("images", "--model", "walked_model:brightest", "--target", "0")
            command(verb, *words, "--out", f"{verb}-first")
            found[f"hshap {verb}"] = walked(
                src, lambda verb=verb, words=words: command(verb, *words, "--out", f"{verb}-again")
            )
        os.chdir(here)
    return found


def _picture(folder: Path) -> None:
    import numpy as np  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    folder.mkdir()
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[20:28, 30:40] = 255
    Image.fromarray(pixels).save(folder / "bright.png")


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--src", type=Path, default=ROOT / "src" / "hshap")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    src = options.src.resolve()
    found = {**size(src), **import_cost(src), "walks": walks(src)}
    if options.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    for name, value in found.items():
        if isinstance(value, dict):
            sys.stdout.write(f"{name}\n")
            for key, part in value.items():
                sys.stdout.write(f"    {key}: {part}\n")
        else:
            shown = f"{len(value)}: {', '.join(value)}" if isinstance(value, list) else value
            sys.stdout.write(f"{name}: {shown}\n")


if __name__ == "__main__":
    main()
