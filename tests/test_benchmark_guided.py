"""Maps with gradients: methods keep their budgets, and the page follows its rows."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("skimage")
pytest.importorskip("rich")
pytest.importorskip("higra")

from benchmarks.core.comparison import MEASURES
from benchmarks.core.folders import RESULTS
from benchmarks.core.runner import explain
from benchmarks.core.tasks import Synthetic
from benchmarks.experiments.guided import SETS, page
from benchmarks.methods.guided import AT, BUDGETS, EVIDENCE, gradient_times_difference

COMMITTED = RESULTS / "guided"


@pytest.fixture(scope="module")
def case():
    task = Synthetic(each=1)
    return task, task.subject(), next(task.positives("test", quick=False))


@pytest.mark.parametrize("number", range(len(BUDGETS)))
def test_the_default_call_keeps_its_budget_and_finds_the_cross(case, number):
    task, subject, example = case
    row = explain(AT[number], subject, example, task.concept)
    assert "failed" not in row
    assert row["evaluations"] <= BUDGETS[number]
    assert row["average_precision"] > 0.5


def test_the_evidence_alone_is_a_map_of_its_own(case):
    task, subject, example = case
    row = explain(EVIDENCE, subject, example, task.concept)
    assert "failed" not in row
    assert row["average_precision"] > 0.1


def test_gradient_times_difference_is_zero_where_the_image_is_the_baseline(case):
    _, subject, example = case
    image = np.array(example.image)
    image[:, :50] = subject.baseline[:, :50]
    heat = gradient_times_difference(subject, image)
    assert heat[:50].max() == 0.0
    assert heat[50:].max() > 0.0


def test_the_committed_page_is_that_of_its_rows():
    content = json.loads((COMMITTED / "summary.json").read_text())
    assert page(content) == (COMMITTED / "table.md").read_text()
    for name in SETS:
        rows = content["rows"][name]
        assert not any("failed" in row for row in rows)
        assert all(0.0 <= row[measure] <= 1.0 for row in rows for measure in MEASURES)
