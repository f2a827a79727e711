"""Methods at equal evaluations: the page follows its rows, and smoothed rows are those of a run."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("skimage")
pytest.importorskip("rich")
pytest.importorskip("higra")

from benchmarks.core import truth_rows
from benchmarks.core.comparison import MEASURES
from benchmarks.core.folders import RESULTS
from benchmarks.core.tasks import Synthetic
from benchmarks.experiments.equal import ASKED, MOST, methods_of, page
from benchmarks.methods.budgeted import smoothed
from benchmarks.methods.controls import METHODS as CONTROLS

COMMITTED = RESULTS / "equal"


def test_the_committed_page_is_that_of_its_rows():
    content = json.loads((COMMITTED / "summary.json").read_text())
    assert page(content) == (COMMITTED / "table.md").read_text()
    for name, rows in content["rows"].items():
        by_method = {row["method"] for row in rows}
        assert by_method <= {method.name for method in methods_of(name)}
        images = {row["image"] for row in rows}
        assert len(images) <= MOST.get(name, len(images))
        assert len(rows) == len(by_method) * len(images)
        assert all(0.0 <= row[measure] <= 1.0 for row in rows for measure in MEASURES)
        assert not any("failed" in row for row in rows)


@pytest.mark.parametrize("name", ASKED)
def test_every_budget_of_a_set_has_ours_and_both_peers(name):
    names = {method.name for method in methods_of(name)}
    for n in ASKED[name]:
        assert {f"h-shap at {n}", f"shap-bpt {n} smoothed"} <= names
        assert f"PartitionExplainer {n} default smoothed" in names


def test_a_smoothed_row_equals_that_of_a_run_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setattr(truth_rows, "TASKS", {"synthetic": lambda: Synthetic(each=1)})
    monkeypatch.setattr(truth_rows, "cache", lambda *parts: tmp_path / "-".join(parts))
    plain = next(one for one in CONTROLS if one.name == "Sobel")
    soft = smoothed(plain)
    together = truth_rows.rows_of("both", "synthetic", [plain, soft], 1, 1)
    alone = truth_rows.rows_of("alone", "synthetic", [soft], 1, 1)
    assert [row for row in together if row["method"] == soft.name] == alone
    from_the_cache = truth_rows.rows_of("both", "synthetic", [plain, soft], 1, 1)
    assert from_the_cache == together
