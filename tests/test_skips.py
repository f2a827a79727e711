"""A test is skipped only for a package that is not installed, and the reason is printed."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from skips import OPTIONAL, absent_package, by_reason

from hshap import MissingExtraError

ABSENT = {"higra"}


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
        (caused_by(MissingExtraError("Superpixels needs higra"), MISSING), "higra"),
        (in_an_example(MISSING), "higra"),
        (in_an_example(caused_by(MissingExtraError("needs higra"), MISSING)), "higra"),
        (ModuleNotFoundError("No module named 'scipy'", name="scipy"), None),  # it is installed
        (ModuleNotFoundError("No module named 'hshap.gone'", name="hshap.gone"), None),
        (ModuleNotFoundError("raised by hand"), None),
        (MissingExtraError("without a cause"), None),
        (AssertionError("higra"), None),
    ],
)
def test_only_an_absent_package_is_a_reason(error, package):
    assert absent_package(error, ABSENT) == package


def skipped(node, reason):
    return SimpleNamespace(nodeid=node, longrepr=("file.py", 1, reason))


def test_reasons_are_counted_and_the_most_frequent_comes_first():
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


def run(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    tests = str(Path(__file__).parent)
    (folder / "conftest.py").write_text(
        f"import sys\nsys.path[:0] = [{tests!r}, {str(folder)!r}]\n"
        "import skips\nskips.ABSENT = {'absent'}\n"
        "def pytest_configure(config): config.pluginmanager.register(skips)\n",
        encoding="utf-8",
    )
    options = ["-q", "-p", "no:cacheprovider", "--doctest-modules", "--import-mode=importlib"]
    environment = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    return subprocess.run(  # noqa: S603
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(folder), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )


def test_tests_modules_and_examples_without_their_package_are_skipped(tmp_path):
    done = run(
        tmp_path,
        test_inside="def test_a(): import absent.part\ndef test_b(): pass\n",
        test_on_top="import absent\ndef test_c(): pass\n",
        example='"""\n>>> import absent\n"""\n',
    )
    assert done.returncode == 0, done.stdout
    assert "3  absent is not installed" in done.stdout
    assert "[example.py, test_inside.py, test_on_top.py]" in done.stdout
    assert "1 passed" in done.stdout


def test_a_module_that_imports_from_a_skipped_one_is_skipped_too(tmp_path):
    # Pytest leaves the half that was run of a failed import in sys.modules.
    (tmp_path / "a_first.py").write_text("import absent\nVALUE = 1\n", encoding="utf-8")
    done = run(tmp_path, b_second="from a_first import VALUE\n", test_c="def test(): pass\n")
    assert done.returncode == 0, done.stdout
    assert "2  absent is not installed" in done.stdout


@pytest.mark.parametrize("module", ["import hshap.gone", "import not_optional"])
def test_a_test_module_that_cannot_be_imported_for_another_reason_is_an_error(tmp_path, module):
    done = run(tmp_path, test_broken=f"{module}\ndef test_a(): pass\n")
    assert done.returncode == 2, done.stdout
    assert "ERROR collecting test_broken.py" in done.stdout


def test_a_failure_stays_a_failure(tmp_path):
    done = run(tmp_path, test_a="def test_a():\n    import json\n    assert json.gone\n")
    assert done.returncode == 1, done.stdout


@pytest.mark.skipif(find_spec("ruff") is None, reason="only the full environment has every package")
def test_the_full_environment_has_every_optional_package():
    assert [name for name in OPTIONAL if find_spec(name) is None] == []
