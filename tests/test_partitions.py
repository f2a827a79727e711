from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import nodes

from hshap import Bisection, Box, Dyadic, Pixels, Rolled, Shifted
from hshap.partitions.grids import most_regions
from hshap.partitions.joining import touching
from hshap.partitions.regions import blocks, copy, extent, mask, rolled

GRIDS = st.lists(st.integers(1, 13), min_size=1, max_size=3).map(tuple)
KINDS = st.sampled_from([Dyadic, Bisection])


@st.composite
def roots(draw):
    grid = draw(GRIDS)
    sizes = st.one_of(st.integers(1, 5), st.tuples(*[st.integers(1, 5)] * len(grid)))
    partition = draw(KINDS)(draw(sizes))
    offset = draw(st.none() | st.tuples(*[st.integers(-20, 20)] * len(grid)))
    if offset is not None:
        partition = Shifted(partition, offset)
    return partition(np.zeros((2, *grid))), grid, partition


@given(roots())
def test_the_parts_of_every_region_are_disjoint_and_cover_it(case):
    root, grid, _ = case
    assert mask((root,), grid).all()
    for region in nodes(root):
        parts = region.split()
        assert region.area == mask((region,), grid).sum()
        if parts:
            times = sum(mask((part,), grid).astype(int) for part in parts)
            assert np.array_equal(times, mask((region,), grid))


@given(roots())
def test_leaves_are_no_longer_than_min_size_and_others_are(case):
    root, grid, partition = case
    inner = partition.partition if isinstance(partition, Shifted) else partition
    limits = np.broadcast_to(inner.min_size, len(grid))
    for region in nodes(root):
        longer = np.array(extent(region, grid)) > limits
        assert bool(region.split()) == longer.any()


@given(GRIDS, KINDS, st.integers(1, 5))
def test_no_grid_has_more_regions_than_are_foreseen(grid, kind, min_size):
    partition = kind(min_size)
    regions = len(list(nodes(partition(np.zeros((1, *grid))))))
    assert regions <= most_regions(partition, grid)


@pytest.mark.parametrize("halvings", [0, 1, 4])
def test_as_many_regions_are_foreseen_as_halves_of_a_power_of_two(halvings):
    partition, grid = Bisection(3), (3, 3 * 2**halvings)
    regions = len(list(nodes(partition(np.zeros((1, *grid))))))
    assert regions == most_regions(partition, grid) == 2 ** (halvings + 1) - 1


@given(roots())
def test_regions_survive_pickle(case):
    root, _, _ = case
    again = pickle.loads(pickle.dumps(root))  # noqa: S301
    assert again == root
    assert [r.area for r in nodes(again)] == [r.area for r in nodes(root)]


def test_copies_of_a_box_hash_alike_and_hold_nothing_that_it_remembers():
    box = Dyadic(2)(np.zeros((1, 8, 8)))
    fresh = set(vars(box))
    assert len({box, Box((0, 0), (8, 8)), Box((0, 0), (8, 4))}) == 2
    assert box.split()
    assert box.index
    again = pickle.loads(pickle.dumps(box))  # noqa: S301
    assert set(vars(box)) > set(vars(again)) == fresh
    assert {box: 1}[again] == 1


@given(GRIDS, st.data())
def test_shifting_rolls_the_pixels(grid, data):
    offset = data.draw(st.tuples(*[st.integers(-20, 20)] * len(grid)))
    root = Dyadic(1)(np.zeros((1, *grid)))
    for region in nodes(root):
        moved = rolled(region, offset, grid)
        expected = np.roll(mask((region,), grid), offset, range(len(grid)))
        assert np.array_equal(mask((moved,), grid), expected)
        filled = sum(mask((Box(*block),), grid).astype(int) for block in blocks(moved, grid))
        assert np.array_equal(filled, expected)


@pytest.mark.parametrize(
    ("grid", "players"),
    [((8,), 2), ((8, 8), 4), ((8, 8, 8), 8), ((1, 4096), 2), ((4, 4, 4, 4), 16)],
)
def test_dyadic_has_as_many_players_as_long_axes_allow(grid, players):
    assert len(Dyadic(1)(np.zeros((1, *grid))).split()) == players


@pytest.mark.parametrize("grid", [(7,), (1, 4096), (31, 17), (5, 6, 7), (2, 3, 4, 5)])
def test_bisection_has_two_players_and_halves_the_longest_axis(grid):
    one, other = Bisection(1)(np.zeros((1, *grid))).split()
    longest = int(np.argmax(grid))
    assert one.stop[longest] == other.start[longest] == grid[longest] // 2


def test_a_rolled_region_that_does_not_wrap_is_a_plain_box():
    assert rolled(Box((0, 0), (2, 2)), (1, 1), (4, 4)) == Box((1, 1), (3, 3))
    assert isinstance(rolled(Box((0, 0), (2, 2)), (3, 0), (4, 4)), Rolled)


def test_a_full_axis_stays_where_it_is():
    assert rolled(Box((0, 0), (4, 4)), (1, 3), (4, 4)) == Box((0, 0), (4, 4))


def test_equal_shifts_modulo_the_grid_give_equal_regions():
    image = np.zeros((1, 8, 8))
    one, other = (Shifted(Dyadic(2), offset)(image) for offset in ((3, -2), (11, 6)))
    assert list(nodes(one)) == list(nodes(other))


def test_shifts_add_up():
    image = np.zeros((1, 8, 8))
    twice, once = Shifted(Shifted(Dyadic(1), 3), 2)(image), Shifted(Dyadic(1), 5)(image)
    assert list(nodes(twice)) == list(nodes(once))


def test_free_regions_roll_too():
    free = Pixels(np.array([0, 5, 6]), (4, 4))
    moved = rolled(free, (3, 3), (4, 4))
    expected = np.roll(mask((free,), (4, 4)), (3, 3), (0, 1))
    assert np.array_equal(mask((moved,), (4, 4)), expected)
    assert moved == Pixels(np.flatnonzero(expected), (4, 4))
    assert len({moved, Pixels(np.flatnonzero(expected), (4, 4))}) == 1
    assert moved != Box((0, 0), (1, 1))
    assert moved.split() == free.split() == ()
    assert repr(moved).startswith("Pixels(3 of (4, 4)")
    assert extent(free, (4, 4)) == (2, 3)


def test_a_shift_shows_the_inner_partition_the_image_moved_back():
    seen = []

    def spy(image):
        seen.append(image)
        return Dyadic(1)(image)

    image = np.arange(16.0).reshape(1, 4, 4)
    Shifted(spy, (1, 0))(image)
    assert np.array_equal(seen[0], np.roll(image, -1, 1))


def test_touching_joins_along_sides_not_corners():
    regions = (Box((0, 0), (2, 2)), Box((2, 2), (4, 4)), Box((0, 2), (1, 3)))
    pieces = [block for region in regions for block in blocks(region, (4, 4))]
    assert sorted(map(sorted, touching(pieces, regions, (4, 4)))) == [[0, 2], [1]]


def test_recipes_print_and_compare():
    assert repr(Dyadic(min_size=(4, 8))) == "Dyadic(min_size=(4, 8))"
    assert Dyadic(4) == Dyadic(4) != Dyadic(5)
    assert Dyadic(4) != Bisection(4)
    assert hash(Dyadic([4, 8])) == hash(Dyadic((4, 8)))


@given(st.sets(st.integers(0, 59), min_size=1), st.randoms(use_true_random=False), st.booleans())
def test_free_forms_copy_and_compare_by_their_pixels_however_many(chosen, random, last):
    pixels = list(chosen)
    random.shuffle(pixels)
    region, same = Pixels(np.array(pixels), (5, 12)), Pixels(np.array(sorted(pixels)), (5, 12))
    assert region == same
    assert hash(region) == hash(same)
    other = chosen ^ {0}
    assert not other or region != Pixels(np.array(sorted(other)), (5, 12))
    source = np.random.default_rng(0).random((3, 5, 12))
    target = np.moveaxis(np.zeros((5, 12, 3)), -1, 0) if last else np.zeros((3, 5, 12))
    copy((region,), source, target)
    shown = np.isin(np.arange(60), pixels).reshape(5, 12)
    assert np.array_equal(target, source * shown)


def test_free_forms_copy_between_types_as_blocks_do():
    grid = np.zeros((1, 4, 4))
    for region in (Pixels(np.arange(16), (4, 4)), Box((0, 0), (4, 4))):
        target = grid.astype(np.float32)
        copy((region,), np.full((1, 4, 4), 2, dtype=object), target)
        assert (target == 2).all()
