"""Axes have names and pixels have sides: regions are about cubes in millimetres, in any order."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hshap
from hshap import (
    ArgumentError,
    Bisection,
    Constant,
    Dyadic,
    Explainer,
    Shifted,
    Spots,
    Superpixels,
    cycle_spin,
)
from hshap.partitions.spots import _labels

GRID = (6, 17, 23)


def brightest(batch):
    return np.maximum(batch.reshape(len(batch), -1).max(axis=1) - 0.5, 0.0)


def volume(*bright, grid=GRID):
    pixels = np.random.default_rng(0).random((1, *grid)) * 0.1
    for place in bright:
        pixels[(0, *place)] = 1.0
    return pixels


PARTITIONS = {
    "Dyadic": Dyadic(4),
    "Bisection": Bisection(4),
    "auto": Bisection("auto"),
    "Shifted": Shifted(Bisection(4), 2),
    "Superpixels": Superpixels(min_area=6, max_area=30),
    "Spots": Spots(5),
}


def explained(image, partition, **axes):
    made = Explainer(brightest, Constant(0.0), partition)
    return made.explain(image, 0, **axes)


def masks(explanation):
    """Return the leaves as sets of pixels, and their coefficients."""
    out = {}
    for leaf in explanation.leaves:
        inside = np.zeros(explanation.grid, bool)
        inside[leaf.index] = True
        out[inside.tobytes()] = explanation.parts[leaf].coefficient
    return out


@pytest.mark.parametrize("name", PARTITIONS)
@settings(max_examples=8, deadline=None)
@given(
    sides=st.tuples(*[st.floats(0.2, 8.0)] * 3),
    scale=st.floats(1e-3, 1e3),
)
def test_only_ratios_of_the_spacing_count(name, sides, scale):
    image = volume((2, 5, 9), (4, 12, 20))
    one = masks(explained(image, PARTITIONS[name], spacing=sides))
    scaled = [side * scale for side in sides]
    assert masks(explained(image, PARTITIONS[name], spacing=scaled)) == one
    plain = masks(explained(image, PARTITIONS[name]))
    assert plain
    assert masks(explained(image, PARTITIONS[name], spacing=[scale] * 3)) == plain  # cubes


@settings(max_examples=60, deadline=None)
@given(
    sides=st.tuples(*[st.floats(0.2, 8.0)] * 3),
    least=st.integers(1, 12),
    grid=st.tuples(st.integers(1, 12), st.integers(1, 40), st.integers(1, 40)),
    make=st.sampled_from([Dyadic, Bisection]),
)
def test_leaves_of_grids_are_nearly_cubes(sides, least, grid, make):
    """No side is longer than min_size, but for rounding; and one that could be halved is not short.

    The length of a leaf on an axis is at most `min_size` pixels of the finest axis, rounded to
    whole pixels, and more than about half of that, unless the image itself is shorter.
    """
    unit = least * min(sides)
    todo, leaves = [make(least, spacing=sides)(np.zeros((1, *grid)))], []
    while todo:
        region = todo.pop()
        parts = region.split()
        todo += parts
        leaves += () if parts else (region,)
    assert sum(leaf.area for leaf in leaves) == np.prod(grid)
    for leaf in leaves:
        for pixels, side, whole in zip(leaf.shape, sides, grid, strict=True):
            most = max(1.0, unit / side + 0.5 + 1e-6)
            assert pixels <= most
            least_pixels = min(whole, max(1, int(unit / side + 0.5 - 1e-6) // 2))
            assert pixels >= least_pixels


def test_grids_halve_the_axis_that_is_longest_in_millimetres():
    """Without spacing, a cell of 8 x 8 x 8 pixels is 40 mm thick; with it, 10 mm."""
    image, thick = volume((7, 20, 20), grid=(16, 64, 64)), (5.0, 1.0, 1.0)
    assert [leaf.shape for leaf in explained(image, Dyadic(8)).leaves] == [(8, 8, 8)]
    spaced = explained(image, Dyadic(8), spacing=thick)
    assert [leaf.shape for leaf in spaced.leaves] == [(2, 8, 8)]
    even = np.zeros((1, 8, 20, 20))
    assert [part.shape for part in Bisection(4)(even).split()] == [(8, 10, 20)] * 2
    assert [part.shape for part in Bisection(4, spacing=thick)(even).split()] == [(4, 20, 20)] * 2


def test_segments_without_edges_are_halved_along_the_longest_axis():
    flat = np.zeros((1, 8, 20, 20))
    root = Superpixels(min_area=1, max_area=100).spaced((5.0, 1.0, 1.0))(flat)
    ends = [(int(part.index[0].min()), int(part.index[0].max())) for part in root.split()]
    assert sorted(ends) == [(0, 3), (4, 7)]


def test_segments_are_merged_by_their_distance_in_millimetres():
    """Four segments of one colour: those 2 pixels apart but 20 mm are merged after those 8 mm."""
    labels = np.zeros((4, 16), int)
    labels[:2, 8:], labels[2:, :8], labels[2:, 8:] = 1, 2, 3
    grey = np.zeros((1, 4, 16))
    pairs = {}
    for sides in ((1.0, 1.0), (10.0, 1.0)):
        tree = Superpixels.from_labels(labels).spaced(sides).tree(grey)
        pairs[sides] = sorted(sorted(pair) for pair in tree.merges.tolist()[:2])
    assert pairs[1.0, 1.0] == [[0, 2], [1, 3]]
    assert pairs[10.0, 1.0] == [[0, 1], [2, 3]]


def test_cells_around_differences_are_cubes_in_millimetres():
    template = np.zeros((1, 12, 40, 40))
    image = template.copy()
    image[0, 6, 20, 20] = 1.0
    spots = Spots(11).spaced((5.0, 1.0, 1.0))
    labels = spots.tree(image, template).labels
    cell = np.argwhere(labels == labels[6, 20, 20])
    assert (np.ptp(cell, axis=0) + 1).tolist() == [3, 11, 11]
    assert labels[6, 20, 20] == 0
    assert labels[0, 0, 0] == 1


def test_overlapping_long_cells_go_to_the_nearest_centre():
    grid, sides, size = (5, 20, 20), (3.0, 1.0, 1.0), 9
    centres = np.random.default_rng(1).integers(0, grid, (12, 3))
    labels = _labels(grid, centres, size, sides)
    reach = [1, 4, 4]  # 9 // 2 pixels of the finest axis are 1.33 pixels of the first
    for place in np.ndindex(*grid):
        steps = np.abs(centres - place)
        away = (steps * sides).max(axis=1)
        inside = [i for i in range(12) if all(steps[i] <= reach)]
        best = min((away[i] for i in inside), default=None)
        allowed = {12} if best is None else {i for i in inside if away[i] == best}
        assert labels[place] in allowed


def test_a_coarser_reading_counts_as_the_run_did():
    image = volume((7, 20, 20), grid=(16, 64, 64))
    made = explained(image, Dyadic(5), spacing=(5.0, 1.0, 1.0))
    (coarse,) = made.at(min_size=20).leaves
    (again,) = explained(image, Dyadic(20), spacing=(5.0, 1.0, 1.0)).leaves
    assert coarse == again
    assert coarse.shape == (4, 16, 16)


def test_every_way_to_explain_takes_a_spacing(tmp_path):
    image, sides = volume((2, 5, 9)), (5, 1, 1)
    made = Explainer(brightest, Constant(0.0), Bisection(4))
    one = made.explain(image, 0, spacing=sides, layout="CZYX")
    alone = masks(one)
    assert alone != masks(made.explain(image, 0))
    (many,) = made.explain_many([(image, 0)], spacing=sides)
    (member,) = cycle_spin(made, image, 0, shifts=[0], spacing=sides).members
    assert masks(many) == masks(member) == alone
    one.save(tmp_path / "made.npz")
    for kept in (one, hshap.Explanation.load(tmp_path / "made.npz")):
        assert (kept.settings.spacing, kept.settings.axes) == ((5.0, 1.0, 1.0), "ZYX")
        assert kept.settings["partition"]["spacing"] == [5.0, 1.0, 1.0]
    chosen = Explainer(brightest, Constant(0.0)).explain(image, 0, spacing=sides)
    assert chosen.settings["partition"]["spacing"] == [5.0, 1.0, 1.0]
    plain = explained(image, Dyadic(4))
    assert plain.settings.spacing is None
    assert plain.settings["partition"] == {"type": "Dyadic", "min_size": 4}


@pytest.mark.parametrize("name", PARTITIONS)
def test_a_transposed_array_gives_the_same_leaves(name):
    """Bit for bit, where an arrow names the order of the model's axes."""
    image, sides = volume((2, 5, 9), (4, 12, 20)), dict(zip("ZYX", (5.0, 1.0, 0.5), strict=True))
    partition = PARTITIONS[name]
    straight = masks(explained(image, partition, layout="CZYX", spacing=tuple(sides.values())))
    for order in map("".join, permutations("ZYX")):
        turned = image[0].transpose(["ZYX".index(letter) for letter in order])
        spacing = [sides[letter] for letter in order]
        found = explained(turned, partition, layout=f"{order}->CZYX", spacing=spacing)
        assert found.grid == GRID
        assert masks(found) == straight


@settings(max_examples=20, deadline=None)
@given(
    order=st.permutations("ZYX"),
    channel=st.integers(0, 3),
    sides=st.tuples(*[st.sampled_from([0.5, 1.0, 3.0])] * 3),
    bright=st.tuples(*[st.integers(0, side - 1) for side in GRID]),
)
def test_without_an_arrow_leaves_are_transposed_with_the_array(order, channel, sides, bright):
    image = volume(bright)
    straight = explained(image, Dyadic(3), layout="CZYX", spacing=sides)
    axes = ["ZYX".index(letter) for letter in order]
    turned = np.moveaxis(image.transpose([0, *(axis + 1 for axis in axes)]), 0, channel)
    layout = "".join([*order[:channel], "C", *order[channel:]])
    found = explained(turned, Dyadic(3), layout=layout, spacing=[sides[axis] for axis in axes])
    expected = {
        (tuple(leaf.start[axis] for axis in axes), tuple(leaf.stop[axis] for axis in axes))
        for leaf in straight.leaves
    }
    assert {(leaf.start, leaf.stop) for leaf in found.leaves} == expected


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("XYZ->ZYX", r"pass 'XYZ->CZYX'"),
        ("XYZ->CZY", r"pass 'XYZ->CZYX'"),
        ("CXY->YXC", r"pass 'CXY->CYX'"),
        ("XY->", r"pass 'XY->CYX'"),
    ],
)
def test_an_arrow_leads_to_the_same_axes(layout, told):
    with pytest.raises(ArgumentError, match=told):
        explained(np.ones((4, 5, 6)), Dyadic(4), layout=layout)


@pytest.mark.parametrize(
    "spacing",
    [1.0, (1, 1), (1, 1, 1, 1), (1, 0, 1), (1, -1, 1), (1, np.nan, 1), "abc", (1, "1", 1)],
)
def test_a_spacing_that_does_not_fit_is_refused(spacing):
    with pytest.raises(ArgumentError, match=r"spacing is .* pass the side of a pixel") as caught:
        explained(volume(), Dyadic(4), spacing=spacing)
    assert "\n" not in str(caught.value)


def test_a_scan_brings_its_axes_and_its_spacing():
    image = volume((7, 20, 20), grid=(16, 64, 64))
    scan = hshap.images.Scan(image, axes="CZYX", spacing=(5.0, 1.0, 1.0))
    found = explained(scan, Dyadic(8))
    assert found.settings.spacing == (5.0, 1.0, 1.0)
    assert found.settings.axes == "ZYX"
    assert masks(found) == masks(explained(image, Dyadic(8), spacing=(5, 1, 1)))
    film = hshap.images.Scan(image, axes="CTYX", spacing=(1.0, 1.0))
    assert explained(film, Dyadic(8)).settings.spacing is None


# Data arrays of xarray

NAMES = ("z", "y", "x")


@pytest.fixture
def dataarray():
    return pytest.importorskip("xarray").DataArray


@pytest.mark.frameworks
def test_the_dimensions_of_a_data_array_are_its_layout(dataarray):
    image = volume((2, 5, 9))
    plain = explained(image, Bisection(4), layout="CZYX")
    named = dataarray(image.transpose(2, 0, 3, 1), dims=("y", "channel", "x", "z"))
    found = explained(named.transpose("z", "y", "x", "channel"), Bisection(4))
    assert masks(found) == masks(plain) != {}
    assert found.settings["layout"] == "ZYXC"
    assert explained(named, Bisection(4)).grid == (17, 23, 6)
    assert explained(named, Bisection(4), layout="YCXZ->CZYX").grid == GRID
    unnamed = explained(dataarray(image), Bisection(4))
    assert masks(unnamed) == masks(explained(image, Bisection(4)))
    for dims, told in ((("z", "y", "kidney"), "'kidney'"), (("z", "depth", "x"), "stands twice")):
        with pytest.raises(ArgumentError, match=f"{told}.*layout='CZYX'"):
            explained(dataarray(image[0], dims=dims), Dyadic(4))


@pytest.mark.frameworks
def test_even_coordinates_of_a_data_array_are_its_spacing(dataarray):
    image = volume((7, 20, 20), grid=(16, 64, 64))[0]
    coords = {"z": np.arange(16) * 5.0, "y": np.arange(64) * -1.0, "x": np.arange(64) + 100}
    named = dataarray(image, coords=coords, dims=NAMES)
    found = explained(named, Dyadic(8))
    assert found.settings.spacing == (5.0, 1.0, 1.0)
    assert [leaf.shape for leaf in found.leaves] == [(2, 8, 8)]
    assert explained(named, Dyadic(8), spacing=(2, 1, 1)).settings.spacing == (2.0, 1.0, 1.0)


@pytest.mark.frameworks
@pytest.mark.parametrize(
    "coords",
    [
        {"z": np.arange(6) ** 2},
        {"z": np.array([f"slice {i}" for i in range(6)])},
        {"z": np.arange(6), "y": np.arange(17)},
        {
            "z": ("z", np.arange(6) * 0.04, {"units": "s"}),
            "y": ("y", np.arange(17.0), {"units": "mm"}),
            "x": ("x", np.arange(23.0), {"units": "mm"}),
        },
    ],
    ids=["uneven", "names", "not on every axis", "different units"],
)
def test_other_coordinates_are_no_spacing(dataarray, coords):
    named = dataarray(volume()[0], coords=coords, dims=NAMES)
    assert explained(named, Dyadic(4)).settings.spacing is None
