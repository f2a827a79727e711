"""Sizes that need no guess, the curve over sizes, and cycle spinning over trees."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import any_marked, marked

from hshap import (
    ArgumentError,
    Bisection,
    BreadthFirst,
    Constant,
    DepthFirst,
    Dyadic,
    Explainer,
    Shifted,
    Superpixels,
    cycle_spin,
)

AUTO = [Bisection("auto"), Dyadic("auto"), Shifted(Bisection("auto"), 0)]


def explain(image, model, partition, search=None):
    explainer = Explainer(
        model, baseline=Constant(0.0), partition=partition, search=search or DepthFirst()
    )
    return explainer.explain(image, target=0)


def one_block():
    image = np.zeros((1, 16, 16))
    image[0, 4:8, 8:12] = 1.0
    return image


def sees_block(batch):
    """Score 1 if some 4 x 4 block of the grid's own quarters is bright as a whole."""
    blocks = batch[:, 0].reshape(len(batch), 4, 4, 4, 4).mean(axis=(2, 4))
    return (blocks > 0.9).any(axis=(1, 2)).astype(float)


@pytest.mark.parametrize("partition", AUTO)
@pytest.mark.parametrize("search", [DepthFirst(), DepthFirst(0.1), BreadthFirst(0)])
def test_the_descent_stops_at_the_concept(partition, search):
    image = one_block()
    image[0, 12:, 0:4] = 1.0
    found = explain(image, sees_block, partition, search)
    assert np.array_equal(found.saliency() > 0, image[0] > 0)
    assert {leaf.area for leaf in found.leaves} == {16}


@given(st.sets(st.integers(0, 63), min_size=1, max_size=8))
def test_single_pixels_are_found_as_at_size_one(points):
    """And a larger concept is found at no more cost, where size one finds nothing."""
    image = marked((8, 8), points)
    auto, fixed = (explain(image, any_marked, Bisection(size)) for size in ("auto", 1))
    assert set(auto.leaves) == set(fixed.leaves)
    assert auto.evaluations == fixed.evaluations
    auto, fine = (explain(one_block(), sees_block, Bisection(size)) for size in ("auto", 1))
    assert auto.evaluations <= fine.evaluations
    assert not fine.leaves


def sees_square(batch):
    """Score 1 if some 4 x 4 square, wherever it lies, is bright as a whole."""
    views = np.lib.stride_tricks.sliding_window_view(batch[:, 0], (4, 4), axis=(1, 2))
    return (views.mean(axis=(-2, -1)) > 0.9).any(axis=(1, 2)).astype(float)


def with_squares(*corners):
    image = np.zeros((1, 32, 32))
    for row, column in corners:
        image[0, row : row + 4, column : column + 4] = 1.0
    return image


@pytest.mark.parametrize("partition", AUTO)
@pytest.mark.parametrize("search", [DepthFirst, BreadthFirst])
def test_large_leaves_are_split_on(partition, search):
    options = {} if search is DepthFirst else {"percentile": 0}
    whole, cut = with_squares((4, 8), (0, 0), (20, 24)), with_squares((4, 8), (0, 0), (20, 6))
    assert len(explain(whole, sees_square, partition, search(**options)).leaves) == 3
    # The third lies across a coarse cut. By itself it would stay a region of 128 pixels or more.
    lost = explain(cut, sees_square, partition, search(**options))
    assert {leaf.area for leaf in lost.leaves} == {16}
    kept = explain(cut, sees_square, partition, search(**options, keep_whole=True))
    assert (kept.saliency() > 0)[cut[0] > 0].all()
    alone = explain(with_squares((20, 6)), sees_square, partition, search(**options))
    assert (alone.saliency() > 0)[20:24, 6:10].all()  # nothing else tells what is usual


def test_readings_of_an_auto_run_end_where_it_ended():
    def model(batch):
        def at(row, column):
            return batch[:, 0, row, column]

        return at(0, 8) * (0.6 + 0.4 * at(1, 8)) + 0.1 * at(3, 3) * at(4, 3) + at(12, 7) * at(12, 8)

    found = explain(np.ones((1, 16, 16)), model, Bisection("auto"))
    assert sorted(leaf.area for leaf in found.leaves) == [1, 64, 128]
    for read in (found.at(min_area=2), found.at(tolerance=0.2)):
        assert read.complete
        assert {leaf for leaf in read.leaves if leaf.area > 2} <= set(found.leaves)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 28), st.integers(0, 28)), min_size=1, max_size=6),
    st.sampled_from([Bisection("auto"), Dyadic("auto"), Shifted(Bisection("auto"), 5)]),
)
def test_readings_of_whole_runs_are_whole(corners, partition):
    found = explain(with_squares(*corners), sees_square, partition, DepthFirst(0.05))
    assert all(found.at(min_area=game.region.area).complete for game in found.games)
    for tolerance in (0.1, 0.3, 0.6):
        read = found.at(tolerance=tolerance)
        assert read.complete
        assert set(read.leaves) <= set(found.leaves)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 28), st.integers(0, 28)), min_size=1, max_size=6),
    st.sampled_from([None, 16, 20, 40, 80]),
    st.sampled_from(AUTO),
    st.sampled_from([DepthFirst(), DepthFirst(0.1), BreadthFirst(0), BreadthFirst(70)]),
    st.booleans(),
)
def test_runs_are_what_they_read_as(corners, budget, partition, search, keep_whole):
    image = with_squares(*corners)
    search = replace(search, keep_whole=keep_whole)
    found = explain(image, sees_square, partition, replace(search, max_evaluations=budget))
    read = found.at()
    assert set(read.leaves) == set(found.leaves)
    assert set(read.unfinished) == set(found.unfinished)
    assert budget is None or found.evaluations <= budget


def test_readings_keep_their_own_sizes(tmp_path):
    """A finer run can be read so; a run of any partition, read again or from a file, is itself."""
    fine, auto = (explain(one_block(), sees_block, Bisection(size)) for size in (1, "auto"))
    read = fine.at(min_size="auto")
    assert read.leaves == auto.leaves
    assert read.settings["partition"]["adaptive"]
    assert auto.at(min_size=8).leaves == explain(one_block(), sees_block, Bisection(8)).leaves
    twice = auto.at(min_size=2).at(tolerance=0.0)
    assert twice.leaves == auto.leaves
    assert twice.complete
    own = Bisection("auto").__call__
    for partition in (Bisection("auto"), Superpixels("auto"), Shifted(Dyadic("auto"), 3), own):
        found = explain(one_block(), sees_block, partition)
        assert found.at().leaves == found.leaves
        found.save(tmp_path / "e.npz")
        again = type(found).load(tmp_path / "e.npz")
        assert again.at(tolerance=0.0).leaves == found.leaves
    read = explain(one_block(), sees_block, Bisection(8)).at(min_size="auto")
    with pytest.raises(ArgumentError, match="min_size=2 is finer than the 8 of this run"):
        read.at(min_size=2)
    with pytest.raises(ArgumentError, match=r"a whole number or .auto., got 'small'"):
        Bisection("small")


def test_areas_are_read_more_coarsely():
    image = np.random.default_rng(0).random((1, 24, 24))
    mean = lambda batch: batch.mean(axis=(1, 2, 3))
    fine = explain(image, mean, Superpixels(min_area=4, max_area=4))
    read = fine.at(min_area=60)
    # Leaves are all that fits, and what is above fits not.
    assert all(leaf.area <= 60 or leaf in fine.leaves for leaf in read.leaves)
    assert all(game.region.area > 60 for game in read.games)
    with pytest.raises(ArgumentError, match="min_area=2 is finer than the 4 of this run"):
        fine.at(min_area=2)


def test_sizes_are_read():
    found = explain(one_block(), sees_block, Bisection(2))
    read = [found.at(min_area=size) for size in (4, 8, 16, 32, 64, 128, 256)]
    assert read[0].leaves == found.leaves
    # A half of the concept still gets its half of the score, a quarter of it nothing.
    assert [one.attribution().sum() for one in read] == [0.0, *[1.0] * 6]
    shares = [(one.saliency() > 0).mean() for one in read]
    assert shares == [0.0, *(16 / 256, 16 / 256, 1 / 8, 1 / 4, 1 / 2, 1.0)]


@pytest.mark.parametrize(
    "partition",
    [
        Bisection((2, 10)),
        Dyadic((2, 12)),
        Bisection(4),
        Superpixels(25),
        Shifted(Superpixels(25), 1),
        AUTO[0],
    ],
)
def test_every_partition_is_read_at_its_sizes(partition):
    empty = explain(np.zeros((1, 4, 9)), any_marked, partition)
    full = explain(np.ones((1, 12, 19)), lambda b: b.mean(axis=(1, 2, 3)), partition)
    areas = sorted({part.area for game in full.games for part in game.children})
    assert full.at(min_area=max(areas[0], full.settings.min_area or 1)).leaves == full.leaves
    for size in areas[1:]:
        assert not empty.at(min_area=size).leaves
        assert full.at(min_area=size).attribution().sum() == pytest.approx(1.0)


# Spins over several partitions

IMAGE = np.random.default_rng(0).random((1, 24, 24))
SPUN = Explainer(lambda batch: batch[:, 0, 5:9, 5:9].mean(axis=(1, 2)), Constant(0.0), Bisection(3))


def test_spins_over_trees_are_means():
    trees = [Superpixels(min_area=9, seed=seed) for seed in range(3)]
    spin = cycle_spin(SPUN, IMAGE, 0, partitions=trees)
    maps = [Explainer(SPUN.model, Constant(0.0), tree).explain(IMAGE, 0) for tree in trees]
    heats = [one.attribution() for one in maps]
    assert np.allclose(spin.attribution(), np.mean(heats, axis=0))
    assert np.allclose(spin.stability(), np.std(heats, axis=0))
    assert np.allclose(spin.agreement(), np.mean([m.saliency() > 0 for m in maps], axis=0))
    assert [m.settings["partition"]["seed"] for m in spin.members] == [0, 1, 2]
    one, two = (cycle_spin(SPUN, IMAGE, 0, partitions=trees[:1] * times) for times in (1, 2))
    assert one.evaluations == two.evaluations
    assert not two.stability().any()


def blank(shown):
    shown[...] = 0
    return Bisection(3)(shown)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shifts": [0], "partitions": [Bisection(3)]}, "both is given"),
        ({}, "neither is given"),
        ({"partitions": []}, "partitions is empty"),
        ({"partitions": [3]}, "partitions holds 3"),
        ({"partitions": [blank]}, "read-only"),
    ],
)
def test_spins_take_shifts_or_partitions(given, told):
    with pytest.raises(ValueError, match=told):
        cycle_spin(SPUN, IMAGE, 0, **given)
    # The explainer's own partition is not needed, and may be one of another image.
    labels = Superpixels.from_labels(np.zeros((3, 3), dtype=int))
    explainer = Explainer(SPUN.model, Constant(0.0), labels)
    assert cycle_spin(explainer, IMAGE, 0, partitions=[Bisection(6)]).members[0].leaves
