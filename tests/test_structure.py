"""The code keeps its structure, and the script that measures it can tell when it does not."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "structure.py"


def _load():
    spec = spec_from_file_location("structure", SCRIPT)
    module = module_from_spec(spec)
    sys.modules["structure"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


structure = _load()

PYPROJECT = """
[tool.importlinter]
exclude_type_checking_imports = {left_out}
[[tool.importlinter.contracts]]
type = "layers"
layers = ["a", "b | c", "d"]
[[tool.importlinter.contracts]]
type = "forbidden"
source_modules = ["a"]
[tool.basedpyright]
typeCheckingMode = "strict"
reportAny = false
reportMissingTypeStubs = "none"
reportPrivateUsage = "error"
"""


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def tree(tmp_path):
    """A small project: two modules of ten lines in all, one asset, one test that patches."""
    write(
        tmp_path,
        {
            "pyproject.toml": PYPROJECT.format(left_out="true"),
            "src/hshap/__init__.py": '__all__ = ["Public"]\n',
            "src/hshap/__main__.py": "",
            "src/hshap/py.typed": "",
            "src/hshap/__pycache__/x.pyc": "",
            "src/hshap/.hidden": "",
            "src/hshap/one.py": "from typing import Any\nx: Any = 1  # What? AnyOther\n\n",
            "src/hshap/room/two.py": (
                "class Explanation:\n    def a(self): ...\n    @property\n    def b(self): ...\n"
                "    def _c(self): ...\n    size = 3  # whatever\n"
            ),
            "src/hshap/room/page.js": "// what\n// what\n\n\n",
            "tests/test_a.py": 'def test(patch):\n    patch.setattr("hshap.one.x", 2)\n',
            "benchmarks/run": "",
        },
    )
    return tmp_path


def test_every_measure_of_a_small_tree(tree):
    found = structure.measures(tree)
    assert {name: measure.number for name, measure in found.items()} == {
        "entries at the top of src/hshap": 2,
        "import layers": 3,
        "typing imports left out of the contracts": 1,
        "Any in 1000 lines of src": 200,
        "Any or an alias of it, in 1000 lines": 100,
        "'what' in 1000 lines of src": 100,
        "'what' in 1000 lines of the page": 500,
        "longest module": 6,
        "checker rules off": 2,
        "methods of Explanation": 3,
        "private names patched in tests": 1,
        "entries at the top of benchmarks": 1,
    }
    assert found["longest module"].note == "room/two.py"
    assert found["methods of Explanation"].note == "2 of them public"
    assert set(structure.LIMITS) <= set(found)


def test_an_alias_of_any_counts_as_any():
    texts = ["from typing import Any\nTensor: TypeAlias = Any\n", "x: Tensor\ny: list[Tensor]\n"]
    # The alias itself, the Any behind it and two uses, on four lines.
    assert structure.any_with_aliases(texts) == structure.Measure(1000, "Tensor")


def test_a_limit_that_is_exceeded_is_named_with_its_number(tree):
    lines = structure.exceeded(structure.measures(tree))
    assert [line.partition(":")[0] for line in lines] == [
        "typing imports left out of the contracts",
        "Any in 1000 lines of src",
        "Any or an alias of it, in 1000 lines",
        "'what' in 1000 lines of src",
        "'what' in 1000 lines of the page",
        "private names patched in tests",
    ]
    assert "1 (test_a:hshap.one.x), at most 0 allowed" in lines[-1]


def test_one_entry_too_many_is_too_many(tree):
    name = "entries at the top of src/hshap"
    write(tree, {f"src/hshap/room_{number}.py": "" for number in range(14)})
    assert not any(line.startswith(name) for line in structure.exceeded(structure.measures(tree)))
    write(tree, {"src/hshap/room_14.py": ""})
    assert f"{name}: 17, at most 16 allowed" in structure.exceeded(structure.measures(tree))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('monkeypatch.setattr("hshap.a.b", 1)', ["hshap.a.b"]),
        ('monkeypatch.setattr(inner, "LIMIT", 1)', ["hshap.a.inner.LIMIT"]),
        ('monkeypatch.setattr(inner.Class, "run", 1)', ["hshap.a.inner.Class.run"]),
        ('monkeypatch.delattr(hshap.a.inner, "LIMIT")', ["hshap.a.inner.LIMIT"]),
        ('monkeypatch.setitem(inner.TABLE, "key", 1)', ["hshap.a.inner.TABLE"]),
        ('monkeypatch.setattr(MODULE, "X", 1)', ["hshap.b.X"]),
        ('monkeypatch.setattr(sys.modules["hshap.b"], "X", 1)', ["hshap.b.X"]),
        ('monkeypatch.setitem(sys.modules, "hshap.b", None)', ["hshap.b"]),
        ('with monkeypatch.context() as p: p.setattr(inner, "X", 1)', ["hshap.a.inner.X"]),
        ('mock.patch("hshap.a.b")', ["hshap.a.b"]),
        ('mock.patch.object(inner, "X")', ["hshap.a.inner.X"]),
        ("inner.LIMIT = 3", ["hshap.a.inner.LIMIT"]),
        ('monkeypatch.setattr(local, "_secret", 1)', ["local._secret"]),
        ('monkeypatch.setattr("hshap.Public._secret", 1)', ["hshap.Public._secret"]),
        # Public names, and names of others.
        ('monkeypatch.setattr("hshap.Public", 1)', []),
        ('monkeypatch.setattr(hshap.Public, "run", 1)', []),
        ('monkeypatch.setattr(Public, "run", 1)', []),
        ('monkeypatch.setattr(np, "savez", 1)', []),
        ('monkeypatch.setattr("webbrowser.open", 1)', []),
        ('monkeypatch.setitem(sys.modules, "matplotlib", None)', []),
        ('monkeypatch.setenv("hshap.a", "1")', []),
        ("local._own = 3", []),
        ('np.dispatch("hshap.a.b")', []),
    ],
)
def test_patches_of_private_names_are_found(line, expected):
    imports = (
        "import sys\nimport numpy as np\nimport hshap\nfrom unittest import mock\n"
        "from hshap import Public\nfrom hshap.a import inner\n"
        'OTHER, MODULE = 3, sys.modules["hshap.b"]\n'
    )
    assert structure.patched_names(imports + line, {"Public"}) == expected


def test_the_script_prints_a_table_and_refuses_an_unknown_revision():
    def run(*words):
        command = [sys.executable, str(SCRIPT), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603

    shown = run()
    assert shown.returncode == 0
    assert all(f"| {name} | {limit} |" in shown.stdout for name, limit in structure.LIMITS.items())
    refused = run("--against", "no-such-revision")
    assert refused.returncode == 1
    assert "--against 'no-such-revision'" in refused.stderr
    assert "pass a commit or tag" in refused.stderr


def test_the_code_keeps_its_limits():
    assert not structure.exceeded(structure.measures(ROOT))
