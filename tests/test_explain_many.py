"""One bad pair does not cost the results of the others, and is named by its position."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from oracle import any_marked, marked, same_explanation

import hshap
from hshap import Batched, Constant, Dyadic, Explainer
from hshap.errors import ArgumentError, HshapError, ModelError, ModelFailedError, PairsFailedError

GRID = (8, 8)
BAD = 7.0
"""A pixel of this value makes the models below fail."""


def fails_on_one(batch):
    if (batch == BAD).any():
        raise ZeroDivisionError("no such image")
    return any_marked(batch)


def nan_on_one(batch):
    return np.where((batch == BAD).any(axis=(1, 2, 3)), np.nan, any_marked(batch))


def explainer(model=any_marked, **recipes):
    return Explainer(model, **{"baseline": Constant(0.0), "partition": Dyadic(2), **recipes})


def good(number):
    return marked(GRID, [(7 * number) % 64, (11 * number + 3) % 64])


def bad_pixel():
    image = good(0)
    image[0, 3, 4] = BAD
    return image


def with_nan():
    image = good(0)
    image[0, 1, 1] = np.nan
    return image


def search_that_fails(root, draws):
    games = yield [root]
    if games[0].region.area == 100:
        raise LookupError("no way on")
    return hshap.protocols.SearchResult((root,))


def partition_that_fails(image):
    if (image == BAD).any():
        raise LookupError("cannot split")
    return Dyadic(2)(image)


def outputs_of_one(outputs):
    raise LookupError("a target of mine fails")


# The bad pair, the class of its error, its message, and another model or recipe where it needs one.
CASES = {
    "NaN in an image": ((with_nan(), 0), ArgumentError, "nan at", {}),
    "no pair": (None, ArgumentError, "entry 5 is None; pass", {}),
    "a target that is no class": ((good(1), "cat"), ArgumentError, "'cat'", {}),
    "a target out of range": ((good(1), 3), ArgumentError, "target=3 is out of range", {}),
    "a callable that fails": ((good(1), outputs_of_one), LookupError, "of mine", {}),
    "a model that fails": ((bad_pixel(), 0), ModelFailedError, "no such image", fails_on_one),
    "a score that is NaN": ((bad_pixel(), 0), ModelError, "gave nan", nan_on_one),
    "a partition that fails": (
        (bad_pixel(), 0),
        LookupError,
        "cannot split",
        {"partition": partition_that_fails},
    ),
    "a baseline of another shape": (
        (marked((4, 4), [3]), 0),
        ArgumentError,
        "baseline has shape",
        {"baseline": hshap.Fixed(np.zeros((1, *GRID)))},
    ),
    "a search that fails": (
        (marked((10, 10), [3]), 0),
        LookupError,
        "no way on",
        {"search": search_that_fails},
    ),
}
PLACE, COUNT = 5, 20


@pytest.mark.parametrize("case", CASES)
def test_a_bad_pair_is_named_and_the_others_are_explained(case):
    for batch_size in (1, 16):
        check(CASES[case], batch_size)


def check(case, batch_size):
    bad, kind, told, other = case
    recipes = other if isinstance(other, dict) else {}
    model = any_marked if isinstance(other, dict) else other
    many = explainer(Batched(model, batch_size=batch_size), **recipes)
    alone = explainer(**recipes)
    pairs = [(good(number), 0) for number in range(COUNT)]
    pairs[PLACE] = bad
    found = []
    with pytest.raises(PairsFailedError, match=told) as caught:
        found.extend(many.explain_many(iter(pairs)))
    # extend keeps the results that came before the error.
    assert sorted(one.position for one in found) == [i for i in range(COUNT) if i != PLACE]
    for one in found:
        assert same_explanation(one, alone.explain(good(one.position), target=0))
    assert list(caught.value.errors) == [PLACE]
    assert isinstance(caught.value.errors[PLACE], kind)
    assert caught.value.__cause__ is caught.value.first is caught.value.errors[PLACE]
    message = str(caught.value)
    assert "pairs: 1 failed, at position 5;" in message
    assert "\n" not in message


def test_all_bad_pairs_are_named_at_once():
    pairs = [(good(0), 0), (np.zeros(3), 0), (bad_pixel(), 0), (good(1), 0), (good(2), 9)]
    found = []
    with pytest.raises(PairsFailedError, match="3 failed, at position 1, 2, 4;") as caught:
        found.extend(explainer(fails_on_one).explain_many(pairs))
    assert sorted(one.position for one in found) == [0, 3]
    kinds = [type(error) for error in caught.value.errors.values()]
    assert kinds == [ArgumentError, ModelFailedError, ArgumentError]


def test_many_positions_are_cut_short():
    pairs = [(np.zeros(3), 0)] * 300 + [(good(1), 0)]
    told, found = r"300 failed, at position 0, 1, .*, 9, \.\.\.;", []
    with pytest.raises(PairsFailedError, match=told) as caught:
        found.extend(explainer().explain_many(pairs))
    assert len(str(caught.value)) < 400
    assert len(caught.value.errors) == 300
    assert [one.position for one in found] == [300]  # good pairs after many bad ones


def test_with_on_error_nothing_is_raised():
    errors, told = {}, []
    pairs = [(good(0), 0), (with_nan(), 0), (good(1), 5), (good(2), 0)]
    found = list(explainer().explain_many(pairs, on_error=errors.__setitem__, progress=told.append))
    assert sorted(one.position for one in found) == [0, 3]
    assert sorted(errors) == [1, 2]
    assert all(isinstance(error, ArgumentError) for error in errors.values())
    assert (told[-1].explanations, told[-1].waiting) == (2, 0)


def test_on_error_may_stop_the_run():
    read = []

    def pairs():
        for number in range(100):
            read.append(number)
            yield (np.zeros(3) if number == 1 else good(number)), 0

    def stop(position, error):
        raise error

    with pytest.raises(ArgumentError, match=r"shape \(3,\)"):
        list(explainer().explain_many(pairs(), on_error=stop))
    assert len(read) < 5


def test_unreadable_pairs_cost_no_result():
    def pairs():
        yield good(0), 0
        yield good(1), 0
        raise OSError(5, "the disk is gone")

    found = []
    with pytest.raises(PairsFailedError, match="the disk is gone") as caught:
        found.extend(explainer().explain_many(pairs()))
    assert sorted(one.position for one in found) == [0, 1]
    assert isinstance(caught.value.errors[2], OSError)


def test_one_image_alone_raises_its_own_error():
    with pytest.raises(ModelFailedError, match="no such image"):
        explainer(fails_on_one).explain(bad_pixel(), target=0)
    with pytest.raises(ArgumentError, match="out of range"):
        explainer().explain(good(0), target=[0, 4])

    def pairs():
        yield good(0), 0
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # which is not held back
        list(explainer().explain_many(pairs()))


def test_good_images_are_scored_once():
    seen = []

    def model(batch):
        values = fails_on_one(batch)
        seen.append(len(batch))
        return values

    pairs = [(good(number), 0) for number in range(6)]
    pairs[2] = (bad_pixel(), 0)
    errors = {}
    found = list(explainer(model).explain_many(pairs, on_error=errors.__setitem__))
    # The bad image's own baseline is among the rows that the model did score.
    assert sum(seen) - sum(one.evaluations for one in found) <= 16
    assert list(errors) == [2]


def test_the_error_can_be_sent_to_another_process():
    error = PairsFailedError({3: ArgumentError("wrong"), 1: ValueError("first")})
    again = pickle.loads(pickle.dumps(error))  # noqa: S301, our own
    assert str(again) == str(error)
    assert list(again.errors) == [1, 3]
    assert isinstance(again, HshapError)


class Overwriting:
    """An evaluator whose session writes all its outputs to one array, as some runtimes do."""

    def __init__(self, classes, batch_size):
        self._inner = Batched(
            lambda batch: np.repeat(any_marked(batch).reshape(-1, 1), classes, axis=1),
            batch_size=batch_size,
            check_batches=False,
        ).open_session()
        self._outputs = np.full((batch_size, classes), np.nan)
        self.put, self.capacity = self._inner.put, self._inner.capacity

    def open_session(self):
        return self

    def score(self, rows):
        out = self._outputs[: len(rows)]
        out[...] = self._inner.score(rows)
        return out


@pytest.mark.parametrize("batch_size", [1, 32])
@pytest.mark.parametrize("classes", [1, 5000], ids=["few outputs", "more than wait together"])
def test_overwritten_outputs_are_read_before(classes, batch_size):
    images = [good(number) for number in range(12)]
    model = Overwriting(classes, batch_size)
    found = list(explainer(model).explain_many([(image, 0) for image in images]))
    for image, one in zip(images, found, strict=True):
        assert same_explanation(one, explainer().explain(image, target=0))


@pytest.mark.parametrize("position", range(0, 12, 3))
def test_an_image_that_fails_late_costs_no_other(position):
    """Its first scores are fine. Others of it are in batches that were scored by then."""
    images = [good(number) for number in range(12)]
    images[position] = bad_pixel()

    def nan_inside(batch):
        is_part = (batch == BAD).any(axis=(1, 2, 3)) & ((batch != 0).sum(axis=(1, 2, 3)) < 2)
        return np.where(is_part, np.nan, any_marked(batch))

    model = Batched(nan_inside, batch_size=2, check_batches=False)
    errors = {}
    pairs = [(image, 0) for image in images]
    found = list(explainer(model).explain_many(pairs, on_error=errors.__setitem__))
    assert list(errors) == [position]
    assert isinstance(errors[position], ModelError)
    left = [image for number, image in enumerate(images) if number != position]
    for image, one in zip(left, found, strict=True):
        assert same_explanation(one, explainer().explain(image, target=0))
