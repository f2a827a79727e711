"""Grids and regions: parts cover their region, sizes and spacings hold, shifts roll the pixels."""

from __future__ import annotations

import pickle
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import nodes

from hshap import Bisection, Dyadic, Shifted
from hshap.partitions.grids import most_regions
from hshap.partitions.regions import copy, rolled
from hshap.protocols import Box, Pixels, Rolled

GRIDS = st.lists(st.integers(1, 13), min_size=1, max_size=3).map(tuple)
KINDS = st.sampled_from([Dyadic, Bisection])


def image_of(grid):
    return np.zeros((2, *grid))


def inside(region, grid):
    """Return the pixels of a region by assignment through its index."""
    out = np.zeros(grid, dtype=bool)
    out[region.index] = True
    return out


@st.composite
def roots(draw):
    grid = draw(GRIDS)
    sizes = st.one_of(st.integers(1, 5), st.tuples(*[st.integers(1, 5)] * len(grid)))
    partition = draw(KINDS)(draw(sizes))
    offset = draw(st.none() | st.tuples(*[st.integers(-20, 20)] * len(grid)))
    if offset is not None:
        partition = Shifted(partition, offset)
    return partition(image_of(grid)), grid, partition


@given(roots())
def test_parts_are_disjoint_and_cover(case):
    root, grid, _ = case
    assert inside(root, grid).all()
    for region in nodes(root):
        parts = region.split()
        assert region.area == inside(region, grid).sum()
        if parts:
            times = sum(inside(part, grid).astype(int) for part in parts)
            assert np.array_equal(times, inside(region, grid))


@given(roots())
def test_only_long_regions_are_split(case):
    root, grid, partition = case
    inner = partition.partition if isinstance(partition, Shifted) else partition
    limits = np.broadcast_to(inner.min_size, len(grid))
    for region in nodes(root):
        assert bool(region.split()) == (np.array(region.shape) > limits).any()


@given(GRIDS, KINDS, st.integers(1, 5))
def test_few_regions_are_foreseen(grid, kind, min_size):
    partition = kind(min_size)
    regions = len(list(nodes(partition(image_of(grid)))))
    assert regions <= most_regions(partition, grid)
    halved = (3, 3 * 2**min_size)
    regions = len(list(nodes(Bisection(3)(image_of(halved)))))
    assert regions == most_regions(Bisection(3), halved) == 2 ** (min_size + 1) - 1


@pytest.mark.parametrize(
    ("grid", "players"),
    [((8,), 2), ((8, 8), 4), ((8, 8, 8), 8), ((1, 4096), 2), ((4, 4, 4, 4), 16)],
)
def test_dyadic_halves_every_long_axis(grid, players):
    parts = Dyadic(1)(image_of(grid)).split()
    assert len(parts) == players
    assert {part.start for part in parts} == {
        tuple(side // 2 * (i >> k & 1 if side > 1 else 0) for k, side in enumerate(grid))
        for i in range(2 ** len(grid))
    }


@given(GRIDS.filter(lambda grid: max(grid) > 1), st.integers(1, 4), st.data())
def test_bisection_halves_the_longest_axis(grid, min_size, data):
    """In the unit of the spacing; limits are those of the finest axis, and at least a pixel."""
    spacing = data.draw(st.tuples(*[st.sampled_from([0.5, 1.0, 2.5, 5.0])] * len(grid)))
    partition = Bisection(min_size, spacing=spacing)
    sides = np.array(spacing) / min(spacing)
    limits = np.array([max(1, floor(min_size / side + 0.5)) for side in sides])
    for region in nodes(partition(image_of(grid))):
        shape = np.array(region.shape)
        lengths = np.where(shape > limits, shape * sides, 0)
        assert bool(region.split()) == bool(lengths.any())
        if region.split():
            axis = int(lengths.argmax())
            one, other = region.split()
            middle = (region.start[axis] + region.stop[axis]) // 2
            assert one.stop[axis] == other.start[axis] == middle
            assert other.shape[:axis] + other.shape[axis + 1 :] == tuple(np.delete(shape, axis))
    for part in Dyadic(min_size, spacing=spacing)(image_of(grid)).split():
        halved = (np.array(grid) + 1) // 2
        assert (part.shape <= np.where(limits < grid, halved, grid)).all()


@given(GRIDS, st.data())
def test_shifting_rolls_the_pixels(grid, data):
    offset = data.draw(st.tuples(*[st.integers(-20, 20)] * len(grid)))
    plain, moved = Dyadic(1)(image_of(grid)), Shifted(Dyadic(1), offset)(image_of(grid))
    axes = range(len(grid))
    expected = {np.roll(inside(one, grid), offset, axes).tobytes() for one in nodes(plain)}
    assert {inside(one, grid).tobytes() for one in nodes(moved)} == expected
    for region in nodes(moved):
        ends = np.add(region.start, region.shape)
        assert isinstance(region, Rolled) == (ends > grid).any()
        assert isinstance(region, Rolled) or region == Box(region.start, tuple(ends.tolist()))


def test_shifts_are_those_modulo_the_grid():
    """Equal shifts give equal regions, and shifts of shifts add up."""
    image = image_of((8, 8))
    one, other = (Shifted(Dyadic(2), offset)(image) for offset in ((3, -2), (11, 6)))
    assert list(nodes(one)) == list(nodes(other))
    twice, once = Shifted(Shifted(Dyadic(1), 3), 2)(image), Shifted(Dyadic(1), 5)(image)
    assert list(nodes(twice)) == list(nodes(once))
    assert rolled(Box((0, 0), (4, 4)), (1, 3), (4, 4)) == Box((0, 0), (4, 4))
    assert rolled(Box((0, 0), (2, 2)), (2, 1), (4, 4)) == Box((2, 1), (4, 3))
    assert isinstance(rolled(Box((0, 0), (2, 2)), (3, 0), (4, 4)), Rolled)


def test_a_shift_moves_the_image_back():
    seen = []

    def spy(image):
        seen.append(image)
        return Dyadic(1)(image)

    image = np.arange(16.0).reshape(1, 4, 4)
    Shifted(spy, (1, 0))(image)
    assert np.array_equal(seen[0], np.roll(image, -1, 1))


def free(flat, grid):
    return Pixels(np.array(flat), grid)


PIXELS = st.lists(st.integers(0, 59), min_size=1, unique=True)


@given(PIXELS, st.tuples(st.integers(-7, 7), st.integers(-20, 20)), st.booleans(), st.booleans())
def test_free_regions_are_sets_of_pixels(chosen, offset, last, wide):
    """However many, in any order and layout: they compare, roll, and are copied as sets."""
    grid = (5, 12) if wide else (12, 5)
    region, same = free(chosen, grid), free(sorted(chosen), grid)
    assert region == same
    assert hash(region) == hash(same)
    assert len({region, same, Box((0, 0), (1, 1))}) == 2
    other = set(chosen) ^ {0}
    assert not other or region != free(sorted(other), grid)
    swapped = {*chosen} ^ {0, 59} if (0 in chosen) != (59 in chosen) else set()
    assert not swapped or region != free(sorted(swapped), grid)
    moved = rolled(region, offset, grid)
    assert np.array_equal(inside(moved, grid), np.roll(inside(region, grid), offset, (0, 1)))
    assert moved == free(np.flatnonzero(inside(moved, grid)), grid)
    source = np.random.default_rng(0).random((3, *grid))
    target = np.moveaxis(np.zeros((*grid, 3)), -1, 0) if last else np.zeros((3, *grid))
    copy((region,), source, target)
    assert np.array_equal(target, source * inside(region, grid))
    places = np.argwhere(inside(region, grid))
    corners = tuple(places.min(0).tolist()), tuple((places.max(0) + 1).tolist())
    assert region.corners == corners
    assert region.split() == ()
    assert repr(region).startswith(f"Pixels({len(chosen)} of {grid}")


def test_regions_copy_between_types():
    for region in (Pixels(np.arange(16), (4, 4)), Box((0, 0), (4, 4))):
        target = np.zeros((1, 4, 4), np.float32)
        copy((region,), np.full((1, 4, 4), 2, dtype=object), target)
        assert (target == 2).all()


@given(roots())
def test_regions_survive_pickle(case):
    """Copies are equal and hash alike, and hold nothing that the region remembers."""
    root, grid, partition = case
    fresh = set(vars(partition(image_of(grid))))
    every = list(nodes(root))
    assert {root: root.index}
    again = pickle.loads(pickle.dumps(root))  # noqa: S301
    assert set(vars(again)) == fresh
    assert {root: 1}[again] == 1
    assert list(nodes(again)) == every


def test_recipes_print_and_compare():
    assert repr(Dyadic(min_size=(4, 8))) == "Dyadic(min_size=(4, 8))"
    assert Dyadic(4) == Dyadic(4) != Dyadic(5)
    assert Dyadic(4) != Bisection(4)
    assert hash(Dyadic([4, 8])) == hash(Dyadic((4, 8)))
