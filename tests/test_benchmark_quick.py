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


def test_every_benchmark_imports():
    names = [one.name for one in pkgutil.walk_packages(benchmarks.__path__, "benchmarks.")]
    assert len(names) > 40
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)


def test_the_registry_lists_every_command():
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(EXPERIMENTS) <= commands
    assert all(callable(importlib.import_module(f"benchmarks.experiments.{n}").run) for n in PLAIN)


def test_every_result_has_a_command():
    kept = {path.name for path in RESULTS.iterdir() if path.is_dir()} - {"figures"}
    assert kept == set(EXPERIMENTS)


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_result_names_its_commit(name):
    folder = results.folder(name)
    files = [path for path in folder.iterdir() if path.suffix in {".json", ".md"}]
    text = "".join(path.read_text() for path in files)
    assert re.search(r"[0-9a-f]{10}", text)
    assert "ommit" in text


def test_pages_show_the_committed_results():
    stale = [
        page.name for page in report.PAGES if report.filled(page.read_text()) != page.read_text()
    ]
    assert stale == [], "run `benchmarks/run report`"


def test_every_figure_is_drawn_and_shown():
    drawn = {path.stem for path in figures.FOLDER.glob("*.png")}
    assert drawn == set(figures.FIGURES)
    shown = "".join(page.read_text() for page in report.PAGES)
    assert [name for name in drawn if f"results/figures/{name}.png" not in shown] == []
