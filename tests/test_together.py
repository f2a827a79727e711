"""Explanations that are audited together have the audits that each would have alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import hshap
from hshap.explanation.together import audit_together


def _explanations(count: int) -> list[hshap.Explanation]:
    images = np.random.default_rng(0).random((count, 1, 16, 20))
    explainer = hshap.Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)) + batch.mean(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.1),
        partition=hshap.Dyadic(min_size=4),
        search=hshap.Share(0.2, max_evaluations=60),
    )
    return list(explainer.explain_many((image, 0) for image in images))


def test_audits_and_trees_are_those_of_each_explanation_alone():
    found = _explanations(5)
    alone = [replace(one) for one in found]
    audit_together(found)
    for one, other in zip(found, alone, strict=True):
        assert {"parts", "audit"} <= vars(one).keys()
        assert one.audit == other.audit
        assert one.parts == other.parts


def test_an_explanation_whose_games_fail_leaves_the_others_as_they_are():
    good, bad = _explanations(2)
    expected = replace(good).audit
    broken = replace(bad.games[0], values=bad.games[0].values[:3])
    audit_together([good, replace(bad, games=(broken, *bad.games[1:]))])
    assert good.audit == expected
