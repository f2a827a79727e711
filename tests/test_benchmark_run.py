"""The benchmark's harness: measures, rows, thresholds, and the results that are committed."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("skimage")
pytest.importorskip("rich")

from benchmarks.core import markdown, meter, results, runner, tasks
from benchmarks.core.folders import RESULTS, ROOT
from benchmarks.core.measures import SHARES, against_model, against_truth
from benchmarks.core.protocol import Cannot, Method
from benchmarks.core.results import DRAWS
from benchmarks.experiments import compare_reference, sanity
from benchmarks.methods import METHODS, named
from benchmarks.reporting import budgets, claims, numbers, ranking, report
from hshap.metrics import paired_bootstrap

# Ours, the controls, and two peers that are quick, where their packages are installed.
RECOMPUTED = [m for m in METHODS if m.package is None]
RECOMPUTED += named(["Grad-CAM", "PartitionExplainer 64"])
ROUNDING = ("h-shap quadtree tau=0", "h-shap quadtree shared", "PartitionExplainer 64")


@pytest.fixture(scope="module")
def scene():
    task = tasks.Synthetic(each=1)
    subject = task.subject()
    example = list(task.positives("test", quick=False))[1]
    return tasks.fitted(subject, example), example


class TestMeasures:
    def test_the_truth_itself_is_perfect(self, scene):
        _, example = scene
        truth = example.truths["cross"]
        found = against_truth(truth.astype(float), truth, example.objects["cross"])
        perfect = ("f1", "f1_best", "iou_best", "average_precision", "pointing", "energy")
        assert [found[name] for name in perfect] == [1.0] * 6
        assert found["objects_found"] == found["objects"] == 6
        assert found["false_positives"] == 0
        assert found["f1_at_shares"][:-1] == [1.0] * (len(SHARES) - 1)

    def test_an_empty_map_scores_zero_and_finds_nothing(self, scene):
        _, example = scene
        truth = example.truths["cross"]
        found = against_truth(np.zeros(truth.shape), truth, example.objects["cross"])
        assert found["f1"] == found["objects_found"] == found["false_positives"] == 0
        assert set(found["f1_at_shares"]) == {0.0}

    def test_removing_the_crosses_takes_the_evidence(self, scene):
        subject, example = scene
        truth = example.truths["cross"].astype(float)
        good = against_model(truth, example.image, subject)
        bad = against_model(-truth, example.image, subject)
        assert good["deletion"] < bad["deletion"]
        assert good["insertion"] > bad["insertion"]
        assert len(good["ablation"]) == len(good["ablation_counts"])
        assert good["ablation"][0] > 0


MEASURED = (
    ROOT / "benchmarks" / "README.md",
    ROOT / "docs" / "benchmark.md",
    ROOT / "docs" / "comparison.md",
    ROOT / "docs" / "gallery.md",
    ROOT / "docs" / "when-not-to-use.md",
)
SETTINGS = {"0.15"}  # a tolerance, not a result


def _name(page):
    return str(page.relative_to(ROOT))


class TestCost:
    def test_rows_are_counted_also_when_a_method_fails(self):
        model = meter.Meter(torch.nn.Flatten())
        cost = {}

        def fail():
            with meter.metered(model) as measured:
                cost["all"] = measured
                model(torch.zeros(3, 2))
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        cost = cost["all"]
        assert cost["evaluations"] == 3
        assert cost["seconds"] >= cost["seconds_in_model"] > 0

    @pytest.mark.parametrize(("pixels", "sizes"), [(8, [2, 2, 1]), (None, [5])])
    def test_large_batches_go_to_the_model_in_parts_but_are_counted_whole(self, pixels, sizes):
        seen = []
        model = meter.Meter(lambda part: (seen.append(len(part)), part)[1], pixels_at_once=pixels)
        batch = torch.arange(20.0).reshape(5, 1, 2, 2)
        with torch.no_grad():
            assert torch.equal(model(batch), batch)
        assert seen == sizes
        assert model.watch.evaluations == 5


class TestRemembered:
    def test_an_input_is_computed_once_and_counted_each_time(self):
        seen = []

        def inner(batch):
            seen.append(len(batch))
            return batch.flatten(1)[:, :2]

        model = meter.Meter(meter.Remembered(inner))
        batch = torch.arange(24.0).reshape(6, 1, 2, 2)
        with torch.no_grad():
            first = model(batch[[0, 1, 1, 2]])
            again = model(batch[[2, 5, 0]])
        assert torch.equal(first, inner(batch[[0, 1, 1, 2]]))
        assert torch.equal(again, inner(batch[[2, 5, 0]]))
        assert seen[:2] == [3, 1]
        assert model.watch.evaluations == 7

    def test_passes_with_gradients_are_computed(self):
        model = meter.Remembered(torch.nn.Flatten())
        batch = torch.ones(1, 1, 2, 2)
        with torch.no_grad():
            model(batch)
        given = batch.clone().requires_grad_()
        model(given).sum().backward()
        assert torch.equal(given.grad, torch.ones_like(given))

    @pytest.mark.parametrize("name", ["h-shap bisection", "h-shap trees", "Sobel", "random"])
    def test_maps_and_counts_are_those_of_the_model_itself(self, scene, name):
        subject, example = scene
        (method,) = named([name])
        shared = replace(subject, model=meter.Remembered(subject.model).eval())
        runner.explain(method, shared, example, "cross")
        again, plain = (runner.explain(method, s, example, "cross") for s in (shared, subject))
        assert again["evaluations"] == plain["evaluations"]
        assert np.allclose(again["_heat"], plain["_heat"], atol=1e-6)


def test_a_table_is_markdown():
    made = markdown.table(["", "a"], [("x", 1)], right=True)
    assert made == "| | a |\n|---|---:|\n| x | 1 |"


def _explain(explain, scene):
    subject, example = scene
    return runner.explain(Method("m", "f", explain), subject, example, "cross")


class TestRows:
    def test_a_failure_is_an_empty_map_and_says_why(self, scene):
        row = _explain(lambda subject, image: 1 / 0, scene)
        assert row["failed"].startswith("ZeroDivisionError")
        assert row["f1"] == 0

    def test_what_cannot_run_says_why(self, scene):
        def refuse(subject, image):
            raise Cannot("no such package")

        assert _explain(refuse, scene)["cannot"] == "no such package"

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_map_that_is_none_fails(self, scene, bad):
        assert "failed" in _explain(lambda s, image: np.full(image.shape[1:], bad), scene)

    def test_a_method_cannot_change_the_image(self, scene):
        before = scene[1].image.copy()

        def spoil(subject, image):
            image[:] = 0
            return image[0]

        _explain(spoil, scene)
        np.testing.assert_array_equal(scene[1].image, before)


class TestResume:
    @pytest.fixture
    def settings(self, tmp_path, monkeypatch):
        monkeypatch.setattr(runner, "CACHE", tmp_path)
        monkeypatch.setattr("benchmarks.core.folders.CACHE", tmp_path)
        monkeypatch.setitem(runner.TASKS, "tiny", lambda: tasks.Synthetic("tiny", each=1))
        return runner.Run("tiny", quick=True, methods=("centre", "Sobel"))

    def test_a_run_may_be_limited_to_the_first_images(self, settings):
        every = [(split, e.name) for split, e in runner._examples(settings)]
        few = replace(settings, validation=1, test=2)
        first = [
            *[image for image in every if image[0] == "validation"][:1],
            *[image for image in every if image[0] == "test"][:2],
        ]
        assert [(split, e.name) for split, e in runner._examples(few)] == first

    def test_rows_hold_no_times(self, settings):
        runner._work(settings, 0, 1)
        assert {row[name] for row in runner.rows(settings) for name in runner.TIMES} == {None}

    def test_finished_images_are_not_repeated(self, settings, monkeypatch):
        runner._work(settings, 0, 1)
        first = list(runner.rows(settings))
        path = next(settings.folder.glob("*.jsonl"))
        lines = path.read_text().splitlines()
        # Killed in the middle of the last row.
        path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40])
        explained = []
        explain = runner.explain

        def counting(method, subject, example, concept):
            explained.append((example.name, method.name))
            return explain(method, subject, example, concept)

        monkeypatch.setattr(runner, "explain", counting)
        runner._work(settings, 0, 1)
        assert len(explained) == 1
        again = list(runner.rows(settings))
        assert {runner._key(row) for row in again} == {runner._key(row) for row in first}
        assert len(again) == len(first)

    def test_two_workers_share_the_images_out(self, settings):
        runner._work(settings, 0, 2)
        half = {row["image"] for row in runner.rows(settings)}
        runner._work(settings, 1, 2)
        whole = {row["image"] for row in runner.rows(settings)}
        task = runner.TASKS["tiny"]()
        wanted = [e.name for s in runner.SPLITS for e in task.positives(s, quick=True)]
        assert half < whole == set(wanted)


def _row(split, image, method, scores, **more):
    rest = dict.fromkeys(("pointing", "energy", "deletion", "insertion", "road"), 0.5)
    rest |= dict.fromkeys(("f1", "f1_best", "iou_best", "average_precision"), 0.25)
    cost = {"evaluations": 3, "seconds": 0.1, "seconds_in_model": 0.05, "megabytes": None}
    objects = {"objects": 2, "objects_found": 1, "false_positives": 0}
    boxes = {"findings": [[0, 0, 2, 2, 0.5]], "boxes": [[0, 0, 2, 2], [4, 4, 9, 9]]}
    curves = {"ablation_counts": [0, 1], "ablation": [2.0, 1.0], "f1_at_shares": scores}
    origin = {"commit": "abc", "date": "2026-01-01", "group": ""}
    named = {"split": split, "image": image, "method": method}
    return named | rest | cost | objects | boxes | curves | origin | more


class TestCollate:
    @pytest.fixture
    def summary(self):
        low, high = [0.9, *[0.1] * 20], [0.1, 0.6, *[0.2] * 19]
        made = [
            _row("validation", "v", "m", high),
            _row("test", "a", "m", low),
            _row("test", "b", "m", [0.0] * 21, failed="ValueError: no"),
            _row("test", "a", results.PAIRED_WITH, high),
            _row("test", "b", results.PAIRED_WITH, high),
            _row("test", "a", "absent", low, cannot="it is not installed"),
        ]
        return results.collate("t", made).summary

    def test_thresholds_come_from_validation_alone(self, summary):
        assert summary["thresholds"] == {"m": SHARES[1]}
        # 0.1 on one image, and 0 on the one where it failed: both count.
        assert summary["groups"]["all"]["m"]["f1_validated"][0] == pytest.approx(0.05)

    def test_failures_and_what_cannot_run_are_told(self, summary):
        assert summary["failed"] == {"m": {"images": 1, "first": "ValueError: no"}}
        assert summary["cannot"] == {"absent": "it is not installed"}
        assert "absent" not in summary["groups"]["all"]

    def test_differences_are_image_by_image(self, summary):
        paired = summary["groups"]["all"]["m"]["less_quadtree"]
        assert paired["f1_validated"][0] == pytest.approx(0.05 - 0.2)

    def test_it_says_where_it_comes_from(self, summary):
        assert summary["commits"] == ["abc"]
        assert summary["dates"] == ["2026-01-01"]
        assert summary["versions"]["torch"] == torch.__version__


class TestUpdate:
    def test_rows_of_a_method_take_the_place_of_earlier_ones_and_others_stay(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(results, "RESULTS", tmp_path)
        old = [0.5] * 21
        made = [
            _row(split, image, method, old)
            for method in ("m", "other", results.PAIRED_WITH)
            for split, image in (("validation", "v"), ("test", "a"), ("test", "b"))
        ]
        results.write(results.collate("t", made))
        before = results.read_summary("t")

        new = [0.1, 0.9, *[0.2] * 19]
        again = [
            _row(split, image, "m", new, commit="def", f1=0.75)
            for split, image in (("validation", "v"), ("test", "a"), ("test", "b"))
        ]
        results.write(results.updated(results.collate("t", again)))
        after = results.read_summary("t")

        assert after["commits"] == ["abc", "def"]
        assert after["thresholds"]["m"] == SHARES[1]
        for part in ("groups", "ablation"):
            for method in ("other", results.PAIRED_WITH):
                assert after[part]["all"][method] == before[part]["all"][method]
        entry = after["groups"]["all"]["m"]
        assert entry["f1_validated"][0] == pytest.approx(0.9)
        assert entry["less_quadtree"]["f1_validated"][0] == pytest.approx(0.4)
        assert entry["less_quadtree"]["f1"][0] == pytest.approx(0.5)
        rows = results.read_rows("t")
        assert [row["f1"] for row in rows if row["method"] == "m"] == ["0.75", "0.75"]
        assert len(rows) == 6

    def test_an_update_with_the_same_rows_changes_nothing(self, tmp_path, monkeypatch):
        monkeypatch.setattr(results, "RESULTS", tmp_path)
        every = {
            method: [_row(split, image, method, [0.3] * 21) for split, image in places]
            for method in ("m", results.PAIRED_WITH)
            for places in [(("validation", "v"), ("test", "a"), ("test", "b"))]
        }
        results.write(results.collate("t", [row for rows in every.values() for row in rows]))
        before = {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()}
        for rows in every.values():
            results.write(results.updated(results.collate("t", rows)))
        assert {path.name: path.read_bytes() for path in (tmp_path / "t").iterdir()} == before


class TestSanity:
    def test_named_layers_change_and_others_stay(self):
        model = tasks.Synthetic().subject().model
        changed = sanity.randomised(model, ("fc_3",), seed=0)
        assert not torch.equal(changed.fc_3.weight, model.fc_3.weight)
        assert torch.equal(changed.fc_1.weight, model.fc_1.weight)

    def test_similarity(self):
        ramp = np.arange(6.0).reshape(2, 3)
        assert sanity.similarity(ramp, ramp)["spearman"] == pytest.approx(1)
        assert sanity.similarity(ramp, -ramp)["cosine"] == pytest.approx(-1)
        assert sanity.similarity(ramp, -ramp)["absolute"] == pytest.approx(1)
        assert set(sanity.similarity(ramp, np.zeros((2, 3))).values()) == {0.0}


@cache
def _committed(task):
    if not (results.folder(task) / "rows.csv.gz").exists():
        pytest.skip(f"no results of {task}")
    return results.read_rows(task)


@cache
def _by_image_and_method(task):
    return {(row["image"], row["method"]): row for row in _committed(task)}


class TestCommitted:
    """A sample of the committed rows, made again by the code as it is."""

    @pytest.mark.parametrize("position", [0, 1])
    @pytest.mark.parametrize("method", RECOMPUTED, ids=lambda method: method.name)
    def test_synthetic_rows(self, method, position):
        stored = _by_image_and_method("synthetic")
        task, subject = self._synthetic()
        example = list(islice(task.positives("test", quick=False), 4))[2 * position + 1]
        self._agrees(task, subject, method, example, stored[example.name, method.name])

    @staticmethod
    @cache
    def _synthetic():
        task = tasks.Synthetic(each=2)
        return task, task.subject()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "method"),
        [
            ("malaria", "h-shap trees"),
            ("platelets", "h-shap quadtree tau=70%"),
            ("boards", "h-shap bisection"),
        ],
    )
    def test_rows_of_photographs(self, name, method):
        stored = _by_image_and_method(name)
        try:
            task = tasks.TASKS[name]()
            example = next(iter(task.positives("test", quick=True)))
        except (FileNotFoundError, ImportError) as missing:
            pytest.skip(str(missing))
        subject = task.subject()  # once: it reads all training images
        for each in named([method, "Sobel"]):
            self._agrees(task, subject, each, example, stored[example.name, each.name])

    def _agrees(self, task, subject, method, example, stored):
        subject = tasks.fitted(subject, example)
        row = runner.explain(method, subject, example, task.concept)
        if "cannot" in row:
            pytest.skip(row["cannot"])
        heat = row.pop("_heat")
        row |= against_model(heat, example.image, subject)
        # Processors round differently. At a tolerance of 0, that decides which parts are kept.
        rounds = method.name in ROUNDING
        most = 0.2 * row["evaluations"] if rounds else 0
        assert int(stored["evaluations"]) == pytest.approx(row["evaluations"], abs=most)
        same = ("f1", "f1_best", "iou_best", "energy")
        # These depend on the order of nearly equal pixels.
        ordered = ("average_precision", "pointing", "deletion", "insertion", "road")
        for column in (*same, *ordered):
            allowed = 0.25 if rounds else 0.02 if column in ordered else 2e-3
            assert float(stored[column]) == pytest.approx(row[column], abs=allowed), column

    @pytest.mark.parametrize("task", ["synthetic", "malaria", "boards", "platelets"])
    def test_summaries_follow_from_the_rows(self, task):
        stored = _committed(task)
        summary = results.read_summary(task)
        for group, entries in summary["groups"].items():
            for method, entry in entries.items():
                own = [
                    r for r in stored if (r["group"] or "all") == group and r["method"] == method
                ]
                assert entry["images"] == len(own)
                mean = np.mean([float(r["f1_validated"]) for r in own])
                assert entry["f1_validated"][0] == pytest.approx(mean, abs=1e-4)
        assert summary["commits"]
        assert not any("+" in commit for commit in summary["commits"]), "run from a clean tree"


class TestRanking:
    def test_pairs_that_are_close_may_swap_and_others_may_not(self):
        full = {"a": 0.9, "b": 0.5, "c": 0.48}
        assert ranking.swapped({"a": 0.8, "b": 0.4, "c": 0.45}, full) == []
        assert ranking.swapped({"a": 0.3, "b": 0.4, "c": 0.2}, full) == [("a", "b")]

    def test_the_quick_run_ranks_as_the_full_one(self):
        """The images of the quick run are the first ones of the full run."""
        stored = _committed("synthetic")
        full = ranking.levels(results.read_summary("synthetic"))
        first = defaultdict(list)
        for row in sorted(stored, key=lambda row: int(row["image"].rpartition("-")[2])):
            first[row["method"], row["group"]].append(float(row[ranking.MEASURE]))
        groups = {group for _, group in first}
        count = tasks.QUICK["test"]
        quick = {m: np.mean([np.mean(first[m, g][:count]) for g in groups]) for m in full}
        assert ranking.swapped(quick, full) == []


class TestNumbers:
    """A marked number is that of its address, or an error says which addresses there are."""

    def test_a_mark_is_filled_with_the_value_of_its_address(self, source):
        text = "F1 <!-- number: tiny/a/f1 -->0.99<!-- /number -->, and 0.99."
        filled = "F1 <!-- number: tiny/a/f1 -->0.12<!-- /number -->, and 0.99."
        assert numbers.filled(text) == filled
        assert numbers.filled(filled) == filled

    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            ("tiny/a/f1 as .1f", "0.1"),
            ("tiny/a/seconds as ms", "250"),
            ("tiny/b/evaluations", "40"),
            ("tiny/b/f1", "0.50"),
            ("max of tiny/*/f1", "0.50"),
            ("min of tiny/[ab]/f1", "0.12"),
        ],
    )
    def test_an_address_names_one_number_and_its_form(self, source, address, shown):
        assert numbers.number(address) == shown

    @pytest.mark.parametrize(
        ("address", "told"),
        [
            ("huge/a/f1", "no results are called 'huge'; there are .*tiny"),
            ("tiny/c/f1", "tiny has no 'c'; it has a, b"),
            ("tiny/a", "tiny/a is not a number but dict"),
            ("tiny/*/f1", "has 2 values; begin it with max of"),
            ("tiny/a/f1 as loud", "no form 'loud'"),
        ],
    )
    def test_an_address_without_a_number_fails(self, source, address, told):
        with pytest.raises(numbers.UnknownNumberError, match=told):
            numbers.number(address)

    @pytest.fixture
    def source(self, monkeypatch):
        stored = {
            "a": {"f1": [0.123, 0.1, 0.2], "seconds": 0.25, "evaluations": 12},
            "b": {"f1": {"median": 0.5, "min": 0.4, "max": 0.6}, "evaluations": 40.0},
        }
        monkeypatch.setitem(numbers.SOURCES, "tiny", lambda: stored)


class TestPages:
    """The pages say what the results say."""

    @pytest.mark.parametrize("page", report.PAGES, ids=_name)
    def test_tables_and_numbers_are_those_of_the_results(self, page):
        _committed("synthetic")
        text = page.read_text()
        assert report.filled(text) == text, "run `benchmarks/run report`"

    @pytest.mark.parametrize("page", MEASURED, ids=_name)
    def test_every_picture_is_there(self, page):
        linked = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text())
        assert [name for name in linked if not (page.parent / name).exists()] == []

    @pytest.mark.parametrize("page", MEASURED, ids=_name)
    def test_no_score_is_typed_by_hand(self, page):
        made = (report.MARK, numbers.MARK, re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE))
        text = page.read_text()
        for mark in made:
            text = mark.sub("", text)
        assert set(re.findall(r"(?<![\d.])\d\.\d\d\b(?![.\d])", text)) <= SETTINGS

    def test_the_comparison_with_the_authors_package_is_made_of_its_results(self):
        stored = json.loads((RESULTS / "compare_reference.json").read_text())
        page = (RESULTS / "compare_reference.md").read_text()
        assert compare_reference.page(stored) == page

    def test_every_claim_has_a_verdict(self):
        _committed("synthetic")
        verdicts = {claim.verdict for claim in claims.claims()}
        assert verdicts <= {claims.YES, claims.NO, claims.OWN, claims.PARTLY, claims.PROVED}


class Green(torch.nn.Module):
    """Says "go" where a pixel is much greener than it is red."""

    def __init__(self):
        super().__init__()
        self.last = torch.nn.Conv2d(3, 1, 1)
        with torch.no_grad():
            self.last.weight[:] = torch.tensor([-20.0, 20.0, 0.0]).reshape(1, 3, 1, 1)
            self.last.bias[:] = -8.0

    def forward(self, images):
        present = self.last(images).amax((1, 2, 3))
        return torch.stack([-present, present], dim=1)


class TestTraffic:
    """The whole way, from a copy of the layout to tables, on lights that are drawn."""

    def test_from_frames_to_a_table(self, tmp_path, monkeypatch):
        pytest.importorskip("PIL")
        from benchmarks.datasets.traffic import Traffic
        from benchmarks.datasets.traffic_tiny import write_tiny

        write_tiny(tmp_path / "lisa", clips=3, frames=4, seed=0)
        monkeypatch.setenv("HSHAP_DATA", str(tmp_path))
        monkeypatch.setattr(runner, "CACHE", tmp_path)
        monkeypatch.setattr("benchmarks.core.folders.CACHE", tmp_path)

        def task():
            load = lambda: Green().eval()
            return tasks.Photographs("traffic", "go", Traffic(), load, column=None, size=8)

        monkeypatch.setitem(runner.TASKS, "traffic", task)
        settings = runner.Run("traffic", methods=("h-shap bisection", results.PAIRED_WITH, "Sobel"))
        runner._work(settings, 0, 1)
        summary = results.collate("traffic", runner.rows(settings)).summary
        entries = summary["groups"]["all"]
        assert set(entries) == set(settings.methods)
        assert entries["h-shap bisection"]["object_recall"][0] == 1
        assert entries["h-shap bisection"]["f1"][0] > entries["Sobel"]["f1"][0]
        assert "h-shap bisection" in report.table(summary)


def test_budgets_are_compared_with_the_best_who_asks_no_more():
    rng = np.random.default_rng(0)

    def rows(method, evaluations, level):
        return [
            {
                "method": method,
                "group": "",
                "image": str(image),
                "evaluations": str(evaluations),
                **dict.fromkeys(budgets.MEASURES, f"{level + 0.01 * rng.random():.4f}"),
            }
            for image in range(12)
        ]

    made = [row for n in budgets.BUDGETS for row in rows(f"h-shap at {n}", n, 0.5)]
    made += rows("cheap", 1, 0.4) + rows("dear", 150, 0.6)
    made += rows("h-shap bisection", 10, 0.9)  # ours too, and so no rival
    made += rows("Grad-CAM", 1, 0.95)  # it sees more than outputs
    lines = budgets.table(made).splitlines()[2:]
    assert len(lines) == 18
    assert all("cheap" in line and "| leads |" in line for line in lines[:12])
    assert all("dear" in line and "| behind |" in line for line in lines[12:])


def test_every_rival_has_a_line_with_the_interval_of_the_paired_bootstrap():
    rng = np.random.default_rng(1)

    def rows(method, level):
        return [
            {
                "method": method,
                "group": "",
                "image": str(image),
                "evaluations": "9",
                **dict.fromkeys(budgets.MEASURES, f"{level + 0.2 * rng.random():.4f}"),
            }
            for image in range(9)
        ]

    ours, close, far = rows("h-shap at 10", 0.5), rows("close", 0.5), rows("far", 0.1)
    lines = budgets.every([*ours, *close, *far]).splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines] == ["close", "far"]
    for line, other in zip(lines, (close, far), strict=True):
        values = [[float(row["iou_best"]) for row in one] for one in (ours, other)]
        mean, low, high = paired_bootstrap(*values, draws=DRAWS, seed=tasks.SEED)
        assert f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]" in line
    assert "**" in lines[1]


def test_rivals_without_all_images_are_counted_and_few_images_give_no_verdict():
    def rows(method, images, level):
        shared = dict.fromkeys(budgets.MEASURES, str(level)) | {"group": "", "evaluations": "9"}
        return [shared | {"method": method, "image": str(image)} for image in range(images)]

    made = [
        row for n in budgets.BUDGETS for row in rows(f"h-shap at {n}", 6 if n < 500 else 2, 0.5)
    ]
    made += rows("some", 6, 0.4) + rows("few", 2, 0.6)
    table, note = budgets.table(made).split("\n\n")
    lines = table.splitlines()[2:]
    assert note == "Left out for want of rows on all 6 images: 1 method."
    assert all("(some)" in line and "| leads |" in line for line in lines[:15])
    assert all("500 (2 images)" in line and "| too few images |" in line for line in lines[15:])


def test_a_control_that_shows_cells_alone_is_a_rival():
    def rows(method, level):
        shared = dict.fromkeys(budgets.MEASURES, str(level)) | {"group": "", "evaluations": "9"}
        return [shared | {"method": method, "image": str(image)} for image in range(6)]

    made = [row for n in budgets.BUDGETS for row in rows(f"h-shap at {n}", 0.5)]
    lines = budgets.table(made + rows(budgets.ALONE, 0.6)).split("\n\n")[0].splitlines()[2:]
    assert all(budgets.ALONE in line and "| behind |" in line for line in lines)
