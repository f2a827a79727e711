"""Skip tests whose optional package is not installed, and say at the end why tests were skipped.

A pytest plugin, registered by conftest.py. NumPy, pytest and hypothesis are enough to run the
tests: a test that needs more is skipped with the name of the package. After `scripts/setup dev`
every package of `OPTIONAL` is installed, so that this rule skips nothing.
"""

from __future__ import annotations

import doctest
import re
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

OPTIONAL = (
    "PIL",
    "captum",
    "docutils",
    "furo",
    "higra",
    "highdicom",
    "httpx2",
    "imagecodecs",
    "jax",
    "keras",
    "lime",
    "matplotlib",
    "myst_nb",
    "nibabel",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "pandas",
    "playwright",
    "pycocotools",
    "pydicom",
    "rich",
    "safetensors",
    "scipy",
    "shap",
    "shapely",
    "shapiq",
    "skimage",
    "sklearn",
    "sphinx",
    "starlette",
    "tifffile",
    "torch",
    "transformers",
    "typer",
    "uvicorn",
    "xarray",
    "yaml",
    "zarr",
)
# Looked up once: a test may hide a package to see the error, and must not be skipped for it.
ABSENT = frozenset(name for name in OPTIONAL if find_spec(name) is None)


def absent_package(error, absent):
    """Return the package whose absence raised the error, or None if the error has another cause."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError):
            package = (error.name or "").partition(".")[0]
            return package if package in absent else None
        inside = isinstance(error, doctest.UnexpectedException)
        error = error.exc_info[1] if inside else error.__cause__
    return None


def _reason(package):
    return f"{package} is not installed; scripts/setup dev installs it"


def _same_words(reason):
    """Return our reason for an optional package that `pytest.importorskip` did not find."""
    package = re.match(r"could not import '(\w+)", reason)
    return _reason(package[1]) if package and package[1] in OPTIONAL else reason


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and (package := absent_package(call.excinfo.value, ABSENT)):
        report.outcome, report.longrepr = "skipped", (str(item.path), 0, _reason(package))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    if report.failed:
        _forget(collector.path)
        # Pytest keeps only the text of an import that failed.
        names = re.findall(
            r"(?m)^E +ModuleNotFoundError: No module named '(\w+)", f"{report.longrepr}"
        )
        if names and names[-1] in ABSENT:
            reason = _reason(names[-1])
            report.outcome, report.longrepr = "skipped", (str(collector.path), 0, reason)
    return report


def _forget(path):
    """Drop a module whose import failed; else the next import would get the half that was run."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == str(path):
            del sys.modules[name]


def by_reason(reports):
    """Return a line for each reason, the most frequent first: how many tests, why, which files."""
    places = defaultdict(set)
    for report in reports:
        if isinstance(report.longrepr, tuple):  # an expected failure has a traceback instead
            reason = _same_words(report.longrepr[2].removeprefix("Skipped: "))
            places[reason].add(report.nodeid)  # a set: each process collects, and reports a module
    lines = []
    for reason, nodes in sorted(places.items(), key=lambda item: (-len(item[1]), item[0])):
        files = ", ".join(sorted({Path(node.partition("::")[0]).name for node in nodes}))
        lines.append(f"{len(nodes):5}  {reason}  [{files}]")
    return lines


def pytest_terminal_summary(terminalreporter):
    lines = by_reason(terminalreporter.stats.get("skipped", []))
    if lines:
        terminalreporter.section("skipped tests and modules, by reason")
        terminalreporter.write_line("\n".join(lines))
