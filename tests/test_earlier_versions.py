"""Names and files of version 0.1 still work; names warn."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hshap

SAVED = Path(__file__).parent / "saved_by_0_1"
FACTS = json.loads((SAVED / "facts.json").read_text())


@pytest.mark.parametrize("name", FACTS)
def test_a_saved_explanation_loads_with_the_numbers_it_had(name):
    found, facts = hshap.Explanation.load(SAVED / f"{name}.npz"), FACTS[name]
    places = np.arange(16 * 24).reshape(16, 24)
    assert found.target == facts["target"]
    assert found.evaluations == facts["evaluations"]
    assert len(found.leaves) == facts["leaves"]
    assert len(found.unfinished) == facts["unfinished"]
    assert sum(leaf.area for leaf in found.leaves) == facts["pixels"]
    assert found.score == facts["score"]
    assert found.baseline_score == facts["baseline_score"]
    assert (found.attribution() * places).sum() == pytest.approx(facts["attribution"], rel=1e-12)
    # The doubt of version 0.1 was the larger of these two numbers.
    doubt = max(found.audit.gap, 1 - found.audit.carried)
    assert doubt == pytest.approx(facts["doubt"], abs=1e-12)


@pytest.mark.parametrize("name", [name for name in FACTS if name != "spots"])
def test_a_saved_explanation_is_read_again_as_it_was(name):
    coarse = hshap.Explanation.load(SAVED / f"{name}.npz").at(min_area=30)
    pixels = sum(leaf.area for leaf in coarse.leaves)
    assert [len(coarse.leaves), pixels, len(coarse.games)] == FACTS[name]["read_again"]


def test_the_class_of_a_saved_explanation_is_known_if_it_was_plain():
    assert hshap.Explanation.load(SAVED / "shifted.npz").class_index == 1
    assert hshap.Explanation.load(SAVED / "budget.npz").class_index is None


@pytest.fixture
def found():
    return hshap.demo.example()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (lambda found: hshap.Found, lambda found: hshap.SearchResult),
        (lambda found: found.leaves[0].size, lambda found: found.leaves[0].area),
        (lambda found: found.audit.bound, lambda found: found.audit.dropped_at_most),
        (lambda found: found.bounds().tolist()[0], lambda found: [0.0] * 8),
    ],
)
def test_an_old_name_warns_and_gives_the_new_one(found, old, new):
    with pytest.warns(DeprecationWarning, match=r"is now .*; the old name goes with version 0\.3"):
        value = old(found)
    assert value == new(found)


@pytest.mark.parametrize(
    ("old", "name"),
    [
        (lambda found: found.plot_tree(), "plot.tree"),
        (lambda found: found.plot_levels(), "plot.levels"),
    ],
)
def test_old_plots_warn_and_draw(found, old, name):
    figures = pytest.importorskip("matplotlib.figure")
    with pytest.warns(DeprecationWarning, match=name):
        assert isinstance(old(found), figures.Figure)


def test_a_warning_points_at_the_line_of_the_caller(found):
    with pytest.warns(DeprecationWarning, match="bounds") as told:
        found.bounds()
    assert told[0].filename == __file__


def test_an_unknown_name_is_still_an_error():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = hshap.nonsense


@pytest.mark.parametrize("module", ["hshap.theory", "hshap.viewer", "hshap.metrics", "hshap.demo"])
def test_public_modules_can_be_imported_by_their_names(module):
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", f"import {module}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_model_is_the_one_that_was_passed():
    def model(batch):
        return batch.mean(axis=(1, 2, 3))

    explainer = hshap.Explainer(model, hshap.Constant(0.0), hshap.Dyadic(2))
    assert explainer.model is model
    assert explainer.evaluator == hshap.Batched(model)
    batched = hshap.Batched(model, batch_size=3)
    assert hshap.Explainer(batched, hshap.Constant(0.0), hshap.Dyadic(2)).evaluator is batched


class OldRegion:
    """A region as version 0.1 asked for it: with `size`, without `area` and `adaptive`."""

    def __init__(self, first, last):
        self.first, self.last = first, last

    @property
    def index(self):
        return slice(self.first, self.last), slice(None)

    @property
    def size(self):
        return (self.last - self.first) * 8

    def split(self):
        middle = (self.first + self.last) // 2
        if self.last - self.first < 2:
            return ()
        return OldRegion(self.first, middle), OldRegion(middle, self.last)

    def __eq__(self, other):
        return (self.first, self.last) == (other.first, other.last)

    def __hash__(self):
        return hash((self.first, self.last))


def test_a_region_of_version_0_1_warns_and_works():
    image = np.zeros((1, 8, 8))
    image[0, 2, 5] = 1.0
    explainer = hshap.Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)),
        hshap.Constant(0.0),
        lambda image: OldRegion(0, 8),
    )
    with pytest.warns(DeprecationWarning, match="OldRegion .* rename size to area"):
        found = explainer.explain(image, target=0)
    assert [box.start for box in found.boxes()] == [(2, 0)]
