"""Partitions that follow the image."""

from __future__ import annotations

import pickle
import sys
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from oracle import nodes
from scipy.cluster.hierarchy import linkage

from hshap import ArgumentError, Constant, Explainer, Fixed, Superpixels
from hshap.errors import MissingExtraError
from hshap.partitions.filling import LOOSE, below, filling
from hshap.partitions.regions import Pixels, mask

GRIDS = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


@st.composite
def images(draw):
    grid = draw(GRIDS)
    channels = draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.uint8, np.uint16, np.int16]))
    values = st.integers(0, 5) if draw(st.booleans()) else st.integers(0, 120)
    return draw(npst.arrays(dtype, (channels, *grid), elements=values.map(dtype)))


PARTITIONS = st.builds(
    Superpixels,
    min_area=st.integers(1, 12) | st.just("auto"),
    max_area=st.integers(1, 40),
    parts=st.integers(2, 4),
    position=st.sampled_from([0.0, 1.0, 30.0]),
    seed=st.none() | st.integers(0, 3),
)


@given(images(), PARTITIONS)
@settings(max_examples=60)
def test_trees_cover_the_image(image, partition):
    """Parts are disjoint, leaves are small or flat; the same image gives the same tree."""
    grid, before = image.shape[1:], image.copy()
    root = partition(image)
    least = 1 if partition.min_area == "auto" else partition.min_area
    segments = partition.tree(image).labels.ravel()
    assert mask((root,), grid).all()
    for region in nodes(root):
        parts = region.split()
        assert len(parts) in {0, *range(2, partition.parts + 1)}
        assert not (parts and region.area <= least)
        if parts:
            times = sum(mask((part,), grid).astype(int) for part in parts)
            assert np.array_equal(times, mask((region,), grid))
            assert all(part.area for part in parts)
        elif region.area > least:
            assert region.area <= partition.max_area
            assert len(np.unique(segments[region.flat])) == 1
    assert [*nodes(partition(image.copy()))] == [*nodes(root)]
    assert np.array_equal(image, before)
    thawed = pickle.loads(pickle.dumps((partition, root)))  # noqa: S301
    assert thawed[0] == partition
    assert [*nodes(thawed[1])] == [*nodes(root)]


def scene(noise=0.0):
    """Two squares and a disc, each of its own colour, far from one another."""
    image = np.full((3, 40, 50), 0.9)
    shapes = np.zeros((40, 50), dtype=int)
    shapes[5:13, 6:14], shapes[25:33, 8:16] = 1, 2
    rows, columns = np.ogrid[:40, :50]
    shapes[(rows - 15) ** 2 + (columns - 36) ** 2 < 30] = 3
    for shape, colour in enumerate([(0.9, 0.1, 0.1), (0.1, 0.7, 0.2), (0.2, 0.2, 0.9)], start=1):
        image[:, shapes == shape] = np.array(colour)[:, None]
    return image + np.random.default_rng(0).normal(0, noise, image.shape), shapes


@pytest.mark.parametrize("noise", [0.0, 0.03, 0.06])
def test_every_object_is_a_region_of_the_tree(noise):
    image, shapes = scene(noise)
    regions = [mask((region,), shapes.shape) for region in nodes(Superpixels(20)(image))]
    for shape in (1, 2, 3):
        best = max((r & (shapes == shape)).sum() / (r | (shapes == shape)).sum() for r in regions)
        assert best > 0.97, (shape, best)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_objects_are_found_whole_and_cheaply(parts):
    image, shapes = scene(noise=0.03)

    def sees_red(batch):
        red = (batch[:, 0] > 0.6) & (batch[:, 1] < 0.4) & (batch[:, 2] < 0.4)
        return (red.sum(axis=(1, 2)) > 50).astype(float)

    partition = Superpixels(min_area=20, parts=parts)
    explainer = Explainer(sees_red, baseline=Constant(0.5), partition=partition)
    found = explainer.explain(image, target=0)
    assert np.array_equal(found.saliency() > 0, shapes == 1)
    assert found.evaluations < 60


def test_any_range_of_values_will_do():
    image, _ = scene(noise=0.03)
    bytes_ = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    trees = [
        Superpixels()(i) for i in (bytes_, bytes_ / 255 * 1e-3, bytes_.astype(np.uint16) * 256)
    ]
    assert [*nodes(trees[0])] == [*nodes(trees[1])] == [*nodes(trees[2])]


def labels_of(image, partition=None):
    return (partition or Superpixels()).tree(image).labels


def same_segments(one, other):
    """Tell whether two arrays of labels divide the grid in the same way."""
    pairs = np.unique(np.stack([one.ravel(), other.ravel()]), axis=1).shape[1]
    return pairs == one.max() + 1 == other.max() + 1


def is_one_segment(labels, inside):
    """Tell whether these pixels, and no others, are a segment."""
    return np.array_equal(labels == labels[inside][0], inside)


def diagonal(axes, length=14, side=20):
    inside = np.zeros((side,) * axes, dtype=bool)
    inside[(np.arange(3, 3 + length),) * axes] = True
    return inside


def noisy(sigma):
    noise = np.random.default_rng(0).normal(0, sigma, (3, 40, 40))
    return np.where(diagonal(2, length=30, side=40), 0.9, 0.2) + noise, diagonal(2, 30, 40)


def uneven():
    """A bar under light that halves along it."""
    inside = np.zeros((40, 60), dtype=bool)
    inside[18:21, 5:55] = True
    light = np.linspace(1.0, 0.5, 60)
    return np.rint(np.where(inside, 0.9, 0.3) * light * 255).astype(np.uint8)[None], inside


THIN = {
    "a diagonal": (np.where(diagonal(2), 0.9, 0.2)[None], diagonal(2)),
    "a dark diagonal": (np.where(diagonal(2), 0.2, 0.9)[None], diagonal(2)),
    "through a volume": (np.where(diagonal(3), 0.9, 0.2)[None], diagonal(3)),
    "in little noise": noisy(0.02),
    "in noise": noisy(0.05),
    "in uneven light": uneven(),
}


@pytest.mark.parametrize("case", THIN)
def test_thin_objects_are_one_segment(case):
    image, inside = THIN[case]
    assert is_one_segment(labels_of(image), inside)


def test_a_blurred_object_is_not_lost():
    rows, columns = np.ogrid[:60, :60]
    blob = np.exp(-((rows - 30) ** 2 + (columns - 30) ** 2) / (2 * 5.0**2))
    labels = labels_of(np.rint(blob * 255).astype(np.uint8)[None])
    assert labels[30, 30] != labels[2, 2]


@given(images(), st.floats(0.001, 1000), st.floats(-100, 100))
@settings(max_examples=25)
def test_another_unit_gives_the_same_segments(image, factor, offset):
    values = image.astype(np.float64)
    # A power of two, so that no value is rounded.
    exact = values * 2.0 ** np.round(np.log2(factor)) + 2.0 ** np.round(np.log2(abs(offset) + 1))
    assert same_segments(labels_of(values), labels_of(exact))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_a_flipped_drawing_has_flipped_segments(axes):
    image, _ = scene()
    flipped = np.flip(image, [axis + 1 for axis in axes])
    assert same_segments(np.flip(labels_of(image), axes), labels_of(flipped))


def test_faint_edges_join_small_segments():
    image = np.full((1, 40, 40), 0.5)
    image[:, 10:20, 10:20], image[:, 10:20, 20:28] = 1.0, 0.97  # one object, in two shades
    labels = labels_of(image)
    assert labels[15, 15] == labels[15, 25]
    image[:, 5:35, 5:35], image[:, 5:35, 20:35] = 1.0, 0.97  # 900 pixels
    labels = labels_of(image)
    assert labels[15, 15] != labels[15, 25]


def test_flat_areas_are_halved_by_place():
    """Not below the area that was asked for."""
    root = Superpixels(min_area=4, max_area=16)(np.ones((1, 16, 16)))
    sizes = sorted(region.area for region in nodes(root) if not region.split())
    assert sizes == [16] * 16
    for parts in (2, 3, 4):
        root = Superpixels(parts=parts, max_area=400)(np.ones((1, 20, 21)))
        assert sorted(part.area for part in root.split()) == [200, 220]


def test_seeds_give_other_trees():
    image = np.random.default_rng(0).random((3, 30, 30))
    first, again, other = (Superpixels(seed=seed)(image) for seed in (1, 1, 2))
    assert [*nodes(first)] == [*nodes(again)]
    assert [*nodes(first)] != [*nodes(other)]


@pytest.mark.parametrize(
    ("labels", "areas"),
    [
        (np.repeat([[-3, -3, 0, 17, 17, 17]], 50, axis=0), [50, 100, 150]),  # gaps, below zero
        (np.arange(12).reshape(3, 4), [1] * 12),
        (np.repeat([[1, 0, 0, 0, 0, 0, 0, 0, 1]], 4, axis=0), [8, 28]),  # pieces far apart
        (np.zeros((3, 3), dtype=int), [9]),
    ],
)
def test_labels_are_segments_and_stay_whole(labels, areas):
    root = Superpixels.from_labels(labels)(np.random.default_rng(0).random((1, *labels.shape)))
    assert sorted(region.area for region in nodes(root) if not region.split()) == areas


def test_linkages_are_taken_as_they_are():
    labels = np.repeat([[10, 20, 30, 40]], 2, axis=0)
    partition = Superpixels.from_linkage(labels, [[0, 3], [1, 2], [4, 5]])
    outer, inner = partition(np.zeros((1, 2, 4))).split()
    assert mask((outer,), (2, 4))[0].tolist() == [True, False, False, True]
    assert [part.area for part in inner.split()] == [2, 2]
    merges = linkage(np.array([[0.0], [0.1], [5.0], [5.2], [9.0], [9.3]]))
    root = Superpixels.from_linkage(np.arange(6).reshape(2, 3), merges)(np.zeros((1, 2, 3)))
    pixels = {tuple(sorted(region.flat.tolist())) for region in nodes(root)}
    assert {(0, 1), (2, 3), (4, 5)} <= pixels


THREE = np.array([[0, 1, 2]])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Superpixels.from_linkage(THREE, [[0, 1]]),
            r"shape \(1, 2\), but 3 segments take 2",
        ),
        (lambda: Superpixels.from_linkage(THREE, [[0, 1], [2, 4]]), "only nodes made before"),
        (lambda: Superpixels.from_linkage(THREE, [[0, 1], [1, 2]]), "once"),
        (lambda: Superpixels.from_linkage(THREE, [[0, 3], [1, 2]]), "only nodes made before"),
        (lambda: Superpixels.from_linkage(THREE, [0, 1]), r"pass an array \(2, 2\)"),
        (lambda: Superpixels.from_linkage(THREE, 5), r"pass an array \(2, 2\)"),
        (lambda: Superpixels.from_linkage(THREE, [[0.5, 1], [2, 3]]), "must hold whole numbers"),
        (lambda: Superpixels.from_linkage(THREE, None), "merges is None"),
        (lambda: Superpixels(merges=[[0, 1]]), "merges is given without labels"),
        (lambda: Superpixels.from_labels(None), "labels is None"),
        (lambda: Superpixels.from_labels(np.zeros((3, 3))), r"whole numbers.*astype\(int\)"),
        (
            lambda: Superpixels.from_labels(THREE)(np.zeros((1, 4, 4))),
            r"labels has shape \(1, 3\).*\(4, 4\)",
        ),
        (lambda: Superpixels(min_area=0), "min_area must be at least 1"),
        (lambda: Superpixels(min_area="small"), "a whole number or .auto., got 'small'"),
        (lambda: Superpixels(max_area=0), "max_area must be at least 1"),
        (lambda: Superpixels(parts=5), "parts must be at most 4, got 5; pass 2, 3 or 4"),
        (lambda: Superpixels(parts=1), "parts must be at least 2"),
        (lambda: Superpixels(position=-1), "position must be a finite number"),
        (lambda: Superpixels(seed=0.5), "seed must be a whole number"),
        (lambda: Superpixels()(np.ones(5)), r"image has shape .*pass \(channels, \*grid\)"),
        (lambda: Superpixels()(np.ones((1, 0, 4))), r"image has shape .*pass \(channels"),
        (lambda: Superpixels()(np.ones((0, 4, 4))), r"image has shape .*pass \(channels"),
        (lambda: Superpixels()(np.full((1, 3, 3), np.nan)), "not finite"),
    ],
)
def test_mistakes_are_answered(make, says):
    with pytest.raises(ArgumentError, match=says):
        make()


def test_small_gaps_are_segments():
    # A notch of 12 dark pixels in a light square, on a grey ground: less than min_area, but clear.
    image = np.full((1, 30, 30), 0.5)
    image[0, 8:20, 8:20] = 1.0
    image[0, 12:16, 12:15] = 0.0
    labels = Superpixels(min_area=25).tree(image).labels
    assert len(np.unique(labels)) == 3
    # Under noise, specks of that size are none.
    noisy = np.random.default_rng(0).normal(0.5, 0.1, (1, 30, 30))
    areas = np.bincount(Superpixels(min_area=25).tree(noisy).labels.ravel())
    assert areas.min() >= 25


def test_deep_trees_survive_pickle():
    labels = np.arange(1500)[None]
    chain = [[0, 1], *([1500 + k, k + 2] for k in range(1498))]
    explainer = Explainer(
        lambda batch: batch.sum(axis=(1, 2, 3)),
        baseline=Constant(0.0),
        partition=Superpixels.from_linkage(labels, chain),
    )
    found = explainer.explain(np.ones((1, 1, 1500)), target=0)
    assert len(found.leaves) == 1500
    again = pickle.loads(pickle.dumps(found))  # noqa: S301
    assert again.leaves == found.leaves


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300, 1.7e308])
def test_values_of_any_size(scale):
    image = np.full((1, 12, 12), -scale)
    image[0, 3:9, 3:9] = scale
    sizes = sorted(part.area for part in Superpixels(min_area=9)(image).split())
    assert sizes == [36, 108]


def test_without_higra_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "higra", None)
    with pytest.raises(MissingExtraError, match="pip install higra scipy"):
        Superpixels()(np.random.default_rng(0).random((1, 4, 4)))


def thin_line():
    """Return a flat image with a line one pixel wide, and the line."""
    truth = np.zeros((20, 20), dtype=bool)
    truth[range(4, 14), range(4, 14)] = True
    return np.where(truth, 0.9, 0.1)[None], truth


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_swallowed_lines_are_found(noise):
    image, truth = thin_line()
    image = image + noise * np.random.default_rng(0).normal(size=image.shape)
    swallowed = Superpixels(min_area=200)
    assert len(np.unique(swallowed.tree(image).labels)) == 1
    for baseline in (Constant(0.1), Fixed(np.full_like(image, 0.1))):
        found = Explainer(
            lambda batch: (batch[:, 0] > 0.5).sum(axis=(1, 2)) / truth.sum(),
            baseline=baseline,
            partition=swallowed,
        ).explain(image, target=0)
        assert np.array_equal(found.saliency() > 0, truth)
        assert found.audit.filled > 0.9
        assert found.evaluations == 4


def test_full_leaves_are_not_split_further():
    """Those that differ all over, small ones, those of a caller's labels, or without numbers."""
    image, truth = thin_line()
    partition = Superpixels(min_area=12)
    far = np.full_like(image, -9.0)
    assert leaf_areas(partition.compare(image, far)) == leaf_areas(partition(image))
    given = Superpixels.from_labels(np.zeros(truth.shape, dtype=int))
    for whole in (given, Superpixels(min_area=400)):
        assert whole.compare(image, np.full_like(image, 0.1)).split() == ()
    image[0, 0, 0] = 1.7e308
    for hidden in (np.nan, -1.7e308):
        behind = np.full_like(image, hidden)
        assert leaf_areas(partition.compare(image, behind)) == leaf_areas(partition(image))


def leaf_areas(region):
    parts = region.split()
    return sorted(chain.from_iterable(map(leaf_areas, parts))) if parts else [region.area]


@given(st.lists(st.floats(0, 1e200), min_size=1, max_size=30))
def test_filling_is_by_definition(apart):
    apart = np.array(apart)
    share = filling(apart)
    assert 0 <= share <= 1 + 1e-12
    if apart.any():
        exact = [Fraction(one) for one in apart.tolist()]
        by_hand = sum(exact) ** 2 / (sum(one**2 for one in exact) * len(exact))
        assert share == pytest.approx(float(by_hand))
    parts = below(Pixels(np.arange(len(apart)), (len(apart),)), apart)
    assert not parts or share < LOOSE
    if parts:
        both = np.sort(np.concatenate([part.flat for part in parts]))
        assert np.array_equal(both, np.arange(len(apart)))
        assert apart[parts[0].flat].min() > apart[parts[1].flat].max()
