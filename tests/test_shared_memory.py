"""Models, baselines and partitions that keep or change arrays cannot change a score."""

from __future__ import annotations

import ctypes
from functools import partial

import numpy as np
import pytest

from hshap import Batched, Conditional, Constant, Dyadic, Explainer, Fixed, References, Similar
from hshap.protocols import Pixels, Still

torch = pytest.importorskip("torch")

SIDES = {"small": 24, "large": 400}
"""Of inputs of 7 KB and of nearly 2 MB."""

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writ")


def total(batch):
    if isinstance(batch, torch.Tensor):
        return batch.double().flatten(1).sum(1)
    return batch.reshape(len(batch), -1).sum(1, dtype=np.float64)


def values(model, image, **options):
    options = {"baseline": Constant(0.5), "partition": Dyadic(image.shape[-1] // 4), **options}
    found = Explainer(Batched(model, check_batches=False), **options).explain(image, target=0)
    return np.concatenate([game.values for game in found.games])


def pixels(side, rng):
    return rng.random((3, side, side)).astype(np.float32)


# Functions that write to their input


def through_the_flag(batch, where, value):
    batch.base.flags.writeable = True
    batch.flags.writeable = True
    batch[where] = value


def through_ctypes(batch, where, value):
    made = (ctypes.c_float * batch.size).from_address(batch.ctypes.data)
    np.frombuffer(made, np.float32).reshape(batch.shape)[where] = value


def through_base(batch, where, value):
    batch.base[: len(batch)][where] = value


def through_torch(batch, where, value):
    torch.from_numpy(batch)[where] = value


PIXELS = {
    "one pixel": np.s_[:, 1, 5, 7],
    "the last pixel": np.s_[:, 2, -1, -1],
    "a row": np.s_[:, :, 3],
    "a channel": np.s_[:, 2],
    "one input": np.s_[1:2, :, 2:4, 2:4],
    "all": np.s_[:],
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("write", [through_base, through_the_flag, through_ctypes, through_torch])
def test_a_function_that_writes_to_its_input_does_no_harm(side, write, rng):
    image = pixels(SIDES[side], rng)
    expected = values(total, image)
    for where in PIXELS.values():

        def model(batch, where=where):
            scores = total(batch)
            write(batch, where, 9.0)
            return scores

        assert np.array_equal(values(model, image), expected)


@pytest.mark.parametrize("side", SIDES)
def test_writes_to_other_pixels_in_each_call_do_no_harm(side, rng):
    image, random = pixels(SIDES[side], rng), np.random.default_rng(1)

    def model(batch):
        scores = total(batch)
        flat = batch.base.reshape(-1)
        flat[random.integers(flat.size, size=3)] = 99.0
        return scores

    assert np.array_equal(values(model, image), values(total, image))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("keep", [lambda batch: batch, lambda batch: batch.base, memoryview])
def test_writes_to_the_last_input_in_the_next_call_do_no_harm(side, keep, rng):
    image, kept = pixels(SIDES[side], rng), []

    def model(batch):
        for one in kept:
            through_ctypes(np.asarray(one), np.s_[:], 7.0)
        kept[:] = [keep(batch)]
        return total(batch)

    assert np.array_equal(values(model, image), values(total, image))


# Modules that write to their input


class Writes(torch.nn.Module):
    """Scores inputs, then changes them by `write`, of which torch may not know."""

    def __init__(self, write, dtype=torch.float32):
        super().__init__()
        self.write, self.kept = write, None
        self.register_buffer("one", torch.ones((), dtype=dtype))

    def forward(self, batch):
        scores = total(batch).clone()
        self.write(self, batch)
        return scores


def last_input(module, batch):
    if module.kept is not None:
        module.kept.data.fill_(7.0)
    module.kept = batch


WRITES = {
    **{
        name: lambda _, batch, at=at: batch.data.__setitem__(at, 9.0) for name, at in PIXELS.items()
    },
    "bright pixels": lambda _, batch: batch.data.masked_fill_(batch > 0.9, 9.0),
    "a flip": lambda _, batch: batch.data.copy_(batch.flip(-1).clone()),
    "in place": lambda _, batch: batch.mul_(0),
    "one channel": lambda module, batch: batch[:, 1].sub_(module.one),
    "a factor": lambda _, batch: batch.data.mul_(0.3),
    "the last input": last_input,
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_module_that_writes_to_its_input_does_no_harm(name, dtype, rng):
    image = pixels(24, rng)
    options = {"baseline": Fixed(pixels(24, rng))}
    expected = values(Writes(lambda *_: None, dtype).eval(), image, **options)
    assert np.array_equal(values(Writes(WRITES[name], dtype).eval(), image, **options), expected)
    with torch.inference_mode():
        found = values(Writes(WRITES[name], dtype).eval(), image, **options)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("name", PIXELS)
def test_a_module_that_writes_to_large_inputs_does_no_harm(name, rng):
    image = pixels(400, rng)
    expected = values(Writes(lambda *_: None).eval(), image)
    assert np.array_equal(values(Writes(WRITES[name]).eval(), image), expected)


def test_memory_is_used_again_unless_the_model_keeps_it(rng):
    image = rng.random((1, 16, 16)).astype(np.float32)
    kept, places = [], set()

    def keeps(keep):
        return lambda batch: (kept.append(keep(batch)), total(batch))[1]

    def lets_go(batch):
        places.add(batch.ctypes.data)
        return total(batch)

    values(lets_go, image)
    assert len(places) == 1
    for keep in (lambda a: a, lambda a: a[:1], lambda a: torch.from_numpy(a[:1])[0]):
        kept.clear()
        values(keeps(keep), image)
        at = [a.data_ptr() if isinstance(a, torch.Tensor) else a.ctypes.data for a in kept]
        assert len(set(at)) == len(at) > 1


# Scores that a function changes later


def test_scores_that_a_function_changes_later_do_no_harm(rng):
    image, returned, room = rng.random((2, 16, 16)).astype(np.float32), [], np.zeros((64, 1))

    def changes(batch):
        for scores in returned:
            scores[...] = -1.0
        returned.append(total(batch))
        return returned[-1]

    def fills(batch):
        room[: len(batch), 0] = total(batch)
        return room[: len(batch)]

    expected = values(total, image)
    assert np.array_equal(values(changes, image), expected)
    assert np.array_equal(values(fills, image), expected)


def test_a_model_that_changes_itself_is_told(rng):
    calls = []

    def model(batch):
        calls.append(len(batch))
        return total(batch) * (1 + 0.1 * len(calls))

    with pytest.warns(RuntimeWarning, match="two scores for one input"):
        Explainer(model, Constant(0.5), Dyadic(4)).explain(rng.random((2, 16, 16)), target=0)


# Baselines, samplers and partitions that fill one array again


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


def halves(region, new):
    half = len(region.flat) // 2
    parts = (region.flat[:half].copy(), region.flat[half:].copy()) if half >= 8 else ()
    return tuple(Pixels(new(part), region.grid, lambda r: halves(r, new)) for part in parts)


def by_brightness(new):
    return lambda image: Pixels(new(np.argsort(image[0].ravel())), (8, 8), lambda r: halves(r, new))


def into(room):
    """Return what writes flat pixels into one array."""

    def fill(flat):
        room[: len(flat)] = flat
        return room[: len(flat)]

    return fill


def sampled(room):
    def sampler(image, visible, draws, generator):
        out = np.zeros((2, 2, 8, 8)) if room is None else room
        out[...] = generator.random((2, 1, 1, 1)) * visible.sum() + image.mean()
        return out

    return Conditional(sampler, draws=2)


SHARED = {
    **{
        fill.__name__: (
            {"baseline": partial(fill, np.zeros((1, 2, 8, 8)))},
            {"baseline": lambda image, fill=fill: fill(np.zeros((1, 2, 8, 8)), image)},
        )
        for fill in (still_mean, repeated_mean, mean_of_shown)
    },
    "sampler": ({"baseline": sampled(np.zeros((2, 2, 8, 8)))}, {"baseline": sampled(None)}),
    "partition": (
        {"partition": by_brightness(into(np.zeros(64, dtype=np.int64)))},
        {"partition": by_brightness(np.copy)},
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_one_array_that_is_filled_again_does_no_harm(name, rng):
    images, found = rng.random((3, 2, 8, 8)), []
    for given in SHARED[name]:
        explainer = Explainer(total, **{"baseline": Constant(0.0), "partition": Dyadic(2), **given})
        ones = explainer.explain_many((image, 0) for image in images)
        found.append(
            {one.position: (one.leaves, [g.values.tolist() for g in one.games]) for one in ones}
        )
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda array: Fixed(array[0]), lambda baseline: baseline.image),
        (References, lambda baseline: baseline.images),
        (Similar, lambda sampler: sampler.images),
    ],
    ids=["Fixed", "References", "Similar"],
)
def test_recipes_keep_the_images_that_they_were_given(make, read, rng):
    array = rng.random((3, 1, 4, 4))
    made = make(array)
    before = read(made).copy()
    array[...] = 0.0
    assert np.array_equal(read(made), before)
    with pytest.raises(ValueError, match="read-only"):
        read(made)[...] = 0.0
