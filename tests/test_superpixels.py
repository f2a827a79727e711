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
from oracle import any_marked, nodes
from scipy.cluster.hierarchy import linkage

from hshap import (
    ArgumentError,
    Constant,
    Explainer,
    Fixed,
    MissingExtraError,
    Shifted,
    Superpixels,
)
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
@settings(deadline=None)
def test_the_parts_of_every_region_are_disjoint_and_cover_it(image, partition):
    grid = image.shape[1:]
    root = partition(image)
    assert mask((root,), grid).all()
    for region in nodes(root):
        parts = region.split()
        assert len(parts) in {0, *range(2, partition.parts + 1)}
        if parts:
            times = sum(mask((part,), grid).astype(int) for part in parts)
            assert np.array_equal(times, mask((region,), grid))
            assert all(part.area for part in parts)


@given(images(), PARTITIONS)
@settings(deadline=None)
def test_small_regions_are_leaves_and_leaves_are_small_or_flat(image, partition):
    least = 1 if partition.min_area == "auto" else partition.min_area
    segments = partition.tree(image).labels.ravel()
    for region in nodes(partition(image)):
        if region.area <= least:
            assert not region.split()
        elif not region.split():
            assert region.area <= partition.max_area
            assert len(np.unique(segments[region.flat])) == 1


@given(images(), PARTITIONS)
@settings(deadline=None, max_examples=30)
def test_the_same_image_gives_the_same_tree_and_it_survives_pickle(image, partition):
    root, again = partition(image), partition(image.copy())
    assert [*nodes(root)] == [*nodes(again)]
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
def test_an_object_is_found_whole_and_cheaply(parts):
    image, shapes = scene(noise=0.03)

    def sees_red(batch):
        red = (batch[:, 0] > 0.6) & (batch[:, 1] < 0.4) & (batch[:, 2] < 0.4)
        return (red.sum(axis=(1, 2)) > 50).astype(float)

    partition = Superpixels(min_area=20, parts=parts)
    explainer = Explainer(sees_red, baseline=Constant(0.5), partition=partition)
    found = explainer.explain(image, target=0)
    assert np.array_equal(found.saliency() > 0, shapes == 1)
    assert found.evaluations < 60


def test_any_range_of_values_gives_the_same_tree():
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


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("dark", [False, True])
def test_a_diagonal_line_one_pixel_wide_is_one_segment(axes, dark):
    inside = diagonal(axes)
    image = np.where(inside ^ dark, 0.9, 0.2)[None]
    assert is_one_segment(labels_of(image), inside)


@pytest.mark.parametrize("sigma", [0.02, 0.05])
def test_a_thin_line_in_noise_is_one_segment(sigma):
    inside = diagonal(2, length=30, side=40)
    noise = np.random.default_rng(0).normal(0, sigma, (3, 40, 40))
    assert is_one_segment(labels_of(np.where(inside, 0.9, 0.2) + noise), inside)


def test_uneven_light_does_not_divide_an_object():
    inside = np.zeros((40, 60), dtype=bool)
    inside[18:21, 5:55] = True
    light = np.linspace(1.0, 0.5, 60)
    image = np.rint(np.where(inside, 0.9, 0.3) * light * 255).astype(np.uint8)[None]
    assert is_one_segment(labels_of(image), inside)


@pytest.mark.parametrize("dark", [False, True])
def test_a_blurred_rim_belongs_to_a_thin_object(dark):
    cover = np.zeros((30, 30))
    cover[10:13, 5:25], cover[9, 5:25], cover[13, 5:25] = 1.0, 0.3, 0.6
    cover[8, 5:25] = 0.05  # no trace of the object
    image = np.where(dark, 1 - cover, cover)[None]
    assert is_one_segment(labels_of(image), cover >= 0.3)


def test_a_blurred_object_is_not_lost():
    rows, columns = np.ogrid[:60, :60]
    blob = np.exp(-((rows - 30) ** 2 + (columns - 30) ** 2) / (2 * 5.0**2))
    labels = labels_of(np.rint(blob * 255).astype(np.uint8)[None])
    assert labels[30, 30] != labels[2, 2]


@given(images(), st.floats(0.001, 1000), st.floats(-100, 100))
@settings(deadline=None, max_examples=40)
def test_another_unit_of_values_gives_the_same_segments(image, factor, offset):
    values = image.astype(np.float64)
    # A power of two, so that no value is rounded.
    exact = values * 2.0 ** np.round(np.log2(factor)) + 2.0 ** np.round(np.log2(abs(offset) + 1))
    assert same_segments(labels_of(values), labels_of(exact))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_a_flipped_drawing_has_flipped_segments(axes):
    image, _ = scene()
    flipped = np.flip(image, [axis + 1 for axis in axes])
    assert same_segments(np.flip(labels_of(image), axes), labels_of(flipped))


def test_segments_with_a_faint_edge_are_joined_up_to_an_area():
    image = np.full((1, 40, 40), 0.5)
    image[:, 10:20, 10:20], image[:, 10:20, 20:28] = 1.0, 0.97  # one object, in two shades
    labels = labels_of(image)
    assert labels[15, 15] == labels[15, 25]
    image[:, 5:35, 5:35], image[:, 5:35, 20:35] = 1.0, 0.97  # 900 pixels
    labels = labels_of(image)
    assert labels[15, 15] != labels[15, 25]


@pytest.mark.parametrize("grid", [(1, 40), (40, 1), (1, 1), (7,), (1, 1, 9), (6, 5, 4)])
def test_grids_of_any_form(grid):
    image = np.random.default_rng(0).random((2, *grid))
    leaves = [region for region in nodes(Superpixels(min_area=2)(image)) if not region.split()]
    assert np.array_equal(sum(mask((leaf,), grid) for leaf in leaves), np.ones(grid, dtype=int))


def test_a_constant_image_is_halved_by_place():
    root = Superpixels(min_area=4, max_area=16)(np.ones((1, 16, 16)))
    sizes = sorted(region.area for region in nodes(root) if not region.split())
    assert sizes == [16] * 16


def test_seeds_give_other_trees_and_the_same_one_the_same():
    image = np.random.default_rng(0).random((3, 30, 30))
    first, again, other = (Superpixels(seed=seed)(image) for seed in (1, 1, 2))
    assert [*nodes(first)] == [*nodes(again)]
    assert [*nodes(first)] != [*nodes(other)]


def test_the_image_is_not_modified():
    image, _ = scene()
    before = image.copy()
    Superpixels(seed=3)(image)
    assert np.array_equal(image, before)


def test_shifted_trees_cover_the_image_too():
    image, shapes = scene()
    root = Shifted(Superpixels(min_area=20), 7)(image)
    regions = [mask((region,), shapes.shape) for region in nodes(root)]
    assert any(np.array_equal(region, shapes == 3) for region in regions)


class TestFromLabels:
    def test_labels_with_gaps_and_below_zero_are_segments_and_stay_whole(self):
        labels = np.repeat([[-3, -3, 0, 17, 17, 17]], 50, axis=0)
        root = Superpixels.from_labels(labels)(np.zeros((1, 50, 6)))
        leaves = {region for region in nodes(root) if not region.split()}
        assert sorted(leaf.area for leaf in leaves) == [50, 100, 150]

    def test_one_label_for_each_pixel(self):
        labels = np.arange(12).reshape(3, 4)
        root = Superpixels.from_labels(labels)(np.random.default_rng(0).random((1, 3, 4)))
        assert sum(not region.split() for region in nodes(root)) == 12

    def test_labels_in_pieces_far_apart_are_one_segment(self):
        labels = np.zeros((4, 9), dtype=int)
        labels[:, [0, 8]] = 1
        first, second = Superpixels.from_labels(labels)(np.zeros((1, 4, 9))).split()
        assert sorted((first.area, second.area)) == [8, 28]

    def test_one_label_is_one_leaf(self):
        root = Superpixels.from_labels(np.zeros((3, 3), dtype=int))(np.zeros((1, 3, 3)))
        assert root.split() == ()

    def test_small_groups_stay_together(self):
        labels = np.arange(16).reshape(4, 4)
        root = Superpixels.from_labels(labels, min_area=4)(np.zeros((1, 4, 4)))
        assert all(r.split() == () for r in nodes(root) if r.area <= 4)
        assert any(1 < r.area <= 4 for r in nodes(root))

    def test_another_shape_is_refused(self):
        with pytest.raises(ArgumentError, match=r"labels has shape \(3, 3\).*\(4, 4\)"):
            Superpixels.from_labels(np.zeros((3, 3), dtype=int))(np.zeros((1, 4, 4)))

    def test_fractions_are_refused(self):
        with pytest.raises(ArgumentError, match=r"labels must be whole numbers.*astype\(int\)"):
            Superpixels.from_labels(np.zeros((3, 3)))


class TestFromLinkage:
    def test_the_tree_is_the_one_given(self):
        labels = np.repeat([[10, 20, 30, 40]], 2, axis=0)
        partition = Superpixels.from_linkage(labels, [[0, 3], [1, 2], [4, 5]])
        outer, inner = partition(np.zeros((1, 2, 4))).split()
        assert mask((outer,), (2, 4))[0].tolist() == [True, False, False, True]
        assert [part.area for part in inner.split()] == [2, 2]

    def test_scipys_linkage_is_taken_as_it_is(self):
        labels = np.arange(6).reshape(2, 3)
        merges = linkage(np.array([[0.0], [0.1], [5.0], [5.2], [9.0], [9.3]]))
        root = Superpixels.from_linkage(labels, merges)(np.zeros((1, 2, 3)))
        pixels = {tuple(sorted(region.flat.tolist())) for region in nodes(root)}
        assert {(0, 1), (2, 3), (4, 5)} <= pixels

    @pytest.mark.parametrize(
        ("merges", "says"),
        [
            ([[0, 1]], r"shape \(1, 2\), but 3 segments take 2"),
            ([[0, 1], [2, 4]], "only nodes made before"),
            ([[0, 1], [1, 2]], "once"),
            ([[0, 3], [1, 2]], "only nodes made before"),
            ([0, 1], r"pass an array \(2, 2\)"),
            (5, r"pass an array \(2, 2\)"),
            ([[0.5, 1], [2, 3]], "merges must hold whole numbers"),
        ],
    )
    def test_merges_that_make_no_tree_are_refused(self, merges, says):
        labels = np.array([[0, 1, 2]])
        with pytest.raises(ArgumentError, match=says):
            Superpixels.from_linkage(labels, merges)

    def test_merges_without_labels_are_refused(self):
        with pytest.raises(ArgumentError, match="merges is given without labels"):
            Superpixels(merges=[[0, 1]])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"min_area": 0}, "min_area must be at least 1"),
        ({"min_area": "small"}, "min_area must be a whole number or .auto., got 'small'"),
        ({"max_area": 0}, "max_area must be at least 1"),
        ({"parts": 5}, "parts must be at most 4, got 5; pass 2, 3 or 4"),
        ({"parts": 1}, "parts must be at least 2"),
        ({"position": -1}, "position must be a finite number"),
        ({"seed": 0.5}, "seed must be a whole number"),
    ],
)
def test_mistakes_are_answered(options, says):
    with pytest.raises(ArgumentError, match=says):
        Superpixels(**options)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_flat_areas_are_not_cut_below_what_was_asked_for(parts):
    root = Superpixels(parts=parts, max_area=400)(np.ones((1, 20, 21)))
    assert sorted(part.area for part in root.split()) == [200, 220]


def test_what_fills_a_gap_between_two_objects_goes_with_neither():
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


def test_place_counts_the_more_the_larger_regions_are():
    # Four squares alike in two corners each: by looks alone, equal ones need not join first.
    rng = np.random.default_rng(0)
    image = np.where(rng.random((1, 40, 40)) < 0.5, 0.3, 0.7)
    near, far = (Superpixels(position=position).tree(image) for position in (30.0, 0.0))
    spread = [
        np.ptp(np.unravel_index(t.pixels(t.root - 3), (40, 40)), axis=1).max() for t in (near, far)
    ]
    assert spread[0] <= spread[1]
    assert not np.array_equal(near.merges, far.merges)


def test_recipes_compare_with_and_without_labels():
    labels = np.array([[0, 1, 1]])
    own, given = Superpixels(min_area=1), Superpixels.from_labels(labels)
    tree = Superpixels.from_linkage(labels, [[0, 1]])
    assert own != given
    assert given != own
    assert given != tree
    assert given == Superpixels.from_labels(labels.copy())


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


@pytest.mark.parametrize("image", [np.ones(5), np.ones((1, 0, 4)), np.ones((0, 4, 4))])
def test_images_without_pixels_or_axes_are_refused(image):
    with pytest.raises(ArgumentError, match=r"image has shape .*pass \(channels, \*grid\)"):
        Superpixels()(image)


def test_nothing_is_not_a_segmentation():
    with pytest.raises(ArgumentError, match="labels is None"):
        Superpixels.from_labels(None)
    with pytest.raises(ArgumentError, match="merges is None"):
        Superpixels.from_linkage(np.array([[0, 1]]), None)


def test_values_that_are_not_finite_are_refused():
    with pytest.raises(ArgumentError, match="not finite"):
        Superpixels()(np.full((1, 3, 3), np.nan))


def test_without_higra_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "higra", None)
    with pytest.raises(MissingExtraError, match="pip install higra scipy"):
        Superpixels()(np.random.default_rng(0).random((1, 4, 4)))


def test_saved_trees_come_back(tmp_path):
    image = np.zeros((1, 20, 20))
    image[0, 3:9, 4:10] = 1.0
    explainer = Explainer(any_marked, baseline=Constant(0.0), partition=Superpixels(9))
    found = explainer.explain(image, target=0)
    found.save(tmp_path / "e.npz")
    again = type(found).load(tmp_path / "e.npz")
    assert again.leaves == found.leaves
    assert [game.region for game in again.games] == [game.region for game in found.games]
    assert np.array_equal(again.saliency(), found.saliency())


def thin_line():
    """Return a flat image with a line one pixel wide, and the line."""
    truth = np.zeros((20, 20), dtype=bool)
    truth[range(4, 14), range(4, 14)] = True
    return np.where(truth, 0.9, 0.1)[None], truth


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_line_that_went_with_the_background_is_found_below_the_segment(noise):
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


def test_leaves_that_differ_from_the_baseline_all_over_are_not_split_further():
    image, _ = thin_line()
    partition = Superpixels(min_area=12)
    far = np.full_like(image, -9.0)
    assert leaf_areas(partition.compare(image, far)) == leaf_areas(partition(image))


@pytest.mark.parametrize("hidden", [np.nan, -1.7e308])
def test_leaves_are_not_split_further_if_a_difference_is_not_finite(hidden):
    image, _ = thin_line()
    image[0, 0, 0] = 1.7e308
    partition = Superpixels(min_area=12)
    behind = np.full_like(image, hidden)
    assert leaf_areas(partition.compare(image, behind)) == leaf_areas(partition(image))


def test_labels_of_the_caller_and_small_leaves_are_not_split_below():
    image, truth = thin_line()
    given = Superpixels.from_labels(np.zeros(truth.shape, dtype=int))
    for partition in (given, Superpixels(min_area=400)):
        assert partition.compare(image, np.full_like(image, 0.1)).split() == ()


def leaf_areas(region):
    parts = region.split()
    return sorted(chain.from_iterable(map(leaf_areas, parts))) if parts else [region.area]


@given(st.lists(st.floats(0, 1e200), min_size=1, max_size=30))
def test_filling_is_by_definition_and_parts_hold_all_pixels(apart):
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
