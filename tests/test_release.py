"""Version, changelog, citation, hooks and workflow agree with each other."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

import hshap
from hshap.errors import EXTRAS

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
HEADING = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def releases():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    return [(version, date.fromisoformat(day)) for version, day in HEADING.findall(text)]


def as_numbers(version):
    return tuple(map(int, version.split(".")[:3]))


def test_the_changelog_has_dated_sections_newest_first_below_the_unreleased_one():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert sections[0].startswith("[Unreleased]")
    assert len(sections) == 1 + len(releases()), "a section has no version or no date"
    versions = [as_numbers(version) for version, _ in releases()]
    assert versions == sorted(set(versions), reverse=True)


def test_the_version_is_the_newest_release_or_one_that_is_being_made():
    newest, _ = releases()[0]
    if hshap.__version__ != newest:
        assert re.fullmatch(r"\d+\.\d+\.\d+\.dev0", hshap.__version__)
        assert as_numbers(hshap.__version__) > as_numbers(newest)


def test_the_citation_is_of_the_newest_release():
    citation = read("CITATION.cff")
    assert (citation["version"], citation["date-released"]) == releases()[0]


def test_hooks_and_project_use_the_same_ruff():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (pinned,) = [p for p in project["optional-dependencies"]["dev"] if p.startswith("ruff")]
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    used = [hook["additional_dependencies"] for hook in hooks if hook["id"].startswith("ruff")]
    assert used == [[pinned], [pinned]]


def test_the_workflow_runs_the_oldest_python_that_is_allowed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    jobs = read(".github/workflows/ci.yml")["jobs"]
    for job in ("full", "minimal"):
        versions = jobs[job]["strategy"]["matrix"]["python"]
        assert f">={versions[0]}" == project["requires-python"]
        assert versions == sorted(versions)


@pytest.mark.parametrize("form", ["bug", "feature", "question"])
def test_a_form_has_fields_with_names_of_their_own(form):
    content = read(f".github/ISSUE_TEMPLATE/{form}.yml")
    assert content["name"]
    assert content["description"]
    fields = [part for part in content["body"] if part["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert names
    assert len(names) == len(set(names))
    assert all(field["attributes"]["label"] for field in fields)


def test_every_script_that_the_workflow_runs_exists():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    scripts = set(re.findall(r"\bscripts/[\w-]+", text))
    assert {"scripts/test", "scripts/docs", "scripts/try-wheel"} <= scripts
    assert all((ROOT / script).is_file() for script in scripts)


def test_messages_name_the_packages_of_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["optional-dependencies"]

    def packages(extra):
        for line in wanted[extra]:
            name = re.match(r"[\w.-]+", line)[0]
            inner = re.match(r"hshap\[(.+)\]", line)
            yield from packages(inner[1]) if inner else [name]

    assert {extra: set(names) for extra, names in EXTRAS.items()} == {
        extra: set(packages(extra)) for extra in wanted if extra not in ("docs", "dev")
    }
