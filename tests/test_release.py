"""Version, changelog, citation, hooks, forms and messages agree with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import hshap

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_version_changelog_and_citation_agree():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+)\b", changelog, re.MULTILINE)[1]
    assert hshap.__version__.removesuffix(".dev0") == newest
    assert read("CITATION.cff")["version"] == newest


def test_hooks_and_project_use_the_same_ruff():
    (pinned,) = [p for p in PROJECT["optional-dependencies"]["test"] if p.startswith("ruff")]
    hooks = [hook for repo in read(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    used = [hook["additional_dependencies"] for hook in hooks if hook["id"].startswith("ruff")]
    assert used == [[pinned], [pinned]]


def test_the_workflow_runs_the_oldest_python_allowed():
    jobs = read(".github/workflows/ci.yml")["jobs"].values()
    pythons = [job["strategy"]["matrix"]["python"] for job in jobs if "strategy" in job]
    assert pythons
    assert {f">={versions[0]}" for versions in pythons} == {PROJECT["requires-python"]}


def test_every_script_of_the_workflow_exists():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    scripts = set(re.findall(r"\bscripts/[\w-]+", text))
    assert "scripts/test" in scripts
    assert all((ROOT / script).is_file() for script in scripts)


def test_the_forms_of_issues_can_be_filled_in():
    for form in ("bug", "feature", "question"):
        body = read(f".github/ISSUE_TEMPLATE/{form}.yml")["body"]
        fields = [part for part in body if part["type"] != "markdown"]
        names = [field["id"] for field in fields]
        assert names
        assert len(names) == len(set(names)), form
        assert all(field["attributes"]["label"] for field in fields), form
