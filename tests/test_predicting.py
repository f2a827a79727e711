"""The cost of many images, predicted from a few."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hshap
from hshap._util.processes import usable_cores
from hshap.cli.costs import predict_by_formula
from hshap.errors import ArgumentError
from hshap.explainer.predicting import of_many


def bright(batch):
    return (batch > 0.5).any(axis=(1, 2, 3)).astype(float)


def picture(rng, findings):
    image = np.zeros((1, 32, 32))
    image.reshape(-1)[rng.choice(1024, findings, replace=False)] = 1.0
    return image


EXPLAINER = hshap.Explainer(bright, hshap.Constant(0.0), hshap.Bisection(1))


def test_a_sample_predicts_the_evaluations_of_a_run(rng):
    pairs = ((picture(rng, 3), 0) for _ in itertools.count())
    found = hshap.runs.predicted_cost(EXPLAINER, pairs, images=40)
    counts = [EXPLAINER.explain(picture(rng, 3), 0).evaluations for _ in range(40)]
    assert found.images == 40
    assert abs(found.evaluations.expected / sum(counts) - 1) < 0.3
    assert found.evaluations.low <= found.evaluations.expected <= found.evaluations.high


def test_images_that_differ_more_are_sampled_more(rng):
    alike = ((picture(rng, 3), 0) for _ in itertools.count())
    mixed = ((picture(rng, 1 + 20 * (n % 2)), 0) for n in itertools.count())
    assert hshap.runs.predicted_cost(EXPLAINER, alike, images=10).sampled == 5
    assert hshap.runs.predicted_cost(EXPLAINER, mixed, images=10).sampled > 5


def test_seconds_include_reading_but_not_the_first_image(rng):
    now, image = [0.0], picture(rng, 2)

    def read():
        now[0] += 1000.0  # the first image warms up
        for _ in range(5):
            yield image, 0
            now[0] += 3.0

    found = hshap.runs.predicted_cost(EXPLAINER, read(), images=5, clock=lambda: now[0])
    assert found.seconds.expected == pytest.approx(15.0)
    one = hshap.runs.predicted_cost(EXPLAINER, [(image, 0)], images=5)
    assert one.evaluations[1:] == one.seconds[1:] == (0.0, np.inf)
    assert one.evaluations.expected == 5 * one.counts[0]
    with pytest.raises(ArgumentError, match="pairs has no image"):
        hshap.runs.predicted_cost(EXPLAINER, [], images=5)


def test_evaluations_that_targets_share_count_once(rng):
    calls = []

    def both(batch):
        calls.append(len(batch))
        return np.stack([bright(batch), bright(batch)], axis=1)

    model = hshap.Batched(both, check_batches=False)
    explainer = hshap.Explainer(model, hshap.Constant(0.0), hshap.Bisection(1))
    found = hshap.runs.predicted_cost(explainer, [(picture(rng, 2), [0, 1])] * 5, images=5)
    assert found.evaluations.expected == pytest.approx(sum(calls))


def test_the_range_holds_the_total_of_new_images_in_four_of_five_cases(rng):
    held = 0
    for _ in range(1000):
        counts = rng.normal(100, 20, 5)
        low, high = of_many(counts, images=30)[1:]
        held += low <= rng.normal(100, 20, 30).sum() <= high
    assert 760 <= held <= 840


def test_the_formula_of_a_percentile_is_what_a_run_takes(rng):
    values = rng.random((1, 32, 32))
    for name, partition in (("quadtree", hshap.Dyadic(2)), ("bisection", hshap.Bisection(2))):
        explainer = hshap.Explainer(
            lambda batch: batch.sum(axis=(1, 2, 3)),
            hshap.Constant(0.0),
            partition,
            hshap.BreadthFirst(70),
        )
        taken = explainer.explain(values, 0).evaluations
        cost = predict_by_formula((32, 32), name, 2, 5, percentile=70)
        assert cost.expected == cost.most == taken


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "100000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path, files, expected):
    (tmp_path / "cpu").mkdir()
    free = usable_cores(tmp_path / "no limits")
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == (expected or free)
