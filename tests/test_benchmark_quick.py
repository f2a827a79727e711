"""Every benchmark imports, the registry names what there is, and pages show committed results."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import benchmarks
from benchmarks.__main__ import EXPERIMENTS, PLAIN, app
from benchmarks.core import results
from benchmarks.core.folders import RESULTS
from benchmarks.reporting import figures, report


def test_every_benchmark_imports_and_has_a_command():
    names = [one.name for one in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]
    assert "benchmarks.experiments.default_call" in names
    for name in names:
        importlib.import_module(name)
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(EXPERIMENTS) <= commands
    assert all(callable(importlib.import_module(f"benchmarks.experiments.{n}").run) for n in PLAIN)
    assert {path.name for path in RESULTS.iterdir() if path.is_dir()} == {*EXPERIMENTS, "figures"}


@pytest.mark.benchmarks
def test_every_result_names_its_commit():
    for name in EXPERIMENTS:
        files = [path for path in results.folder(name).iterdir() if path.suffix in {".json", ".md"}]
        assert re.search(r"[0-9a-f]{10}", "".join(path.read_text() for path in files)), name


@pytest.mark.benchmarks
def test_pages_show_the_committed_results():
    stale = [
        page.name for page in report.PAGES if report.filled(page.read_text()) != page.read_text()
    ]
    assert stale == [], "run `benchmarks/run report`"


@pytest.mark.benchmarks
def test_every_figure_is_drawn_and_shown():
    drawn = {path.stem for path in figures.FOLDER.glob("*.png")}
    assert drawn == set(figures.FIGURES)
    shown = "".join(page.read_text() for page in report.PAGES)
    assert [name for name in drawn if f"results/figures/{name}.png" not in shown] == []
