"""Batch sizes and layouts by measured speed, with clocks that tests turn by hand."""

from __future__ import annotations

import numpy as np
import pytest

import hshap
from hshap.cli.inputs.models import Loaded, evaluator_of
from hshap.evaluators.batch_size import Throughput

SHAPE = (3, 8, 8)


class Hand:
    """A clock whose hand moves when a batch is scored."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def settled(seconds_of, usual, most, batches=40):
    """Return the chosen size if a batch of n inputs takes `seconds_of(n)`, and all sizes."""
    clock, sizes = Hand(), []
    found = Throughput(clock)

    def score(count):
        clock.now += seconds_of(count)
        return np.zeros(count)

    for _ in range(batches):
        sizes.append(found.size(SHAPE, usual, most))
        found.timed(SHAPE, sizes[-1], lambda: score(sizes[-1]))
    return sizes[-1], sizes


@pytest.mark.parametrize(
    ("seconds_of", "expected"),
    [
        (lambda n: n * 1.0, 32),  # no size is better: the usual one stays
        (lambda n: 100.0 + n * 0.01, 256),  # a fixed cost for each call: as large as possible
        (lambda n: n * (1.0 if n <= 8 else 3.0), 8),  # large batches leave the cache
        (lambda n: n * (1.0 if n < 64 else 0.5), 64),  # better at twice the size, and no further
        (lambda n: n * (1.0 if n <= 32 else 0.95), 32),  # five percent are noise
    ],
)
def test_the_fastest_size_stays(seconds_of, expected):
    chosen, sizes = settled(seconds_of, usual=32, most=256)
    assert chosen == expected
    assert sizes[:2] == [32, 32]
    assert max(sizes) <= 256


def test_a_size_on_trial_that_is_no_longer_allowed_is_given_up():
    clock, found, sizes = Hand(), Throughput(lambda: clock.now), []

    def score(count):
        clock.now += 1.0
        return np.zeros(count)

    for most in (256, 256, 40, 40, 24, 256):
        sizes.append(found.size(SHAPE, 32, most))
        found.timed(SHAPE, sizes[-1], lambda: score(sizes[-1]))
    assert sizes == [32, 32, 32, 32, 24, 24]


def test_the_first_slow_batch_of_a_size_does_not_count():
    seen = set()

    def seconds_of(count):
        first = count not in seen
        seen.add(count)
        return count * (10.0 if first else 1.0)

    assert settled(seconds_of, usual=32, most=256)[0] == 32


def test_batches_that_are_not_full_change_nothing():
    found = Throughput(Hand())
    assert found.size(SHAPE, 32, 64) == 32
    for _ in range(10):
        found.timed(SHAPE, 5, lambda: np.zeros(5))
    assert found.size(SHAPE, 32, 64) == 32


@pytest.mark.parametrize("most", [40, 10**6], ids=["little memory", "much memory"])
def test_sizes_on_trial_give_the_same_explanation(most, rng):
    calls, tried = [], []

    def model(batch):
        tried.append(len(batch))
        if len(batch) > most:
            raise MemoryError
        calls.append(len(batch))
        return batch.max(axis=(1, 2, 3))

    images = [(rng.random((1, 32, 32)), 0) for _ in range(8)]
    parts = {"baseline": hshap.Constant(0.0), "partition": hshap.Bisection(2)}
    fixed = hshap.Explainer(hshap.Batched(model, check_batches=False), **parts)
    expected = [one.saliency() for one in fixed.explain_many(images)]
    inputs = sum(calls)
    calls.clear()
    tried.clear()
    auto = hshap.Batched(model, batch_size="auto", check_batches=False)
    found = [one.saliency() for one in hshap.Explainer(auto, **parts).explain_many(images)]
    assert sum(calls) == inputs  # every row once
    assert len(set(tried)) > 1
    assert sum(count > most for count in tried) <= 2
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_commands_choose_the_size_by_speed_on_a_gpu_alone():
    model = lambda batch: batch.mean(axis=(1, 2, 3))
    assert evaluator_of(Loaded(model, "m"), None).batch_size is None
    assert evaluator_of(Loaded(model, "m", device="cuda"), None).batch_size == "auto"
    assert evaluator_of(Loaded(model, "m", device="cuda"), 8).batch_size == 8
