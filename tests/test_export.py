"""Documents, pictures and tables hold the findings, each in its own format's terms.

Shapes are read here by the rules of the formats; test_annotation_tools.py reads them with the
libraries of the formats.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from oracle import marked
from shapes import (
    CASES,
    TOOLS,
    TRUTH,
    area_of,
    explain,
    filled,
    mask_of,
    points,
    rings_of,
    unpacked,
    with_leaf,
)

from hshap import ArgumentError, Bisection, Dyadic, References, Shifted, demo, export
from hshap.errors import MissingExtraError
from hshap.images import Placement
from hshap.protocols import Box


class Column:
    """A region of the user's own make."""

    index = (slice(0, 4), np.array([1, 3]))
    size = area = 8

    def split(self):
        return ()


@pytest.fixture(scope="module", params=CASES)
def found(request):
    return CASES[request.param]()


# Shapes


def test_coco_holds_every_leaf_to_the_pixel(found):
    document = export.coco({"first.png": found, "a/b c.png": found}, category="cross")
    assert document["images"][1] == {
        "id": 2,
        "file_name": "a/b c.png",
        "width": found.grid[1],
        "height": found.grid[0],
    }
    assert [each["name"] for each in document["categories"]] == ["cross"]
    assert len({each["id"] for each in document["annotations"]}) == len(document["annotations"])
    seen = [np.zeros(found.grid, bool) for _ in found.leaves]
    for each in document["annotations"]:
        if each["image_id"] == 2:
            pixels = unpacked(each["segmentation"], found.grid)
            assert pixels.sum() == each["area"]
            rows, columns = np.nonzero(pixels)
            left, top, width, height = each["bbox"]
            assert (columns.min(), columns.max() + 1) == (left, left + width)
            assert (rows.min(), rows.max() + 1) == (top, top + height)
            assert each["score"] == found.coefficients()[pixels][0]
            seen[each["leaf"]] |= pixels
    for pixels, leaf in zip(seen, found.leaves, strict=True):
        assert np.array_equal(pixels, mask_of(leaf, found.grid))


def test_geojson_holds_every_leaf_as_qupath_reads_it(found, tmp_path):
    for detections, kind in ((False, "annotation"), (True, "detection")):
        made = export.geojson(found, name="cross", detections=detections)
        document = json.loads(export.write_json(tmp_path / "x.geojson", made).read_text())
        assert document["type"] == "FeatureCollection"
        assert len({feature["id"] for feature in document["features"]}) == len(found.leaves)
        for feature, leaf in zip(document["features"], found.leaves, strict=True):
            inside = filled(rings_of(feature["geometry"]), found.grid)
            assert np.array_equal(inside, mask_of(leaf, found.grid))
            facts = feature["properties"]
            assert facts["objectType"] == kind
            assert facts["classification"]["name"] == "cross"
            assert all(part in range(256) for part in facts["classification"]["color"])
            told = facts["measurements"]
            assert told["coefficient"] == found.coefficients()[leaf.index].flat[0]
            assert np.isclose(told["attribution"], found.attribution()[leaf.index].sum())
            assert told["pixels"] == leaf.area
            assert "standard error" not in told


masks = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.booleans())


@given(masks.filter(np.any))
@example(np.array([[1, 1, 1], [1, 0, 1], [1, 1, 0]], bool))
@example(np.array([[1, 1, 1, 1], [1, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]], bool))
@example(np.pad(np.pad(np.pad(np.ones((1, 1), bool), 1), 1, constant_values=True), 1))
def test_outlines_hold_exactly_their_pixels(inside):
    label = pytest.importorskip("scipy.ndimage").label
    made = with_leaf(Placement(inside.shape), inside)
    (feature,) = export.geojson(made)["features"]
    geometry = feature["geometry"]
    parts = geometry["coordinates"]
    parts = parts if geometry["type"] == "MultiPolygon" else [parts]
    assert len(parts) == label(inside)[1]
    assert np.array_equal(filled(rings_of(geometry), inside.shape), inside)
    assert sum(area_of(ring) for ring in rings_of(geometry)) == inside.sum()
    for shell, *holes in parts:
        assert area_of(shell) > 0 > max(map(area_of, holes), default=-1)
        for ring in (shell, *holes):  # closed, with corners only where it turns
            assert ring[0] == ring[-1]
            axis = (np.diff([*ring, ring[1]], axis=0) != 0) @ [1, 2]
            assert set(axis) <= {1, 2}
            assert (axis[1:] != axis[:-1]).all()
    (each,) = export.coco({"x": made})["annotations"]
    assert np.array_equal(unpacked(each["segmentation"], inside.shape), inside)


def test_a_box_over_the_border_becomes_pieces():
    found = explain(marked((16, 16), [0]), Shifted(Dyadic(4), offset=(2, 2)))
    (leaf,) = found.leaves
    assert not isinstance(leaf, Box)
    (feature,) = export.geojson(found)["features"]
    assert len(feature["geometry"]["coordinates"]) == 4
    boxes = [each["bbox"] for each in export.coco({"x": found})["annotations"]]
    assert sorted(boxes) == [[0, 0, 2, 2], [0, 14, 2, 2], [14, 0, 2, 2], [14, 14, 2, 2]]


def test_a_region_of_your_own_make_is_outlined():
    (feature,) = export.geojson(with_leaf(Placement((4, 5)), Column()))["features"]
    inside = filled(rings_of(feature["geometry"]), (4, 5))
    assert np.array_equal(inside, mask_of(Column, (4, 5)))


def test_standard_errors_are_told_where_known(rng):
    image, baseline = rng.random((1, 4, 4)), References(rng.random((3, 1, 4, 4)) / 2)
    for partition in (Dyadic(2), Dyadic(9)):
        found = explain(image, partition, lambda batch: batch.mean((1, 2, 3)), baseline)
        assert found.leaves
        for leaf, feature in zip(found.leaves, export.geojson(found)["features"], strict=True):
            error = found.parts[leaf].error
            told = feature["properties"]["measurements"].get("standard error")
            assert told == (error if np.isfinite(error) and error else None)


# Annotation tools, for an image that the model saw at half its size


@pytest.fixture(scope="module")
def halved():
    small = TRUTH[::2, ::2].astype(np.float32)[None]
    found = explain(small, Dyadic(min_size=1), lambda batch: batch.sum(axis=(1, 2, 3)))
    return found.placed(TRUTH.shape)


@pytest.mark.parametrize("tool", TOOLS)
def test_documents_of_tools_cover_the_object(tool, halved):
    name = 'a "<b>&\u0007.png'
    document = getattr(export, tool.replace("-", "_"))({name: halved}, category="<i>")
    told, inside = TOOLS[tool](document, TRUTH.shape)
    assert told == (name.replace("\u0007", " ") if tool == "cvat" else name)  # XML has no bell
    assert np.array_equal(inside, TRUTH)
    assert ("&lt;i&gt;" if tool == "cvat" else "<i>") in f"{document}"


def test_results_have_the_numbers_of_the_data_set():
    """They are entries that `COCO.loadRes` takes, with the numbers of the truth."""
    found = demo.example()
    given = {"b.png": {"ring": found}, "a.png": {"ring": found, "spot": found}}
    truth = {
        "images": [{"id": 41, "file_name": "a.png"}, {"id": 42, "file_name": "b.png"}],
        "categories": [{"id": 5, "name": "spot"}, {"id": 6, "name": "ring"}],
    }
    results = export.coco_results(given, dataset=truth)
    assert [(one["image_id"], one["category_id"]) for one in results] == [(42, 6), (41, 6), (41, 5)]
    assert all({"bbox", "segmentation", "score"} < set(one) for one in results)
    own = export.coco_results(given)
    assert [one["image_id"] for one in own] == [1, 2, 2]
    with pytest.raises(ArgumentError, match=r"dataset has no images named 'c\.png'"):
        export.coco_results({"c.png": found}, dataset=truth)


@pytest.mark.parametrize("what", ["geojson", *TOOLS])
@pytest.mark.parametrize("grid", [(30,), (4, 5, 6)])
def test_formats_for_pictures_refuse_signals_and_volumes(what, grid):
    found = explain(points(grid, 2), Bisection(2))
    given_ = found if what == "geojson" else {"x.png": found}
    with pytest.raises(ArgumentError, match=r"holds pictures, .* use table\(\) or dataarray"):
        getattr(export, what.replace("-", "_"))(given_)


# Pictures and files


def test_a_png_tells_its_values(tmp_path, rng):
    pil = pytest.importorskip("PIL.Image")
    values = rng.random((7, 11)) * 3
    values[0, 0], values[0, 1] = np.nan, -2.0
    for kept in (np.nan_to_num(values).clip(0), np.zeros((7, 11))):
        shown = values if kept.any() else kept
        with pil.open(export.write_png(tmp_path / "x.png", shown)) as read:
            assert (read.mode, read.size) == ("L", (11, 7))
            step = float(read.text["hshap:step"])
            back = np.asarray(read) * step
        assert np.abs(back - kept).max() <= step / 2 + 1e-12
        assert back.max() == kept.max()


def test_a_tiff_keeps_the_values(tmp_path, rng):
    tifffile = pytest.importorskip("tifffile")
    pil = pytest.importorskip("PIL.Image")
    values, volume = rng.normal(size=(7, 11)), rng.normal(size=(3, 7, 11))
    values[2, 3] = np.nan
    path = export.write_tiff(tmp_path / "x.tiff", values)
    for back in (tifffile.imread(path), np.asarray(pil.open(path))):
        assert back.dtype == np.float32
        assert np.array_equal(back, values.astype(np.float32), equal_nan=True)
    with tifffile.TiffFile(export.write_tiff(tmp_path / "v.tiff", volume)) as file:
        assert len(file.pages) == 3
        assert np.array_equal(file.asarray(), volume.astype(np.float32))
    with pytest.raises(ArgumentError, match=r"shape \(3, 7, 11\) .* values\[i\] for a volume"):
        export.write_png(tmp_path / "x.png", volume)


@pytest.mark.parametrize("write", [export.write_png, export.write_tiff])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(5), r"holds a map with two axes, but values is ndarray of shape \(5,\)"),
        (np.zeros((2, 3, 4, 5)), r"shape \(2, 3, 4, 5\) of type float64; .* values\[i\] for a vol"),
        (np.zeros((0, 4)), r"shape \(0, 4\)"),
        (np.array([["a"]]), "of type <U1"),
        (np.array([[np.inf]]), "values has 1 infinite entries; replace them first"),
    ],
)
def test_maps_that_are_no_pictures_are_refused(write, values, message, tmp_path):
    with pytest.raises(ArgumentError, match=message):
        write(tmp_path / "x", values)
    assert not list(tmp_path.iterdir())


def test_an_unfinished_file_leaves_the_old_one(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("old")
    for value in (float("nan"), object()):
        with pytest.raises(ArgumentError, match="document cannot be written as JSON"):
            export.write_json(path, {"x": value})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert json.loads(export.write_json(path, {"x": "é"}).read_text()) == {"x": "é"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (export.coco, "explanations is .*; pass a dictionary of file names"),
        (
            lambda found: export.coco({"x.png": 3}),
            "explanation is 3; pass the result of Explainer.explain",
        ),
        (lambda found: export.coco({}, category=" "), "category must be a name, got ' '"),
        (lambda found: export.geojson(found, name=7), "name must be a name, got 7"),
        (lambda found: export.geojson(found, detections=1), "detections must be True or False"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ArgumentError, match=message):
        call(CASES["boxes"]())


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("pandas", export.table),
        ("xarray", export.dataarray),
        ("shap", lambda found: export.shap_values(found, np.zeros((1, 8, 8)))),
        ("tifffile", lambda found: export.write_tiff("x.tiff", found.saliency())),
    ],
)
def test_a_library_that_is_not_there_is_named(module, call, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"needs {module}: pip install {module}"):
        call(explain(points((8, 8), 1)))
