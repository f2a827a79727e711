"""Both sides of an explanation, as maps and as findings: enough alone, and not to be missing."""

from __future__ import annotations

import numpy as np
import pytest

import hshap
from hshap.explanation.maps import CONTEXTS

SIDE = 16
FIRST, SECOND = (1, 1), (14, 14)


def seen(batch):
    """Return whether each of two places is shown."""
    return batch[:, 0, 1, 1], batch[:, 0, 14, 14]


def either(batch):
    return np.maximum(*seen(batch))


def both(batch):
    return np.multiply(*seen(batch))


def added(batch):
    one, other = seen(batch)
    return 2 * one + other


def explained(model, search=None):
    return hshap.Explainer(
        model,
        baseline=hshap.Constant(0.0),
        partition=hshap.Bisection(min_size=1),
        search=search or hshap.BestFirst(contexts=4),
    ).explain(np.ones((1, SIDE, SIDE)), target=0)


def places(explanation, context):
    return {box.start: box.score for box in explanation.boxes(context=context)}


def test_each_of_two_places_is_enough_and_neither_is_missed():
    explanation = explained(either)
    assert places(explanation, "alone") == {FIRST: 0.5, SECOND: 0.5}
    assert places(explanation, "missing") == {}
    assert not explanation.attribution(context="missing").any()


def test_of_two_places_that_are_needed_none_is_enough():
    explanation = explained(both)
    assert places(explanation, "alone") == {}
    assert not explanation.attribution(context="alone").any()
    assert places(explanation, "missing") == {FIRST: 0.5, SECOND: 0.5}


def test_both_sides_of_an_additive_model_are_equal():
    explanation = explained(added)
    assert places(explanation, "alone") == places(explanation, "missing") == {FIRST: 2, SECOND: 1}
    maps = [explanation.attribution(context=context) for context in CONTEXTS]
    assert np.array_equal(*maps)
    assert [heat.sum() for heat in maps] == [explanation.score] * 2


def test_boxes_of_a_side_have_the_share_of_all_their_regions():
    def square(batch):
        return batch[:, 0, 4:6, 8:12].sum(axis=(1, 2))

    explanation = explained(square)
    (box,) = explanation.boxes(context="alone")
    assert box == ((4, 8), (6, 12), 8.0)
    pixels = explanation.boxes(context="alone", merge=False)
    assert sum(one.score for one in pixels) == 8.0
    assert [one.score for one in pixels] == sorted((one.score for one in pixels), reverse=True)
    placed = explanation.placed((10 * SIDE, 10 * SIDE))
    assert placed.boxes(context="alone") == [((40, 80), (60, 120), 8.0)]
    assert placed.boxes(context="alone", original=False) == [box]


def test_a_side_is_that_of_the_map_where_the_search_was_not_finished():
    rng = np.random.default_rng(0)
    weights = np.where(rng.random((SIDE, SIDE)) < 0.05, rng.random((SIDE, SIDE)), 0.0)
    explanation = explained(
        lambda batch: np.tanh(0.1 * (batch[:, 0] * weights).sum(axis=(1, 2))),
        hshap.BestFirst(max_evaluations=80),
    )
    assert explanation.unfinished
    for context in CONTEXTS:
        heat = explanation.attribution(context=context)
        boxes = explanation.boxes(context=context, merge=False)
        inside = np.zeros(heat.shape, dtype=bool)
        for box in boxes:
            inside[tuple(map(slice, box.start, box.stop))] = True
        assert heat[inside].mean() >= heat.mean()
        assert 0 < sum(box.score for box in boxes) <= explanation.score


@pytest.mark.parametrize("search", [hshap.DepthFirst(), hshap.BestFirst(contexts=1)])
def test_runs_in_one_context_have_no_sides(search):
    explanation = explained(added, search)
    assert not explanation.settings.has_contexts
    for view in (explanation.attribution, explanation.boxes):
        with pytest.raises(hshap.ArgumentError, match=r"BestFirst\(contexts=2\)"):
            view(context="alone")


def test_a_side_is_asked_for_by_its_name_and_without_alpha():
    explanation = explained(added)
    for view in (explanation.attribution, explanation.boxes):
        with pytest.raises(hshap.ArgumentError, match='pass "alone", "missing" or None'):
            view(context="mixed")
    with pytest.raises(hshap.ArgumentError, match="alpha or context, not both"):
        explanation.boxes(alpha=0.05, context="alone")


def test_a_saved_explanation_keeps_its_sides(tmp_path):
    explanation = explained(both)
    explanation.save(tmp_path / "both.npz")
    loaded = hshap.Explanation.load(tmp_path / "both.npz")
    for context in CONTEXTS:
        assert loaded.boxes(context=context) == explanation.boxes(context=context)
