"""Families of drawings: exact truths, halves that share no kind, and the committed results."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("PIL")

from benchmarks.core.folders import RESULTS
from benchmarks.datasets.families import FAMILIES, TARGETS, Style, any_style, draw, example

CASES = [(half, family) for half, families in FAMILIES.items() for family in families]
IDS = [f"{half}: {family.name}" for half, family in CASES]


def test_halves_share_no_kind_of_target():
    kinds = {
        half: {kind for f in families for kind in f.kinds} for half, families in FAMILIES.items()
    }
    assert kinds["choosing"].isdisjoint(kinds["judging"])
    assert kinds["choosing"] | kinds["judging"] == set(TARGETS)


@pytest.mark.parametrize(("half", "family"), CASES, ids=IDS)
def test_every_family_has_as_many_targets_as_asked_for(half, family):
    for number in (1, 6):
        sample, kind = example(family, number, 0)
        assert sample.count(kind) == number
        assert sample.truth(kind).sum() >= 6 * number
        assert sample.image.shape == sample.ground.shape == (3, 100, 120)
        again, _ = example(family, number, 0)
        np.testing.assert_array_equal(again.image, sample.image)


def test_the_truth_of_a_clean_drawing_is_the_pixels_that_differ_from_the_background():
    rng = np.random.default_rng(0)
    for kind in TARGETS:
        sample = draw(rng, Style(stroke=(1, 4), size=(9, 40)), [kind, kind], others=0)
        differs = (sample.image != sample.ground).any(axis=0)
        np.testing.assert_array_equal(differs, sample.truth(kind))


def test_hidden_shapes_leave_the_background():
    style = Style(noise=(8, 8), smooth=True)
    sample = draw(np.random.default_rng(1), style, [], others=0, hidden=["x", "ring"])
    assert not any(sample.truth(kind).any() for kind in TARGETS)
    for shape in sample.shapes:
        inside = (slice(None), *shape.index)
        hidden = shape.cover > 0
        np.testing.assert_array_equal(
            sample.image[inside][:, hidden], sample.ground[inside][:, hidden]
        )


def test_a_neighbour_touches_its_target_and_does_not_cover_it():
    rng = np.random.default_rng(2)
    sample = draw(rng, Style(touching=True), ["x"] * 3, others=0)
    assert sum(shape.kind == "neighbour" for shape in sample.shapes) >= 2
    covered = np.zeros((100, 120))
    for shape in sample.shapes:
        covered[shape.index] += shape.cover >= 0.5
    assert covered.max() == 1


def test_any_style_can_be_drawn():
    rng = np.random.default_rng(3)
    for _ in range(30):
        sample = draw(rng, any_style(rng), ["star", "t"], others=2, strange=("slash", "arc"))
        assert np.isfinite(sample.image).all()


@pytest.mark.parametrize("name", ["stroke 1", "noise 8", "light 0.4", "anti-aliased, stroke 3"])
def test_explanations_find_the_drawings_of_families_for_choosing(name):
    pytest.importorskip("torch")
    from benchmarks.experiments.families import explained
    from benchmarks.models.finder import load

    family = next(family for family in FAMILIES["choosing"] if family.name == name)
    for number, most in ((1, 40), (6, 80)):
        found = list(explained(load(), family, number, 2))
        assert np.mean([one.f1 for one in found]) > 0.9
        assert np.mean([one.evaluations for one in found]) <= most


class TestResults:
    def test_the_network_is_accurate(self):
        record = json.loads((RESULTS / "train_families.json").read_text())
        assert min(kind["accuracy"] for kind in record["test"].values()) >= 0.97

    def test_the_page_is_made_of_the_results(self):
        pytest.importorskip("torch")
        from benchmarks.experiments import families

        content = json.loads((RESULTS / "families" / "summary.json").read_text())
        assert (RESULTS / "families" / "table.md").read_text() == families.page(content)
