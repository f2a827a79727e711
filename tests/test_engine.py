"""The engine: each image's answer is its own, no input is scored twice, and batches are full."""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnxruntime
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
    References,
    Shifted,
    Similar,
    cycle_spin,
)
from hshap.protocols import Pixels

CHECK = 3
"""A run of two batches scores three inputs again, alone: do scores depend on the batch?"""


def two_classes(batch):
    """Score row by row, so that the batch around a row cannot matter to the last bit."""
    rows = [(np.tanh(row[0]).max(), float(np.sort(row, axis=None)[-5:].sum())) for row in batch]
    return np.array(rows)


@pytest.fixture
def images(rng):
    shapes = [(1, 16, 16), (1, 12, 20), (1, 9, 7), (1, 16, 16)]
    made = [rng.random(shape).astype(np.float32) ** 4 for shape in shapes]
    # One of another type, which must not be painted on inputs or stand-ins of the first.
    return [*made, rng.random((1, 16, 16)) ** 4]


def ramp(image, draws):
    return np.linspace(0, 0.5, draws * image.size).reshape(draws, *image.shape)


BASELINES = {
    "constant": Constant(0.1),
    "blur": Blur(2.0),
    "fixed": lambda image: Fixed(np.full(image.shape, 0.2))(image),
    "references": lambda image: References(ramp(image, 3))(image),
    "conditional": lambda image: Conditional(Similar(ramp(image, 5)), draws=2)(image),
}
SEARCHES = [
    DepthFirst(0.02),
    BreadthFirst(60),
    DepthFirst(0.0, max_evaluations=150, keep_whole=True, width=3),
]


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize(("search", "batch_size"), list(zip(SEARCHES, [1, 7, 64], strict=True)))
def test_many_images_are_explained_alone(images, name, search, batch_size):
    """Bit for bit, whatever else is in a batch, in any class, shape, type or batch size."""
    given = (BASELINES[name], Bisection(2), search)
    many = Explainer(Batched(two_classes, batch_size=batch_size), *given)
    together = list(many.explain_many((image, [0, 1]) for image in images))
    assert len(together) == 2 * len(images)
    for found in together:
        single = Explainer(two_classes, *given).explain(images[found.position], found.target)
        assert same_explanation(found, single)


@pytest.mark.parametrize("shifts", [[0], [0, 0, (2, 3)], [(5, -7), (100, 3), 1]])
def test_spins_average_every_shift(shifts, rng):
    """Each member is an explanation of its own; the map is that of images rolled by hand."""
    image = rng.random((1, 8, 12))
    explainer = Explainer(two_classes, Constant(0.0), Dyadic(2))
    spun = cycle_spin(explainer, image, target=0, shifts=shifts)
    expected = np.zeros((8, 12))
    for shift, member in zip(shifts, spun.members, strict=True):
        moved = Explainer(two_classes, Constant(0.0), Shifted(Dyadic(2), shift))
        assert same_explanation(member, moved.explain(image, target=0))
        # Roll the image itself, explain it with a model that rolls it back, and roll the map.
        offset = (shift, shift) if isinstance(shift, int) else shift
        back = lambda batch, o=offset: two_classes(np.roll(batch, o, (2, 3)))
        there = np.roll(image, [-o for o in offset], (1, 2))
        heat = Explainer(back, Constant(0.0), Dyadic(2)).explain(there, target=0).saliency()
        expected += np.roll(heat, offset, (0, 1)) / len(shifts)
    np.testing.assert_allclose(spun.saliency(), expected, atol=1e-15)
    rows = cycle_spin(explainer, image, 0, shifts=np.array([[0, 0], [0, 4]]))
    same = cycle_spin(explainer, image, 0, shifts=[(0, 0), (0, 4)])
    assert np.array_equal(rows.saliency(), same.saliency())


def seen_by(model):
    """Return a model that notes its inputs, and the notes."""
    seen = []

    def noting(batch):
        seen.extend(row.copy() for row in batch)
        return model(batch)

    return noting, seen


def test_nothing_is_scored_twice():
    """Coalitions, classes and shifts of one image share inputs; each is the image, or hidden."""
    model, seen = seen_by(lambda batch: np.stack([any_marked(batch), any_marked(1 - batch)], 1))
    image = marked((8, 8), [0, 27, 63]) + np.float32(0.01) * np.arange(64).reshape(1, 8, 8) / 64
    explainer = Explainer(Batched(model, check_batches=False), Constant(-1.0), Dyadic(1))
    one = explainer.explain(image, target=0)
    assert len({row.tobytes() for row in seen}) == one.evaluations == len(seen)
    for row in seen:
        assert ((row == image) | (row == -1.0)).all()
    seen.clear()
    both = explainer.explain(image, target=[0, 1])
    assert [found.target for found in both] == [0, 1]
    assert max(found.evaluations for found in both) == len(seen) == one.evaluations
    seen.clear()
    spun = cycle_spin(explainer, image, target=0, shifts=[0, 8, (0, 16), 4, (4, -4), 3])
    assert spun.evaluations == len(seen) == len({row.tobytes() for row in seen})
    assert spun.evaluations < sum(member.evaluations for member in spun.members)


def test_draws_of_every_region_are_counted():
    model, seen = seen_by(any_marked)

    def pixels(image):
        halves = lambda _: (Pixels(np.arange(32), (8, 8)), Pixels(np.arange(32, 64), (8, 8)))
        return Pixels(np.arange(64), (8, 8), halves)

    for partition in (pixels, Dyadic(2)):
        seen.clear()
        references = References(np.zeros((3, 1, 8, 8), np.float32))
        explainer = Explainer(Batched(model, check_batches=False), references, partition)
        spun = cycle_spin(explainer, marked((8, 8), [9]), target=0, shifts=[0, 3])
        assert spun.evaluations == len(seen)


def test_results_come_in_the_order_of_targets(images):
    explainer = Explainer(two_classes, Constant(0.1), Dyadic(3))
    found = explainer.explain(images[0], target=[1, 0, 1])
    assert [explanation.target for explanation in found] == [1, 0, 1]


def test_batches_are_full_while_work_waits():
    sizes = []

    def model(batch):
        sizes.append(len(batch))
        return any_marked(batch)

    pairs = [(marked((16, 16), [17 * i, 3]), 0) for i in range(12)]
    explainer = Explainer(Batched(model, batch_size=16), Constant(0.0), Bisection(1))
    total = sum(found.evaluations for found in explainer.explain_many(pairs))
    assert total + CHECK == sum(sizes)
    assert max(sizes) == 16
    # Only when the last images run out may batches be short: each has 8 levels left at most.
    assert sum(size < 16 for size in sizes) <= 9 + CHECK


@pytest.mark.parametrize("batch_size", ["auto", None, 64, 3])
def test_batches_fit_the_model(batch_size):
    """A file of a fixed batch gets no more than that, whatever size is asked for."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("ReduceMax", ["image"], ["high"], axes=[1, 2, 3], keepdims=0)
    takes = helper.make_tensor_value_info("image", floats, [4, 1, 16, 16])
    gives = helper.make_tensor_value_info("high", floats, [4])
    graph = helper.make_graph([node], "brightest", [takes], [gives])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    evaluator = Batched(session, batch_size=batch_size, check_batches=False)
    pairs = [(marked((16, 16), [17 * i, 3]), 0) for i in range(4)]
    found = Explainer(evaluator, Constant(0.0), Dyadic(1)).explain_many(pairs)
    for one in found:
        single = Explainer(any_marked, Constant(0.0), Dyadic(1)).explain(*pairs[one.position])
        assert same_explanation(one, single)


@pytest.mark.parametrize(("batch_size", "least", "most"), [(4, 1, 2), (50, 6, 9), (1000, 16, 16)])
def test_images_are_read_as_needed(batch_size, least, most):
    """As many are held as fill two batches, at most 16; results come as they finish."""
    read = []

    def pairs():
        for i in range(100):
            read.append(i)
            yield marked((8, 8), [i % 64]), 0

    explainer = Explainer(Batched(any_marked, batch_size=batch_size), Constant(0.0), Dyadic(1))
    first = next(iter(explainer.explain_many(pairs())))
    assert least <= len(read) <= most
    assert first.position in read
    assert list(explainer.explain_many([])) == []


def test_a_rare_shape_does_not_wait():
    pairs = [(marked((12, 12), [3, 70]), 0)] + [(marked((16, 16), [i, 200]), 0) for i in range(60)]
    explainer = Explainer(Batched(any_marked, batch_size=16), Constant(0.0), Dyadic(1))
    order = [found.position for found in explainer.explain_many(pairs)]
    assert order.index(0) < 20


def test_arrays_of_the_caller_are_safe(rng):
    """One that is filled again is copied; one that is read-only is never written to."""
    images = rng.random((6, 1, 8, 8))
    room = np.empty((1, 8, 8))

    def pairs():
        for image in images:
            room[:] = image
            yield room, 1

    explainer = Explainer(two_classes, Constant(0.0), Dyadic(2))
    for found in explainer.explain_many(pairs()):
        assert same_explanation(found, explainer.explain(images[found.position], target=1))
    image = images[0].copy()
    image.flags.writeable = False
    Explainer(two_classes, Blur(1.0), Dyadic(1)).explain(image, target=[0, 1])
    assert np.array_equal(image, images[0])

    def careless(shown):
        shown /= 2
        return Dyadic(2)(shown)

    with pytest.raises(ValueError, match="read-only"):
        Explainer(two_classes, Constant(0.0), careless).explain(images[0], target=0)


class Weighted:
    """A target of a user's, equal to others in a way of its own."""

    def __init__(self, *weights, equal):
        self.weights, self.equal = np.array(weights), equal

    def __call__(self, outputs):
        return outputs @ self.weights

    def __eq__(self, other):
        return self.equal(self.weights == other.weights)

    __hash__ = None


@pytest.mark.parametrize("equal", [lambda same: same, lambda _: True])
def test_targets_are_never_mixed_up(equal):
    def halves(batch):
        return np.stack([batch[:, 0, :4].mean(axis=(1, 2)), batch[:, 0, 4:].mean(axis=(1, 2))], 1)

    explainer = Explainer(halves, Constant(0.0), Bisection(4))
    targets = [Weighted(1.0, 0.0, equal=equal), Weighted(0.0, 1.0, equal=equal)]
    upper, lower = explainer.explain_many((np.ones((1, 8, 8)), target) for target in targets)
    assert {leaf.start[0] for leaf in upper.leaves} == {0}
    assert {leaf.start[0] for leaf in lower.leaves} == {4}


def test_targets_may_work_in_place(rng):
    def softmax(outputs):
        np.exp(outputs, out=outputs)
        outputs /= outputs.sum(axis=1, keepdims=True)
        return outputs[:, 1]

    image = rng.random((1, 8, 8))
    explainer = Explainer(two_classes, Constant(0.0), Dyadic(2))
    found = explainer.explain(image, target=[softmax, 1, softmax])
    assert same_explanation(found[1], explainer.explain(image, target=1))
    assert found[0].score == found[2].score == explainer.explain(image, target=softmax).score


def test_explanations_do_not_share_their_settings():
    explainer = Explainer(any_marked, Constant(0.0), Dyadic(4))
    one, other = explainer.explain(marked((8, 8), [3]), target=[0, 0])
    one.settings["search"]["tolerance"] = 1.0  # of a copy
    assert one.settings["search"]["tolerance"] == other.settings["search"]["tolerance"] == 0.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        one.settings["search"] = None


def roots_of(partition, images, search=None):
    explainer = Explainer(two_classes, Constant(0.0), partition, search)
    found = explainer.explain_many([(image, 0) for image in images])
    return [one.games[0].region for one in sorted(found, key=lambda one: one.position)]


def test_grids_share_their_regions(rng):
    """Images of one shape do, in one run; not large trees, nor grids that look at the image."""
    images = [rng.random(shape) for shape in [(1, 8, 8), (1, 8, 6), (1, 8, 8), (2, 8, 8)]]
    for partition in (Dyadic(2), Bisection(2)):
        first, other, *again = roots_of(partition, images)
        assert first is again[0] is again[1]
        assert other.stop == (8, 6)
        assert roots_of(partition, images)[0] is not first
    # 128 * 128 leaves, at most.
    few = DepthFirst(0.0, max_evaluations=20)
    one, other = roots_of(Dyadic(1), [rng.random((1, 70, 70))] * 2, few)
    assert one is not other
    assert one == other

    class Halves(Dyadic):
        def __call__(self, image):
            return Dyadic(8 if image[0, 0, 0] > 1 else 4)(image)

    images[2][0, 0, 0] = 2.0
    assert [len(root.split()) for root in roots_of(Halves(2), images[::2])] == [4, 0]


def test_seconds_and_progress_are_those_of_the_run():
    told = []

    def slow(batch):
        time.sleep(0.01)
        return any_marked(batch)

    before = time.perf_counter()
    found = Explainer(slow, Constant(0.0), Dyadic(1)).explain(
        marked((16, 16), [5, 200]), target=0, progress=told.append
    )
    assert 0.03 <= found.seconds <= time.perf_counter() - before
    assert [step.evaluations for step in told] == sorted(step.evaluations for step in told)
    assert told[0].evaluations == 16
    assert (told[-1].evaluations, told[-1].explanations, told[-1].waiting) == (
        found.evaluations,
        1,
        0,
    )


@pytest.mark.parametrize("draws", [2, 5])
def test_draws_are_averaged(draws, rng):
    """Each score is the mean over draws; errors are those of the coefficients of each draw."""
    image, others = rng.random((1, 4, 4)), rng.random((draws, 1, 4, 4))
    model = lambda batch: np.tanh(batch.sum(axis=(1, 2, 3)))
    found = Explainer(model, References(others), Bisection(1)).explain(image, target=0)
    for game in found.games:
        values = np.zeros((draws, 4))
        for coalition in range(4):
            shown = others.copy()
            for i, part in enumerate(game.children):
                if coalition >> i & 1:
                    shown[(..., *part.index)] = image[(..., *part.index)]
            values[:, coalition] = model(shown)
        one, other = values[:, 1] - values[:, 0], values[:, 3] - values[:, 2]
        phi = np.stack([(one + other) / 2, values[:, 3] - values[:, 0] - (one + other) / 2], 1)
        assert game.values == pytest.approx(values.mean(0))
        assert game.coefficients == pytest.approx(phi.mean(0))
        errors = phi.std(0, ddof=1) / draws**0.5
        assert game.errors == pytest.approx(errors)
