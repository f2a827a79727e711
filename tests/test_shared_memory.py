"""Models, baselines and partitions that keep or change arrays cannot change a score."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

from hshap import (
    Batched,
    Bisection,
    Conditional,
    Constant,
    Dyadic,
    Explainer,
    Fixed,
    Pixels,
    References,
    Similar,
    Still,
)
from hshap._util.arrays import frozen
from hshap.evaluators.canvas import Canvas, Row, StandIns
from hshap.evaluators.painting import Inputs, Sketch

SIDES = {"small": 24, "large": 400}
"""Of inputs of 7 KB and of nearly 2 MB."""


def total(batch):
    return batch.reshape(len(batch), -1).sum(1, dtype=np.float64)


def values(model, image, **options):
    options = {"baseline": Constant(0.5), "partition": Dyadic(image.shape[-1] // 4), **options}
    found = Explainer(Batched(model, check_batches=False), **options).explain(image, target=0)
    return np.concatenate([game.values for game in found.games])


def through_base(batch, pixels, value):
    batch.base[(slice(0, len(batch)), *pixels)] = value


def through_the_flag(batch, pixels, value):
    batch.base.flags.writeable = True
    batch.flags.writeable = True
    batch[(slice(None), *pixels)] = value


def through_ctypes(batch, pixels, value):
    made = (ctypes.c_float * batch.size).from_address(batch.ctypes.data)
    np.frombuffer(made, np.float32).reshape(batch.shape)[(slice(None), *pixels)] = value


PIXELS = {
    "one pixel": np.s_[1, 5, 7],
    "the last pixel": np.s_[2, -1, -1],
    "a row": np.s_[:, 3],
    "a channel": np.s_[2, :],
}


@pytest.mark.parametrize("side", sorted(SIDES))
@pytest.mark.parametrize("write", [through_base, through_the_flag, through_ctypes])
@pytest.mark.parametrize("pixels", sorted(PIXELS))
def test_a_function_that_writes_to_its_read_only_input_does_no_harm(side, write, pixels, rng):
    image = rng.random((3, SIDES[side], SIDES[side])).astype(np.float32)

    def model(batch):
        scores = total(batch)
        write(batch, PIXELS[pixels], 9.0)
        return scores

    assert np.array_equal(values(model, image), values(total, image))


@pytest.mark.parametrize("side", sorted(SIDES))
def test_a_function_that_writes_to_other_pixels_in_each_call_does_no_harm(side, rng):
    image = rng.random((3, SIDES[side], SIDES[side])).astype(np.float32)
    random = np.random.default_rng(1)

    def model(batch):
        scores = total(batch)
        flat = batch.base.reshape(-1)
        flat[random.integers(flat.size, size=3)] = 99.0
        return scores

    assert np.array_equal(values(model, image), values(total, image))


@pytest.mark.parametrize("side", sorted(SIDES))
@pytest.mark.parametrize("keep", [lambda batch: batch, lambda batch: batch.base, memoryview])
def test_a_function_that_writes_to_its_last_input_in_the_next_call_does_no_harm(side, keep, rng):
    image = rng.random((3, SIDES[side], SIDES[side])).astype(np.float32)
    kept = []

    def model(batch):
        for one in kept:
            through_ctypes(np.asarray(one), np.s_[:, :], 7.0)
        kept[:] = [keep(batch)]
        return total(batch)

    assert np.array_equal(values(model, image), values(total, image))


def test_a_module_that_writes_to_its_last_input_in_the_next_call_does_no_harm(rng):
    torch = pytest.importorskip("torch")

    class Writes(torch.nn.Module):
        kept = None

        def forward(self, batch):
            if self.kept is not None:
                self.kept.data.fill_(7.0)
            self.kept = batch
            return batch.flatten(1).sum(1)

    class Sound(torch.nn.Module):
        def forward(self, batch):
            return batch.flatten(1).sum(1)

    image = rng.random((3, 24, 24)).astype(np.float32)
    for dtype in (torch.float32, torch.bfloat16):  # NumPy has the first, torch paints the other
        models = [kind().eval() for kind in (Writes, Sound)]
        for model in models:
            model.register_buffer("one", torch.ones((), dtype=dtype))
        found, expected = (values(model, image) for model in models)
        assert np.array_equal(found, expected)


def test_memory_is_used_again_unless_the_model_keeps_it(rng):
    image = rng.random((1, 16, 16)).astype(np.float32)
    kept, places = [], set()

    def keeps(batch):
        kept.append(batch)
        return total(batch)

    def lets_go(batch):
        places.add(batch.ctypes.data)
        return total(batch)

    values(lets_go, image)
    assert len(places) == 1
    values(keeps, image)
    assert len({batch.ctypes.data for batch in kept}) == len(kept) > 1


def test_holders_of_views_and_tensors_are_counted():
    torch = pytest.importorskip("torch")
    for array in (np.zeros((2, 3, 4)), np.moveaxis(np.zeros((2, 4, 3)), -1, 1)):
        inputs = Inputs(array, array.dtype)
        before = inputs.holders
        for keep in (
            lambda a: a[:1],
            lambda a: torch.from_numpy(a[:1])[0],
            lambda a: memoryview(a[:1]),
        ):
            kept = keep(inputs.array)
            assert inputs.holders > before
            del kept
            gc.collect()
            assert inputs.holders == before
    assert Inputs(torch.zeros(2, 3), np.float32).holders is None


def test_a_function_that_changes_the_scores_it_returned_does_no_harm(rng):
    image = rng.random((2, 16, 16)).astype(np.float32)
    returned = []

    def model(batch):
        for scores in returned:
            scores[...] = -1.0
        returned.append(total(batch))
        return returned[-1]

    assert np.array_equal(values(model, image), values(total, image))


def test_a_function_that_returns_one_array_each_time_does_no_harm(rng):
    image = rng.random((2, 16, 16)).astype(np.float32)
    room = np.zeros((64, 1))

    def model(batch):
        room[: len(batch), 0] = total(batch)
        return room[: len(batch)]

    assert np.array_equal(values(model, image), values(total, image))


def test_a_model_that_changes_itself_is_told(rng):
    calls = []

    def model(batch):
        calls.append(len(batch))
        return total(batch) * (1 + 0.1 * len(calls))

    explainer = Explainer(model, Constant(0.5), Dyadic(4))
    with pytest.warns(RuntimeWarning, match="two scores for one input"):
        explainer.explain(rng.random((2, 16, 16)), target=0)


def row(image, stand_in, kept):
    root = Dyadic(4)(image)
    parts = root.split()
    stand_ins = StandIns(Fixed(stand_in)(image), image.shape, np.asarray)
    canvas = Canvas(image, stand_ins, root, put=np.asarray, position=0)
    return [Row(canvas, tuple(parts[i] for i in chosen), 0) for chosen in kept]


def test_a_sketch_equals_a_row_painted_anew(rng):
    image, other, stand_in = rng.random((3, 2, 16, 16))
    sketch = Sketch(Inputs(np.empty((1, 2, 16, 16)), image.dtype))
    rows = row(image, stand_in, [(0,), (1, 2), (), (3,)]) + row(other, stand_in, [(3,), (0, 1)])
    for one in [*rows, *reversed(rows)]:
        assert sketch.fits(one)
        assert np.array_equal(sketch.painted(one), one.painted())
    assert not sketch.fits(row(image.astype(np.float32), stand_in, [()])[0])


class OneArray:
    """A baseline that fills one array with the stand-ins of image after image."""

    def __init__(self, shape, fill):
        self.room, self.fill = np.zeros((1, *shape)), fill

    def __call__(self, image):
        return self.fill(self.room, image)


def still_mean(room, image):
    room[...] = image.mean()
    return Still(room)


def repeated_mean(room, image):
    room[...] = image.mean()
    return Still(np.broadcast_to(room[:, :1, :1, :1], room.shape))


def mean_of_shown(room, image):
    def fill(kept):
        shown = [image[(slice(None), *region.index)].mean() for region in kept]
        room[...] = np.mean(shown or [image.max()])
        return room

    return fill


@pytest.mark.parametrize("fill", [still_mean, repeated_mean, mean_of_shown])
def test_a_baseline_that_fills_one_array_again_does_no_harm(fill, rng):
    images = rng.random((3, 2, 16, 16))
    shared = OneArray(images.shape[1:], fill)
    fresh = lambda image: fill(np.zeros((1, *image.shape)), image)
    found, expected = (
        {
            one.position: np.concatenate([game.values for game in one.games])
            for one in Explainer(total, baseline, Dyadic(4)).explain_many((i, 0) for i in images)
        }
        for baseline in (shared, fresh)
    )
    for position, numbers in expected.items():
        assert np.array_equal(found[position], numbers)


def test_a_sampler_that_fills_one_array_again_does_no_harm(rng):
    images = rng.random((2, 1, 8, 8))
    room = np.zeros((2, 1, 8, 8))

    def sampled(image, visible, draws, generator, out=None):
        out = np.zeros((2, 1, 8, 8)) if out is None else out
        out[...] = generator.random((2, 1, 1, 1)) * visible.sum() + image.mean()
        return out

    def shared(*args):
        return sampled(*args, out=room)

    found, expected = (
        sorted(
            tuple(game.values)
            for one in Explainer(total, Conditional(sampler, draws=2), Dyadic(2)).explain_many(
                (image, 0) for image in images
            )
            for game in one.games
        )
        for sampler in (shared, sampled)
    )
    assert found == expected


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda array: Fixed(array[0]), lambda baseline: baseline.image),
        (References, lambda baseline: baseline.images),
        (Similar, lambda sampler: sampler.images),
    ],
    ids=["Fixed", "References", "Similar"],
)
def test_recipes_keep_the_reference_images_that_they_were_given(make, read, rng):
    array = rng.random((3, 1, 4, 4))
    made = make(array)
    before = read(made).copy()
    array[...] = 0.0
    assert np.array_equal(read(made), before)
    with pytest.raises(ValueError, match="read-only"):
        read(made)[...] = 0.0


def test_a_partition_that_fills_one_array_again_does_no_harm(rng):
    images = rng.random((3, 1, 8, 8))
    room = np.zeros(64, dtype=np.int64)

    def split(region, new):
        half = len(region.flat) // 2
        if half < 8:
            return ()
        return tuple(
            Pixels(new(part), region.grid, lambda r: split(r, new))
            for part in (region.flat[:half].copy(), region.flat[half:].copy())
        )

    def partition(new):
        return lambda image: Pixels(
            new(np.argsort(image[0].ravel())), (8, 8), lambda r: split(r, new)
        )

    def shared(flat):
        room[: len(flat)] = flat
        return room[: len(flat)]

    found, expected = (
        {
            one.position: (one.leaves, one.games[-1].values.tolist())
            for one in Explainer(total, Constant(0.0), partition(new)).explain_many(
                (image, 0) for image in images
            )
        }
        for new in (shared, np.copy)
    )
    assert found == expected


def test_frozen_copies_only_memory_that_can_be_written_to():
    held = np.arange(6.0).reshape(2, 3)
    kept = frozen(held)
    held[...] = -1.0
    assert kept.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert frozen(kept[1:]).base is kept
    shown = held.view()
    shown.flags.writeable = False
    assert not np.shares_memory(frozen(shown), held)
    repeated = frozen(np.broadcast_to(held[:, :1], (2, 10**9)))
    assert repeated.shape == (2, 10**9)
    assert repeated.strides[1] == 0
    assert frozen(np.zeros((0, 3))).shape == (0, 3)


def test_regions_of_a_tree_are_views_of_one_array(rng):
    from hshap import Superpixels

    root = Superpixels(min_area=8)(rng.random((3, 16, 16)))
    parts = root.split()
    assert all(np.shares_memory(part.flat, root.flat) for part in parts)
    assert Bisection(4)(np.zeros((1, 8, 8))).area == 64
