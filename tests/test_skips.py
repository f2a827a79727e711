"""A test is skipped only for a package that is not installed, and the reason is printed."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from skips import absent_package, by_reason

from hshap.errors import MissingExtraError


def caused_by(error, cause):
    error.__cause__ = cause
    return error


def in_an_example(error):
    return doctest.UnexpectedException(None, None, (type(error), error, None))


MISSING = ModuleNotFoundError("No module named 'higra.core'", name="higra.core")


@pytest.mark.parametrize(
    ("error", "package"),
    [
        (MISSING, "higra"),
        (in_an_example(caused_by(MissingExtraError("needs higra"), MISSING)), "higra"),
        (ModuleNotFoundError("No module named 'scipy'", name="scipy"), None),  # it is installed
        (ModuleNotFoundError("No module named 'hshap.gone'", name="hshap.gone"), None),
        (MissingExtraError("without a cause"), None),
        (AssertionError("higra"), None),
    ],
)
def test_only_an_absent_package_skips(error, package):
    assert absent_package(error, {"higra"}) == package


def test_reasons_are_counted_most_frequent_first():
    def skipped(node, reason):
        return SimpleNamespace(nodeid=node, longrepr=("file.py", 1, reason))

    reports = [
        skipped("tests/test_a.py::test_one", "Skipped: no data"),
        skipped("tests/test_b.py", "Skipped: could not import 'torch': No module named 'torch'"),
        skipped("tests/test_b.py", "Skipped: could not import 'torch': No module named 'torch'"),
        skipped("tests/test_c.py::test", "torch is not installed; scripts/setup dev installs it"),
        SimpleNamespace(nodeid="tests/test_d.py::test", longrepr="an expected failure"),
    ]
    assert by_reason(reports) == [
        "    2  torch is not installed; scripts/setup dev installs it  [test_b.py, test_c.py]",
        "    1  no data  [test_a.py]",
    ]


def test_pytest_skips_and_fails_what_it_should(tmp_path):
    paths = [str(Path(__file__).parent), str(tmp_path)]
    files = {
        "test_inside": "def test_a(): import absent.part\ndef test_b(): pass\n",
        "test_on_top": "import absent\nVALUE = 1\n",
        # Pytest leaves the half that was run of a failed import in sys.modules.
        "test_second": "from test_on_top import VALUE\ndef test_c(): pass\n",
        "example": '"""\n>>> import absent\n"""\n',
        "test_failing": "def test_d():\n    import json\n    assert json.gone\n",
        "test_broken": "import not_optional\ndef test_e(): pass\n",
        "conftest": f"import sys\nsys.path[:0] = {paths!r}\n"
        "import skips\nskips.ABSENT = {'absent'}\n"
        "def pytest_configure(config): config.pluginmanager.register(skips)\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    options = ["-q", "-p", "no:cacheprovider", "--doctest-modules", "--import-mode=importlib"]
    command = [sys.executable, "-m", "pytest", *options, "--continue-on-collection-errors"]
    done = subprocess.run(  # noqa: S603
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if "PYTEST" not in key},
    )
    assert "4  absent is not installed" in done.stdout, done.stdout
    assert "[example.py, test_inside.py, test_on_top.py, test_second.py]" in done.stdout
    assert "ERROR collecting test_broken.py" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
