"""Other libraries read what hshap exports: the findings at their place, to the pixel.

test_format_table.py reads the documents of annotation tools with the tools' own libraries.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tool_readers
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import any_marked, marked
from shapes import (
    CASES,
    explain,
    mask_of,
    pixels,
    placements,
    points,
    with_leaf,
)

import hshap
from hshap import ArgumentError, Bisection, Constant, Dyadic, Explainer, export
from hshap.images import Placement

pytestmark = [
    pytest.mark.frameworks,
    # pycocotools speaks to NumPy as it was before 2.0.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


@pytest.fixture(scope="module", params=CASES)
def found(request):
    return CASES[request.param]()


def test_napari_takes_every_layer_at_its_place(tmp_path):
    if tool_readers.reader_of("napari") is None:
        pytest.skip("napari is in no environment of HSHAP_READERS")
    image = np.zeros((1, 8, 16, 16), np.float32)
    image[0, 2:4, 4:8, 6:10] = 1.0
    scan = hshap.images.Scan(image, axes="CZYX", spacing=(2.0, 0.5, 0.5))
    seen = explain(image, Bisection(min_size=1), lambda batch: batch.sum(axis=(1, 2, 3, 4)))
    layers = export.napari_layers(seen, scan)
    arrays = {f"a{n}": np.asarray(data) for n, (data, _, _) in enumerate(layers)}
    listed = [
        {"data": f"a{n}", "options": options, "kind": kind}
        for n, (_, options, kind) in enumerate(layers)
    ]
    path = tmp_path / "layers.npz"
    np.savez(path, layers=json.dumps(listed), **arrays)
    told = tool_readers.read_by("napari", path)["layers"]
    kinds = [told[name][0] for name in ("image", "findings", "boxes")]
    assert kinds == ["Image", "Labels", "Shapes"]
    low, high = told["boxes"][1:]
    np.testing.assert_allclose(low[1:], (1.75, 2.75), atol=0.3)
    np.testing.assert_allclose(high[1:], (3.75, 4.75), atol=0.3)


# COCO and GeoJSON


def read_coco(tmp_path, document):
    coco = pytest.importorskip("pycocotools.coco")
    return coco.COCO(str(export.write_json(tmp_path / "coco.json", document)))


def test_pycocotools_reads_and_scores_all_images(tmp_path, capsys):
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    several = {name: make() for name, make in CASES.items()}
    document = export.coco(several)
    read = read_coco(tmp_path, document)
    assert [each["file_name"] for each in read.loadImgs(read.getImgIds())] == list(several)
    for number, one in enumerate(several.values(), start=1):
        seen = [np.zeros(one.grid, bool) for _ in one.leaves]
        for each in read.loadAnns(read.getAnnIds(imgIds=[number])):
            seen[each["leaf"]] |= read.annToMask(each).astype(bool)
        for inside, leaf in zip(seen, one.leaves, strict=True):
            assert np.array_equal(inside, mask_of(leaf, one.grid))
    scored = cocoeval.COCOeval(read, read.loadRes(export.coco_results(several)), "segm")
    scored.evaluate()
    scored.accumulate()
    scored.summarize()
    assert scored.stats[0] == 1.0
    empty = read_coco(tmp_path, export.coco({}))
    assert (empty.getImgIds(), empty.getAnnIds(), empty.getCatIds()) == ([], [], [1])


def test_shapely_reads_every_feature_to_the_pixel(found):
    shapely = pytest.importorskip("shapely")
    rows, columns = np.mgrid[: found.grid[0], : found.grid[1]] + 0.5
    for feature, leaf in zip(export.geojson(found)["features"], found.leaves, strict=True):
        shape = shapely.geometry.shape(feature["geometry"])
        assert shape.is_valid
        assert shape.area == leaf.area
        assert np.array_equal(shapely.contains_xy(shape, columns, rows), mask_of(leaf, found.grid))


def true_shape(place, mask):
    """The pixels of a mask, each as a rectangle, moved by an affine map and cut at the border."""
    from shapely import affinity, ops
    from shapely.geometry import box

    cells = ops.unary_union([box(x, y, x + 1, y + 1) for y, x in np.argwhere(mask)])
    (a, c), (b, d), (n, m) = place.start, place.stop, place.grid
    moved = affinity.affine_transform(cells, [(d - c) / m, 0, 0, (b - a) / n, c, a])
    cut = moved.intersection(box(0, 0, place.shape[1], place.shape[0]))
    return cut.buffer(0)  # without the lines where it only touches the border


@settings(deadline=None, max_examples=100)
@given(placements(), st.data())
def test_placed_findings_are_the_affine_image_of_the_leaf(place, data):
    from pycocotools import mask as coco_mask
    from shapely.geometry import shape

    mask = pixels(data, place, st.booleans())
    mask.flat[0] = True
    expected, leaf = true_shape(place, mask), with_leaf(place, mask)
    features = export.geojson(leaf)["features"]
    document = export.coco({"a.png": leaf})
    size = document["images"][0]["height"], document["images"][0]["width"]
    assert size == place.shape
    if expected.area < 1e-9:
        assert (features, document["annotations"]) == ([], [])
        return
    (feature,), (each,) = features, document["annotations"]
    found = shape(feature["geometry"])
    assert found.is_valid
    assert found.symmetric_difference(expected).area < 1e-9
    assert feature["properties"]["measurements"]["pixels"] == pytest.approx(expected.area)
    left, top, right, bottom = expected.bounds
    assert each["bbox"] == pytest.approx([left, top, right - left, bottom - top])
    if isinstance(each["segmentation"], dict):
        runs = coco_mask.frPyObjects(each["segmentation"], *place.shape)
        np.testing.assert_array_equal(coco_mask.decode(runs), place.nearest(mask.astype(int)))
        assert coco_mask.area(runs) == each["area"]
    else:
        assert each["area"] == pytest.approx(expected.area)


# Tables and arrays


def test_a_table_is_the_tree(found):
    rows = export.table(found)
    assert rows["size"].tolist() == [leaf.area for leaf in found.leaves]
    assert rows["leaf"].all()
    total = found.score - found.baseline_score - found.residual
    assert np.isclose(rows["attribution"].sum(), total)
    kinds = ("int64", "int64", "bool", "int64", *["float64"] * 3, *["int64"] * 4)
    assert rows.dtypes.astype(str).tolist() == list(kinds)
    rows = export.table(found, every=True)
    assert rows["leaf"].sum() == len(found.leaves)
    assert rows.index.tolist() == list(range(len(rows)))
    assert rows["parent"].tolist()[0] == -1
    inner = rows.iloc[1:]
    assert (rows.loc[inner["parent"], "depth"].to_numpy() + 1 == inner["depth"].to_numpy()).all()
    sizes = inner.groupby("parent")["size"].sum()
    assert (rows.loc[sizes.index, "size"] == sizes).all()
    if len(rows) > 1:
        coefficients = [phi for game in found.games for phi in game.coefficients]
        assert inner["coefficient"].tolist() == coefficients


@pytest.mark.parametrize("grid", [(30,), (5, 6), (4, 5, 6), (2, 3, 2, 3)])
def test_tables_and_arrays_take_any_number_of_axes(grid):
    found = explain(points(grid, 2), Bisection(1))
    rows, array = export.table(found), export.dataarray(found)
    names = {1: "x", 2: "yx", 3: "zyx"}.get(len(grid), [f"axis_{i}" for i in range(len(grid))])
    assert array.dims == tuple(names)
    assert np.array_equal(array, found.coefficients())
    assert np.array_equal(export.dataarray(found, heat=found.saliency()), found.saliency())
    assert array.attrs["score"] == found.score
    assert json.loads(array.attrs["settings"]) == json.loads(json.dumps(dict(found.settings)))
    for (_, row), leaf in zip(rows.iterrows(), found.leaves, strict=True):
        assert tuple(row[f"{name}_start"] for name in names) == leaf.start
        assert tuple(row[f"{name}_stop"] for name in names) == leaf.stop
        assert row["coefficient"] == float(array.isel(dict(zip(names, leaf.start, strict=True))))


def test_tables_and_arrays_are_in_pixels_of_the_original():
    found = hshap.demo.example()  # its finding is pixel (2, 5) of 8 x 8
    columns = ["size", "y_start", "y_stop", "x_start", "x_stop"]
    placed = replace(found, placement=Placement((8, 8), (16, 24)))
    assert export.table(placed)[columns].to_numpy().tolist() == [[6, 4, 6, 15, 18]]
    array = export.dataarray(placed)
    assert array["y"].to_numpy().tolist() == [0.5 + 2 * i for i in range(8)]
    assert array["x"].to_numpy().tolist() == [1 + 3 * i for i in range(8)]
    # Regions in padding are told as far as they lie in the image.
    padded = replace(found, placement=Placement((8, 8), (8, 8), (-5, -5), (11, 11)))
    assert export.table(padded)[columns].to_numpy().tolist() == [[2, 0, 1, 5, 7]]
    every = export.table(padded, every=True)
    assert every[columns[1:]].to_numpy().min() >= 0
    assert every[columns[1:]].to_numpy().max() <= 8
    height, width = (every[f"{axis}_stop"] - every[f"{axis}_start"] for axis in "yx")
    np.testing.assert_allclose(height * width, every["size"])  # all regions are boxes here
    beside = replace(found, placement=Placement((8, 8), (8, 8), (-20, 0), (12, 8)))
    assert export.table(beside)[columns].to_numpy().tolist() == [[0, 0, 0, 5, 6]]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("channels", [1, 3])
def test_shap_plots_our_values(channels, rng, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    shap = pytest.importorskip("shap")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    image = np.full((channels, 20, 20), 0.5)
    image[0, 4, 5] = 1.0
    found = explain(image, model=lambda batch: batch[:, 0].max((1, 2)), baseline=Constant(0.5))
    values = export.shap_values(found, image)
    assert values.shape == (1, 20, 20, channels, 1)
    total = values.values.sum() + values.base_values.sum()
    assert np.isclose(total, found.score - found.residual)
    assert np.array_equal(np.moveaxis(values.data[0], -1, 0), image)
    try:
        shap.plots.image(values, show=False)
        shown = np.asarray(pyplot.gcf().axes[1].get_images()[1].get_array())
        assert np.allclose(shown, found.attribution())
    finally:
        pyplot.close("all")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda found: export.table(found, every="all"), "every must be True or False, got 'all'"),
        (lambda found: export.table([found]), r"explanation is \[<Explanation"),
        (
            lambda found: export.dataarray(found, heat=np.zeros((3, 3))),
            r"heat has shape \(3, 3\); pass a map of shape",
        ),
        (
            lambda found: export.shap_values(found, np.zeros((1, 3, 3))),
            r"image has shape \(1, 3, 3\), but the explanation has",
        ),
    ],
)
def test_mistakes_are_named(call, message):
    explainer = Explainer(any_marked, Constant(0.0), Dyadic(2))
    with pytest.raises(ArgumentError, match=message):
        call(explainer.explain(marked((8, 8), [3]), 0))
