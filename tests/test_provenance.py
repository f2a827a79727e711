"""Every explanation tells how its scores were made, on screen, in files and on the page."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from oracle import any_marked, marked

from hshap import Batched, Constant, Dyadic, Explainer, Explanation, Incremental, cycle_spin
from hshap.export import page as viewer
from hshap.protocols import CostPolicy, Provenance

IMAGES = [marked((8, 8), points) for points in ([], [9], [0, 63], [9, 40, 20])]


def explainer(model=any_marked):
    return Explainer(model, baseline=Constant(0.0), partition=Dyadic(1))


class Silent:
    """An evaluator that does not tell how it makes its scores."""

    def open_session(self):
        session = Batched(any_marked).open_session()

        class Session:
            put, capacity, score = session.put, session.capacity, session.score

        return Session()


def test_inputs_are_counted_by_image():
    """Also in shared batches, of several targets, and where the model fails on another image."""

    def model(batch):
        if (batch > 1.5).any():
            raise RuntimeError("too bright")
        return any_marked(batch)

    failed = []
    pairs = [(image, 0) for image in (*IMAGES[:2], 2 * IMAGES[2], IMAGES[3])]
    found = explainer(model).explain_many(pairs, on_error=lambda *told: failed.append(told))
    spent = {one.position: one.evaluations for one in found if _is_counted(one)}
    assert spent.keys() == {0, 1, 3}
    assert len(set(spent.values())) == 3
    assert [position for position, _ in failed] == [2]
    one, other = explainer().explain(IMAGES[3], target=[0, lambda outputs: outputs[:, 0] * 2])
    assert one.provenance.full == other.provenance.full == one.evaluations == spent[3]


def _is_counted(one):
    return one.provenance.full == one.evaluations and one.provenance is one.audit.provenance


def test_patches_are_counted_by_image():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveMaxPool2d(1))
    net = torch.nn.Sequential(*layers, torch.nn.Flatten()).eval()
    images = np.random.default_rng(0).random((3, 1, 48, 48), dtype=np.float32)
    evaluator = Incremental(net, cost_policy=CostPolicy.always())
    made = Explainer(evaluator, Constant(0.0), Dyadic(12))
    for one in made.explain_many((image, 0) for image in images):
        told = one.provenance
        assert told.full + told.incremental == one.evaluations
        assert told.incremental > 0
        assert told.comparison == "passed"


def test_it_is_told_everywhere(tmp_path):
    """In the audit, the summary, a notebook, readings, and on the page; or that nobody told."""
    found = explainer().explain(IMAGES[1], target=0)
    sentence = f"{found.evaluations} inputs in full; batches: independent"
    assert str(found.audit).endswith(f" Scores: {sentence}.")
    assert repr(found).endswith(f"; {sentence}>")
    assert sentence in found._repr_html_()
    assert found.at(min_size=4).provenance == found.provenance
    viewer.write_page(tmp_path / "page.html", [viewer.View("a", IMAGES[1][0], {"b": found})])
    assert f"Scores: {sentence}." in (tmp_path / "page.html").read_text()
    untold = explainer(Silent()).explain(IMAGES[1], target=0)
    assert untold.provenance == Provenance()
    assert str(untold.audit).endswith("Scores: not told by the evaluator.")
    assert "inputs" not in repr(untold)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (Provenance(full=1, batches="one at a time"), "1 input in full; batches: one at a time"),
        (
            Provenance(5, 7, "failed", "independent", "no"),
            "5 inputs in full (no), 7 incremental; comparison: failed; batches: independent",
        ),
    ],
)
def test_sentences(told, sentence):
    assert told.sentence == sentence


def test_texts_cannot_write_to_the_terminal():
    told = Provenance(full=1, reason="\x1b[2J\ud800two\nlines" + 200 * "x")
    assert told.sentence.isprintable()
    assert "two lines" in told.sentence
    assert len(told.sentence) < 180
    found = replace(explainer().explain(IMAGES[1], target=0), target="\x1b[2Jgone\n")
    assert repr(found).isprintable()
    assert found._repr_html_().isprintable()


def test_a_spin_counts_each_input_once():
    spin = cycle_spin(explainer(), IMAGES[3], target=0, shifts=[0, 1, 2])
    assert spin.provenance == Provenance(full=spin.evaluations, batches="independent")
    assert all(member.provenance == spin.provenance for member in spin.members)
    assert spin.provenance.sentence in repr(spin)
    untold = cycle_spin(explainer(Silent()), IMAGES[3], target=0, shifts=[0])
    assert repr(untold).endswith("evaluations>")


def test_a_file_keeps_it(tmp_path):
    told = Provenance(3, 4, "passed", "dependent", "one\nreason \u2028")
    found = replace(explainer().explain(IMAGES[1], target=0), provenance=told)
    found.save(tmp_path / "x.npz")
    again = Explanation.load(tmp_path / "x.npz")
    assert again.provenance == again.audit.provenance == told
