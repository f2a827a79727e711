"""Everything that leaves the program is in pixels of the original image.

The oracles are exact fractions; test_annotation_tools.py compares with shapely and pycocotools.
"""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import pixels, placements

import hshap
from hshap import ArgumentError
from hshap.images import Placement


def overlaps(place, axis):
    """The share of each grid pixel that lies in each original pixel, as fractions."""
    n, a, b = place.grid[axis], Fraction(place.start[axis]), Fraction(place.stop[axis])
    table = [[Fraction(0)] * n for _ in range(place.shape[axis])]
    for i in range(n):
        low, high = sorted([a + (b - a) * i / n, a + (b - a) * (i + 1) / n])
        for pixel, row in enumerate(table):
            row[i] = max(Fraction(0), min(high, pixel + 1) - max(low, pixel)) / (high - low)
    return np.array(table, dtype=float)


def drawn(place, points):
    """An explanation of an image with bright pixels on a placed grid, with free forms."""
    image = np.zeros((1, *place.grid))
    for point in points:
        image[(0, *point)] = 1.0
    explainer = hshap.Explainer(
        lambda batch: batch.max(axis=(1, 2, 3)),
        baseline=hshap.Constant(0.0),
        partition=hshap.Dyadic(min_size=1),
    )
    return replace(explainer.explain(image, target=0), placement=place)


@given(placements(), st.data())
def test_a_spread_map_shares_pixels_exactly(place, data):
    heat = pixels(data, place, st.integers(-9, 9))
    expected = overlaps(place, 0) @ heat @ overlaps(place, 1).T
    np.testing.assert_allclose(place.spread(heat), expected, atol=1e-9)


@given(placements())
def test_a_resized_map_keeps_its_total_and_its_zeros(place):
    resized = Placement(place.grid, place.shape)
    heat = np.zeros(place.grid)
    heat[0, 0] = 1.0
    made = resized.spread(heat)
    assert made.shape == place.shape
    assert made.sum() == pytest.approx(1.0)
    touched = (ceil(s / n) for s, n in zip(place.shape, place.grid, strict=True))
    assert np.count_nonzero(made) == prod(touched)


@given(placements())
def test_nearest_takes_the_pixel_at_each_centre(place):
    values = np.arange(1, np.prod(place.grid) + 1).reshape(place.grid)
    made = place.nearest(values)
    for pixel in np.ndindex(place.shape):
        seen = [
            (Fraction(2 * p + 1, 2) - Fraction(a)) * n / (Fraction(b) - Fraction(a))
            for p, a, b, n in zip(pixel, place.start, place.stop, place.grid, strict=True)
        ]
        inside = all(0 <= s < n for s, n in zip(seen, place.grid, strict=True))
        assert made[pixel] == (values[tuple(map(floor, seen))] if inside else 0)


@settings(deadline=None, max_examples=60)
@given(placements(), st.data())
def test_boxes_touch_exactly_the_pixels_of_the_findings(place, data):
    point = tuple(data.draw(st.integers(0, n - 1)) for n in place.grid)
    heat = np.zeros(place.grid)
    heat[point] = 1.0
    covered = place.spread(heat) > 1e-12
    found = drawn(place, [point]).boxes()
    if not covered.any():
        assert found == []
        return
    ((start, stop, _),) = found
    rows, columns = np.nonzero(covered)
    assert (start, stop) == ((rows.min(), columns.min()), (rows.max() + 1, columns.max() + 1))
    assert drawn(place, [point]).boxes(original=False)[0].start == point


def test_corners_between_pixels_are_exact():
    place = Placement((224, 224), (6000, 6000))
    assert place.point((224, 0)) == (6000, 0)
    assert place.point((56, 28)) == (1500, 750)
    assert all(isinstance(number, int) for number in place.point((56, 28)))


def test_a_box_is_cut_at_the_grid():
    place, spans = Placement((5, 3)), [(a, b) for a in range(-2, 7) for b in range(-2, 7)]
    for a, b in spans:
        low, high = sorted((min(max(a, 0), 5), min(max(b, 0), 5)))
        expected = None if low == high else ((low, 1), (high, 3))
        for kind in (int, np.int64):
            assert place.pixels((kind(a), kind(1)), (kind(b), kind(3))) == expected


def test_without_a_placement_nothing_changes():
    found = hshap.demo.example()
    assert found.placement == Placement((8, 8))
    assert found.placement.is_identity
    assert hshap.export.coco({"a": found})["annotations"][0]["bbox"] == [5, 2, 1, 1]


def test_an_explanation_is_placed_by_shape_start_and_stop():
    found = hshap.demo.example()
    assert found.placed([16, 24]).placement == Placement((8, 8), (16, 24))
    crop = found.placed((100, 100), start=(10, 20), stop=(18, 36))
    assert crop.boxes() == [hshap.Finding((12, 30), (13, 32), 1.0)]
    assert crop.at(min_size=2).placement is crop.placement
    assert found.placement.is_identity


def test_a_file_keeps_the_placement(tmp_path):
    longest = Placement((8, 8), (2**32, 2**25))
    for place in (Placement((8, 8), (16, 24), (1, 2.5), (-3, 20)), longest):
        replace(hshap.demo.example(), placement=place).save(tmp_path / "a.npz")
        assert hshap.Explanation.load(tmp_path / "a.npz").placement == place
    with pytest.raises(ArgumentError, match="4294967296 pixels"):
        Placement((8, 8), (2**32 + 1, 8))


@pytest.mark.parametrize(
    "placement",
    [
        {},
        [8, 8],
        {"shape": [8, 8], "start": [0, 0]},
        {"shape": [8, 8, 8], "start": [0, 0, 0], "stop": [8, 8, 8]},
        {"shape": 8, "start": [0, 0], "stop": [8, 8]},
        {"shape": [8, 0], "start": [0, 0], "stop": [8, 8]},
        {"shape": [8, 2.5], "start": [0, 0], "stop": [8, 8]},
        {"shape": [2**40, 2**40], "start": [0, 0], "stop": [8, 8]},
        {"shape": [8, 8], "start": [0, 0], "stop": [8, 0]},
        {"shape": [8, 8], "start": [0, 0], "stop": [8, 1e300]},
        {"shape": [8, 8], "start": [0, 0], "stop": [8, float("nan")]},
        {"shape": [8, 8], "start": [0, 0], "stop": [8, "8"]},
        {"shape": [8, 8], "start": [0, 0], "stop": [8, True]},
        {"shape": [8, 8], "start": [9, 0], "stop": [20, 8]},
    ],
)
def test_a_damaged_placement_is_refused(tmp_path, placement):
    path = tmp_path / "a.npz"
    hshap.demo.example().save(path)
    with np.load(path) as held:
        arrays = dict(held)
    header = json.loads(arrays["header"].tobytes())
    header["placement"] = placement
    text = json.dumps(header).encode()
    np.savez(path, **{**arrays, "header": np.frombuffer(text, np.uint8)})
    with pytest.raises(hshap.FormatError, match="damaged"):
        hshap.Explanation.load(path)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"shape": (9,)}, r"shape=\(9,\) has 1 entries, but grid=\(8, 8\) has 2"),
        ({"shape": (9, 0)}, "shape must be at least 1, got 0"),
        ({"start": (0, 8)}, "agree on an axis"),
        ({"start": (0, np.inf)}, "start must have one position for each axis"),
        ({"start": ("a", 0)}, "start must have one position for each axis"),
        ({"start": (0, 20), "stop": (8, 30)}, "lies beside an image of shape"),
    ],
)
def test_a_wrong_placement_names_the_argument(options, match):
    with pytest.raises(hshap.ArgumentError, match=match):
        Placement((8, 8), **options)


def test_a_placement_of_another_grid_is_refused():
    with pytest.raises(hshap.ArgumentError, match=r"not one of the grid \(8, 8\)"):
        replace(hshap.demo.example(), placement=Placement((4, 4)))
    with pytest.raises(hshap.ArgumentError, match=r"values has shape \(3, 3\)"):
        Placement((4, 4)).nearest(np.zeros((3, 3)))
