from __future__ import annotations

import time

import numpy as np
import pytest
from oracle import any_marked, marked, same_explanation

from hshap import (
    Batched,
    Bisection,
    Blur,
    BreadthFirst,
    Conditional,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Fixed,
    Pixels,
    References,
    Shifted,
    Similar,
    cycle_spin,
)

CHECK = 3
"""A run of two batches scores three inputs again, alone: do scores depend on the batch?"""


def two_classes(batch):
    """Score row by row, so that the batch around a row cannot matter to the last bit."""
    rows = [(np.tanh(row[0]).max(), float(np.sort(row, axis=None)[-5:].sum())) for row in batch]
    return np.array(rows)


@pytest.fixture
def images(rng):
    shapes = [(1, 16, 16), (1, 12, 20), (1, 16, 16), (1, 9, 7), (1, 16, 16)]
    made = [rng.random(shape).astype(np.float32) ** 4 for shape in shapes]
    # One of another type, which must not be painted on inputs or stand-ins of the first.
    return [*made, rng.random((1, 16, 16)) ** 4]


BASELINES = [
    Constant(0.1),
    Blur(2.0),
    lambda image: Fixed(np.full(image.shape, 0.2))(image),
    lambda image: References(np.linspace(0, 0.5, 3 * image.size).reshape(3, *image.shape))(image),
    lambda image: Conditional(
        Similar(np.linspace(0, 0.5, 5 * image.size).reshape(5, *image.shape)), draws=2
    )(image),
]
SEARCHES = [
    DepthFirst(0.02),
    BreadthFirst(60),
    DepthFirst(0.0, max_evaluations=150, keep_whole=True, width=3),
]


@pytest.mark.parametrize("baseline", BASELINES, ids=["constant", "blur", "fixed", "refs", "cond"])
@pytest.mark.parametrize("search", SEARCHES, ids=["depth", "breadth", "budget"])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_many_in_one_call_give_bit_for_bit_what_each_gives_alone(
    images, baseline, search, batch_size
):
    alone = Explainer(two_classes, baseline=baseline, partition=Bisection(2), search=search)
    many = Explainer(
        Batched(two_classes, batch_size=batch_size),
        baseline=baseline,
        partition=Bisection(2),
        search=search,
    )
    together = list(many.explain_many((image, [0, 1]) for image in images))
    assert len(together) == 2 * len(images)
    for found in together:
        single = alone.explain(images[found.position], target=found.target)
        assert same_explanation(found, single)


def test_shifts_in_one_call_give_bit_for_bit_what_each_gives_alone(images):
    image = images[1]
    explainer = Explainer(two_classes, baseline=Constant(0.1), partition=Dyadic(3))
    shifts = [(0, 0), (1, 2), (-3, 25), (0, 0), 4]
    spun = cycle_spin(explainer, image, target=1, shifts=shifts)
    for shift, member in zip(shifts, spun.members, strict=True):
        alone = Explainer(
            two_classes, baseline=Constant(0.1), partition=Shifted(Dyadic(3), shift)
        ).explain(image, target=1)
        assert same_explanation(member, alone)


@pytest.mark.parametrize("shifts", [[0], [(1, 1)], [0, 0, (2, 3)], [(5, -7), (100, 3), 1, 2, 3]])
def test_cycle_spinning_averages_over_every_shift_that_is_given(shifts, rng):
    image = rng.random((1, 8, 12))
    explainer = Explainer(two_classes, baseline=Constant(0.0), partition=Dyadic(2))
    spun = cycle_spin(explainer, image, target=0, shifts=shifts)
    expected = np.zeros((8, 12))
    for shift in shifts:
        # Roll the image itself, explain it with a model that rolls it back, and roll the map.
        offset = (shift, shift) if isinstance(shift, int) else shift
        back = lambda batch, o=offset: two_classes(np.roll(batch, o, (2, 3)))
        moved = np.roll(image, [-o for o in offset], (1, 2))
        member = Explainer(back, baseline=Constant(0.0), partition=Dyadic(2)).explain(
            moved, target=0
        )
        expected += np.roll(member.saliency(), offset, (0, 1)) / len(shifts)
    np.testing.assert_allclose(spun.saliency(), expected, atol=1e-15)
    np.testing.assert_allclose(spun.saliency().sum(), 1.0)


def test_cycle_spinning_scores_nothing_twice():
    seen = []

    def model(batch):
        seen.extend(row.tobytes() for row in batch)
        return any_marked(batch)

    explainer = Explainer(model, baseline=Constant(-1.0), partition=Dyadic(1))
    image = marked((8, 8), [9, 30]) + 0.01 * np.arange(64, dtype=np.float32).reshape(1, 8, 8) / 64
    spun = cycle_spin(explainer, image, target=0, shifts=[0, 8, (0, 16), 4, (4, -4), 3])
    assert spun.evaluations + CHECK == len(seen)
    assert spun.evaluations == len(set(seen))
    assert spun.evaluations < sum(member.evaluations for member in spun.members)


def test_cycle_spinning_counts_draws_of_any_kind_of_region():
    seen = []

    def model(batch):
        seen.append(len(batch))
        return any_marked(batch)

    def pixels(image):
        halves = lambda _: (Pixels(np.arange(32), (8, 8)), Pixels(np.arange(32, 64), (8, 8)))
        return Pixels(np.arange(64), (8, 8), halves)

    for partition in (pixels, Dyadic(2)):
        seen.clear()
        references = References(np.zeros((3, 1, 8, 8), np.float32))
        counted = Batched(model, check_batches=False)
        explainer = Explainer(counted, baseline=references, partition=partition)
        spun = cycle_spin(explainer, marked((8, 8), [9]), target=0, shifts=[0, 3])
        assert spun.evaluations == sum(seen)


def test_classes_of_one_image_share_evaluations():
    calls = []

    def model(batch):
        calls.append(len(batch))
        return np.stack([any_marked(batch), any_marked(batch), any_marked(1 - batch)], axis=1)

    explainer = Explainer(model, baseline=Constant(0.5), partition=Dyadic(1))
    image = marked((8, 8), [9, 30])
    one = explainer.explain(image, target=0)
    spent = sum(calls)
    assert spent == one.evaluations + CHECK
    calls.clear()
    both = explainer.explain(image, target=[0, 1])
    assert sum(calls) == spent
    assert [found.target for found in both] == [0, 1]
    assert [found.evaluations + CHECK for found in both] == [spent, spent]


def test_results_come_in_the_order_of_targets(images):
    explainer = Explainer(two_classes, baseline=Constant(0.1), partition=Dyadic(3))
    found = explainer.explain(images[0], target=[1, 0, 1])
    assert [explanation.target for explanation in found] == [1, 0, 1]


def test_no_coalition_is_scored_twice_and_inputs_are_right():
    seen = []

    def model(batch):
        seen.extend(row.copy() for row in batch)
        return any_marked(batch)

    image = marked((8, 8), [0, 27, 63]) + np.float32(0.01)
    found = Explainer(model, baseline=Constant(-1.0), partition=Dyadic(1)).explain(image, target=0)
    assert len({row.tobytes() for row in seen}) == found.evaluations == len(seen) - CHECK
    for row in seen:
        assert ((row == image) | (row == -1.0)).all()


def test_every_batch_is_full_while_work_waits(images):
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return any_marked(batch)

    pairs = [(marked((16, 16), [17 * i, 3]), 0) for i in range(12)]
    explainer = Explainer(
        Batched(model, batch_size=16), baseline=Constant(0.0), partition=Bisection(1)
    )
    total = sum(found.evaluations for found in explainer.explain_many(pairs))
    assert total + CHECK == sum(sizes)
    # Only when the last images run out may batches be short: each has 8 levels left at most.
    assert sum(size < 16 for size in sizes) <= 9 + CHECK


def test_results_are_yielded_as_they_finish_and_pairs_read_as_needed():
    read = []

    def pairs():
        for i in range(100):
            read.append(i)
            yield marked((8, 8), [i % 64]), 0

    explainer = Explainer(any_marked, baseline=Constant(0.0), partition=Dyadic(1))
    first = next(iter(explainer.explain_many(pairs())))
    assert len(read) < 30
    assert first.position in read


@pytest.mark.parametrize(("batch_size", "most"), [(4, 2), (1000, 16)])
def test_no_more_images_are_held_than_fill_a_batch(batch_size, most):
    read = []

    def pairs():
        for i in range(100):
            read.append(i)
            yield marked((8, 8), [i % 64]), 0

    explainer = Explainer(
        Batched(any_marked, batch_size=batch_size), baseline=Constant(0.0), partition=Dyadic(1)
    )
    next(iter(explainer.explain_many(pairs())))
    assert len(read) <= most


def test_an_array_that_is_filled_again_and_again_is_no_problem(rng):
    images = rng.random((6, 1, 8, 8))
    room = np.empty((1, 8, 8))

    def pairs():
        for image in images:
            room[:] = image
            yield room, 1

    explainer = Explainer(two_classes, baseline=Constant(0.0), partition=Dyadic(2))
    for found in explainer.explain_many(pairs()):
        assert same_explanation(found, explainer.explain(images[found.position], target=1))


def test_a_target_that_works_in_place_does_not_spoil_the_others(rng):
    def softmax(outputs):
        np.exp(outputs, out=outputs)
        outputs /= outputs.sum(axis=1, keepdims=True)
        return outputs[:, 1]

    image = rng.random((1, 8, 8))
    explainer = Explainer(two_classes, baseline=Constant(0.0), partition=Dyadic(2))
    found = explainer.explain(image, target=[softmax, 1, softmax])
    assert same_explanation(found[1], explainer.explain(image, target=1))
    assert found[0].score == found[2].score == explainer.explain(image, target=softmax).score


def test_an_image_of_a_rare_shape_does_not_wait_for_all_others():
    pairs = [(marked((12, 12), [3, 70]), 0)] + [(marked((16, 16), [i, 200]), 0) for i in range(60)]
    explainer = Explainer(
        Batched(any_marked, batch_size=16), baseline=Constant(0.0), partition=Dyadic(1)
    )
    order = [found.position for found in explainer.explain_many(pairs)]
    assert order.index(0) < 20


def test_explanations_do_not_share_their_settings():
    explainer = Explainer(any_marked, baseline=Constant(0.0), partition=Dyadic(4))
    one, other = explainer.explain(marked((8, 8), [3]), target=[0, 0])
    one.settings["search"]["tolerance"] = 1.0  # of a copy
    assert one.settings["search"]["tolerance"] == other.settings["search"]["tolerance"] == 0.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        one.settings["search"] = None


def roots_of(partition, images):
    explainer = Explainer(two_classes, baseline=Constant(0.0), partition=partition)
    found = explainer.explain_many([(image, 0) for image in images])
    return [one.games[0].region for one in sorted(found, key=lambda one: one.position)]


@pytest.mark.parametrize("kind", [Dyadic, Bisection])
def test_images_of_one_grid_share_the_regions_of_a_grid(kind, rng):
    images = [rng.random(shape) for shape in [(1, 8, 8), (1, 8, 6), (1, 8, 8), (2, 8, 8)]]
    first, other, *again = roots_of(kind(2), images)
    assert first is again[0] is again[1]
    assert other.stop == (8, 6)
    assert roots_of(kind(2), images)[0] is not first  # of another run


def test_a_tree_of_too_many_regions_is_made_anew_for_each_image(rng):
    images = [rng.random((1, 70, 70))] * 2
    few, many = DepthFirst(0.0, max_evaluations=20), Dyadic(1)  # 128 * 128 leaves, at most
    explainer = Explainer(two_classes, baseline=Constant(0.0), partition=many, search=few)
    one, other = (each.games[0].region for each in explainer.explain_many((i, 0) for i in images))
    assert one is not other
    assert one == other


def test_a_grid_of_one_s_own_may_look_at_the_image(rng):
    class Halves(Dyadic):
        def __call__(self, image):
            return Dyadic(8 if image[0, 0, 0] > 1 else 4)(image)

    images = [rng.random((1, 8, 8)) for _ in range(2)]
    images[1][0, 0, 0] = 2.0
    assert [len(root.split()) for root in roots_of(Halves(2), images)] == [4, 0]


def test_a_partition_of_one_s_own_cannot_change_the_image(rng):
    def careless(image):
        image /= 2
        return Dyadic(2)(image)

    image = rng.random((1, 8, 8))
    explainer = Explainer(two_classes, baseline=Constant(0.0), partition=careless)
    with pytest.raises(ValueError, match="read-only"):
        explainer.explain(image, target=0)
    assert image.flags.writeable


def test_shifts_may_be_rows_of_an_array(rng):
    image = rng.random((1, 8, 8))
    explainer = Explainer(two_classes, baseline=Constant(0.0), partition=Dyadic(2))
    one = cycle_spin(explainer, image, target=0, shifts=np.array([[0, 0], [0, 4]]))
    other = cycle_spin(explainer, image, target=0, shifts=[(0, 0), (0, 4)])
    assert np.array_equal(one.saliency(), other.saliency())


def test_seconds_are_those_that_passed():
    def slow(batch):
        time.sleep(0.01)
        return any_marked(batch)

    before = time.perf_counter()
    found = Explainer(slow, baseline=Constant(0.0), partition=Dyadic(1)).explain(
        marked((8, 8), [5]), target=0
    )
    assert 0.03 <= found.seconds <= time.perf_counter() - before


def test_explaining_nothing_yields_nothing():
    explainer = Explainer(any_marked, baseline=Constant(0.0), partition=Dyadic(1))
    assert list(explainer.explain_many([])) == []


def test_progress_is_told_after_every_batch():
    told = []
    explainer = Explainer(any_marked, baseline=Constant(0.0), partition=Dyadic(1))
    found = explainer.explain(marked((16, 16), [5, 200]), target=0, progress=told.append)
    assert told[-1].evaluations == found.evaluations
    assert told[-1].explanations == 1
    assert told[-1].waiting == 0
    assert [step.evaluations for step in told] == sorted(step.evaluations for step in told)


def test_images_are_left_alone(rng):
    image = rng.random((1, 8, 8))
    before = image.copy()
    image.flags.writeable = False
    Explainer(two_classes, baseline=Blur(1.0), partition=Dyadic(1)).explain(image, target=[0, 1])
    assert np.array_equal(image, before)


class _Weighted:
    """A target of a user's, equal to others in a way of its own."""

    def __init__(self, *weights, equal):
        self.weights, self.equal = np.array(weights), equal

    def __call__(self, outputs):
        return outputs @ self.weights

    def __eq__(self, other):
        return self.equal(self.weights == other.weights)

    __hash__ = None


@pytest.mark.parametrize("equal", [lambda same: same, lambda _: True])
def test_targets_are_told_apart_however_they_compare(equal):
    def halves(batch):
        return np.stack([batch[:, 0, :4].mean(axis=(1, 2)), batch[:, 0, 4:].mean(axis=(1, 2))], 1)

    explainer = Explainer(halves, Constant(0.0), Bisection(4))
    image = np.ones((1, 8, 8))
    targets = [_Weighted(1.0, 0.0, equal=equal), _Weighted(0.0, 1.0, equal=equal)]
    upper, lower = explainer.explain_many((image, target) for target in targets)
    assert {leaf.start[0] for leaf in upper.leaves} == {0}
    assert {leaf.start[0] for leaf in lower.leaves} == {4}
