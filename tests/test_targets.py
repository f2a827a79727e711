"""Targets: the explained number by its definition, decisions at their borders, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

import hshap
from hshap import ArgumentError, Output, Positives


def explain(outputs, target):
    """Explain the mean of a model whose outputs are some numbers on white, and 0 on black."""
    explainer = hshap.Explainer(
        lambda batch: batch.mean(axis=(1, 2, 3))[:, None] * outputs,
        hshap.Constant(0.0),
        hshap.Dyadic(8),
    )
    return explainer.explain(np.ones((1, 8, 8)), target)


OUTPUTS = np.array([1.5, -2.0, 40.0])


@pytest.mark.parametrize("index", range(3))
def test_targets_are_what_they_say(index):
    raw, bare = OUTPUTS[index], 0.0
    scores = {
        index: (raw, bare),
        Output(index): (raw, bare),
        Output(index, "sigmoid"): (1 / (1 + np.exp(-raw)), 0.5),
        Output(index, "softmax"): (np.exp(raw) / np.exp(OUTPUTS).sum(), 1 / 3),
    }
    for target, expected in scores.items():
        found = explain(OUTPUTS, target)
        assert (found.score, found.baseline_score) == pytest.approx(expected)
        assert found.class_index == index
    words = {"raw": index, "sigmoid": f"sigmoid of output {index}"}
    for kind, told in words.items():
        assert explain(OUTPUTS, Output(index, kind)).target == told


@pytest.mark.parametrize("search", [hshap.DepthFirst(), hshap.BestFirst(), hshap.GroupTesting()])
def test_the_probability_is_the_images(search):
    """Of the whole image: no other input of the run tells it."""
    model = lambda batch: batch.mean(axis=(1, 2, 3))[:, None] * np.array([0.9, 0.3])
    explainer = hshap.Explainer(model, hshap.Constant(0.0), hshap.Dyadic(2), search)
    found = explainer.explain(np.ones((1, 8, 8)), 0)
    assert (found.probability, found.score) == (0.9, 0.9)
    assert len(found.games) > 1


@pytest.mark.parametrize(
    ("positives", "outputs", "target", "is_explained"),
    [
        (Positives(), [0.0], 0, False),  # a logit of 0 decides for nothing
        (Positives(), [1e-9], 0, False),  # a probability
        (Positives(), [1.5], 0, True),
        (Positives(), [0.5, 0.4], 0, False),  # one half is not above one half
        (Positives(), [0.51, 0.7], 0, True),
        (Positives(), [3.0, 3.0], 0, True),  # as high as the highest
        (Positives(), [3.0, 3.0], 1, True),
        (Positives(), [3.0, 3.1], 0, False),
        (Positives(2.0), [2.0, 9.0], 0, True),  # a least score is reached
        (Positives(2.0), [1.99, 9.0], 0, False),
        (Positives(-9.0), [0.0, 0.0], 0, False),  # not above the baseline
        (Positives(), [9.0, 1.0], lambda outputs: outputs[:, 1], True),  # of no known scale
    ],
)
def test_decisions_hold_at_their_borders(positives, outputs, target, is_explained):
    outputs = np.array(outputs)
    explainer = hshap.Explainer(
        lambda batch: batch.mean(axis=(1, 2, 3))[:, None] * outputs,
        hshap.Constant(0.0),
        hshap.Dyadic(8),
    )
    (found,) = explainer.explain_many([(np.ones((1, 8, 8)), target)], positives=positives)
    assert found.is_explained == is_explained
    assert (found.negative == "") == is_explained


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (3, "target=3 is out of range: the model has 3 outputs; pass 0 to 2, or a callable"),
        (Output(3), "target=3 is out of range"),
        (-1, "target=-1 is not a class"),
        (True, "target=True is not a class"),
        (1.0, "target=1.0 is not a class"),
        ("cat", "target='cat' is a name, but the model tells none for its classes"),
        ([], "is empty; pass a class, several, or a callable"),
        (lambda outputs: outputs, r"returned shape \(\d+, 3\) .*one number for each row"),
        (lambda outputs: outputs[:, 0] * np.nan, "gave nan for target .* explain a finite output"),
    ],
)
def test_wrong_targets_are_told(target, told):
    with pytest.raises((ArgumentError, hshap.ModelError), match=told):
        explain(OUTPUTS, target)


def test_one_output_is_told():
    with pytest.raises(ArgumentError, match="has 1 outputs; pass 0, or a callable"):
        explain(OUTPUTS[:1], 1)
    with pytest.raises(ArgumentError, match="activation must be one of raw, softmax, sigmoid"):
        Output(0, "tanh")
