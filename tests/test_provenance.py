"""Every explanation tells how its scores were made, on screen, in files and on the page."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from oracle import any_marked, marked

from hshap import (
    Batched,
    Constant,
    Dyadic,
    Explainer,
    Explanation,
    FormatError,
    Provenance,
    cycle_spin,
)
from hshap.evaluators.provenance import BATCHES, COMPARISONS

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


def test_the_inputs_of_an_image_are_counted():
    found = explainer().explain(IMAGES[1], target=0)
    assert found.provenance == Provenance(full=found.evaluations, batches="independent")
    assert found.audit.provenance is found.provenance


def test_images_in_shared_batches_have_counts_of_their_own():
    found = list(explainer().explain_many((image, 0) for image in IMAGES))
    assert len({one.evaluations for one in found}) > 1
    for one in found:
        assert one.provenance.full == one.evaluations


def test_targets_of_one_image_share_its_inputs():
    one, other = explainer().explain(IMAGES[3], target=[0, lambda outputs: outputs[:, 0] * 2])
    assert one.provenance.full == other.provenance.full == one.evaluations


def test_an_image_whose_model_fails_leaves_the_counts_of_others_alone():
    def model(batch):
        if (batch > 1.5).any():
            raise RuntimeError("too bright")
        return any_marked(batch)

    pairs = [(IMAGES[1], 0), (2 * IMAGES[2], 0), (IMAGES[3], 0)]
    failed = []
    for one in explainer(model).explain_many(pairs, on_error=lambda *told: failed.append(told)):
        assert one.provenance.full == one.evaluations
    assert [position for position, _ in failed] == [1]


def test_patches_are_counted_by_image():
    torch = pytest.importorskip("torch")
    from hshap import CostPolicy, Incremental

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


def test_an_evaluator_that_does_not_tell_is_told_as_such():
    found = explainer(Silent()).explain(IMAGES[1], target=0)
    assert found.provenance == Provenance()
    assert str(found.audit).endswith("Scores: not told by the evaluator.")
    assert "inputs" not in repr(found)


def test_the_audit_and_the_summary_say_it_in_words():
    found = explainer().explain(IMAGES[1], target=0)
    sentence = f"{found.evaluations} inputs in full; batches: independent"
    assert str(found.audit).endswith(f" Scores: {sentence}.")
    assert repr(found).endswith(f"; {sentence}>")
    assert sentence in found._repr_html_()


def test_the_page_shows_it(tmp_path):
    from hshap.export.page import View, write_page

    found = explainer().explain(IMAGES[1], target=0)
    write_page(tmp_path / "page.html", [View("one", IMAGES[1][0], {"class": found})])
    assert f"Scores: {found.provenance.sentence}." in (tmp_path / "page.html").read_text()


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


def test_a_reason_is_told_in_one_line_without_control_characters():
    told = Provenance(full=1, reason="\x1b[2J\ud800two\nlines" + 200 * "x")
    assert told.sentence.isprintable()
    assert "two lines" in told.sentence
    assert len(told.sentence) < 180


def test_the_name_of_a_target_cannot_write_to_the_terminal():
    found = replace(explainer().explain(IMAGES[1], target=0), target="\x1b[2Jgone\n")
    assert repr(found).isprintable()
    assert found._repr_html_().isprintable()


def test_readings_keep_it():
    found = explainer().explain(IMAGES[3], target=0)
    assert found.at(min_size=4).provenance == found.provenance


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


def rewritten(path, change):
    with np.load(path) as stored:
        arrays = dict(stored)
    header = json.loads(arrays["header"].tobytes())
    change(header)
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez_compressed(path, **arrays)


WRONG = {
    "provenance lacks facts": [
        None,
        [],
        "told",
        {},
        {**asdict(Provenance()), "more": 1},
        {"full": 1},
    ],
    "full is no number": [{"full": value} for value in (-1, 1.0, True, None, "1", 2**63)],
    "incremental is no number": [{"incremental": value} for value in (-1, [], float("nan"))],
    "comparison is not one of": [{"comparison": value} for value in ("", "PASSED", None, 1, {})],
    "batches is not one of": [{"batches": value} for value in ("fine", None, ["independent"])],
    "reason is no text": [{"reason": value} for value in (None, 1, [])],
}


@pytest.mark.parametrize(("fault", "wrong"), [(k, v) for k, some in WRONG.items() for v in some])
def test_a_file_with_unknown_facts_is_refused(fault, wrong, tmp_path):
    path = tmp_path / "x.npz"
    explainer().explain(IMAGES[1], target=0).save(path)
    is_whole = fault == "provenance lacks facts"

    def change(header):
        header["provenance"] = wrong if is_whole else {**header["provenance"], **wrong}

    rewritten(path, change)
    with pytest.raises(FormatError, match=fault):
        Explanation.load(path)


def test_known_facts_are_those_of_the_sessions():
    assert "passed" in COMPARISONS
    assert "dependent" in BATCHES
