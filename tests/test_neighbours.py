"""Pixels that touch, and the pairs of them that a tree of joins needs."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hshap.partitions.segmentation import boundaries, joining, pairs, squared, steps

GRIDS = [(7,), (1, 6), (6, 1), (2, 2), (4, 5), (6, 6), (2, 3, 4), (3, 3, 3), (1, 3, 2)]


def touching(grid):
    """Every two pixels that differ by at most 1 along each axis, by definition."""
    places = list(product(*map(range, grid)))
    return {
        (a, b)
        for (a, p), (b, q) in combinations(enumerate(places), 2)
        if max(abs(i - j) for i, j in zip(p, q, strict=True)) == 1
    }


def all_pairs(grid):
    numbers = np.arange(np.prod(grid)).reshape(1, *grid)
    found = [pairs(numbers, step) for step in steps(len(grid))]
    return (np.concatenate([one[side].ravel() for one in found]) for side in (0, 1))


def spanning(a, b, heights):
    """The pairs that join two areas, in the order of their heights: Kruskal, pair by pair."""
    area = {pixel: {pixel} for pixel in {*a, *b}}
    joins = []
    for place in sorted(range(len(a)), key=lambda i: heights[i]):
        one, other = area[a[place]], area[b[place]]
        if one is not other:
            joins.append((a[place], b[place]))
            one |= other
            area.update(dict.fromkeys(other, one))
    return joins


@pytest.mark.parametrize("grid", GRIDS)
def test_pairs_are_all_pixels_that_touch_once(grid):
    a, b = all_pairs(grid)
    assert {tuple(sorted(pair)) for pair in zip(a.tolist(), b.tolist(), strict=True)} == touching(
        grid
    )
    assert len(a) == len(touching(grid))


@given(st.sampled_from(GRIDS), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_pairs_that_are_left_out_join_nothing(grid, levels, seed):
    # Few levels: most heights are equal, and the order of pairs decides.
    values = np.random.default_rng(seed).integers(0, levels, (1, *grid)).astype(np.float32)
    heights = [squared(*pairs(values, step)) for step in steps(len(grid))]
    every = np.concatenate([height.ravel() for height in heights]).tolist()
    a, b = (ends.tolist() for ends in all_pairs(grid))
    few_a, few_b, few = (array.tolist() for array in joining(heights, grid))
    assert spanning(few_a, few_b, few) == spanning(a, b, every)
    assert len(few) <= len(every)


def test_most_pairs_of_an_image_are_left_out():
    values = np.random.default_rng(0).random((3, 40, 50)).astype(np.float32)
    heights = [squared(*pairs(values, step)) for step in steps(2)]
    a, _, _ = joining(heights, (40, 50))
    assert len(a) < sum(height.size for height in heights) / 2


@pytest.mark.parametrize("grid", GRIDS)
def test_boundaries_are_the_labels_of_pixels_that_touch(grid):
    labels = np.random.default_rng(1).integers(0, 4, grid)
    flat = labels.ravel().tolist()
    expected = {tuple(sorted((flat[a], flat[b]))) for a, b in touching(grid) if flat[a] != flat[b]}
    one, other = boundaries(labels)
    assert list(zip(one.tolist(), other.tolist(), strict=True)) == sorted(expected)
